/**
 * Why a run stands where it does (DESIGN §6, last paragraph): one sentence for each cause of waiting, the same in
 * every interface. A sentence says what is the case and what to do; commands are named without the program before
 * them. The public variant has no tool names, prompts, reasons or other texts of the run (RP-74).
 */
import { exhaustedLimit } from "../ledger.ts";
import { isTerminal, type Wait } from "../run.ts";
import type { RunState } from "../state.ts";
import { activeSteps, allowedActions, decideResume, type RunView, waitPhrase } from "./decisions.ts";
import type { ActionName, Why } from "./types.ts";
import { publicFailure, rfc3339 } from "./values.ts";

/** Every value of `cause`. */
export const CAUSES = [
  "ended",
  "running",
  "queued",
  "no_worker",
  "lease",
  "concurrency",
  "rate_limit",
  "retry_delay",
  "timer",
  "approval",
  "input",
  "budget",
  "child",
  "unknown_outcome",
  "pause",
  "recovery",
  "untrusted",
  "storage",
] as const;
export type Cause = (typeof CAUSES)[number];

/** What is known beside the journal, by whoever holds the run or asks the store. */
export interface WhyExtra {
  /** Which process has the tree's lease. */
  readonly holder: "here" | "other" | "none";
  readonly lease_expires_at_ms?: number;
  /** Instances that are queued and wait for a concurrency slot. */
  readonly waiting_for_permit?: readonly string[];
  /** Instances that wait for tokens or money which other calls hold (R-16). */
  readonly waiting_for_room?: readonly string[];
  /** Instances that wait for resources which other attempts hold (GD-53). */
  readonly waiting_for_lease?: readonly string[];
  /** Instances whose tool's owner takes nothing now (GD-14). */
  readonly waiting_for_owner?: readonly string[];
  /** What the store said when this process last had to let go of the run, and when it is tried again (C34). */
  readonly store_trouble?: { readonly message: string; readonly again_at_ms: number };
  /** When the next delayed retry goes. */
  readonly retry_due_at_ms?: number;
  /** Until when a provider's rate limit holds calls back. */
  readonly rate_limited_until_ms?: number;
  /** Recoveries without progress so far (R-5). */
  readonly recoveries?: number;
  /** Whether the workspace is trusted now. */
  readonly trusted?: boolean;
  /** False when this build cannot go on with the run (R-21). */
  readonly supported?: boolean;
}

/** Most causes listed; the sentence counts them all. */
const MAX_CAUSES = 20;
/** Most step ids named in one sentence. */
const MAX_NAMED = 5;
/** What needs nobody's word any more: a worker process goes on by itself, without one somebody has to resume it. */
const GOES_ON = "it goes on when a process drives the run: a worker process, or resume";
/** Longest text of an author or tool within a sentence, in characters. */
const MAX_TEXT = 200;

type Found = Omit<Why["causes"][number], "cause"> & { readonly cause: Cause };

interface Ground {
  readonly view: RunView;
  readonly extra: WhyExtra;
  readonly isPublic: boolean;
  readonly allowed: ReadonlySet<ActionName>;
}

/** Where the run stands and why; `public` leaves out what only an operator may see. */
export function why(view: RunView, extra: WhyExtra, options: { readonly public?: boolean } = {}): Why {
  const ground: Ground = { view, extra, isPublic: options.public === true, allowed: allowedActions(view) };
  const causes = isTerminal(view.state.status) ? [ended(ground)] : openCauses(ground);
  return {
    run_id: view.state.header.run_id,
    status: view.state.status,
    sentence: summary(causes),
    causes: causes.slice(0, MAX_CAUSES),
  };
}

function summary(causes: readonly Found[]): string {
  const [first, ...more] = causes;
  if (first === undefined) return "Nothing is known that holds the run.";
  if (more.length === 0) return first.sentence;
  return `${first.sentence} ${more.length === 1 ? "There is 1 more cause" : `There are ${more.length} more causes`}.`;
}

function openCauses(ground: Ground): Found[] {
  const { state } = ground.view;
  const causes: Found[] = [];
  const trouble = ground.extra.store_trouble;
  if (trouble !== undefined) causes.push(storage(ground, trouble));
  if (ground.extra.supported === false) causes.push(unsupported(ground));
  else if (state.status === "queued") causes.push(queued(ground));
  else if (state.status === "running") causes.push(...running(ground));
  // A pause holds all the rest, whatever it waits for besides.
  const paused = state.waits.filter((wait) => wait.type === "paused");
  for (const wait of new Set([...paused, ...state.waits])) causes.push(waiting(ground, wait));
  if (ground.extra.trusted === false && continues(state))
    causes.push(
      found(
        ground,
        "untrusted",
        "The workspace is not trusted, so only its reading tools may be used; trust it to allow more.",
      ),
    );
  return causes;
}

/** Whether the next thing that happens to the run is that somebody goes on with it. */
function continues(state: RunState): boolean {
  return state.status === "queued" || state.waits.some((wait) => wait.type === "recovery" || wait.type === "paused");
}

function found(
  ground: Ground,
  cause: Cause,
  sentence: string,
  facts: {
    readonly wait?: Wait;
    readonly step_id?: string;
    readonly until_ms?: number;
    readonly ends_by?: readonly ActionName[];
  } = {},
): Found {
  const step_id = facts.step_id ?? facts.wait?.step_id;
  return {
    cause,
    sentence,
    ...(step_id === undefined ? {} : { step_id }),
    ...(facts.wait === undefined ? {} : { wait_id: facts.wait.wait_id }),
    ...(facts.until_ms === undefined ? {} : { until_ms: facts.until_ms }),
    // Only what would be accepted now: a cause never sends anybody to a refusal.
    ends_by: (facts.ends_by ?? []).filter((name) => ground.allowed.has(name)),
  };
}

// ── the run itself ────────────────────────────────────────────────────────────────────────────────────────────

function ended(ground: Ground): Found {
  const { status, failure, updated_at_ms } = ground.view.state;
  const at = rfc3339(updated_at_ms);
  if (status === "succeeded") return found(ground, "ended", `The run succeeded at ${at}.`);
  if (status === "cancelled") {
    const text = ground.isPublic || failure === undefined ? "" : `: ${clip(failure.message)}`;
    return found(ground, "ended", `The run was cancelled at ${at}${text}.`);
  }
  const shown = failure === undefined || !ground.isPublic ? failure : publicFailure(failure);
  const text = shown === undefined ? "" : ` (${shown.code}): ${clip(shown.message)}`;
  return found(ground, "ended", `The run failed at ${at}${text}.`);
}

function unsupported(ground: Ground): Found {
  return found(
    ground,
    "no_worker",
    "No process here can go on with the run: a newer build started it; upgrade this one.",
  );
}

function queued(ground: Ground): Found {
  if (ground.extra.holder !== "none")
    return found(ground, "queued", "The run is queued and a process is about to start it.");
  return found(
    ground,
    "no_worker",
    "The run is queued and no worker process has taken it; resume it here, or start a worker process to take it.",
    { ends_by: ["resume"] },
  );
}

function running(ground: Ground): Found[] {
  const { extra } = ground;
  if (extra.holder === "none") return [unheld(ground)];
  const causes = [atWork(ground)];
  const slots = extra.waiting_for_permit ?? [];
  if (slots.length > 0) causes.push(concurrency(ground, slots));
  const room = extra.waiting_for_room ?? [];
  if (room.length > 0) causes.push(budgetRoom(ground, room));
  const lease = extra.waiting_for_lease ?? [];
  if (lease.length > 0) causes.push(resources(ground, lease));
  const owner = extra.waiting_for_owner ?? [];
  if (owner.length > 0) causes.push(busyOwner(ground, owner));
  if (extra.rate_limited_until_ms !== undefined) causes.push(rateLimit(ground, extra.rate_limited_until_ms));
  if (extra.retry_due_at_ms !== undefined) causes.push(retryDelay(ground, extra.retry_due_at_ms));
  return causes;
}

function storage(ground: Ground, { message, again_at_ms }: NonNullable<WhyExtra["store_trouble"]>): Found {
  const what = ground.isPublic ? "" : `: ${clip(message)}`;
  const until = again_at_ms > ground.view.now_ms ? again_at_ms : undefined;
  const when = until === undefined ? "" : `, next at ${rfc3339(until)}`;
  return found(
    ground,
    "storage",
    `The store could not be written${what}; what is finished is kept, and a worker process goes on by itself once the store can be written again${when}.`,
    until === undefined ? {} : { until_ms: until },
  );
}

function unheld(ground: Ground): Found {
  const until = ground.extra.lease_expires_at_ms;
  const left = until !== undefined && until > ground.view.now_ms;
  return found(
    ground,
    "lease",
    left
      ? `The process that drove the run is gone and its lease lasts until ${rfc3339(until)}; after that it is taken over by a worker process, or by resume.`
      : "The process that drove the run is gone; a worker process takes it over, or resume does.",
    left ? { until_ms: until } : {},
  );
}

/** In whose process is not said: the sentence is the same whoever asks, and where. */
function atWork(ground: Ground): Found {
  const { waiting_for_permit, waiting_for_room, waiting_for_lease, waiting_for_owner } = ground.extra;
  const held = new Set(
    [waiting_for_permit, waiting_for_room, waiting_for_lease, waiting_for_owner].flatMap((ids) => ids ?? []),
  );
  const busy = activeSteps(ground.view.state).filter((id) => !held.has(id));
  const steps = busy.length === 0 ? "." : `: ${named(busy)} ${busy.length === 1 ? "is" : "are"} at work.`;
  return found(ground, "running", `The run is running${steps}`, oneStep(busy));
}

function concurrency(ground: Ground, ids: readonly string[]): Found {
  const { max_concurrency } = ground.view.root.budget;
  return found(
    ground,
    "concurrency",
    `${capital(named(ids))} ${ids.length === 1 ? "waits" : "wait"} for a concurrency slot; the run may do ${max_concurrency} at once (max_concurrency), and the next starts when one ends.`,
    oneStep(ids),
  );
}

function budgetRoom(ground: Ground, ids: readonly string[]): Found {
  return found(
    ground,
    "budget",
    `${capital(named(ids))} ${ids.length === 1 ? "waits" : "wait"} for tokens or money that other calls have reserved; the next goes on when one of them settles, or raise the budget.`,
    { ...oneStep(ids), ends_by: ["raise_budget"] },
  );
}

function resources(ground: Ground, ids: readonly string[]): Found {
  return found(
    ground,
    "lease",
    `${capital(named(ids))} ${ids.length === 1 ? "waits" : "wait"} for a resource of the workspace that another step holds; it goes on by itself when that step ends.`,
    oneStep(ids),
  );
}

function busyOwner(ground: Ground, ids: readonly string[]): Found {
  return found(
    ground,
    "lease",
    `${capital(named(ids))} ${ids.length === 1 ? "waits" : "wait"} until what does the work takes more of it; it goes on by itself then.`,
    oneStep(ids),
  );
}

function rateLimit(ground: Ground, until_ms: number): Found {
  return found(
    ground,
    "rate_limit",
    `A provider's rate limit holds calls back until ${rfc3339(until_ms)}; they go on by themselves then.`,
    { until_ms },
  );
}

function retryDelay(ground: Ground, until_ms: number): Found {
  return found(ground, "retry_delay", `What failed is tried again at ${rfc3339(until_ms)}, by itself.`, { until_ms });
}

// ── waits ─────────────────────────────────────────────────────────────────────────────────────────────────────

function waiting(ground: Ground, wait: Wait): Found {
  if (wait.granted !== undefined) return granted(ground, wait);
  switch (wait.type) {
    case "tool_approval":
    case "approval":
      return asked(ground, wait, "approval", "approve or deny it", ["approve", "deny"]);
    case "input":
      return asked(ground, wait, "input", "answer or deny it", ["answer", "deny"]);
    case "timer":
      return timer(ground, wait);
    case "repair":
      return unknownOutcome(ground, wait);
    case "tool_running":
      return detached(ground, wait);
    case "budget":
      return budget(ground, wait);
    case "child":
      return child(ground, wait);
    case "paused":
      return standing(ground, wait, "pause", "The run is paused", ["resume"]);
    case "recovery":
      return recovery(ground, wait);
  }
}

function granted(ground: Ground, wait: Wait): Found {
  const by = ground.isPublic ? "" : ` by ${clip(wait.granted?.decided_by ?? "")}`;
  const next = ground.extra.holder === "none" ? "resume the run to send it" : "it is about to be sent";
  return found(ground, "approval", `${capital(stepName(wait))} was approved${by}; ${next}.`, {
    wait,
    ends_by: ["resume"],
  });
}

function asked(ground: Ground, wait: Wait, cause: Cause, verbs: string, ends_by: readonly ActionName[]): Found {
  const deadline = wait.deadline_at_ms;
  const who = capital(stepName(wait));
  if (deadline !== undefined && deadline <= ground.view.now_ms)
    return found(
      ground,
      cause,
      `${who} waits for ${waitPhrase(wait)} whose deadline passed at ${rfc3339(deadline)}, which counts as No; it goes on when a process drives the run.`,
      { wait, ends_by: ["resume"] },
    );
  const limit = deadline === undefined ? "" : ` before ${rfc3339(deadline)}; silence counts as No`;
  return found(ground, cause, `${who} ${question(ground, wait)}; ${verbs}${limit}.`, {
    wait,
    ends_by,
    ...(deadline === undefined ? {} : { until_ms: deadline }),
  });
}

function question(ground: Ground, wait: Wait): string {
  if (ground.isPublic) return `waits for ${waitPhrase(wait)}`;
  if (wait.type === "tool_approval" && wait.tool !== undefined) {
    const effect = wait.side_effect === undefined ? "" : ` (${wait.side_effect.replace("_", "-")})`;
    return `asks to use the tool "${clip(wait.tool)}"${effect}`;
  }
  return wait.prompt === undefined ? `waits for ${waitPhrase(wait)}` : `asks: "${clip(wait.prompt)}"`;
}

function timer(ground: Ground, wait: Wait): Found {
  const due = wait.due_at_ms ?? ground.view.now_ms;
  if (due <= ground.view.now_ms)
    return found(ground, "timer", `The time of ${stepName(wait)} was over at ${rfc3339(due)}; ${GOES_ON}.`, {
      wait,
      ends_by: ["resume"],
    });
  return found(ground, "timer", `${capital(stepName(wait))} waits until ${rfc3339(due)} and goes on by itself then.`, {
    wait,
    until_ms: due,
  });
}

function unknownOutcome(ground: Ground, wait: Wait): Found {
  const stopped = wait.stop_reason !== undefined && wait.stop_reason !== "paused";
  const after = stopped || ground.view.state.stopping !== undefined ? ENDS_THEN : "";
  if (ground.isPublic)
    return found(
      ground,
      "unknown_outcome",
      `The outcome of ${stepName(wait)} is unknown; an operator has to repair it.${after}`,
      {
        wait,
        ends_by: ["repair"],
      },
    );
  const tool = wait.tool === undefined ? "" : ` (tool "${clip(wait.tool)}")`;
  const reason = wait.reason === undefined ? "" : `: ${clip(wait.reason)}`;
  return found(
    ground,
    "unknown_outcome",
    `Whether ${stepName(wait)}${tool} took effect is unknown${reason}; find out, then repair it as succeeded, failed, cancelled or to be retried.${after}`,
    { wait, ends_by: ["repair"] },
  );
}

/** R-12: a stop that came before or after the question was asked waits for its answer. */
const ENDS_THEN = " The answer also ends what was being stopped.";

function detached(ground: Ground, wait: Wait): Found {
  const tool = ground.isPublic || wait.tool === undefined ? "The tool" : `The tool "${clip(wait.tool)}"`;
  const killed = wait.killed === true ? "was stopped" : "could not be stopped";
  const what = `${tool} of ${stepName(wait)} went on by itself and ${killed}; find out what it did, then repair the step.`;
  return found(ground, "unknown_outcome", what, { wait, ends_by: ["repair"] });
}

function budget(ground: Ground, wait: Wait): Found {
  if (decideResume(ground.view).ok)
    return found(ground, "budget", `The budget was used up and has been raised; ${GOES_ON}.`, {
      wait,
      ends_by: ["resume"],
    });
  const used = exhaustedLimit(wait.reason ?? "");
  const which = used === undefined ? "" : ` (${used.field} is ${used.limit})`;
  return found(
    ground,
    "budget",
    `The budget is used up${which}, and what is finished is kept; raise it, and ${GOES_ON}.`,
    { wait, ends_by: ["raise_budget"] },
  );
}

function child(ground: Ground, wait: Wait): Found {
  const who = wait.step_id === undefined ? "The run" : capital(stepName(wait));
  if (wait.child_run_id === undefined)
    return found(ground, "child", `${who} waits for a child run; see its child runs.`, { wait });
  const state = ground.view.tree.find((run) => run.header.run_id === wait.child_run_id);
  const on = state?.waits[0];
  const which = on === undefined ? "" : `, which waits for ${waitPhrase(on)}`;
  const until = on?.due_at_ms ?? on?.deadline_at_ms;
  const then = ground.view.state.stopping === undefined ? "" : " The run is being stopped and ends with it.";
  return found(ground, "child", `${who} waits for the child run ${wait.child_run_id}${which}; see why there.${then}`, {
    wait,
    ...(until === undefined ? {} : { until_ms: until }),
  });
}

function recovery(ground: Ground, wait: Wait): Found {
  if (wait.due_at_ms !== undefined) return notAdmitted(ground, wait, wait.due_at_ms);
  const times = ground.extra.recoveries ?? 0;
  const what =
    times > 1 ? `The run was interrupted ${times} times without getting any further` : "The run was interrupted";
  return standing(ground, wait, "recovery", what, ["resume", "restart"]);
}

/** GD-27: let go of for a while, so that it holds up nobody. */
function notAdmitted(ground: Ground, wait: Wait, due: number): Found {
  const what = "Nothing of the run could begin in time, because what it needs was taken";
  if (due <= ground.view.now_ms)
    return found(
      ground,
      "lease",
      `${what}; it is tried again when a process drives the run: a worker process, or resume.`,
      {
        wait,
        ends_by: ["resume"],
      },
    );
  return found(ground, "lease", `${what}; it is tried again by itself at ${rfc3339(due)}.`, {
    wait,
    until_ms: due,
    ends_by: ["resume"],
  });
}

/** The run as a whole stands still until somebody goes on with it, which something else may forbid yet. */
function standing(ground: Ground, wait: Wait, cause: Cause, what: string, ends_by: readonly ActionName[]): Found {
  const reason = ground.isPublic || wait.reason === undefined ? "" : `: ${clip(wait.reason)}`;
  const resume = decideResume(ground.view);
  if (!resume.ok) return found(ground, cause, `${what}${reason}. ${resume.reason}.`, { wait, ends_by });
  const anew = ends_by.includes("restart") && ground.allowed.has("restart");
  const next = anew ? "resume it to go on where it stands, or restart it as a new run" : "resume it";
  return found(ground, cause, `${what}${reason}; ${next}.`, { wait, ends_by });
}

// ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────

function stepName(wait: Wait): string {
  return wait.step_id === undefined ? "the run" : `step "${wait.step_id}"`;
}

function oneStep(ids: readonly string[]): { readonly step_id?: string } {
  return ids.length === 1 && ids[0] !== undefined ? { step_id: ids[0] } : {};
}

/** `step "a"`, `steps "a", "b" and 7 more`. */
function named(ids: readonly string[]): string {
  const shown = ids.slice(0, MAX_NAMED).map((id) => `"${id}"`);
  const rest = ids.length - shown.length;
  return `${ids.length === 1 ? "step" : "steps"} ${shown.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Cut between characters, never within one (C23). A final full stop is the sentence's own. */
function clip(text: string): string {
  // Bounded before it is taken apart; what a cut leaves of a character goes.
  const part = text.slice(0, 8 * MAX_TEXT).replace(/[\uD800-\uDBFF]$/, "");
  const line = part.replace(/\s+/g, " ").trim();
  const characters = [...line];
  if (characters.length > MAX_TEXT || part.length < text.length) return `${characters.slice(0, MAX_TEXT).join("")}…`;
  return line.replace(/\.$/, "");
}
