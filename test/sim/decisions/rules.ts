// Owns what must be true of every decision, in whatever order people, time and crashes came: small named rules, each
// citing the text that it checks.
import type { RunEvent } from "../../../src/domain/events.ts";
import { isTerminal, type RunStatus } from "../../../src/domain/run.ts";
import { isTerminalEvent } from "../../../src/domain/state.ts";
import type { TreeHistory } from "../../../src/testing/index.ts";
import { ASKED_TOOLS } from "./plans.ts";

export type Verb = "approve" | "deny" | "answer" | "repair" | "cancel" | "pause" | "resume";

/** What somebody asked for, and what they were told. `by` is theirs alone, so the journal tells whose word it took. */
export interface Asked {
  readonly by: string;
  readonly verb: Verb;
  readonly run_id: string;
  readonly wait_id?: string;
  readonly asked_at_ms: number;
  readonly process: string;
  /** `unanswered` only where the process that was asked is gone. */
  answer: "unanswered" | "done" | "pending" | { readonly refused: string; readonly message: string };
}

export interface Story {
  readonly history: TreeHistory;
  readonly asked: readonly Asked[];
  /** Names of processes that are gone. */
  readonly gone: ReadonlySet<string>;
  /** The first end of each run that anybody saw. */
  readonly seen: ReadonlyMap<string, RunStatus>;
  readonly openSignals: number;
  /** Open waits as the inbox lists them, by run. */
  readonly inbox: readonly { readonly run_id: string; readonly wait_id: string }[];
  readonly end: "ended" | "gone" | "stuck";
  /** From here on somebody careful goes on with whatever stands still. */
  readonly finishedAtMs: number;
}

type Report = (why: string, at?: { readonly run_id?: string; readonly event?: RunEvent }) => void;
type Run = TreeHistory["runs"][number];

export interface DecisionRule {
  readonly name: string;
  readonly cites: string;
  readonly check: (story: Story, report: Report) => void;
}

/** A rule about one journal at a time. */
function perRun(name: string, cites: string, check: (run: Run, report: Report, story: Story) => void): DecisionRule {
  return {
    name,
    cites,
    check: (story, report) => {
      for (const run of story.history.runs)
        check(run, (why, at) => report(why, { run_id: run.record.run_id, ...at }), story);
    },
  };
}

type Decided = RunEvent & { readonly wait_id: string };

/** Events by which somebody's word, or time, ends a wait. */
function endings(events: readonly RunEvent[]): Decided[] {
  return events.filter(
    (event): event is Decided =>
      event.type === "wait_closed" || event.type === "grant_issued" || event.type === "repaired",
  );
}

function byOf(event: RunEvent): string | undefined {
  if (event.type === "grant_issued") return event.decision.decided_by;
  if (event.type === "repaired") return event.decided_by;
  if (event.type === "wait_closed") return event.decided_by ?? event.decision?.decided_by;
  if (event.type === "run_cancelled" || event.type === "cancel_requested") return event.decided_by;
  return undefined;
}

function verbOf(event: RunEvent): Verb | undefined {
  if (event.type === "grant_issued") return "approve";
  if (event.type === "repaired") return "repair";
  if (event.type !== "wait_closed") return undefined;
  if (event.by === "answer") return "answer";
  if (event.by !== "decision") return undefined;
  return event.decision?.approved === true ? "approve" : "deny";
}

function opened(events: readonly RunEvent[], waitId: string) {
  for (const event of events) if ("wait" in event && event.wait?.wait_id === waitId) return { event, wait: event.wait };
  return undefined;
}

/** Where the run was told to stop for good; its own end where nothing came between. */
function stoppedAt(events: readonly RunEvent[]): number {
  const found = events.find((event) => event.type === "cancel_requested" || event.type === "run_cancelled");
  return found?.sequence ?? Number.POSITIVE_INFINITY;
}

const firstStands = perRun("the_first_decision_stands", "R-1, GD-49, GD-51", ({ events }, report) => {
  const ended = new Map<string, string>();
  for (const event of endings(events)) {
    const before = ended.get(event.wait_id);
    // The grant of an approval that is given up with its run closes nothing anew.
    if (before !== undefined)
      report(`${event.wait_id} was ended by ${before} and again by ${verbOf(event) ?? event.type}`, { event });
    ended.set(event.wait_id, verbOf(event) ?? event.type);
  }
});

const onlyWhatWasAsked = perRun("a_decision_is_of_an_open_wait", "R-1, R-9", ({ events }, report) => {
  for (const event of endings(events)) {
    const found = opened(events, event.wait_id);
    if (found === undefined || found.event.sequence >= event.sequence)
      report(`${event.wait_id} was ended before it was opened`, { event });
  }
});

const inTime = perRun("past_the_deadline_is_refused", "R-1, R-28, GD-51", ({ events }, report) => {
  for (const event of endings(events)) {
    const wait = opened(events, event.wait_id)?.wait;
    if (wait === undefined) continue;
    const person = verbOf(event) !== undefined;
    if (person && wait.deadline_at_ms !== undefined && event.at_ms >= wait.deadline_at_ms)
      report(`a decision at ${event.at_ms} was taken, past the deadline ${wait.deadline_at_ms}`, { event });
    if (event.type !== "wait_closed") continue;
    if (event.by === "expiry" && event.at_ms < (wait.deadline_at_ms ?? Number.POSITIVE_INFINITY))
      report("it expired before its deadline", { event });
    if (event.by === "expiry" && event.decision?.approved !== false) report("silence consented", { event });
    if (event.by === "timer" && event.at_ms < (wait.due_at_ms ?? Number.POSITIVE_INFINITY))
      report("the timer was early", { event });
  }
});

const storedFirst = perRun(
  "a_decision_is_stored_before_anything_is_released",
  "R-3, R-9, C36",
  ({ record, events }, report, story) => {
    const mine = story.history.effects.calls.filter(
      (call) => call.kind === "call" && call.run_id === record.run_id && ASKED_TOOLS.has(call.tool),
    );
    for (const call of mine) {
      const started = events.find(
        (event) => event.type === "step_started" && event.step_id === call.step_id && event.grant !== undefined,
      );
      const grant = events.find(
        (event) =>
          event.type === "grant_issued" &&
          started?.type === "step_started" &&
          event.wait_id === started.grant &&
          event.sequence < started.sequence,
      );
      if (started === undefined || grant === undefined)
        report(`${call.step_id} (${call.tool}) was sent and nobody's yes is in the journal`);
      else if (call.at_ms < grant.at_ms) report(`${call.step_id} was sent before the yes to it`, { event: grant });
    }
  },
);

const nothingAfterCancel = perRun("after_a_cancel_nothing_is_accepted_or_sent", "GD-38, C14", ({ events }, report) => {
  const stop = stoppedAt(events);
  for (const event of events) {
    if (event.sequence <= stop) continue;
    const decides = event.type === "grant_issued" || (event.type === "wait_closed" && event.by !== "stop");
    // What a step of the stopped run becomes afterwards is its settlement, never another dispatch.
    const sends = event.type === "step_started" && event.tool !== undefined;
    if (decides || sends) report("it came after the cancel", { event });
  }
});

const pauseStands = perRun("a_pause_ends_only_by_being_resumed", "GD-62", ({ events }, report, story) => {
  let paused: RunEvent | undefined;
  for (const event of events) {
    if (event.type === "run_suspended" && event.wait?.type === "paused") paused = event;
    if (event.type === "cancel_requested") return;
    if (paused === undefined || event.type !== "run_started") continue;
    const since = paused.at_ms;
    paused = undefined;
    if (event.at_ms >= story.finishedAtMs) return;
    const resumed = story.asked.some(
      ({ verb, asked_at_ms, answer }) =>
        verb === "resume" && typeof answer !== "object" && asked_at_ms >= since && asked_at_ms <= event.at_ms,
    );
    if (!resumed) report("it goes on though nobody has resumed it", { event });
  }
});

const cancelledIsEmpty = perRun("a_cancelled_run_has_no_output", "GD-40, C10", ({ record, events }, report, story) => {
  if (record.status !== "cancelled") return;
  const refused = story.asked.filter(
    (each) => each.verb === "approve" && each.run_id === record.run_id && typeof each.answer === "object",
  );
  for (const { by } of refused)
    for (const event of events)
      if (byOf(event) === by && verbOf(event) === "approve")
        report("its approval was refused to the one who gave it, and stands in the journal", { event });
  if (events.some((event) => event.type === "run_succeeded")) report("it was cancelled and has succeeded");
});

const oneEnd = perRun("one_end_that_never_changes", "RP-65, C10", ({ record, events }, report, story) => {
  const ends = events.filter((event) => isTerminalEvent(event.type));
  if (ends.length > 1) report("it ended twice", ends[1] === undefined ? {} : { event: ends[1] });
  const seen = story.seen.get(record.run_id);
  if (seen !== undefined && seen !== record.status) report(`it was seen ${seen} and is ${record.status}`);
});

const noOrphanWaits = perRun("no_open_wait_on_an_ended_run", "GD-37, C14", ({ record }, report, story) => {
  if (!isTerminal(record.status)) return;
  if (record.wait_count > 0) report(`it is ${record.status} and has ${record.wait_count} open waits`);
  const listed = story.inbox.filter((wait) => wait.run_id === record.run_id);
  if (listed.length > 0) report(`it is ${record.status} and the inbox still shows ${listed[0]?.wait_id}`);
});

const endsWithItsTree: DecisionRule = {
  name: "a_tree_ends_as_a_whole",
  cites: "GD-38, C09, R-20",
  check: ({ history }, report) => {
    const [root] = history.runs;
    if (root === undefined || !isTerminal(root.record.status)) return;
    for (const { record } of history.runs)
      if (!isTerminal(record.status))
        report(`the root is ${root.record.status} and this child ${record.status}`, { run_id: record.run_id });
  },
};

const parentGoesOn: DecisionRule = {
  name: "a_parent_goes_on_when_its_child_has_ended",
  cites: "R-20, C11",
  check: ({ history }, report) => {
    const status = new Map(history.runs.map(({ record }) => [record.run_id, record.status]));
    for (const { record, events } of history.runs) {
      const waits = events.filter((event) => "wait" in event && event.wait?.type === "child");
      for (const event of waits) {
        const child = "wait" in event ? event.wait?.child_run_id : undefined;
        if (child === undefined || !isTerminal(status.get(child) ?? "running")) continue;
        const step = "step_id" in event ? event.step_id : undefined;
        const settled = events.some(
          (later) =>
            later.sequence > event.sequence &&
            (isTerminalEvent(later.type) || ("step_id" in later && later.step_id === step)),
        );
        if (!settled)
          report(`its child ${child} has ended and the step ${step} still waits for it`, {
            run_id: record.run_id,
            event,
          });
      }
    }
  },
};

const stopEndsIt = perRun(
  "a_repair_ends_a_stopped_run_as_the_stop_would_have",
  "R-12",
  ({ record, events }, report) => {
    const stop = events.find((event) => event.type === "cancel_requested");
    if (stop?.type !== "cancel_requested" || !isTerminal(record.status)) return;
    const should = stop.stop_reason === "timeout" ? "failed" : "cancelled";
    if (record.status !== should)
      report(`it was being stopped (${stop.stop_reason}) and ended as ${record.status}`, { event: stop });
  },
);

const everyoneIsAnswered: DecisionRule = {
  name: "every_signal_is_answered",
  cites: "R-1",
  check: ({ asked, gone, openSignals, end }, report) => {
    for (const each of asked)
      if (each.answer === "unanswered" && !gone.has(each.process))
        report(`${each.by} asked to ${each.verb} and was never told anything`, { run_id: each.run_id });
    if (end === "ended" && openSignals > 0) report(`the tree has ended and ${openSignals} signals lie about`);
  },
};

/** The yes or no that a caller heard is the journal's. */
const answersAreTrue: DecisionRule = {
  name: "what_callers_are_told_is_true",
  cites: "R-1, R-40, C36",
  check: ({ history, asked }, report) => {
    for (const each of asked) {
      const run = history.runs.find(({ record }) => record.run_id === each.run_id);
      if (run === undefined || each.wait_id === undefined) continue;
      const mine = run.events.find((event) => byOf(event) === each.by);
      if (typeof each.answer === "object" && mine !== undefined)
        report(`${each.by} was refused (${each.answer.refused}: ${each.answer.message}), and it was done`, {
          run_id: each.run_id,
          event: mine,
        });
      if (each.answer !== "done") continue;
      const ending = endings(run.events).find((event) => event.wait_id === each.wait_id);
      const verb = ending === undefined ? undefined : verbOf(ending);
      if (verb !== each.verb)
        report(
          `${each.by} was told that the ${each.verb} of ${each.wait_id} stands; the journal has ${verb ?? "nothing"}`,
          { run_id: each.run_id },
        );
    }
  },
};

const cancelIsTrue: DecisionRule = {
  name: "a_cancel_that_was_answered_has_stopped_the_run",
  cites: "R-1, R-12, RP-65",
  check: ({ history, asked }, report) => {
    for (const each of asked) {
      if (each.verb !== "cancel" || each.answer !== "done") continue;
      const run = history.runs.find(({ record }) => record.run_id === each.run_id);
      const stopped = run?.events.some((event) => event.type === "run_cancelled" || event.type === "cancel_requested");
      if (run !== undefined && stopped !== true && run.record.status !== "failed")
        report(`${each.by} was told that it is cancelled; it is ${run.record.status}`, { run_id: each.run_id });
    }
  },
};

const oncePerStep: DecisionRule = {
  name: "an_effect_happens_once_for_a_step",
  cites: "DESIGN §6, R-10, GD-74",
  check: ({ history }, report) => {
    const counts = new Map<string, number>();
    for (const effect of history.effects.effects) {
      if (effect.side_effect === "read_only") continue;
      const key = `${effect.run_id} ${effect.step_id}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
      if (counts.get(key) === 2) report(`${effect.step_id} (${effect.tool}) happened twice`, { run_id: effect.run_id });
    }
  },
};

const everythingEnds: DecisionRule = {
  name: "nothing_is_stuck",
  cites: "DESIGN §1, C02",
  check: ({ history, end, inbox }, report) => {
    if (end === "ended") return;
    const root = history.runs[0]?.record;
    report(
      `it stands ${root?.status} (${end}); open waits: ${inbox.map((wait) => wait.wait_id).join(", ") || "none"}`,
      root === undefined ? {} : { run_id: root.run_id },
    );
  },
};

export const DECISION_RULES: readonly DecisionRule[] = [
  firstStands,
  onlyWhatWasAsked,
  inTime,
  storedFirst,
  nothingAfterCancel,
  pauseStands,
  cancelledIsEmpty,
  oneEnd,
  noOrphanWaits,
  endsWithItsTree,
  parentGoesOn,
  stopEndsIt,
  everyoneIsAnswered,
  answersAreTrue,
  cancelIsTrue,
  oncePerStep,
  everythingEnds,
];
