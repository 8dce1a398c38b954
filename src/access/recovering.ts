/** What a process does first with runs that another left behind (RP-61, R-17). */
import { type AccessContext, needEngine, needStore } from "./context.ts";

/** Trees claimed at a time: bounds what is in memory at once. */
const BATCH = 64;

/** Claims interrupted and due trees, marks what was open, continues what is safe. Answers the roots it claimed. */
export async function recoverRuns(context: AccessContext): Promise<readonly string[]> {
  const engine = needEngine(context);
  const claimed: string[] = [];
  await engine.ready();
  for (;;) {
    const claims = await needStore(context).claimDue({
      owner: engine.owner,
      leaseMs: engine.limits.lease_ms,
      graceMs: engine.limits.lease_ms / 6,
      limit: BATCH,
    });
    if (claims.length === 0) return claimed;
    for (const claim of claims) {
      claimed.push(claim.root_run_id);
      const tree = await engine.adopt(claim);
      await engine.go(tree, "auto");
    }
  }
}
