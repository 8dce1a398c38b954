/** Steps that wait for the outside: how a wait is written down, timed and ended. */
import { dispatchId } from "../../domain/journal.ts";
import { hashJson, type Json } from "../../domain/json.ts";
import { isRaised } from "../../domain/questions.ts";
import {
  type Decision,
  failure,
  isTerminal,
  type RepairEvidence,
  type SideEffect,
  type Wait,
} from "../../domain/run.ts";
import { intent, reserveAndQueue } from "../dispatch/index.ts";
import type { WaitSpec } from "../program.ts";
import type { Outcome } from "../replay.ts";
import type { StepRequest, WaitRequest } from "../requests.ts";
import type { ActiveRun, Job } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { wake } from "./parents.ts";

/** The last moment that a date can name: whatever is further away is due then (C18). */
const END_OF_TIME_MS = 8.64e15;

type NewWait = Omit<Wait, "wait_id" | "run_id" | "since_ms" | "step_id">;

/** A wait's id is the sequence it is opened at: unique in the run, the same wherever it is shown. */
export function newWait(tree: TreeExecutor, runId: string, wait: NewWait, stepId?: string): Wait {
  return {
    wait_id: `w-${tree.state(runId).last_sequence + 1}`,
    run_id: runId,
    ...(stepId === undefined ? {} : { step_id: stepId }),
    since_ms: tree.now(),
    ...wait,
  };
}

export function suspendStep(tree: TreeExecutor, job: Job, reason: string, wait: NewWait): void {
  job.stage = "waiting";
  tree.append(job.run.runId, [
    { type: "step_suspended", step_id: job.instance, reason, wait: newWait(tree, job.run.runId, wait, job.instance) },
  ]);
  armWait(tree, job);
  job.run.host.nudge();
}

/** What a person is asked when policy, or the tool itself, says `ask`. */
export function approvalWait(
  tree: TreeExecutor,
  job: Job,
  asked: { readonly name: string; readonly side_effect: SideEffect; readonly capabilities: readonly string[] },
  prompt?: string,
): NewWait {
  return {
    type: "tool_approval",
    tool: asked.name,
    tool_call_id: dispatchId(
      job.run.runId,
      job.instance,
      tree.state(job.run.runId).steps.get(job.instance)?.attempts ?? 1,
    ),
    input: job.request.input,
    side_effect: asked.side_effect,
    capabilities: [...new Set(asked.capabilities)],
    digest: digestOf(tree, job.run.runId, job.instance, asked.name, job.request.inputHash),
    ...(prompt === undefined ? {} : { prompt }),
    ...deadlines(tree.now(), tree.services.approvals),
  };
}

/** When a decision is due, and when its people are warned; counted from `now`. */
function deadlines(
  now: number,
  { deadline_ms, warn_ms }: { readonly deadline_ms?: number; readonly warn_ms?: number },
): Pick<Wait, "deadline_at_ms" | "warn_at_ms"> {
  if (deadline_ms === undefined) return {};
  const deadline_at_ms = Math.min(now + deadline_ms, END_OF_TIME_MS);
  return {
    deadline_at_ms,
    ...(warn_ms === undefined ? {} : { warn_at_ms: Math.max(now, deadline_at_ms - warn_ms) }),
  };
}

/** Binds a decision to exactly what was shown (DESIGN §6). */
export function digestOf(tree: TreeExecutor, runId: string, instance: string, tool: string, inputHash: string): string {
  const { header } = tree.journal.run(runId);
  return hashJson([header.bundle_hash, runId, instance, tool, inputHash, tree.ports.policy.fingerprint]);
}

export function repairWait(tree: TreeExecutor, job: Job, reason: string, lookup?: string): NewWait {
  const { spec } = job.request as StepRequest;
  return repairWaitFor(
    tree,
    job.run.runId,
    job.instance,
    spec.kind === "tool" ? spec.tool : spec.agent,
    reason,
    lookup,
  );
}

/** A mutation whose outcome cannot be known: a person says what became of it, with the evidence before them (GD-74). */
export function repairWaitFor(
  tree: TreeExecutor,
  runId: string,
  instance: string,
  tool: string,
  reason: string,
  lookup?: string,
): NewWait {
  const step = tree.state(runId).steps.get(instance);
  const dispatch_id = dispatchId(runId, instance, step?.attempts ?? 1);
  const evidence: RepairEvidence = {
    dispatch_id,
    tool,
    input_hash: step?.input_hash ?? "",
    attempt: step?.attempts ?? 1,
    started_at_ms: step?.started_at_ms ?? tree.now(),
    ...(step?.receipt === undefined ? {} : { receipt: step.receipt }),
    ...(lookup === undefined ? {} : { lookup }),
    late_results: [],
  };
  return {
    type: "repair",
    tool,
    reason,
    side_effect: "mutating",
    ...(step?.input === undefined ? {} : { input: step.input }),
    // Of this very attempt: what a person found out about an earlier one says nothing about it.
    digest: hashJson([digestOf(tree, runId, instance, tool, step?.input_hash ?? ""), dispatch_id]),
    evidence,
  };
}

// ── waits that the author wrote ───────────────────────────────────────────────────────────────────────────────

/** Reserves, starts and opens an approval, input or timer in one append. */
export function openWait(tree: TreeExecutor, job: Job): void {
  if (!reserveAndQueue(tree, job)) return;
  const request = job.request as WaitRequest;
  job.stage = "waiting";
  tree.append(job.run.runId, [intent(tree, job, { side_effect: "read_only" })]);
  const wait = newWait(tree, job.run.runId, describe(tree, job, request.spec), job.instance);
  tree.append(job.run.runId, [{ type: "wait_opened", step_id: job.instance, visit: request.visit, wait }]);
  armWait(tree, job);
  job.run.host.nudge();
}

function describe(tree: TreeExecutor, job: Job, spec: WaitSpec): NewWait {
  const now = tree.now();
  if (spec.type === "timer")
    return { type: "timer", due_at_ms: Math.min(spec.until_ms ?? now + (spec.for_ms ?? 0), END_OF_TIME_MS) };
  return {
    type: spec.type,
    prompt: spec.prompt,
    ...(spec.details === undefined ? {} : { details: spec.details }),
    ...deadlines(now, spec),
    ...(spec.type === "input" ? { schema: spec.schema } : {}),
    ...(spec.type === "approval" && spec.outcome !== undefined ? { outcome: spec.outcome } : {}),
    digest: digestOf(tree, job.run.runId, job.instance, spec.type, job.request.inputHash),
  };
}

/** After a restart: the wait is open in the journal; only its timers are new. */
export function resumeWait(tree: TreeExecutor, job: Job): void {
  job.stage = "waiting";
  const step = tree.state(job.run.runId).steps.get(job.instance);
  if (waitOf(tree, job) !== undefined) return armWait(tree, job);
  // Queued or started, but the wait itself had not been written: open it now, uncharged.
  const request = job.request as WaitRequest;
  if (step?.status === "queued") tree.append(job.run.runId, [intent(tree, job, { side_effect: "read_only" })]);
  const wait = newWait(tree, job.run.runId, describe(tree, job, request.spec), job.instance);
  tree.append(job.run.runId, [{ type: "wait_opened", step_id: job.instance, visit: request.visit, wait }]);
  armWait(tree, job);
  job.run.host.nudge();
}

function waitOf(tree: TreeExecutor, job: Job): Wait | undefined {
  return tree.state(job.run.runId).waits.find((wait) => wait.step_id === job.instance);
}

/** Sets the timers of a job's wait: when it is due, when its deadline passes, when people are warned. */
export function armWait(tree: TreeExecutor, job: Job): void {
  for (const timer of job.timers) timer.cancel();
  job.timers = [];
  const wait = waitOf(tree, job);
  if (wait === undefined) return;
  const { clock } = tree.ports;
  const live = (act: () => void) => (): void => {
    const now = waitOf(tree, job);
    if (tree.closed || job.run.ended || job.run.stopping !== undefined || now?.wait_id !== wait.wait_id) return;
    // What was granted in time is sent, however long that takes.
    if (now.granted !== undefined) return;
    tree.guard(act);
    tree.settleDownSoon();
  };
  const due = wakesOf(wait);
  if (due.length > 0) job.dueAtMs = Math.min(...due);
  if (wait.due_at_ms !== undefined)
    job.timers.push(
      clock.at(
        wait.due_at_ms,
        live(() => closeByTime(tree, job, wait)),
      ),
    );
  if (wait.deadline_at_ms !== undefined)
    job.timers.push(
      clock.at(
        wait.deadline_at_ms,
        live(() => closeByTime(tree, job, wait)),
      ),
    );
  if (wait.warn_at_ms !== undefined && wait.warned !== true)
    job.timers.push(
      clock.at(
        wait.warn_at_ms,
        live(() => warn(tree, job, wait)),
      ),
    );
}

function warn(tree: TreeExecutor, job: Job, wait: Wait): void {
  tree.append(job.run.runId, [{ type: "wait_warned", wait_id: wait.wait_id }]);
  if (wait.deadline_at_ms !== undefined) job.dueAtMs = wait.deadline_at_ms;
}

/** When a wait wants attention by itself: it is due, its deadline passes, or a warning before that. */
function wakesOf(wait: Wait): number[] {
  return [wait.due_at_ms, wait.deadline_at_ms, wait.warned === true ? undefined : wait.warn_at_ms].filter(
    (at) => at !== undefined,
  );
}

/** A timer is due, or a deadline passed: silence never consents. */
function closeByTime(tree: TreeExecutor, job: Job, wait: Wait): void {
  if (wait.type === "timer") return closeWait(tree, job, wait, { by: "timer" });
  const decision: Decision = {
    approved: false,
    decision: "expired",
    decided_by: "deadline",
    decided_at_ms: tree.now(),
  };
  closeWait(tree, job, wait, { by: "expiry", decision });
}

export type Closing =
  | { readonly by: "timer" }
  | { readonly by: "expiry" | "decision"; readonly decision: Decision }
  | { readonly by: "answer"; readonly value: Json; readonly decided_by: string };

/** Ends an author's wait: the decision is written, the run goes on, the step has its outcome. */
export function closeWait(tree: TreeExecutor, job: Job, wait: Wait, closing: Closing): void {
  tree.append(job.run.runId, [{ type: "wait_closed", wait_id: wait.wait_id, ...closing }]);
  wake(tree, job.run);
  tree.settle(job, outcomeOf(wait, closing));
}

function outcomeOf(wait: Wait, closing: Closing): Outcome {
  if (closing.by === "timer") return { type: "succeeded", output: null };
  if (closing.by === "answer") return { type: "succeeded", output: closing.value };
  const { decision } = closing;
  if (decision.approved || wait.outcome === "value")
    return { type: "succeeded", output: { ...decision } as unknown as Json };
  const why = decision.decision === "expired" ? "nobody decided before the deadline" : `${decision.decided_by} said no`;
  return {
    type: "failed",
    failure: failure(
      "permission_denied",
      `${wait.type === "input" ? "the input" : "the approval"} was not given: ${why}`,
    ),
  };
}

/** The earliest time at which a wait of the tree wants attention: now, where a used-up limit has been raised. */
export function nextWakeMs(tree: TreeExecutor): number | undefined {
  const root = tree.state(tree.rootRunId);
  let next: number | undefined;
  for (const { state } of tree.journal.runs.values()) {
    if (isTerminal(state.status)) continue;
    for (const wait of state.waits) {
      if (isRaised(root, wait)) return tree.now();
      for (const at of wakesOf(wait)) if (next === undefined || at < next) next = at;
    }
  }
  return next;
}

export function jobOfWait(run: ActiveRun, wait: Wait): Job | undefined {
  return wait.step_id === undefined ? undefined : run.jobs.get(wait.step_id);
}
