/**
 * What may be done with a run now, and why not (RP-64, RP-65, RP-72, R-17, R-27). The operations call these functions
 * themselves, so what a run shows in `actions` and what its operations accept cannot drift apart.
 *
 * Every refusal's reason is a whole sentence, safe for the public projection: no tool names, values or texts.
 */
import type { ErrorCode } from "../errors.ts";
import type { Json } from "../json.ts";
import { isRaised, openSteps } from "../questions.ts";
import { isTerminal, type Wait, type WaitType } from "../run.ts";
import type { RunState } from "../state.ts";
import { ACTION_NAMES, type Action, type ActionName } from "./types.ts";
import { rfc3339 } from "./values.ts";

/** A run in its tree, at one time. */
export interface RunView {
  readonly state: RunState;
  /** The root of the tree; the same object as `state` for a root. */
  readonly root: RunState;
  /** The members of the tree that are known and have not ended; at least `state` and `root`. */
  readonly tree: readonly RunState[];
  readonly now_ms: number;
  /** The process that drove the tree is gone, or nobody took it yet: whoever asks first may go on with it. */
  readonly unheld?: boolean;
}

/** Whether an operation is accepted now; `wait` is the one that it would end. */
export type Allowance =
  | { readonly ok: true; readonly wait?: Wait }
  | { readonly ok: false; readonly code: ErrorCode; readonly reason: string; readonly details?: Json };

const ACCEPTED: Allowance = { ok: true };

function refuse(code: ErrorCode, act: string, state: string, next: string): Extract<Allowance, { ok: false }> {
  return { ok: false, code, reason: `Cannot ${act}: ${state}; ${next}` };
}

function ended(view: RunView, act: string): Allowance | undefined {
  const { status } = view.state;
  if (!isTerminal(status)) return undefined;
  return refuse("terminal", act, `it has ended as ${status}`, "start a new run");
}

/** what moves the tree as a whole is asked of its root. */
function notRoot(view: RunView, act: string): Allowance | undefined {
  const { header } = view.state;
  if (header.parent_run_id === undefined) return undefined;
  return refuse("not_possible", act, `it is part of the run ${header.root_run_id}`, "ask that of its root");
}

function members(view: RunView): readonly RunState[] {
  const all = new Map([view.root, view.state, ...view.tree].map((run) => [run.header.run_id, run]));
  return [...all.values()].filter((run) => !isTerminal(run.status));
}

/** Waits of the whole tree, this run's first. */
function treeWaits(view: RunView): Wait[] {
  const own = view.state.waits;
  const others = members(view).filter((run) => run.header.run_id !== view.state.header.run_id);
  return [...own, ...others.flatMap((run) => run.waits)];
}

function openRepair(view: RunView, act: string): Allowance | undefined {
  const repair = treeWaits(view).find((wait) => wait.type === "repair");
  if (repair === undefined) return undefined;
  const where = repair.run_id === view.state.header.run_id ? "" : ` of the run ${repair.run_id}`;
  return refuse(
    "not_possible",
    act,
    `the outcome of the step ${repair.step_id ?? "?"}${where} is unknown`,
    "repair it first",
  );
}

/** RP-65, RP-72: again after a cancel adds nothing and is accepted; a run that has ended otherwise is not cancelled. */
export function decideCancel(view: RunView): Allowance {
  const { status } = view.state;
  if (status === "succeeded" || status === "failed")
    return refuse("terminal", "cancel the run", `it has ended as ${status}`, "nothing is left to stop");
  return ACCEPTED;
}

/** GD-62: pausing a paused tree adds nothing and is accepted; a run that is being stopped is not held up. */
export function decidePause(view: RunView): Allowance {
  const act = "pause the run";
  const no = ended(view, act) ?? notRoot(view, act);
  if (no !== undefined) return no;
  if (view.state.stopping !== undefined)
    return refuse("not_possible", act, "it is being stopped", "repair its open steps, then it ends");
  return ACCEPTED;
}

/** Whether going on by itself is all that this wait needs: nobody has to be asked first. */
function isResumable(wait: Wait, run: RunState, now_ms: number): boolean {
  if (wait.type === "recovery" || wait.type === "paused" || wait.granted !== undefined) return true;
  if (wait.type === "budget") return isRaised(run, wait);
  const over = wait.due_at_ms ?? wait.deadline_at_ms;
  return over !== undefined && over <= now_ms;
}

/** GD-62: it goes on already, so that resuming it again adds nothing and is accepted; there is nothing to offer. */
export function isGoing(view: RunView): boolean {
  if (view.state.status !== "running" || view.unheld === true) return false;
  return (notRoot(view, "") ?? openRepair(view, "")) === undefined;
}

/** R-17, interfaces §2 `resume`: recovery, a pause, a raised budget, or a time that has passed with nobody there. */
export function decideResume(view: RunView): Allowance {
  const act = "resume the run";
  const { state, root, now_ms } = view;
  const no = ended(view, act) ?? notRoot(view, act) ?? openRepair(view, act);
  if (no !== undefined) return no;
  if (state.status === "queued") return ACCEPTED;
  if (state.status === "running" && view.unheld === true) return ACCEPTED;
  if (state.status === "running") return refuse("not_possible", act, "it is running", "follow it");
  if (members(view).some((run) => run.waits.some((wait) => isResumable(wait, root, now_ms)))) return ACCEPTED;
  const wait = state.waits[0];
  return refuse("not_possible", act, `it waits for ${waitPhrase(wait)}`, wayOut(wait));
}

/**
 * RP-64: only a root that recovery has suspended; R-17: not while a mutation waits for repair. What has ended is
 * `terminal`; whatever else cannot be restarted is refused in preflight.
 */
export function decideRestart(view: RunView): Allowance {
  const answer = restartable(view);
  return answer.ok || answer.code === "terminal" ? answer : { ...answer, code: "preflight" };
}

function restartable(view: RunView): Allowance {
  const act = "restart the run";
  const { state } = view;
  const no = ended(view, act) ?? notRoot(view, act) ?? openRepair(view, act);
  if (no !== undefined) return no;
  if (state.status !== "suspended")
    return refuse("not_possible", act, `it is ${state.status}`, "cancel it and start a new run");
  if (state.waits.some((wait) => wait.type === "recovery")) return ACCEPTED;
  return refuse(
    "not_possible",
    act,
    `it waits for ${waitPhrase(state.waits[0])}, and only an interrupted run is restarted`,
    wayOut(state.waits[0]),
  );
}

/** R-2j. */
export function decideRetry(view: RunView): Allowance {
  const act = "retry the run";
  if (view.state.status !== "failed")
    return refuse(
      "not_possible",
      act,
      `it is ${view.state.status} and only a failed run is retried`,
      "see its other actions",
    );
  return notRoot(view, act) ?? { ok: true };
}

export function decideFork(_view: RunView): Allowance {
  return refuse("not_possible", "fork the run", "this build does not offer it", "start a new run");
}

export function decideRaiseBudget(view: RunView): Allowance {
  const act = "raise the budget";
  return ended(view, act) ?? notRoot(view, act) ?? ACCEPTED;
}

// ── waits that a person ends ──────────────────────────────────────────────────────────────────────────────────

interface Ask {
  readonly act: string;
  readonly verb: "approve" | "deny" | "answer" | "repair";
  readonly types: readonly WaitType[];
  /** What is looked for, as a noun. */
  readonly noun: string;
}

const APPROVE: Ask = { act: "approve", verb: "approve", types: ["tool_approval", "approval"], noun: "an approval" };
/** No may also be said to an input: nobody will give that answer. */
const DENY: Ask = {
  act: "deny",
  verb: "deny",
  types: ["tool_approval", "approval", "input"],
  noun: "an approval or answer",
};
const ANSWER: Ask = { act: "answer", verb: "answer", types: ["input"], noun: "an answer" };
const REPAIR: Ask = { act: "repair the step", verb: "repair", types: ["repair", "tool_running"], noun: "a repair" };

/** the first decision stands; past its deadline, or on other content than was shown, it is a conflict. */
export function decideApprove(view: RunView, wait_id?: string, digest?: string): Allowance {
  return decideWait(view, APPROVE, wait_id, digest);
}

export function decideDeny(view: RunView, wait_id?: string, digest?: string): Allowance {
  return decideWait(view, DENY, wait_id, digest);
}

export function decideAnswer(view: RunView, wait_id?: string, digest?: string): Allowance {
  return decideWait(view, ANSWER, wait_id, digest);
}

/** GD-74: a step of this run whose outcome is unknown, or whose tool went on by itself. */
export function decideRepair(view: RunView, step_id: string, digest?: string): Allowance {
  const no = ended(view, REPAIR.act);
  if (no !== undefined) return no;
  const { state } = view;
  const wait = state.waits.find((open) => open.step_id === step_id && REPAIR.types.includes(open.type));
  if (wait !== undefined) return checkShown(view, REPAIR, wait, digest);
  const step = state.steps.get(step_id);
  const act = `repair the step ${step_id}`;
  if (step === undefined) return refuse("not_found", act, "the run has no such step", "see the run's steps");
  return refuse("not_possible", act, `it is ${step.status} and its outcome is not in question`, "see the run's waits");
}

function decideWait(view: RunView, ask: Ask, wait_id: string | undefined, digest: string | undefined): Allowance {
  const no = ended(view, ask.act) ?? beingStopped(view, ask);
  if (no !== undefined) return no;
  if (wait_id !== undefined) return decideNamed(view, ask, wait_id, digest);
  const open = openFor(view.state, ask);
  const [only] = open;
  if (only === undefined) return nothingOpen(view, ask);
  if (open.length === 1) return checkShown(view, ask, only, digest);
  const list = open.map((wait) => `${wait.wait_id} (${wait.step_id ?? wait.type})`).join(", ");
  return refuse("usage", ask.act, `${open.length} waits are open: ${list}`, "name one of them");
}

/** A run whose stop waits only for repairs goes nowhere by an approval. */
function beingStopped(view: RunView, ask: Ask): Allowance | undefined {
  if (view.state.stopping === undefined) return undefined;
  return refuse("not_possible", ask.act, "the run is being stopped", "repair its open steps, then it ends");
}

function openFor(run: RunState, ask: Ask): Wait[] {
  return run.waits.filter((wait) => ask.types.includes(wait.type) && wait.granted === undefined);
}

function nothingOpen(view: RunView, ask: Ask): Allowance {
  const elsewhere = members(view).find(
    (run) => run.header.run_id !== view.state.header.run_id && openFor(run, ask).length > 0,
  );
  if (elsewhere !== undefined)
    return refuse(
      "not_possible",
      ask.act,
      `the run ${elsewhere.header.run_id} of its tree asks, not this one`,
      "name that run",
    );
  return refuse(
    "not_possible",
    ask.act,
    `the run waits for no ${ask.noun.replace(/^an? /, "")}`,
    "see the run's waits",
  );
}

function decideNamed(view: RunView, ask: Ask, wait_id: string, digest: string | undefined): Allowance {
  const wait = view.state.waits.find((open) => open.wait_id === wait_id);
  if (wait === undefined) return notOpen(view, ask, wait_id);
  if (!ask.types.includes(wait.type))
    return refuse("not_possible", ask.act, `the wait ${wait_id} is for ${waitPhrase(wait)}`, wayOut(wait));
  const { granted } = wait;
  if (granted === undefined) return checkShown(view, ask, wait, digest);
  // The same decision again adds nothing; the opposite one came too late.
  if (ask.verb === "approve") return { ok: true, wait };
  return refuse(
    "conflict",
    ask.act,
    `it was ${granted.decision} meanwhile by ${granted.decided_by}`,
    "load the run again",
  );
}

/** A wait's id is the sequence that opened it, so one that the journal has passed was open once. */
function notOpen(view: RunView, ask: Ask, wait_id: string): Allowance {
  const sequence = /^w-([1-9]\d*)$/.exec(wait_id)?.[1];
  if (sequence !== undefined && Number(sequence) <= view.state.last_sequence)
    return refuse("conflict", ask.act, `the wait ${wait_id} is not open any more`, "load the run again");
  return refuse("not_found", ask.act, `the run has no wait ${JSON.stringify(wait_id)}`, "see the run's waits");
}

/** a decision is on what was shown, within its time. */
function checkShown(view: RunView, ask: Ask, wait: Wait, digest: string | undefined): Allowance {
  if (wait.deadline_at_ms !== undefined && view.now_ms >= wait.deadline_at_ms)
    return refuse(
      "conflict",
      ask.act,
      `its deadline passed at ${rfc3339(wait.deadline_at_ms)}`,
      "see how the run went on",
    );
  if (digest === undefined) return { ok: true, wait };
  if (!/^[0-9a-f]{8,64}$/.test(digest))
    return refuse(
      "usage",
      ask.act,
      "the digest is not 8 to 64 hexadecimal digits",
      "give that of the wait that was shown",
    );
  if (wait.digest !== undefined && !wait.digest.startsWith(digest))
    return {
      ...refuse("conflict", ask.act, `what is asked is now ${wait.digest}`, "look at it and decide again"),
      details: { wait_id: wait.wait_id, digest: wait.digest },
    };
  return { ok: true, wait };
}

// ── what is shown of all this ─────────────────────────────────────────────────────────────────────────────────

const RUN_ACTIONS: { readonly [name in ActionName]?: (view: RunView) => Allowance } = {
  cancel: decideCancel,
  pause: decidePause,
  resume: decideResume,
  restart: decideRestart,
  retry: decideRetry,
  fork: decideFork,
  raise_budget: decideRaiseBudget,
};

const WAIT_ACTIONS: { readonly [name in ActionName]?: Ask } = {
  approve: APPROVE,
  deny: DENY,
  answer: ANSWER,
  repair: REPAIR,
};

/** every name, in order; refused ones say why; `wait_id` where exactly one wait is meant. */
export function actions(view: RunView): Action[] {
  return ACTION_NAMES.map((name) => {
    const ask = WAIT_ACTIONS[name];
    if (ask !== undefined) return waitAction(view, name, ask);
    return toAction(name, RUN_ACTIONS[name]?.(view) ?? ACCEPTED);
  });
}

function toAction(name: ActionName, allowance: Allowance): Action {
  if (!allowance.ok) return { name, allowed: false, reason: allowance.reason };
  return { name, allowed: true, ...(allowance.wait === undefined ? {} : { wait_id: allowance.wait.wait_id }) };
}

/** With several waits open the action is allowed: its operation takes one of them by id. */
function waitAction(view: RunView, name: ActionName, ask: Ask): Action {
  const no = ended(view, ask.act) ?? (ask === REPAIR ? undefined : beingStopped(view, ask));
  if (no !== undefined) return toAction(name, no);
  const open = openFor(view.state, ask);
  const allowances = open.map((wait) => checkShown(view, ask, wait, undefined));
  const able = allowances.filter((allowance) => allowance.ok);
  if (able.length > 1) return { name, allowed: true };
  return toAction(name, able[0] ?? allowances[0] ?? nothingOpen(view, ask));
}

/** Verbs of the actions that are accepted now. */
export function allowedActions(view: RunView): ReadonlySet<ActionName> {
  return new Set(actions(view).flatMap((action) => (action.allowed ? [action.name] : [])));
}

const WAIT_PHRASES: { readonly [type in WaitType]: string } = {
  recovery: "recovery",
  tool_approval: "the approval of a tool call",
  tool_running: "a tool that went on by itself",
  approval: "an approval",
  input: "an answer",
  timer: "its time",
  repair: "the repair of a step whose outcome is unknown",
  budget: "a higher budget",
  paused: "somebody to resume it",
  child: "a child run",
};

/** What a wait is for, as a noun phrase. */
export function waitPhrase(wait: Pick<Wait, "type"> | undefined): string {
  return wait === undefined ? "nothing that is known" : WAIT_PHRASES[wait.type];
}

function wayOut(wait: Wait | undefined): string {
  switch (wait?.type) {
    case "tool_approval":
    case "approval":
      return "approve or deny it";
    case "input":
      return "answer or deny it";
    case "timer":
      return wait.due_at_ms === undefined ? "it goes on by itself" : `it goes on at ${rfc3339(wait.due_at_ms)}`;
    case "repair":
    case "tool_running":
      return `repair the step ${wait.step_id ?? ""}`.trimEnd();
    case "budget":
      return "raise the budget first";
    case "child":
      return wait.child_run_id === undefined ? "see its child runs" : `see the run ${wait.child_run_id}`;
    case "recovery":
    case "paused":
      return "resume it";
    case undefined:
      return "see why it stands still";
  }
}

/** Steps of a run that are queued or running, in id order. */
export function activeSteps(run: RunState): readonly string[] {
  return openSteps(run, ["queued", "running"]).map((step) => step.id);
}
