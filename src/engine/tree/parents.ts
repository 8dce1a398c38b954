/**
 * A run and the run that started it: a child that waits makes its parent's step wait for it, and a child that
 * goes on takes its ancestors with it.
 */
import { haltedSteps, isPaused } from "../../domain/questions.ts";
import type { ActiveRun, Job } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { suspendStep } from "./waiting.ts";

/** The job of the parent's step that a run is the child of, while the parent's program is in memory. */
export function parentJob(tree: TreeExecutor, run: ActiveRun): Job | undefined {
  const { parent_run_id, parent_step_id } = tree.journal.run(run.runId).header;
  if (parent_run_id === undefined || parent_step_id === undefined) return undefined;
  return tree.runs.get(parent_run_id)?.jobs.get(parent_step_id);
}

/** A child that waits makes its parent's step wait for it. */
export function parentWaits(tree: TreeExecutor, run: ActiveRun, reason: string): void {
  const job = parentJob(tree, run);
  if (job === undefined || job.stage !== "running") return;
  suspendStep(tree, job, "child", { type: "child", child_run_id: run.runId, reason });
}

/**
 * Brings a suspended run back to `running`, and its ancestors with it. What an interruption had stopped besides
 * goes on too, but for `except`, whose caller sees to it. A pause holds: it ends only by being resumed (GD-62).
 */
export function wake(tree: TreeExecutor, run: ActiveRun, except?: Job): void {
  const state = tree.state(run.runId);
  if (isPaused(state)) return;
  if (state.status === "suspended") {
    const halted = haltedSteps(state);
    tree.append(run.runId, [{ type: "run_started" }]);
    tree.armWallTimer(run);
    const granted = state.waits.filter((wait) => wait.granted !== undefined).map((wait) => wait.step_id ?? "");
    for (const id of new Set([...halted.map((step) => step.id), ...granted])) {
      const job = run.jobs.get(id);
      if (job !== undefined && job !== except) job.done = tree.background(tree.dispatch.goOn(job));
    }
  }
  const job = parentJob(tree, run);
  if (job === undefined) return;
  wake(tree, job.run);
  const step = tree.state(job.run.runId).steps.get(job.instance);
  if (step?.status !== "suspended") return;
  job.stage = "running";
  const { attempts: attempt, input_hash } = step;
  tree.append(job.run.runId, [
    { type: "step_started", step_id: job.instance, attempt, side_effect: "idempotent", input_hash },
  ]);
}
