/**
 * Every event that is legal, or just not legal, in a state: what the property tests draw journals from. It knows the
 * rules only from the outside (DESIGN §4, RP-26, R-9, R-10, R-19), not from `evolve`.
 */
import { type EventBody, type RunEvent, TERMINAL_EVENT_TYPES } from "./events.ts";
import { DEFAULT_BUDGETS, type Decision, isTerminal, type RunHeader, type Wait, type WaitType } from "./run.ts";
import { evolve, initialState, type RunState, type StepState } from "./state.ts";

export const RUN_ID = "0190c000-0000-7000-8000-000000000001";

export const HEADER: RunHeader = {
  run_id: RUN_ID,
  root_run_id: RUN_ID,
  session_id: "0190c000-0000-7000-8000-00000000000a",
  kind: "plan",
  workflow_id: "flow",
  workflow_revision: 1,
  bundle_hash: "ab".repeat(32),
  args: {},
  args_hash: "cd".repeat(32),
  budget: DEFAULT_BUDGETS,
  created_at_ms: 1_000,
  depth: 0,
  engine_version: 1,
  durability: "standard",
  origin: "explicit",
};

/** Names that a plain object would trip over are steps like any other (C24). */
const IDS = ["a", "b@root[1]", "__proto__", "constructor"] as const;
const FAILURE = { code: "execution_failed", message: "it broke", retryable: true } as const;
const DECISION: Decision = { approved: true, decision: "approved", decided_by: "os:me", decided_at_ms: 7 };

/** The event that follows: a millisecond per sequence, so that a journal is told by its bodies alone. */
export function nextEvent(run: RunState, body: EventBody): RunEvent {
  const sequence = run.last_sequence + 1;
  return { sequence, at_ms: HEADER.created_at_ms + sequence, ...body };
}

export function foldBodies(bodies: readonly EventBody[], header: RunHeader = HEADER): RunState {
  return bodies.reduce((run, body) => evolve(run, nextEvent(run, body)), initialState(header));
}

function newWait(run: RunState, type: WaitType, step_id?: string): Wait {
  return {
    wait_id: `w-${run.last_sequence + 1}`,
    type,
    run_id: RUN_ID,
    since_ms: 1,
    ...(step_id === undefined ? {} : { step_id }),
  };
}

const isActive = (step: StepState): boolean => step.status === "queued" || step.status === "running";
const isOpen = (step: StepState): boolean => isActive(step) || step.status === "suspended";

/** All bodies that may come next; empty exactly when the run has ended. */
export function legalBodies(run: RunState): EventBody[] {
  if (isTerminal(run.status)) return [];
  if (run.last_sequence === 0) return [{ type: "run_queued" }];
  const steps = [...run.steps.values()];
  return [
    ...runBodies(run),
    ...(run.status === "running" ? [...freshBodies(run), ...steps.flatMap((step) => workBodies(run, step))] : []),
    ...(isHeld(run) ? [ANSWERED, ...steps.filter(isOpen).map(answered)] : []),
    ...steps.filter(isOpen).flatMap((step) => openBodies(run, step)),
    ...run.waits.flatMap(waitBodies),
  ];
}

/** GD-62: a pause holds the run, and what people answer meanwhile is written where it stands. */
const isHeld = (run: RunState): boolean =>
  run.status === "suspended" && run.stopping === undefined && run.waits.some((wait) => wait.type === "paused");
const ANSWERED: EventBody = { type: "decision", key: "cancelled:a", value: null };
const answered = (step: StepState): EventBody => ({ type: "step_completed", step_id: step.id, output: "by hand" });

function runBodies(run: RunState): EventBody[] {
  const bodies: EventBody[] = [
    { type: "cancel_requested", stop_reason: "cancelled", reason: "enough" },
    { type: "budget_raised", budget: { max_steps: run.budget.max_steps + 1 }, decided_by: "os:me" },
  ];
  const stillness: WaitType = run.last_sequence % 2 === 0 ? "paused" : "recovery";
  if (run.active === 0) {
    bodies.push({ type: "run_suspended", reason: stillness, wait: newWait(run, stillness) });
    bodies.push(
      { type: "run_failed", failure: FAILURE },
      { type: "run_cancelled", reason: "enough", decided_by: "os:me" },
    );
    if (run.waits.length > 0 && run.status === "running") bodies.push({ type: "run_suspended", reason: "waits" });
    if (run.status === "running") bodies.push({ type: "run_succeeded", output: { done: true } });
  }
  if (run.status !== "running") bodies.push({ type: "run_started" });
  return bodies;
}

/** What a running program asks for: reservations, decisions, new and repeated places. */
function freshBodies(run: RunState): EventBody[] {
  const bodies: EventBody[] = [
    { type: "phase", name: "step_reserved" },
    { type: "phase", name: "retry_reserved", key: "r", due_at_ms: 9 },
    { type: "decision", key: "now", value: 9 },
  ];
  for (const id of IDS) {
    const step = run.steps.get(id);
    if (step !== undefined && isOpen(step)) continue;
    const visit = (step?.visit ?? 0) + 1;
    if (run.unplaced_steps > 0) bodies.push({ type: "step_queued", step_id: id, visit });
    bodies.push({ type: "step_skipped", step_id: id, visit, reason: "not chosen" });
    if (step === undefined) bodies.push({ type: "step_failed", step_id: id, visit, failure: FAILURE });
  }
  for (const instance of run.reservations.keys())
    bodies.push({
      type: "phase",
      name: "agent_usage_recorded",
      instance,
      tokens: 3,
      cost_micros: run.last_sequence % 3 === 0 ? null : 2,
    });
  return bodies;
}

/** The work on one place while the run is running. */
function workBodies(run: RunState, step: StepState): EventBody[] {
  if (!isOpen(step)) return [];
  const bodies: EventBody[] = [{ type: "phase", name: "suspension_context_persisted", instance: step.id }];
  if (!run.reservations.has(step.id))
    bodies.push({ type: "phase", name: "agent_reserved", instance: step.id, tokens: 5, cost_micros: 4 });
  bodies.push(startBody(step));
  if (step.status !== "queued") {
    bodies.push({ type: "step_completed", step_id: step.id, output: [step.attempts] });
    bodies.push({ type: "wait_opened", step_id: step.id, visit: step.visit, wait: newWait(run, "approval", step.id) });
  }
  return bodies;
}

/** A first start, a next attempt, or the same one again under its own number. */
function startBody(step: StepState): EventBody {
  const fresh = step.status === "queued" || step.was === "queued";
  return {
    type: "step_started",
    step_id: step.id,
    attempt: step.attempts + (fresh ? 1 : 0),
    side_effect: "mutating",
    input_hash: fresh ? "ef".repeat(32) : step.input_hash,
    input: { n: 1 },
    ...(step.status === "running" ? { redispatch: step.redispatch + 1 } : {}),
  };
}

/** What may become of an open step whatever the run is doing: a stop, a crash and a late word come at any time. */
function openBodies(run: RunState, step: StepState): EventBody[] {
  const bodies: EventBody[] = [
    { type: "step_failed", step_id: step.id, failure: FAILURE, detail: "said the tool" },
    { type: "step_cancelled", step_id: step.id },
    { type: "handed_off", step_id: step.id },
    { type: "receipt", step_id: step.id, receipt: { ticket: run.last_sequence } },
    { type: "child_linked", step_id: step.id, child_run_id: `child-${step.id}` },
    { type: "late_result", step_id: step.id, attempt: 1, result: null },
    { type: "step_suspended", step_id: step.id, reason: "unknown", wait: newWait(run, "repair", step.id) },
  ];
  if (isActive(step)) bodies.push({ type: "step_suspended", step_id: step.id, reason: "lost" });
  return bodies;
}

function waitBodies(wait: Wait): EventBody[] {
  const bodies: EventBody[] = [
    { type: "wait_warned", wait_id: wait.wait_id },
    { type: "wait_closed", wait_id: wait.wait_id, by: "decision", decision: DECISION },
    { type: "grant_issued", wait_id: wait.wait_id, digest: "00", decision: DECISION },
  ];
  if (wait.step_id === undefined) return bodies;
  for (const resolution of ["succeeded", "retry"] as const)
    bodies.push({ type: "repaired", step_id: wait.step_id, wait_id: wait.wait_id, resolution, decided_by: "os:me" });
  return bodies;
}

/** Walks from the start, each number choosing one of the legal events; ends early with the run. */
export function drawJournal(choices: readonly number[]): RunEvent[] {
  const events: RunEvent[] = [];
  let run = initialState(HEADER);
  for (const choice of choices) {
    // Most choices leave the run open, so that walks get somewhere before they end it.
    const bodies = legalBodies(run).filter((body) => choice % 8 === 0 || !TERMINAL_EVENT_TYPES.includes(body.type));
    const body = bodies[choice % bodies.length];
    if (body === undefined) break;
    const event = nextEvent(run, body);
    events.push(event);
    run = evolve(run, event);
  }
  return events;
}

/** Events that must be refused in this state, each with the rule it breaks. */
export function illegalEvents(run: RunState): { readonly rule: string; readonly event: RunEvent }[] {
  const found: { rule: string; event: RunEvent }[] = [];
  const add = (rule: string, body: EventBody): void => void found.push({ rule, event: nextEvent(run, body) });
  for (const body of legalBodies(run).slice(0, 3))
    for (const sequence of [run.last_sequence, run.last_sequence + 2])
      found.push({ rule: "RP-56 a sequence that is not the next", event: { ...nextEvent(run, body), sequence } });
  add("an unknown type", { type: "run_paused" } as unknown as EventBody);
  if (run.last_sequence === 0) {
    add("the first event is run_queued", { type: "run_started" });
    return found;
  }
  add("run_queued comes once", { type: "run_queued" });
  illegalForRun(run, add);
  for (const step of run.steps.values()) illegalForStep(run, step, add);
  return found;
}

type Add = (rule: string, body: EventBody) => void;

function illegalForRun(run: RunState, add: Add): void {
  const nowhere: EventBody[] = [
    { type: "step_started", step_id: "nowhere", attempt: 1, side_effect: "read_only", input_hash: "" },
    { type: "step_completed", step_id: "nowhere", output: null },
    { type: "step_failed", step_id: "nowhere", failure: FAILURE },
    { type: "step_cancelled", step_id: "nowhere" },
    { type: "step_suspended", step_id: "nowhere", reason: "lost" },
    { type: "receipt", step_id: "nowhere", receipt: null },
    { type: "handed_off", step_id: "nowhere" },
    { type: "child_linked", step_id: "nowhere", child_run_id: "c" },
    { type: "phase", name: "agent_reserved", instance: "nowhere" },
    { type: "phase", name: "agent_usage_recorded", instance: "nowhere", tokens: 1, cost_micros: 1 },
    { type: "wait_opened", step_id: "nowhere", visit: 1, wait: newWait(run, "input", "nowhere") },
  ];
  for (const body of nowhere) add("a step that is not there", body);
  const noWait: EventBody[] = [
    { type: "wait_warned", wait_id: "w-0" },
    { type: "wait_closed", wait_id: "w-0", by: "timer" },
    { type: "grant_issued", wait_id: "w-0", digest: "00", decision: DECISION },
    { type: "repaired", step_id: "a", wait_id: "w-0", resolution: "retry", decided_by: "os:me" },
  ];
  for (const body of noWait) add("a wait that is not open", body);
  if (run.unplaced_steps === 0)
    add("RP-26 queued without a reservation", { type: "step_queued", step_id: "fresh", visit: 1 });
  if (run.status === "running") add("started twice", { type: "run_started" });
  else {
    add("work while the run is not running", { type: "phase", name: "step_reserved" });
    if (!isHeld(run)) add("work while the run is not running", { type: "decision", key: "k", value: 1 });
    add("work while the run is not running", { type: "step_skipped", step_id: "fresh", visit: 1, reason: "x" });
    add("success while the run is not running", { type: "run_succeeded", output: null });
  }
  if (run.waits.length === 0) add("suspended on nothing", { type: "run_suspended", reason: "x" });
  if (run.status === "suspended") add("suspended again on nothing new", { type: "run_suspended", reason: "x" });
  if (run.active > 0) {
    add("ended with open steps", { type: "run_succeeded", output: null });
    add("ended with open steps", { type: "run_failed", failure: FAILURE });
    add("ended with open steps", { type: "run_cancelled" });
  }
}

function illegalForStep(run: RunState, step: StepState, add: Add): void {
  const { id: step_id, visit } = step;
  const start = { ...startBody(step), type: "step_started" as const };
  if (!isOpen(step)) {
    add("started after its settlement", start as EventBody);
    add("settled twice", { type: "step_completed", step_id, output: null });
    add("settled twice", { type: "step_cancelled", step_id });
    add("settled twice", { type: "step_failed", step_id, failure: FAILURE });
    add("suspended after its settlement", { type: "step_suspended", step_id, reason: "x" });
    if (run.unplaced_steps > 0) add("R-2 an old visit", { type: "step_queued", step_id, visit });
    return;
  }
  if (run.unplaced_steps > 0) add("queued while it is open", { type: "step_queued", step_id, visit: visit + 1 });
  add("skipped while it is open", { type: "step_skipped", step_id, visit: visit + 1, reason: "x" });
  add("R-10 an attempt out of turn", {
    ...(startBody(step) as Extract<EventBody, { type: "step_started" }>),
    attempt: step.attempts + 2,
  });
  if (step.status === "queued") add("completed before it started", { type: "step_completed", step_id, output: null });
  if (step.status === "running" && run.status === "running")
    add("R-10 sent again without being counted", {
      ...(startBody(step) as Extract<EventBody, { type: "step_started" }>),
      redispatch: step.redispatch,
    });
  if (step.status !== "queued" && step.was !== "queued")
    add("R-2 sent again with another input", {
      ...(startBody(step) as Extract<EventBody, { type: "step_started" }>),
      input_hash: "another",
    });
  const [open] = run.waits;
  if (open !== undefined)
    add("a wait that is open already", { type: "step_suspended", step_id, reason: "x", wait: open });
  if (run.reservations.has(step_id))
    add("R-16 reserved twice", { type: "phase", name: "agent_reserved", instance: step_id });
}
