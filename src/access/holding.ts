/** Who drives a run tree now, as far as this process and the store can tell. */
import type { WhyExtra } from "../domain/projections/index.ts";
import { type AccessContext, needEngine, needStore } from "./context.ts";

export type Holder = Pick<WhyExtra, "holder" | "lease_expires_at_ms" | "recoveries">;

export async function holderOf(context: AccessContext, rootRunId: string): Promise<Holder> {
  const store = needStore(context);
  const tree = await store.getTree(rootRunId);
  const recoveries = tree === undefined ? {} : { recoveries: tree.recoveries };
  if (needEngine(context).holds(rootRunId) !== undefined) return { holder: "here", ...recoveries };
  const { owner, lease_expires_at_ms } = tree ?? {};
  const lasts = owner !== undefined && lease_expires_at_ms !== undefined && lease_expires_at_ms > context.clock.now();
  // its host lock proves a process dead long before its lease runs out, and then nobody has to wait for that.
  if (!lasts || (await store.isGone?.(owner)) === true) return { holder: "none", ...recoveries };
  return { holder: "other", lease_expires_at_ms, ...recoveries };
}
