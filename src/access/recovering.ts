/** What a process does first with runs that another left behind (RP-61, R-17). */
import { type AccessContext, needEngine } from "./context.ts";

/** Trees claimed at a time: bounds what one transaction holds. */
const BATCH = 64;

/**
 * Claims interrupted and due trees, marks what was open, and continues what is safe. It waits for no run: answers
 * the roots it claimed once each is marked and either going or standing still.
 */
export async function recoverRuns(context: AccessContext): Promise<readonly string[]> {
  const engine = needEngine(context);
  const roots: string[] = [];
  const work: Promise<void>[] = [];
  for (;;) {
    const claimed = await engine.claimDue(BATCH, (claim, loading) => {
      roots.push(claim.root_run_id);
      work.push(
        loading.then(
          (tree) => engine.go(tree, "auto"),
          (error: unknown) =>
            engine.options.log?.("error", "run cannot be recovered", { root_run_id: claim.root_run_id, error }),
        ),
      );
    });
    if (claimed < BATCH) break;
  }
  await Promise.all(work);
  await engine.writer.idle();
  return roots;
}
