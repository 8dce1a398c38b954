/**
 * The state of a run and the one function that changes it (DESIGN §4): `events.reduce(evolve, initialState(header))`.
 * `evolve` is pure, total over legal events, and throws on illegal ones; it never skips one quietly.
 */
import { Map as PersistentMap } from "immutable";
import { assert, unreachable } from "./errors.ts";
import { type EventBody, type RunEvent, TERMINAL_EVENT_TYPES } from "./events.ts";
import type { Json } from "./json.ts";
import { isPaused, openSteps } from "./questions.ts";
import {
  type Budgets,
  type Failure,
  isTerminal,
  NO_USAGE,
  type RunHeader,
  type RunStatus,
  type SideEffect,
  type StepStatus,
  type StopReason,
  type Usage,
  type Wait,
} from "./run.ts";

/** Late results shown with a repair; one attempt gives one, so more than a few mean a broken port. */
const MAX_LATE_RESULTS = 8;

export interface StepState {
  readonly id: string;
  readonly status: StepStatus;
  /** Empty until the first start, and for steps that were skipped before they were entered. */
  readonly input_hash: string;
  readonly output?: Json;
  readonly failure?: Failure;
  /** Cumulative over visits (RP-30). */
  readonly attempts: number;
  /** How often the program entered this place. */
  readonly visit: number;
  readonly side_effect?: SideEffect;
  readonly tool?: string;
  /** Only while the step is open; afterwards the journal has it. */
  readonly input?: Json;
  readonly started_at_ms?: number;
  readonly redispatch: number;
  readonly receipt?: Json;
  /** What its owner planned, and whether the hand-over to it had begun (GD-13). Only while the step is open. */
  readonly intent?: Json;
  readonly handed_off?: true;
  readonly child_run_id?: string;
  /** While suspended by recovery or pause: what the step was doing, and goes back to with `run_started`. */
  readonly was?: "queued" | "running";
}

/** Tokens and money held for one dispatch until it settles. */
export interface Reservation {
  readonly tokens: number;
  readonly cost_micros: number;
}

export interface RunState {
  readonly header: RunHeader;
  readonly status: RunStatus;
  readonly steps: PersistentMap<string, StepState>;
  /** Instances queued or running. */
  readonly active: number;
  /** Of this run's own journal; the tree's ledger adds its children. */
  readonly usage: Usage;
  readonly reservations: PersistentMap<string, Reservation>;
  /** `step_reserved` without its `step_queued` yet. */
  readonly unplaced_steps: number;
  readonly budget: Budgets;
  readonly last_sequence: number;
  readonly output?: Json;
  readonly failure?: Failure;
  /** Open waits, oldest first. */
  readonly waits: readonly Wait[];
  /** Set by `cancel_requested`: the run ends that way once its open mutation is answered. */
  readonly stopping?: {
    readonly reason: StopReason;
    readonly text?: string;
    readonly decided_by?: string;
    readonly requested_at_ms?: number;
  };
  /** Time spent suspended on anything but recovery: extends the deadline. */
  readonly suspended_ms: number;
  readonly suspended_at_ms?: number;
  /** When a limit was last raised. */
  readonly raised_at_ms?: number;
  readonly updated_at_ms: number;
}

export function initialState(header: RunHeader): RunState {
  return {
    header,
    status: "queued",
    steps: PersistentMap(),
    active: 0,
    usage: NO_USAGE,
    reservations: PersistentMap(),
    unplaced_steps: 0,
    budget: header.budget,
    last_sequence: 0,
    waits: [],
    suspended_ms: 0,
    updated_at_ms: header.created_at_ms,
  };
}

/**
 * Folds one event.
 * @throws HoldfastError `internal` when the event is not legal in this state (RP-56)
 */
export function evolve(run: RunState, event: RunEvent): RunState {
  // Written as conditions: this runs for every event, and a message that nobody reads would be built each time.
  if (event.sequence !== run.last_sequence + 1) illegal(`event ${event.sequence} after ${run.last_sequence}`);
  if (isTerminal(run.status)) illegal(`${event.type} after the run has ended`);
  if ((event.sequence === 1) !== (event.type === "run_queued")) illegal(`${event.type} at ${event.sequence}`);
  const next = fold(run, event);
  if (next === run) return { ...run, last_sequence: event.sequence, updated_at_ms: event.at_ms };
  // The fold has just made it and nobody else has seen it: no second copy (a third of the cost of an event).
  const fresh = next as { -readonly [key in keyof RunState]: RunState[key] };
  fresh.last_sequence = event.sequence;
  fresh.updated_at_ms = event.at_ms;
  return fresh;
}

function illegal(message: string): never {
  assert(false, message);
}

function fold(run: RunState, event: RunEvent): RunState {
  switch (event.type) {
    case "run_queued":
      return run;
    case "run_started":
      return start(run, event.at_ms);
    case "phase":
      // A call that was lost with its process is booked where the run stands when it is stopped.
      return foldPhase(event.name === "agent_usage_recorded" ? run : running(run, event), event);
    case "step_queued":
      return queueStep(running(run, event), event);
    case "step_started":
      return startStep(running(run, event), event);
    case "step_suspended":
      return suspendStep(run, event);
    case "step_completed":
      return completeStep(runningOrPaused(run, event), event);
    case "step_failed":
      return failStep(run, event);
    case "step_cancelled":
      return cancelStep(run, event);
    case "step_skipped":
      return skipStep(running(run, event), event);
    case "run_suspended":
      return suspend(run, event);
    case "run_succeeded":
      running(run, event);
      assert(run.active === 0, "run_succeeded with open steps");
      return end(run, { status: "succeeded", output: event.output });
    case "run_failed":
      return end(run, { status: "failed", failure: event.failure });
    case "run_cancelled":
      return end(run, {
        status: "cancelled",
        failure: { code: "cancelled", message: event.reason ?? "the run was cancelled", retryable: false },
      });
    case "decision":
      return runningOrPaused(run, event);
    case "handed_off":
      return putStep(run, { ...openStep(run, event.step_id, event.type), handed_off: true });
    case "receipt":
      return putStep(run, { ...openStep(run, event.step_id, event.type), receipt: event.receipt });
    case "wait_opened":
      return openWait(running(run, event), event);
    case "wait_warned":
      findWait(run, event.wait_id, event.type);
      return { ...run, waits: run.waits.map((w) => (w.wait_id === event.wait_id ? { ...w, warned: true } : w)) };
    case "wait_closed":
      findWait(run, event.wait_id, event.type);
      return closeWaits(run, (w) => w.wait_id === event.wait_id);
    case "grant_issued":
      findWait(run, event.wait_id, event.type);
      return {
        ...run,
        waits: run.waits.map((w) => (w.wait_id === event.wait_id ? { ...w, granted: event.decision } : w)),
      };
    case "child_linked":
      return putStep(run, { ...openStep(run, event.step_id, event.type), child_run_id: event.child_run_id });
    case "cancel_requested":
      return {
        ...run,
        stopping: {
          reason: event.stop_reason,
          ...(event.reason === undefined ? {} : { text: event.reason }),
          ...(event.decided_by === undefined ? {} : { decided_by: event.decided_by }),
          ...(event.requested_at_ms === undefined ? {} : { requested_at_ms: event.requested_at_ms }),
        },
      };
    case "repaired":
      return repair(run, event);
    case "late_result":
      return keepEvidence(run, event);
    case "budget_raised":
      return {
        ...run,
        budget: { ...run.budget, ...(event.budget as Partial<Budgets>) },
        raised_at_ms: event.at_ms,
      };
    default:
      return unreachable(event);
  }
}

type Of<T extends EventBody["type"]> = Extract<RunEvent, { type: T }>;

function running(run: RunState, event: RunEvent): RunState {
  if (run.status !== "running") illegal(`${event.type} while the run is ${run.status}`);
  return run;
}

/** A person's answer to a step of a paused run settles it at once; nothing else of the run moves. */
function runningOrPaused(run: RunState, event: RunEvent): RunState {
  return isPaused(run) ? run : running(run, event);
}

function end(run: RunState, outcome: Pick<RunState, "status"> & Partial<RunState>): RunState {
  assert(run.active === 0, `the run ends as ${outcome.status} with open steps`);
  const { suspended_at_ms: _, stopping: __, ...rest } = run;
  return { ...rest, ...outcome, waits: [] };
}

function start(run: RunState, atMs: number): RunState {
  assert(run.status === "queued" || run.status === "suspended", `run_started while the run is ${run.status}`);
  const { suspended_at_ms: since, ...rest } = run;
  const onRecovery = run.waits[0]?.type === "recovery";
  let steps = run.steps;
  let active = run.active;
  for (const step of openSteps(run, ["suspended"])) {
    if (step.was === undefined) continue;
    const { was, failure: _, ...open } = step;
    steps = steps.set(step.id, { ...open, status: was });
    active++;
  }
  return {
    ...rest,
    status: "running",
    steps,
    active,
    suspended_ms: run.suspended_ms + (since === undefined || onRecovery ? 0 : Math.max(0, atMs - since)),
    // Waits of the run itself end here; those of steps end with their step.
    waits: run.waits.filter((wait) => wait.step_id !== undefined),
  };
}

function suspend(run: RunState, event: Of<"run_suspended">): RunState {
  assert(run.status === "running" || run.status === "queued" || event.wait !== undefined, "run_suspended twice");
  const waiting = event.wait === undefined ? run : addWait(run, event.wait);
  assert(waiting.waits.length > 0, "run_suspended without a wait");
  return { ...waiting, status: "suspended", suspended_at_ms: run.suspended_at_ms ?? event.at_ms };
}

function foldPhase(run: RunState, event: Of<"phase">): RunState {
  const usage = run.usage;
  switch (event.name) {
    case "step_reserved":
      return { ...run, usage: { ...usage, steps: usage.steps + 1 }, unplaced_steps: run.unplaced_steps + 1 };
    case "retry_reserved":
      return { ...run, usage: { ...usage, retries: usage.retries + 1 } };
    case "agent_reserved":
      openStep(run, event.instance, "agent_reserved");
      assert(!run.reservations.has(event.instance), `agent_reserved twice for ${event.instance}`);
      return {
        ...run,
        usage: { ...usage, agents: usage.agents + 1 },
        reservations: run.reservations.set(event.instance, {
          tokens: event.tokens ?? 0,
          cost_micros: event.cost_micros ?? 0,
        }),
      };
    case "agent_usage_recorded":
      assert(run.reservations.has(event.instance), `agent_usage_recorded without a reservation of ${event.instance}`);
      return {
        ...run,
        usage: {
          ...usage,
          tokens: usage.tokens + event.tokens,
          cost_micros:
            usage.cost_micros === null || event.cost_micros === null ? null : usage.cost_micros + event.cost_micros,
        },
        reservations: run.reservations.delete(event.instance),
      };
    case "suspension_context_persisted":
      openStep(run, event.instance, event.name);
      return run;
    default:
      return unreachable(event);
  }
}

function isActive(status: StepStatus): boolean {
  return status === "queued" || status === "running";
}

function isOpen(status: StepStatus): boolean {
  return isActive(status) || status === "suspended";
}

function putStep(run: RunState, step: StepState, unplaced_steps = run.unplaced_steps): RunState {
  const before = run.steps.get(step.id);
  const active = run.active + Number(isActive(step.status)) - Number(before !== undefined && isActive(before.status));
  return { ...run, unplaced_steps, steps: run.steps.set(step.id, step), active };
}

function openStep(run: RunState, id: string, type: string): StepState {
  const step = run.steps.get(id);
  if (step === undefined || !isOpen(step.status)) illegal(`${type} for ${id}, which is ${step?.status ?? "unknown"}`);
  return step;
}

/** Settles a step: the last visit's outcome replaces what was open, and its waits end with it. */
function settleStep(run: RunState, step: StepState, outcome: Pick<StepState, "status"> & Partial<StepState>): RunState {
  const { id, input_hash, attempts, visit, redispatch } = step;
  const settled: { -readonly [key in keyof StepState]: StepState[key] } = {
    id,
    input_hash,
    attempts,
    visit,
    redispatch,
    ...outcome,
  };
  if (step.side_effect !== undefined) settled.side_effect = step.side_effect;
  if (step.tool !== undefined) settled.tool = step.tool;
  if (step.started_at_ms !== undefined) settled.started_at_ms = step.started_at_ms;
  if (step.child_run_id !== undefined) settled.child_run_id = step.child_run_id;
  return closeWaits(putStep(run, settled), (wait) => wait.step_id === step.id);
}

function queueStep(run: RunState, event: Of<"step_queued">): RunState {
  if (run.unplaced_steps === 0) illegal(`step_queued for ${event.step_id} without step_reserved (RP-26)`);
  const before = run.steps.get(event.step_id);
  if (before !== undefined && isOpen(before.status)) illegal(`step_queued for the open step ${event.step_id}`);
  if (event.visit <= (before?.visit ?? 0)) illegal(`step_queued for an old visit of ${event.step_id}`);
  const step: StepState = {
    id: event.step_id,
    status: "queued",
    input_hash: before?.input_hash ?? "",
    attempts: before?.attempts ?? 0,
    visit: event.visit,
    redispatch: 0,
  };
  return putStep(run, step, run.unplaced_steps - 1);
}

function startStep(run: RunState, event: Of<"step_started">): RunState {
  const step = openStep(run, event.step_id, event.type);
  // A step that a person sent back to the queue (GD-74) starts a new attempt; any other open one continues its own.
  const again = step.status !== "queued" && step.was !== "queued";
  if (event.attempt !== step.attempts + (again ? 0 : 1)) illegal(`attempt ${event.attempt} of ${step.id} (R-10)`);
  if (step.status === "running" && event.redispatch !== step.redispatch + 1)
    illegal(`step_started for the running step ${step.id}`);
  if (again && event.input_hash !== step.input_hash) illegal(`${step.id} is sent again with another input`);
  // Field by field: spreading a step of unknown shape costs more than all the rest of this function.
  const started: { -readonly [key in keyof StepState]: StepState[key] } = {
    id: step.id,
    status: "running",
    input_hash: event.input_hash,
    attempts: event.attempt,
    visit: step.visit,
    side_effect: event.side_effect,
    redispatch: event.redispatch ?? step.redispatch,
    started_at_ms: again && step.started_at_ms !== undefined ? step.started_at_ms : event.at_ms,
  };
  const tool = event.tool ?? step.tool;
  const input = event.input ?? step.input;
  if (tool !== undefined) started.tool = tool;
  if (input !== undefined) started.input = input;
  if (step.receipt !== undefined) started.receipt = step.receipt;
  const planned = event.intent ?? step.intent;
  if (planned !== undefined) started.intent = planned;
  if (step.handed_off !== undefined) started.handed_off = step.handed_off;
  if (step.child_run_id !== undefined) started.child_run_id = step.child_run_id;
  return closeWaits(putStep(run, started), (wait) => wait.step_id === step.id);
}

function suspendStep(run: RunState, event: Of<"step_suspended">): RunState {
  const step = openStep(run, event.step_id, event.type);
  if (event.wait !== undefined) {
    // a mutation of unknown outcome carries recovery's failure until a person has answered.
    const unknown = event.wait.type === "repair";
    const failure: Failure = { code: "recovery_suspended", message: event.reason, retryable: true };
    return addWait(putStep(run, { ...step, status: "suspended", ...(unknown ? { failure } : {}) }), event.wait);
  }
  assert(isActive(step.status), `step_suspended for ${step.id}, which is ${step.status}`);
  return putStep(run, {
    ...step,
    status: "suspended",
    was: step.status as "queued" | "running",
    failure: { code: "recovery_suspended", message: event.reason, retryable: true },
  });
}

function completeStep(run: RunState, event: Of<"step_completed">): RunState {
  const step = openStep(run, event.step_id, event.type);
  assert(step.status !== "queued", `step_completed for ${step.id}, which never started`);
  return settleStep(run, step, { status: "succeeded", output: event.output });
}

function failStep(run: RunState, event: Of<"step_failed">): RunState {
  const step = run.steps.get(event.step_id);
  if (step === undefined) {
    // RP-51: a leaf that was never entered fails with the run's time.
    assert(event.visit !== undefined, `step_failed for the unknown step ${event.step_id}`);
    return putStep(run, {
      id: event.step_id,
      status: "failed",
      input_hash: "",
      attempts: 0,
      visit: event.visit,
      redispatch: 0,
      failure: event.failure,
    });
  }
  return settleStep(run, openStep(run, event.step_id, event.type), { status: "failed", failure: event.failure });
}

function cancelStep(run: RunState, event: Of<"step_cancelled">): RunState {
  const step = openStep(run, event.step_id, event.type);
  return settleStep(run, step, { status: "cancelled" });
}

function skipStep(run: RunState, event: Of<"step_skipped">): RunState {
  const before = run.steps.get(event.step_id);
  assert(before === undefined || !isOpen(before.status), `step_skipped for the open step ${event.step_id}`);
  const step = before ?? { id: event.step_id, status: "skipped", input_hash: "", attempts: 0, visit: 0, redispatch: 0 };
  return settleStep(
    run,
    { ...step, visit: event.visit },
    { status: "skipped", failure: { code: "dependency_skipped", message: event.reason, retryable: false } },
  );
}

function openWait(run: RunState, event: Of<"wait_opened">): RunState {
  const step = openStep(run, event.step_id, event.type);
  return addWait(putStep(run, { ...step, status: "suspended" }), event.wait);
}

/** A person's word on an unknown outcome (GD-74): the wait ends; what follows settles or sends the step. */
function repair(run: RunState, event: Of<"repaired">): RunState {
  findWait(run, event.wait_id, event.type);
  const step = openStep(run, event.step_id, event.type);
  const closed = closeWaits(run, (wait) => wait.wait_id === event.wait_id);
  if (event.resolution !== "retry") return closed;
  // The attempt is given up; the next one is a new number and so a new dispatch_id.
  const { receipt: _, was: __, intent: ___, handed_off: ____, ...open } = step;
  return putStep(closed, { ...open, status: "suspended", was: "queued", redispatch: 0 });
}

/** Evidence of a repair grows by what came too late; the journal has whatever is past the bound. */
function keepEvidence(run: RunState, event: Of<"late_result">): RunState {
  const add = (wait: Wait): Wait => {
    if (wait.step_id !== event.step_id || wait.evidence === undefined) return wait;
    const late_results = [...wait.evidence.late_results, event.result].slice(0, MAX_LATE_RESULTS);
    return { ...wait, evidence: { ...wait.evidence, late_results } };
  };
  return run.waits.some((wait) => wait.step_id === event.step_id) ? { ...run, waits: run.waits.map(add) } : run;
}

function addWait(run: RunState, wait: Wait): RunState {
  assert(!run.waits.some((w) => w.wait_id === wait.wait_id), `wait ${wait.wait_id} opened twice`);
  return { ...run, waits: [...run.waits, wait] };
}

function findWait(run: RunState, waitId: string, type: string): void {
  assert(
    run.waits.some((wait) => wait.wait_id === waitId),
    `${type} for the wait ${waitId}, which is not open`,
  );
}

function closeWaits(run: RunState, which: (wait: Wait) => boolean): RunState {
  if (run.waits.length === 0 || !run.waits.some(which)) return run;
  return { ...run, waits: run.waits.filter((wait) => !which(wait)) };
}

export function isTerminalEvent(type: EventBody["type"]): boolean {
  return TERMINAL_EVENT_TYPES.includes(type);
}
