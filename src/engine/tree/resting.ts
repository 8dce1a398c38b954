/**
 * When a run stands still, and when a whole tree does: nothing of it goes on by itself, so it is suspended on what it
 * waits for and in the end let go of.
 */
import { failure, isTerminal } from "../../domain/run.ts";
import type { ActiveRun } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { parentWaits } from "./parents.ts";
import { starvedSteps, suspendStarved } from "./starving.ts";

/** Suspends a run whose program waits and whose open work is all of it waiting for the outside. */
export function standStill(tree: TreeExecutor, run: ActiveRun): void {
  const state = tree.state(run.runId);
  const stuck = state.active === starvedSteps(run).length && run.delays.size === 0 && !isCancelling(run);
  if (!stuck || state.status !== "running") return;
  // Asked for and not written yet, or granted and not started yet: it is about to go on.
  for (const job of run.jobs.values()) if (job.stage !== "waiting") return;
  const wait = state.waits[0];
  const [starved] = run.starved;
  if (starved !== undefined) suspendStarved(tree, run, starved.failure.message);
  else if (wait !== undefined) tree.append(run.runId, [{ type: "run_suspended", reason: wait.type }]);
  else {
    // Nothing queued, running or waited for, and the program has not ended: it waits for nothing we know.
    if (run.host.openRequests().length > 0) return;
    const reason = failure("execution_failed", "the program waits for nothing that can happen");
    return tree.finish(run, { type: "failed", failure: reason });
  }
  run.wallTimer?.cancel();
  parentWaits(tree, run, wait?.type ?? "budget");
  tree.settleDown();
}

/** Whether every run of a tree has ended, or all that have not wait for the outside; undefined while one goes on. */
export function restOf(tree: TreeExecutor): "ended" | "waiting" | undefined {
  let rest: "ended" | "waiting" = "ended";
  for (const { state, header } of tree.journal.runs.values()) {
    if (isTerminal(state.status)) continue;
    rest = "waiting";
    if (state.status !== "suspended") return undefined;
    const active = tree.runs.get(header.run_id);
    if (active !== undefined && isBusy(tree, active)) return undefined;
  }
  return rest;
}

function isBusy(tree: TreeExecutor, run: ActiveRun): boolean {
  const stopping = run.stopping !== undefined && !run.stopped && !tree.paused;
  return stopping || run.host.busy || isCancelling(run) || isDue(run, tree.now());
}

function isCancelling(run: ActiveRun): boolean {
  for (const group of run.cancels.values()) if (!group.waiting) return true;
  return false;
}

/** A timer of it is about to fire: letting the tree go now would only mean claiming it again. */
function isDue(run: ActiveRun, now: number): boolean {
  // A run that is stopped or paused hears no timer: it would never be let go of.
  if (run.stopping !== undefined) return false;
  for (const job of run.jobs.values())
    if (job.dueAtMs !== undefined && job.dueAtMs <= now && job.timers.length > 0) return true;
  return false;
}
