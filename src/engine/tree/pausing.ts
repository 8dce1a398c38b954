/**
 * A pause (R-36, GD-62): nothing new is dispatched, what runs may settle for the grace, and the tree is left
 * suspended where it stands, as a crash would leave it — but on purpose, and saying so.
 */
import type { EventBody } from "../../domain/events.ts";
import type { JsonObject } from "../../domain/json.ts";
import { openSteps } from "../../domain/questions.ts";
import { isTerminal } from "../../domain/run.ts";
import { canBeAsked, neverHandedOff } from "../dispatch/owners.ts";
import { atMost } from "../timing.ts";
import type { Job } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { newWait, repairWaitFor } from "./waiting.ts";

/** Nothing new of the tree is dispatched; resolves when the calls that are `worth` it have settled, or after the grace. */
export async function quiesce(tree: TreeExecutor, worth: (job: Job) => boolean): Promise<void> {
  tree.paused = true;
  for (const run of tree.runs.values()) {
    run.host.pause();
    run.wallTimer?.cancel();
    for (const timer of run.delays.values()) timer.cancel();
    run.delays.clear();
  }
  tree.permits.sweep();
  tree.dispatch.admission.sweep();
  const running = [...tree.runs.values()].flatMap((run) =>
    [...run.jobs.values()].filter((job) => job.stage === "running" && job.request.kind === "step" && !job.ended),
  );
  const awaited = running.filter(worth);
  if (awaited.length === 0) return;
  const all = Promise.all(awaited.map((job) => job.done));
  await atMost(tree.ports.clock, tree.services.limits.stop_grace_ms, all);
}

export async function pauseTree(tree: TreeExecutor, payload: JsonObject): Promise<void> {
  if (tree.paused) return;
  await quiesce(tree, () => true);
  if (tree.closed || tree.journal.poisoned !== undefined) return;
  const by = typeof payload.decided_by === "string" ? payload.decided_by : "unknown";
  const why = typeof payload.reason === "string" ? payload.reason : `paused by ${by}`;
  for (const { header } of [...tree.journal.runs.values()].reverse()) pauseRun(tree, header.run_id, why);
  for (const run of tree.runs.values()) {
    run.stopping = "paused";
    for (const job of run.jobs.values()) {
      job.stop ??= "paused";
      if (job.ended) continue;
      // What it answers from here on is evidence for whoever repairs it.
      if (job.stage === "running") job.givenUp = true;
      job.abort.abort(new Error("the run is paused"));
    }
  }
  tree.settleDown();
}

function pauseRun(tree: TreeExecutor, runId: string, why: string): void {
  const state = tree.state(runId);
  if (isTerminal(state.status) || state.waits.some((wait) => wait.type === "paused")) return;
  const events: EventBody[] = [];
  const waitId = (): string => `w-${state.last_sequence + events.length + 1}`;
  for (const step of openSteps(state, ["queued", "running"])) {
    const job = tree.runs.get(runId)?.jobs.get(step.id);
    const lost =
      step.status === "running" &&
      step.side_effect === "mutating" &&
      step.child_run_id === undefined &&
      job?.ended !== true &&
      !neverHandedOff(step) &&
      // Whoever can be asked is asked when the run goes on, as after a crash.
      !canBeAsked(step.tool === undefined ? undefined : tree.ports.tools.describe(step.tool), step);
    const wait = lost
      ? {
          ...newWait(
            tree,
            runId,
            repairWaitFor(tree, runId, step.id, step.tool ?? step.id, "it had not ended when the run was paused"),
            step.id,
          ),
          wait_id: waitId(),
        }
      : undefined;
    events.push({ type: "step_suspended", step_id: step.id, reason: why, ...(wait === undefined ? {} : { wait }) });
  }
  events.push({
    type: "run_suspended",
    reason: why,
    wait: { ...newWait(tree, runId, { type: "paused", reason: why }), wait_id: waitId() },
  });
  tree.append(runId, events);
}
