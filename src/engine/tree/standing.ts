/** What a run that is running waits for within its process: said to whoever asks why it does not move (DESIGN §6). */
import type { TreeExecutor } from "./executor.ts";

export interface Standing {
  /** Instances that wait for a concurrency slot. */
  readonly waiting_for_permit: readonly string[];
  /** Agent steps that wait for tokens or money which other calls hold. */
  readonly waiting_for_room: readonly string[];
  /** When the next delayed retry goes. */
  readonly retry_due_at_ms?: number;
}

/** Reads, and changes nothing; of one run of the tree. */
export function standing(tree: TreeExecutor, runId: string): Standing {
  const run = tree.runs.get(runId);
  const due = [...(run?.delays.values() ?? [])].map((delay) => delay.dueAtMs);
  const of = (jobs: Iterable<{ readonly run: { readonly runId: string }; readonly instance: string }>): string[] =>
    [...jobs].flatMap((job) => (job.run.runId === runId ? [job.instance] : [])).sort();
  return {
    waiting_for_permit: of(tree.permits.waiting),
    waiting_for_room: of(tree.dispatch.agents.waiting),
    ...(due.length === 0 ? {} : { retry_due_at_ms: Math.min(...due) }),
  };
}
