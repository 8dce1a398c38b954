/** What is asked of a run's state again and again; pure, and nothing of it is stored. */
import type { StepStatus, Wait } from "./run.ts";
import type { RunState, StepState } from "./state.ts";

/** When the run's time is up on the wall clock, were it not suspended from now on. */
export function deadlineMs(run: RunState): number {
  return run.header.created_at_ms + run.budget.wall_time_ms + run.suspended_ms;
}

/** The oldest wait: what a suspended run is suspended on. */
export function suspensionOf(run: RunState): Wait | undefined {
  return run.status === "suspended" ? run.waits[0] : undefined;
}

/** Only a person's word goes on with the run; what is decided meanwhile is written where it stands (GD-62). */
export function isPaused(run: RunState): boolean {
  return run.stopping === undefined && run.waits.some((wait) => wait.type === "paused");
}

/** Whether a used-up limit of the tree, whose root this is, has been raised since a run of it came to wait for that. */
export function isRaised(root: RunState, wait: Wait): boolean {
  return wait.type === "budget" && (root.raised_at_ms ?? Number.NEGATIVE_INFINITY) >= wait.since_ms;
}

/** Instances that are neither settled nor unknown to the run, in id order (RP-50, RP-51, RP-53). */
export function openSteps(run: RunState, statuses: readonly StepStatus[]): StepState[] {
  const open: StepState[] = [];
  for (const step of run.steps.values()) if (statuses.includes(step.status)) open.push(step);
  return open.sort((a, b) => (a.id < b.id ? -1 : 1));
}

/** Steps that an interruption or a pause had stopped, and that go on with the run. */
export function haltedSteps(run: RunState): StepState[] {
  return openSteps(run, ["suspended"]).filter((step) => step.was !== undefined);
}
