/**
 * How work is stopped: by cancel, a sibling's failure, the wall time or a pause. Everything is told at once,
 * given `stop_grace_ms`, and only then written down. A mutation that has not ended by then is never called
 * "cancelled": it waits for repair, and the answer ends the run as the stop would have.
 */
import type { EventBody } from "../../domain/events.ts";
import type { Json } from "../../domain/json.ts";
import { settleAgent } from "../../domain/ledger.ts";
import { definitionKey, frontier, secretHandles } from "../../domain/plan/index.ts";
import { openSteps } from "../../domain/questions.ts";
import { failure, isTerminal, type StopReason } from "../../domain/run.ts";
import type { RunState, StepState } from "../../domain/state.ts";
import { evidence } from "../dispatch/answers.ts";
import { canBeAsked, neverHandedOff, stoppedWord, type Word } from "../dispatch/owners.ts";
import { CANCELLED_PREFIX } from "../replay.ts";
import type { OpenRequest } from "../requests.ts";
import { atMost } from "../timing.ts";
import type { ActiveRun, Job } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { parentWaits } from "./parents.ts";
import { newWait, repairWaitFor } from "./waiting.ts";

export interface Stop {
  readonly reason: "cancelled" | "timeout";
  readonly text?: string;
  readonly decided_by?: string;
  readonly requested_at_ms?: number;
}

const OPEN = ["queued", "running", "suspended"] as const;

/** A run and its nonterminal descendants, children before parents. */
export function subtree(tree: TreeExecutor, runId: string): string[] {
  const below: string[] = [];
  for (const run of tree.journal.runs.values())
    if (run.header.parent_run_id === runId && !isTerminal(run.state.status))
      below.push(...subtree(tree, run.header.run_id));
  return [...below, runId];
}

/** Stops a run with all below it and writes its end (RP-50, RP-51, RP-65). Does nothing for a run that has ended. */
export function stopRun(tree: TreeExecutor, runId: string, stop: Stop): Promise<void> {
  if (isTerminal(tree.state(runId).status)) return Promise.resolve();
  // The first stop ends it; whoever asks again is answered when it has.
  const going = tree.stops.get(runId);
  if (going !== undefined) return going;
  const ids = subtree(tree, runId);
  const over = (): void => {
    for (const id of ids) if (tree.stops.get(id) === work) tree.stops.delete(id);
  };
  const work = stopRuns(tree, ids, runId, stop, over).finally(over);
  for (const id of ids) if (!tree.stops.has(id)) tree.stops.set(id, work);
  return work;
}

/** `over` is called once the ends are written: a repair that is taken from then on needs a stop of its own. */
async function stopRuns(
  tree: TreeExecutor,
  ids: readonly string[],
  runId: string,
  stop: Stop,
  over: () => void,
): Promise<void> {
  const jobs: Job[] = [];
  for (const id of ids) {
    const run = tree.runs.get(id);
    if (run === undefined) continue;
    run.stopping = stop.reason;
    run.stopped = false;
    quiet(run);
    jobs.push(...run.jobs.values());
  }
  await stopJobs(tree, jobs, stop.reason);
  const words = await heedOwners(tree, ids);
  if (tree.closed || isTerminal(tree.state(runId).status)) return;
  for (const id of ids) endRun(tree, id, id === runId ? stop : { ...stop, reason: "cancelled" }, words);
  for (const id of ids) suspendStopped(tree, id);
  over();
  const top = tree.runs.get(runId);
  if (top !== undefined && !top.ended) parentWaits(tree, top, "repair");
  tree.settleDown();
}

/** How a run that waits for a repair was being stopped. */
export function stopOf(stop: NonNullable<RunState["stopping"]>): Stop {
  const { reason, ...rest } = stop;
  return { ...rest, reason: reason === "timeout" ? "timeout" : "cancelled" };
}

function quiet(run: ActiveRun): void {
  run.host.freeze();
  run.wallTimer?.cancel();
  for (const timer of run.delays.values()) timer.cancel();
  run.delays.clear();
}

/** Tells jobs to stop and waits until they have, or the grace is over. Agents are waited for to their end (RP-44). */
async function stopJobs(tree: TreeExecutor, jobs: readonly Job[], reason: StopReason): Promise<void> {
  const running = jobs.filter((job) => job.stage === "running" && !job.ended);
  for (const job of jobs) {
    job.stop = reason;
    for (const timer of job.timers) timer.cancel();
    job.timers = [];
  }
  tree.permits.sweep();
  tree.dispatch.agents.sweep();
  tree.dispatch.admission.sweep();
  if (running.length === 0) return;
  // a barrier comes before a cancel signal.
  const barrier = tree.journal.barrier();
  if (barrier !== undefined) await barrier;
  for (const job of running) job.abort.abort(new Error(`the run is being stopped: ${reason}`));
  const tools = running.filter((job) => !isAgent(job));
  const agents = running.filter(isAgent);
  if (tools.length > 0) await atMost(tree.ports.clock, tree.services.limits.stop_grace_ms, allDone(tools));
  await allDone(agents);
}

async function allDone(jobs: readonly Job[]): Promise<void> {
  await Promise.all(jobs.map((job) => job.done));
}

function isAgent(job: Job): boolean {
  return job.request.kind === "step" && job.request.spec.kind === "agent";
}

/** Last words of owners, by run and step. */
type Words = ReadonlyMap<string, Word>;
const wordKey = (runId: string, stepId: string): string => `${runId} ${stepId}`;

/** Whether a mutation is open that nobody here is in a call with: its process has died, or a pause has let go of it. */
function isAbandoned(tree: TreeExecutor, runId: string, step: StepState): boolean {
  const open = step.status === "running" || step.was === "running";
  if (!open || step.side_effect !== "mutating" || step.child_run_id !== undefined || neverHandedOff(step)) return false;
  const job = tree.runs.get(runId)?.jobs.get(step.id);
  return job === undefined || (!job.ended && (job.stage === "waiting" || job.adopted === true));
}

/** Asks the owners of what nobody here is in a call with, for at most the grace; also after a crash (GD-39, GD-41). */
async function heedOwners(tree: TreeExecutor, runIds: readonly string[], only?: ReadonlySet<string>): Promise<Words> {
  const words = new Map<string, Word>();
  const over = new AbortController();
  const asked: Promise<void>[] = [];
  if (tree.closed) return words;
  for (const runId of runIds)
    for (const step of openSteps(tree.state(runId), OPEN)) {
      const tool = step.tool === undefined ? undefined : tree.ports.tools.describe(step.tool);
      const wanted = only === undefined || only.has(step.id);
      if (tool === undefined || !wanted || !isAbandoned(tree, runId, step) || !canBeAsked(tool, step)) continue;
      asked.push(
        stoppedWord(tree, runId, step, tool, over.signal).then((word) => {
          if (word !== undefined && !over.signal.aborted) words.set(wordKey(runId, step.id), word);
        }),
      );
    }
  if (asked.length > 0) await atMost(tree.ports.clock, tree.services.limits.stop_grace_ms, Promise.all(asked));
  over.abort();
  return words;
}

/** Whether what became of a stopped step cannot be known. */
function isUnknown(tree: TreeExecutor, runId: string, step: StepState, words: Words): boolean {
  // GD-41: the hand-over had not begun, so nobody can have done anything.
  if (step.side_effect !== "mutating" || neverHandedOff(step)) return false;
  const wait = tree.state(runId).waits.find((w) => w.step_id === step.id);
  if (wait !== undefined) return wait.type === "repair";
  const word = words.get(wordKey(runId, step.id));
  if (word !== undefined) return word.type === "unknown" || word.type === "running";
  const running = step.status === "running" || step.was === "running";
  if (!running) return false;
  const job = tree.runs.get(runId)?.jobs.get(step.id);
  return job === undefined || (!job.ended && (job.stage === "running" || step.was === "running"));
}

/** Writes the end of one run; a mutation that is open, here or below, is written as what the run waits for. */
function endRun(tree: TreeExecutor, runId: string, stop: Stop, words: Words): void {
  const state = tree.state(runId);
  if (isTerminal(state.status)) return;
  const open = openSteps(state, OPEN);
  const unknown = open.filter((step) => isUnknown(tree, runId, step, words));
  const events: EventBody[] = [...late(tree, runId, open, words), ...lostReservations(tree, state)];
  if (unknown.length > 0 || open.some((step) => childIsOpen(tree, step))) {
    tree.append(runId, [...events, ...requested(tree, runId, stop)]);
    for (const step of unknown) openRepair(tree, runId, step, stop.reason, words);
    return overtake(tree, runId);
  }
  for (const step of open) events.push(settledBy(step, stop));
  if (stop.reason === "timeout" && open.length === 0) {
    const definition = tree.services.definition(
      definitionKey(state.header.workflow_id, state.header.workflow_revision),
    );
    for (const leaf of frontier(definition.plan))
      if (!state.steps.has(leaf)) events.push({ type: "step_failed", step_id: leaf, visit: 1, failure: TIME_IS_UP });
  }
  events.push(terminal(tree, runId, stop));
  tree.append(runId, events);
  for (const step of open) tree.runs.get(runId)?.jobs.delete(step.id);
  const run = tree.runs.get(runId);
  if (run !== undefined) tree.ended(run);
}

/** Nobody goes on with a run that is being stopped: only what became of its open steps is still asked for. */
function overtake(tree: TreeExecutor, runId: string): void {
  const { waits } = tree.state(runId);
  if (waits.every((wait) => wait.step_id === undefined)) return;
  for (const { wait_id, step_id } of waits)
    if (step_id === undefined) tree.append(runId, [{ type: "wait_closed", wait_id, by: "stop" }]);
}

/** a call whose process died before it answered is booked at all that was reserved for it. */
function lostReservations(tree: TreeExecutor, state: RunState): EventBody[] {
  const events: EventBody[] = [];
  for (const [instance, lost] of state.reservations) {
    tree.ledger = settleAgent(tree.ledger, lost, lost).ledger;
    events.push({ type: "phase", name: "agent_usage_recorded", instance, ...lost, estimated: true });
  }
  return events;
}

const TIME_IS_UP = failure("budget_exceeded", "the run's wall time is over");

function settledBy(step: StepState, stop: Stop): EventBody {
  if (stop.reason === "timeout") return { type: "step_failed", step_id: step.id, failure: TIME_IS_UP };
  return { type: "step_cancelled", step_id: step.id };
}

function terminal(tree: TreeExecutor, runId: string, stop: Stop): EventBody {
  // RP-44: usage that could not be observed makes the run fail rather than claim a clean stop.
  if (tree.unmeasured.has(runId))
    return {
      type: "run_failed",
      failure: failure("execution_failed", "an agent was stopped and its usage could not be observed"),
    };
  if (stop.reason === "timeout") return { type: "run_failed", failure: TIME_IS_UP };
  return {
    type: "run_cancelled",
    ...askedFor(stop),
  };
}

/** Why, by whom and when a stop was asked for, as its events have it. */
function askedFor({ text, decided_by, requested_at_ms }: Stop): {
  readonly reason?: string;
  readonly decided_by?: string;
  readonly requested_at_ms?: number;
} {
  return {
    ...(text === undefined ? {} : { reason: text }),
    ...(decided_by === undefined ? {} : { decided_by }),
    ...(requested_at_ms === undefined ? {} : { requested_at_ms }),
  };
}

/** A mutating tool that reported success after it was told to stop: the step is cancelled, the truth is kept. */
function late(tree: TreeExecutor, runId: string, open: readonly StepState[], words: Words): EventBody[] {
  const events: EventBody[] = [];
  for (const step of open) {
    const said = saidOf(step, words.get(wordKey(runId, step.id)));
    const result = said ?? tree.runs.get(runId)?.jobs.get(step.id)?.late;
    if (result !== undefined && step.side_effect !== "read_only")
      events.push({ type: "late_result", step_id: step.id, attempt: step.attempts, result });
  }
  return events;
}

/** What an owner answered, to be kept; where it was given secrets it may repeat them, and nobody here knows them. */
function saidOf(step: StepState, word: Word | undefined): Json | undefined {
  if (word?.type !== "succeeded" && word?.type !== "failed") return undefined;
  if (secretHandles(step.input ?? null).length > 0)
    return { type: word.type, unstorable: "it was given secrets and may repeat them" };
  return evidence(step.tool ?? "", [], word);
}

function requested(tree: TreeExecutor, runId: string, stop: Stop): EventBody[] {
  if (tree.state(runId).stopping !== undefined) return [];
  return [
    {
      type: "cancel_requested",
      stop_reason: stop.reason,
      ...askedFor(stop),
    },
  ];
}

function openRepair(tree: TreeExecutor, runId: string, step: StepState, reason: StopReason, words: Words): void {
  if (tree.state(runId).waits.some((wait) => wait.step_id === step.id)) return;
  const said = words.get(wordKey(runId, step.id))?.type;
  const why = "it had not ended when the run was stopped";
  const wait = {
    ...repairWaitFor(tree, runId, step.id, step.tool ?? step.id, why, said),
    stop_reason: reason,
  };
  tree.append(runId, [
    { type: "step_suspended", step_id: step.id, reason: "outcome unknown", wait: newWait(tree, runId, wait, step.id) },
  ]);
  const job = tree.runs.get(runId)?.jobs.get(step.id);
  if (job === undefined) return;
  job.stage = "waiting";
  job.givenUp = true;
}

/** A stopped run that cannot end yet stands still on its repair, or on the child that does. */
function suspendStopped(tree: TreeExecutor, runId: string): void {
  const run = tree.runs.get(runId);
  if (run !== undefined) run.stopped = true;
  if (tree.state(runId).status !== "running") return;
  for (const step of openSteps(tree.state(runId), ["queued", "running"])) {
    const wait = childIsOpen(tree, step)
      ? {
          wait: newWait(
            tree,
            runId,
            { type: "child" as const, child_run_id: step.child_run_id as string, reason: "repair" },
            step.id,
          ),
        }
      : {};
    tree.append(runId, [{ type: "step_suspended", step_id: step.id, reason: "the run is being stopped", ...wait }]);
  }
  tree.append(runId, [{ type: "run_suspended", reason: tree.state(runId).waits[0]?.type ?? "repair" }]);
}

// ── fail-fast siblings ────────────────────────────────────────────────────────────────────────────────────────

/** Stops what the branches of a failed parallel have open, writes it, and lets the program go on (RP-32). */
export async function cancelGroup(
  tree: TreeExecutor,
  run: ActiveRun,
  key: string,
  targets: readonly OpenRequest[],
): Promise<void> {
  const instances = new Set(targets.filter((target) => target.kind !== "retry").map((target) => target.instance));
  run.cancels.set(key, { key, instances, waiting: false });
  const jobs = [...instances].map((id) => run.jobs.get(id)).filter((job): job is Job => job !== undefined);
  const children = jobs.filter((job) => job.request.kind === "child");
  await stopJobs(
    tree,
    jobs.filter((job) => job.request.kind !== "child"),
    "sibling_failed",
  );
  for (const job of children) job.stop = "sibling_failed";
  for (const job of children) {
    const id = tree.state(run.runId).steps.get(job.instance)?.child_run_id;
    if (id !== undefined && tree.journal.runs.has(id))
      await stopRun(tree, id, { reason: "cancelled", text: "a sibling failed" });
  }
  const words = await heedOwners(tree, [run.runId], instances);
  if (tree.closed || run.ended) return;
  if (run.stopping !== undefined) {
    // The run's own stop has overtaken it and ends its steps: nobody waits for the group any more.
    run.cancels.delete(key);
    return tree.settleDown();
  }
  finishCancel(tree, run, key, words);
}

/** Writes what has stopped; the group is done when none of it waits for repair. */
export function finishCancel(tree: TreeExecutor, run: ActiveRun, key: string, words: Words = new Map()): void {
  const group = run.cancels.get(key);
  if (group === undefined) return;
  const state = tree.state(run.runId);
  const open = openSteps(state, OPEN).filter((step) => group.instances.has(step.id));
  const unknown = open.filter((step) => isUnknown(tree, run.runId, step, words) || childIsOpen(tree, step));
  for (const step of unknown) if (!childIsOpen(tree, step)) openRepair(tree, run.runId, step, "sibling_failed", words);
  const stopped = open.filter((step) => !unknown.includes(step));
  const done = unknown.length === 0;
  const events: EventBody[] = late(tree, run.runId, stopped, words);
  for (const [i, step] of stopped.entries())
    events.push({ type: "step_cancelled", step_id: step.id, ...(done && i === 0 ? { by: key } : {}) });
  if (done && stopped.length === 0) events.push({ type: "decision", key: `${CANCELLED_PREFIX}${key}`, value: null });
  if (events.length > 0) tree.append(run.runId, events);
  for (const step of stopped) run.jobs.delete(step.id);
  if (!done) {
    group.waiting = true;
    return run.host.nudge();
  }
  run.cancels.delete(key);
  tree.deliver(run, { type: "cancelled", key });
}

function childIsOpen(tree: TreeExecutor, step: StepState): boolean {
  const child = step.child_run_id === undefined ? undefined : tree.journal.runs.get(step.child_run_id);
  return child !== undefined && !isTerminal(child.state.status);
}
