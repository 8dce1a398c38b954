/**
 * `on_exhausted: suspend` (DESIGN §6): what found a limit used up is not refused but waits for a raised one, and the
 * run stands still once nothing else of it goes on.
 */
import type { Failure } from "../../domain/run.ts";
import type { ActiveRun } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { newWait } from "./waiting.ts";

/** `again` asks once more, after a limit was raised. False when the run fails on a used-up limit. */
export function starve(
  tree: TreeExecutor,
  run: ActiveRun,
  reason: Failure,
  again: () => void,
  instance?: string,
): boolean {
  if (tree.ledger.limits.on_exhausted !== "suspend") return false;
  run.starved.push({ failure: reason, again, ...(instance === undefined ? {} : { instance }) });
  run.host.nudge();
  return true;
}

/** A limit was raised: what waited for it asks again. */
export function feed(tree: TreeExecutor): void {
  for (const run of tree.runs.values()) for (const { again } of run.starved.splice(0)) tree.guard(again);
}

/** The steps of a run that are queued and wait for a raised limit. */
export function starvedSteps(run: ActiveRun): string[] {
  return run.starved.flatMap(({ instance }) => (instance === undefined ? [] : [instance]));
}

/** The run stands still on its used-up limit, and says which. */
export function suspendStarved(tree: TreeExecutor, run: ActiveRun, message: string): void {
  for (const step_id of starvedSteps(run).sort())
    tree.append(run.runId, [{ type: "step_suspended", step_id, reason: message }]);
  const wait = newWait(tree, run.runId, { type: "budget", reason: message });
  tree.append(run.runId, [{ type: "run_suspended", reason: "budget", wait }]);
}
