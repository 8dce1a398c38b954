/** What a run that is running waits for within its process: said to whoever asks why it does not move (DESIGN §6). */
import type { TreeExecutor } from "./executor.ts";

export interface Standing {
  /** Instances that wait for a concurrency slot. */
  readonly waiting_for_permit: readonly string[];
  /** Agent steps that wait for tokens or money which other calls hold. */
  readonly waiting_for_room: readonly string[];
  /** Instances that wait for resources which other attempts hold (GD-53). */
  readonly waiting_for_lease?: readonly string[];
  /** Instances whose tool's owner takes nothing now (GD-14). */
  readonly waiting_for_owner?: readonly string[];
  /** When the next delayed retry goes. */
  readonly retry_due_at_ms?: number;
}

/** Reads, and changes nothing; of one run of the tree. */
export function standing(tree: TreeExecutor, runId: string): Standing {
  const run = tree.runs.get(runId);
  const due = [...(run?.delays.values() ?? [])].map((delay) => delay.dueAtMs);
  const of = (jobs: Iterable<{ readonly run: { readonly runId: string }; readonly instance: string }>): string[] =>
    [...jobs].flatMap((job) => (job.run.runId === runId ? [job.instance] : [])).sort();
  const { waiting } = tree.dispatch.admission;
  const lease = of(waiting.flatMap(({ job, why }) => (why.on === "lease" ? [job] : [])));
  const owner = of(waiting.flatMap(({ job, why }) => (why.on === "owner" ? [job] : [])));
  return {
    ...(lease.length === 0 ? {} : { waiting_for_lease: lease }),
    ...(owner.length === 0 ? {} : { waiting_for_owner: owner }),
    waiting_for_permit: of(tree.permits.waiting),
    waiting_for_room: of(tree.dispatch.agents.waiting),
    ...(due.length === 0 ? {} : { retry_due_at_ms: Math.min(...due) }),
  };
}
