/**
 * What others ask of the holder of a tree: each signal is answered by the events it leads to, and deleted in
 * the same transaction. A signal that no longer fits is deleted without an event; whoever sent it looks at the run
 * and sees why.
 */
import type { Json, JsonObject } from "../../domain/json.ts";
import { compileSchema, type Schema } from "../../domain/plan/index.ts";
import { isPaused } from "../../domain/questions.ts";
import { BUDGET_FIELDS, type Budgets, type Decision, failure, isTerminal, type Wait } from "../../domain/run.ts";
import type { Signal } from "../../ports/index.ts";
import { checkOutput } from "../dispatch/output.ts";
import type { ActiveRun, Job } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { wake } from "./parents.ts";
import { pauseTree } from "./pausing.ts";
import { feed } from "./starving.ts";
import { finishCancel, stopOf, stopRun } from "./stopping.ts";
import { closeWait, jobOfWait } from "./waiting.ts";

/** Does what the signal asks; resolves when its events are appended. */
export async function applySignal(tree: TreeExecutor, signal: Signal): Promise<void> {
  const run = tree.journal.runs.get(signal.run_id);
  const payload = signal.payload as JsonObject;
  if (run !== undefined && !isTerminal(run.state.status)) {
    if (signal.kind === "cancel") await cancel(tree, signal, payload);
    else if (signal.kind === "pause") await pauseTree(tree, payload);
    else if (signal.kind === "budget") raiseBudget(tree, signal.run_id, payload);
    else decide(tree, signal, payload);
  }
  if (!tree.closed && tree.journal.poisoned === undefined) tree.journal.signalDone(signal.signal_id);
}

/**
 * The other signals are applied to the journal alone. Cancelling only a child lets its parent go on, unless
 * recovery or a pause has stopped the parent: then it hears of it when it is continued.
 */
export function needsPrograms(tree: TreeExecutor, signal: Signal): boolean {
  if (signal.kind === "cancel") {
    const parent = tree.journal.runs.get(signal.run_id)?.header.parent_run_id;
    return parent !== undefined && tree.state(parent).waits.every((wait) => wait.step_id !== undefined);
  }
  return signal.kind === "approve" || signal.kind === "deny" || signal.kind === "answer" || signal.kind === "repair";
}

function text(payload: JsonObject, key: string): string | undefined {
  const value = payload[key];
  return typeof value === "string" ? value : undefined;
}

async function cancel(tree: TreeExecutor, signal: Signal, payload: JsonObject): Promise<void> {
  const reason = text(payload, "reason");
  const decided_by = text(payload, "decided_by");
  await stopRun(tree, signal.run_id, {
    reason: "cancelled",
    requested_at_ms: signal.created_at_ms,
    ...(reason === undefined ? {} : { text: reason }),
    ...(decided_by === undefined ? {} : { decided_by }),
  });
}

function raiseBudget(tree: TreeExecutor, runId: string, payload: JsonObject): void {
  const now = tree.state(runId).budget;
  const wanted = payload.budget as Partial<Budgets>;
  const raised: Record<string, Json> = {};
  for (const field of BUDGET_FIELDS) {
    const value = wanted[field];
    if (value !== undefined && value > (now[field] ?? Number.POSITIVE_INFINITY)) raised[field] = value;
  }
  if (Object.keys(raised).length === 0) return;
  tree.append(runId, [{ type: "budget_raised", budget: raised, decided_by: text(payload, "decided_by") ?? "unknown" }]);
  const run = tree.runs.get(runId);
  if (run !== undefined && tree.state(runId).status === "running") tree.armWallTimer(run);
  if (runId !== tree.rootRunId) return;
  tree.ledger = { ...tree.ledger, limits: tree.state(runId).budget };
  tree.permits.grow(tree.ledger.limits.max_concurrency - now.max_concurrency);
  tree.dispatch.agents.sweep();
  feed(tree);
}

function decide(tree: TreeExecutor, signal: Signal, payload: JsonObject): void {
  const run = tree.runs.get(signal.run_id);
  if (run === undefined) return;
  const wait = tree.state(signal.run_id).waits.find((w) => w.wait_id === payload.wait_id);
  const job = wait === undefined ? undefined : jobOfWait(run, wait);
  if (wait === undefined || job === undefined || wait.granted !== undefined) return;
  // GD-38: a run that is being stopped takes nothing any more but what became of its open mutations (C14).
  if (tree.state(signal.run_id).stopping !== undefined && signal.kind !== "repair") return;
  // past its deadline a decision is refused even if the expiry is not written yet.
  if (wait.deadline_at_ms !== undefined && tree.now() >= wait.deadline_at_ms) return;
  if (payload.digest !== undefined && wait.digest !== undefined && !wait.digest.startsWith(String(payload.digest)))
    return;
  if (signal.kind === "repair") return repair(tree, run, job, wait, payload);
  if (signal.kind === "answer") return answer(tree, job, wait, payload);
  // Denied, an input fails its step as one that nobody gave in time.
  const isDenied = wait.type === "input" && signal.kind === "deny";
  if (wait.type !== "approval" && wait.type !== "tool_approval" && !isDenied) return;
  const reason = text(payload, "reason");
  const decision: Decision = {
    approved: signal.kind === "approve",
    decision: signal.kind === "approve" ? "approved" : "denied",
    decided_by: text(payload, "decided_by") ?? "unknown",
    decided_at_ms: tree.now(),
    ...(reason === undefined ? {} : { reason }),
  };
  if (wait.type === "tool_approval") toolDecision(tree, job, wait, decision);
  else closeWait(tree, job, wait, { by: "decision", decision });
}

/** the grant is consumed by the start it allows; no is `permission_denied`, to which the step's policy applies. */
function toolDecision(tree: TreeExecutor, job: Job, wait: Wait, decision: Decision): void {
  const { runId } = job.run;
  if (!decision.approved) {
    tree.append(runId, [{ type: "wait_closed", wait_id: wait.wait_id, by: "decision", decision }]);
    wake(tree, job.run);
    return tree.fail(
      job,
      failure("permission_denied", `${decision.decided_by} denied the use of "${wait.tool ?? "the tool"}"`),
    );
  }
  tree.append(runId, [{ type: "grant_issued", wait_id: wait.wait_id, digest: wait.digest ?? "", decision }]);
  wake(tree, job.run, job);
  if (!isPaused(tree.state(runId))) job.done = tree.background(tree.dispatch.granted(job, wait.wait_id));
}

function answer(tree: TreeExecutor, job: Job, wait: Wait, payload: JsonObject): void {
  if (wait.type !== "input" || wait.schema === undefined) return;
  const value = payload.value ?? null;
  // An answer that does not fit leaves the wait as it is (GD-49).
  if (!compileSchema(wait.schema as Schema).validate(value).ok) return;
  closeWait(tree, job, wait, { by: "answer", value, decided_by: text(payload, "decided_by") ?? "unknown" });
}

/** GD-74: a person's word on a mutation whose outcome is unknown. */
function repair(tree: TreeExecutor, run: ActiveRun, job: Job, wait: Wait, payload: JsonObject): void {
  if (wait.type !== "repair" && wait.type !== "tool_running") return;
  const resolution = text(payload, "resolution");
  if (resolution !== "succeeded" && resolution !== "failed" && resolution !== "cancelled" && resolution !== "retry")
    return;
  const message = text(payload, "message") ?? text(payload, "reason");
  const checked = resolution === "succeeded" ? repairedOutput(tree, job, payload.output ?? null) : undefined;
  if (checked?.ok === false) return;
  tree.append(run.runId, [
    {
      type: "repaired",
      step_id: job.instance,
      wait_id: wait.wait_id,
      resolution,
      ...(message === undefined ? {} : { message }),
      decided_by: text(payload, "decided_by") ?? "unknown",
    },
  ]);
  if (tree.state(run.runId).stopping !== undefined) return repairStopped(tree, run, job, checked?.output);
  wake(tree, run, job);
  if (wait.stop_reason === "sibling_failed" || isStoppedWithGroup(run, job))
    return repairSibling(tree, run, job, checked?.output);
  job.stop = undefined;
  if (checked !== undefined) return tree.settle(job, { type: "succeeded", output: checked.output });
  if (resolution === "retry") {
    job.ended = false;
    job.givenUp = false;
    if (isPaused(tree.state(run.runId))) return;
    job.done = tree.background(tree.dispatch.again(job));
    return;
  }
  const code = resolution === "cancelled" ? "cancelled" : "execution_failed";
  tree.fail(job, failure(code, message ?? `a person settled the step as ${resolution}`));
}

function repairedOutput(tree: TreeExecutor, job: Job, value: Json): ReturnType<typeof checkOutput> {
  const { request } = job;
  const spec = request.kind === "step" ? request.spec : undefined;
  const tool = spec?.kind === "tool" ? tree.ports.tools.describe(spec.tool) : undefined;
  return checkOutput(job.instance, value, spec?.output_schema ?? tool?.output_schema, []);
}

/** The run was being stopped when the mutation was lost: the answer ends it as that stop would have. */
function repairStopped(tree: TreeExecutor, run: ActiveRun, job: Job, output: Json | undefined): void {
  if (tree.state(run.runId).status === "suspended") tree.append(run.runId, [{ type: "run_started" }]);
  settleStopped(tree, run, job, output);
  const { stopping } = tree.state(run.runId);
  if (stopping !== undefined) void tree.background(stopRun(tree, run.runId, stopOf(stopping)));
}

/** Also what had waited for repair before its sibling failed: nothing of the group is sent again. */
function isStoppedWithGroup(run: ActiveRun, job: Job): boolean {
  return [...run.cancels.values()].some(({ instances }) => instances.has(job.instance));
}

/** A sibling's failure had stopped it: the group is done when the last of it is answered. */
function repairSibling(tree: TreeExecutor, run: ActiveRun, job: Job, output: Json | undefined): void {
  settleStopped(tree, run, job, output);
  for (const key of [...run.cancels.keys()])
    if (run.cancels.get(key)?.instances.has(job.instance)) finishCancel(tree, run, key);
}

function settleStopped(tree: TreeExecutor, run: ActiveRun, job: Job, output: Json | undefined): void {
  const step_id = job.instance;
  tree.append(run.runId, [
    output === undefined ? { type: "step_cancelled", step_id } : { type: "step_completed", step_id, output },
  ]);
  tree.dropJob(job);
}
