import { describe, expect, test } from "vitest";
import type { RunState } from "../state.ts";
import { actions, type RunView } from "./decisions.ts";
import {
  CHILD,
  CHILD_ID,
  DIGEST,
  fold,
  NOW_MS,
  RUN_ID,
  RUNS,
  STARTED,
  started,
  suspended,
  viewOf,
  waiting,
} from "./projections.fixture.ts";
import type { ActionName, Why } from "./types.ts";
import { CAUSES, type Cause, type WhyExtra, why } from "./why.ts";

const HERE: WhyExtra = { holder: "here" };
const NOBODY: WhyExtra = { holder: "none" };

interface Case {
  readonly title: string;
  readonly view: RunView;
  readonly extra?: WhyExtra;
  readonly cause: Cause;
  readonly sentence: string;
  /** Absent: the operator's sentence holds nothing private. */
  readonly shown?: string;
  readonly ends_by?: readonly ActionName[];
  readonly until_ms?: number;
}

const later = (run: RunState, ms: number): RunView => ({ ...viewOf(run), now_ms: NOW_MS + ms });
const REASONS = { prompt: "PRIVATE-prompt", reason: "PRIVATE-cause", tool: "PRIVATE-tool", digest: DIGEST } as const;

const grantedRun = fold([
  ...suspended(waiting(STARTED, "inspect", { type: "tool_approval", ...REASONS })),
  {
    type: "grant_issued",
    wait_id: "w-6",
    digest: DIGEST,
    decision: { approved: true, decision: "approved", decided_by: "PRIVATE-person", decided_at_ms: 1 },
  },
]);
const childRun = fold(suspended(waiting(STARTED, "gate", { type: "approval", run_id: CHILD_ID })), CHILD);
const parentRun = fold(suspended(waiting(STARTED, "nested", { type: "child", child_run_id: CHILD_ID })));
const interruptedChild = fold(suspended(STARTED, { type: "recovery" }), CHILD);
const interrupted = fold(suspended(STARTED, { type: "recovery", reason: "its process ended." }));
const raised = fold([
  ...suspended(STARTED, { type: "budget" }),
  { type: "budget_raised", budget: { max_steps: 99 }, decided_by: "os:me" },
]);
const stoppedRepair = fold([
  ...suspended(waiting(STARTED, "pay", { type: "repair", tool: "PRIVATE-tool", stop_reason: "cancelled" })),
  { type: "cancel_requested", stop_reason: "cancelled" },
]);
const three = fold([...STARTED, ...started("a"), ...started("b"), ...started("c")]);

const CASES: readonly Case[] = [
  {
    title: "succeeded",
    view: viewOf(RUNS.succeeded),
    cause: "ended",
    sentence: "The run succeeded at 2026-01-02T03:04:05.003Z.",
  },
  {
    title: "failed",
    view: viewOf(RUNS.failed),
    cause: "ended",
    sentence: "The run failed at 2026-01-02T03:04:05.003Z (execution_failed): PRIVATE-failure.",
    shown: "The run failed at 2026-01-02T03:04:05.003Z (execution_failed): Workflow execution failed.",
  },
  {
    title: "cancelled",
    view: viewOf(RUNS.cancelled),
    cause: "ended",
    sentence: "The run was cancelled at 2026-01-02T03:04:05.003Z: PRIVATE-why.",
    shown: "The run was cancelled at 2026-01-02T03:04:05.003Z.",
  },
  {
    title: "queued with nobody",
    view: viewOf(RUNS.queued),
    extra: NOBODY,
    cause: "no_worker",
    sentence:
      "The run is queued and no worker process has taken it; resume it here, or start a worker process to take it.",
    ends_by: ["resume"],
  },
  {
    title: "queued and held",
    view: viewOf(RUNS.queued),
    cause: "queued",
    sentence: "The run is queued and a process is about to start it.",
  },
  {
    title: "R-21 a newer build's run",
    view: viewOf(RUNS.queued),
    extra: { holder: "none", supported: false },
    cause: "no_worker",
    sentence: "No process here can go on with the run: a newer build started it; upgrade this one.",
  },
  {
    title: "running elsewhere",
    view: viewOf(RUNS.running),
    extra: { holder: "other" },
    cause: "running",
    sentence: 'The run is running: step "inspect" is at work.',
  },
  {
    title: "running here",
    view: viewOf(three),
    cause: "running",
    sentence: 'The run is running: steps "a", "b", "c" are at work.',
  },
  {
    title: "running between steps",
    view: viewOf(fold(STARTED)),
    cause: "running",
    sentence: "The run is running.",
  },
  {
    title: "a lease that lasts",
    view: viewOf(RUNS.running),
    extra: { holder: "none", lease_expires_at_ms: NOW_MS + 1_000 },
    cause: "lease",
    sentence:
      "The process that drove the run is gone and its lease lasts until 2026-01-02T03:05:06.000Z; after that it is taken over by a worker process, or by resume.",
    until_ms: NOW_MS + 1_000,
  },
  {
    title: "not admitted in time",
    view: viewOf(
      fold(suspended(STARTED, { type: "recovery", reason: "admission timed out", due_at_ms: NOW_MS + 1_000 })),
    ),
    extra: NOBODY,
    cause: "lease",
    sentence:
      "Nothing of the run could begin in time, because what it needs was taken; it is tried again by itself at 2026-01-02T03:05:06.000Z.",
    ends_by: ["resume"],
    until_ms: NOW_MS + 1_000,
  },
  {
    title: "not admitted, and due",
    view: viewOf(fold(suspended(STARTED, { type: "recovery", reason: "admission timed out", due_at_ms: NOW_MS }))),
    extra: NOBODY,
    cause: "lease",
    sentence:
      "Nothing of the run could begin in time, because what it needs was taken; it is tried again when a process drives the run: a worker process, or resume.",
    ends_by: ["resume"],
  },
  {
    title: "a lease that is out",
    view: viewOf(RUNS.running),
    extra: { holder: "none", lease_expires_at_ms: NOW_MS },
    cause: "lease",
    sentence: "The process that drove the run is gone; a worker process takes it over, or resume does.",
  },
  {
    title: "timer",
    view: viewOf(RUNS.timer),
    cause: "timer",
    sentence: 'Step "sleep" waits until 2026-01-02T03:05:10.000Z and goes on by itself then.',
    until_ms: NOW_MS + 5_000,
  },
  {
    title: "timer that is over",
    view: later(RUNS.timer, 5_000),
    extra: NOBODY,
    cause: "timer",
    sentence:
      'The time of step "sleep" was over at 2026-01-02T03:05:10.000Z; it goes on when a process drives the run: a worker process, or resume.',
    ends_by: ["resume"],
  },
  {
    title: "tool approval",
    view: viewOf(RUNS.toolApproval),
    cause: "approval",
    sentence: 'Step "inspect" asks to use the tool "PRIVATE-tool"; approve or deny it.',
    shown: 'Step "inspect" waits for the approval of a tool call; approve or deny it.',
    ends_by: ["approve", "deny"],
  },
  {
    title: "approval with a deadline",
    view: viewOf(RUNS.approval),
    cause: "approval",
    sentence:
      'Step "gate" asks: "PRIVATE-prompt"; approve or deny it before 2026-01-02T03:05:05.001Z; silence counts as No.',
    shown:
      'Step "gate" waits for an approval; approve or deny it before 2026-01-02T03:05:05.001Z; silence counts as No.',
    ends_by: ["approve", "deny"],
    until_ms: NOW_MS + 1,
  },
  {
    title: "approval past its deadline",
    view: later(RUNS.approval, 1),
    cause: "approval",
    sentence:
      'Step "gate" waits for an approval whose deadline passed at 2026-01-02T03:05:05.001Z, which counts as No; it goes on when a process drives the run.',
    ends_by: ["resume"],
  },
  {
    title: "approval that was given",
    view: viewOf(grantedRun),
    extra: NOBODY,
    cause: "approval",
    sentence: 'Step "inspect" was approved by PRIVATE-person; resume the run to send it.',
    shown: 'Step "inspect" was approved; resume the run to send it.',
    ends_by: ["resume"],
  },
  {
    title: "input",
    view: viewOf(RUNS.input),
    cause: "input",
    sentence: 'Step "ask" asks: "PRIVATE-prompt"; answer or deny it.',
    shown: 'Step "ask" waits for an answer; answer or deny it.',
    ends_by: ["answer", "deny"],
  },
  {
    title: "budget",
    view: viewOf(RUNS.budget),
    cause: "budget",
    sentence:
      "The budget is used up (max_steps is 8), and what is finished is kept; raise it, and it goes on when a process drives the run: a worker process, or resume.",
    ends_by: ["raise_budget"],
  },
  {
    title: "budget that was raised",
    view: viewOf(raised),
    cause: "budget",
    sentence:
      "The budget was used up and has been raised; it goes on when a process drives the run: a worker process, or resume.",
    ends_by: ["resume"],
  },
  {
    title: "child",
    view: viewOf(parentRun, childRun),
    cause: "child",
    sentence: `Step "nested" waits for the child run ${CHILD_ID}, which waits for an approval; see why there.`,
  },
  {
    title: "unknown outcome",
    view: viewOf(RUNS.repair),
    cause: "unknown_outcome",
    sentence:
      'Whether step "inspect" (tool "PRIVATE-tool") took effect is unknown: PRIVATE-cause; find out, then repair it as succeeded, failed, cancelled or to be retried.',
    shown: 'The outcome of step "inspect" is unknown; an operator has to repair it.',
    ends_by: ["repair"],
  },
  {
    title: "R-12 unknown outcome of a run that is being stopped",
    view: viewOf(stoppedRepair),
    cause: "unknown_outcome",
    sentence:
      'Whether step "pay" (tool "PRIVATE-tool") took effect is unknown; find out, then repair it as succeeded, failed, cancelled or to be retried. The answer also ends what was being stopped.',
    shown:
      'The outcome of step "pay" is unknown; an operator has to repair it. The answer also ends what was being stopped.',
    ends_by: ["repair"],
  },
  {
    title: "a tool that went on by itself",
    view: viewOf(RUNS.toolRunning),
    cause: "unknown_outcome",
    sentence:
      'The tool "PRIVATE-tool" of step "inspect" went on by itself and was stopped; find out what it did, then repair the step.',
    shown: 'The tool of step "inspect" went on by itself and was stopped; find out what it did, then repair the step.',
    ends_by: ["repair"],
  },
  {
    title: "pause",
    view: viewOf(RUNS.paused),
    cause: "pause",
    sentence: "The run is paused: PRIVATE-pause; resume it.",
    shown: "The run is paused; resume it.",
    ends_by: ["resume"],
  },
  {
    title: "recovery",
    view: viewOf(RUNS.recovery),
    extra: { holder: "none", trusted: true, recoveries: 1 },
    cause: "recovery",
    sentence:
      "The run was interrupted: PRIVATE-recovery; resume it to go on where it stands, or restart it as a new run.",
    shown: "The run was interrupted; resume it to go on where it stands, or restart it as a new run.",
    ends_by: ["resume", "restart"],
  },
  {
    title: "R-5 recovery without progress",
    view: viewOf(interrupted),
    extra: { holder: "none", recoveries: 5 },
    cause: "recovery",
    sentence:
      "The run was interrupted 5 times without getting any further: its process ended; resume it to go on where it stands, or restart it as a new run.",
    shown:
      "The run was interrupted 5 times without getting any further; resume it to go on where it stands, or restart it as a new run.",
    ends_by: ["resume", "restart"],
  },
  {
    title: "R-17 recovery of a child",
    view: viewOf(interruptedChild, RUNS.recovery),
    cause: "recovery",
    sentence: `The run was interrupted. Cannot resume the run: it is part of the run ${RUN_ID}; ask that of its root.`,
  },
];

test.each(CASES.map((one) => [one.title, one] as const))("DESIGN §6 why, %s", (_, one) => {
  const answer = why(one.view, one.extra ?? HERE);
  expect(answer.causes).toHaveLength(1);
  expect(answer.sentence).toBe(one.sentence);
  expect(answer.causes[0]).toMatchObject({ cause: one.cause, sentence: one.sentence, ends_by: one.ends_by ?? [] });
  expect(answer.causes[0]?.until_ms).toBe(one.until_ms);
  const shown = why(one.view, one.extra ?? HERE, { public: true });
  expect(shown.sentence).toBe(one.shown ?? one.sentence);
  expect(JSON.stringify(shown)).not.toContain("PRIVATE-");
});

describe("causes beside the run's own", () => {
  const secondOf = (extra: WhyExtra, run: RunState = three): Why["causes"][number] | undefined =>
    why(viewOf(run), extra).causes[1];

  test("C34 a store that could not be written", () => {
    const extra: WhyExtra = {
      holder: "other",
      store_trouble: { message: "PRIVATE-full", again_at_ms: NOW_MS + 1_000 },
    };
    const after =
      "; what is finished is kept, and a worker process goes on by itself once the store can be written again, next at 2026-01-02T03:05:06.000Z. There is 1 more cause.";
    expect(why(viewOf(three), extra)).toMatchObject({
      sentence: `The store could not be written: PRIVATE-full${after}`,
      causes: [{ cause: "storage", until_ms: NOW_MS + 1_000, ends_by: [] }, { cause: "running" }],
    });
    expect(why(viewOf(three), extra, { public: true }).sentence).toBe(`The store could not be written${after}`);
  });

  test("GD-53 a resource that another step holds; GD-14 an owner that takes nothing", () => {
    expect(secondOf({ holder: "here", waiting_for_lease: ["b"] })).toEqual({
      cause: "lease",
      sentence:
        'Step "b" waits for a resource of the workspace that another step holds; it goes on by itself when that step ends.',
      step_id: "b",
      ends_by: [],
    });
    expect(secondOf({ holder: "here", waiting_for_owner: ["b", "c"] })?.sentence).toBe(
      'Steps "b", "c" wait until what does the work takes more of it; it goes on by itself then.',
    );
    const { sentence } = why(viewOf(three), { holder: "here", waiting_for_lease: ["b"], waiting_for_owner: ["c"] });
    expect(sentence).toBe('The run is running: step "a" is at work. There are 2 more causes.');
  });

  test("concurrency slot", () => {
    expect(secondOf({ holder: "here", waiting_for_permit: ["b", "c"] })).toEqual({
      cause: "concurrency",
      sentence:
        'Steps "b", "c" wait for a concurrency slot; the run may do 4 at once (max_concurrency), and the next starts when one ends.',
      ends_by: [],
    });
    const { sentence } = why(viewOf(three), { holder: "here", waiting_for_permit: ["b", "c"] });
    expect(sentence).toBe('The run is running: step "a" is at work. There is 1 more cause.');
  });

  test("tokens and money that others hold", () => {
    expect(secondOf({ holder: "here", waiting_for_room: ["b"] })).toEqual({
      cause: "budget",
      sentence:
        'Step "b" waits for tokens or money that other calls have reserved; the next goes on when one of them settles, or raise the budget.',
      step_id: "b",
      ends_by: ["raise_budget"],
    });
  });

  test("rate limit", () => {
    expect(secondOf({ holder: "here", rate_limited_until_ms: NOW_MS })).toEqual({
      cause: "rate_limit",
      sentence:
        "A provider's rate limit holds calls back until 2026-01-02T03:05:05.000Z; they go on by themselves then.",
      until_ms: NOW_MS,
      ends_by: [],
    });
  });

  test("retry delay", () => {
    expect(secondOf({ holder: "here", retry_due_at_ms: NOW_MS })).toEqual({
      cause: "retry_delay",
      sentence: "What failed is tried again at 2026-01-02T03:05:05.000Z, by itself.",
      until_ms: NOW_MS,
      ends_by: [],
    });
  });

  test("SC-40 trust that was revoked since", () => {
    const untrusted: WhyExtra = { holder: "none", trusted: false };
    expect(secondOf(untrusted, RUNS.recovery)).toEqual({
      cause: "untrusted",
      sentence: "The workspace is not trusted, so only its reading tools may be used; trust it to allow more.",
      ends_by: [],
    });
    expect(why(viewOf(RUNS.approval), untrusted).causes).toHaveLength(1);
    expect(why(viewOf(RUNS.succeeded), untrusted).causes).toHaveLength(1);
  });

  test("R-17 a pause beside a repair says what is first", () => {
    const run = fold(suspended(suspended(waiting(STARTED, "pay", { type: "repair" })), { type: "paused" }));
    const paused = why(viewOf(run), NOBODY).causes.find(({ cause }) => cause === "pause");
    expect(paused?.ends_by).toEqual([]);
    expect(paused?.sentence).toBe(
      "The run is paused. Cannot resume the run: the outcome of the step pay is unknown; repair it first.",
    );
  });
});

test("every cause of DESIGN §6 has its sentence here", () => {
  const beside: readonly Cause[] = ["concurrency", "rate_limit", "retry_delay", "untrusted"];
  expect([...new Set([...CASES.map((one) => one.cause), ...beside, "storage"])].sort()).toEqual([...CAUSES].sort());
});

test("R-27 a cause is ended only by actions that are allowed now", () => {
  for (const { view, extra } of CASES) {
    const allowed = new Set(actions(view).flatMap((action) => (action.allowed ? [action.name] : [])));
    for (const cause of why(view, extra ?? HERE).causes)
      for (const name of cause.ends_by) expect(allowed).toContain(name);
  }
});

test("a thousand waits are counted, twenty are listed, and no sentence grows with them", () => {
  const ids = Array.from({ length: 1_000 }, (_, i) => `each@root[${i}]`);
  let bodies = [...STARTED];
  for (const id of ids) bodies = waiting(bodies, id, { type: "approval", prompt: "x".repeat(10_000) });
  const answer = why(viewOf(fold(suspended(bodies))), HERE);
  expect(answer.causes).toHaveLength(20);
  expect(answer.sentence).toContain("There are 999 more causes.");
  const many = why(viewOf(fold([...STARTED, ...ids.flatMap((id) => started(id))])), {
    holder: "here",
    waiting_for_permit: ids.slice(1),
  });
  for (const { sentence } of [...answer.causes, ...many.causes]) expect(sentence.length).toBeLessThan(400);
  expect(many.causes[1]?.sentence).toContain("and 994 more");
});

test("C23 a long prompt is cut between characters, never within one", () => {
  const cut = (prompt: string): string =>
    why(viewOf(fold(suspended(waiting(STARTED, "gate", { type: "approval", prompt })))), HERE).sentence;
  for (const prompt of ["😀".repeat(5_000), `${" ".repeat(1_599)}😀`, `x${"😀".repeat(799)}😀😀`]) {
    expect(cut(prompt).isWellFormed()).toBe(true);
    expect(cut(prompt)).toContain("…");
  }
  expect(cut("a\n\tb")).toContain('"a b"');
});
