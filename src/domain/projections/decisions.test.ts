import { describe, expect, test } from "vitest";
import type { EventBody } from "../events.ts";
import type { RunState } from "../state.ts";
import {
  type Allowance,
  actions,
  decideAnswer,
  decideApprove,
  decideCancel,
  decideDeny,
  decideFork,
  decidePause,
  decideRaiseBudget,
  decideRepair,
  decideRestart,
  decideResume,
  decideRetry,
} from "./decisions.ts";
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
  wait,
  waiting,
} from "./projections.fixture.ts";
import { ACTION_NAMES, type ActionName } from "./types.ts";

function refusal(allowance: Allowance): { code: string; reason: string } {
  if (allowance.ok) throw new Error("it was accepted");
  return { code: allowance.code, reason: allowance.reason };
}

function allowed(state: RunState, ...others: RunState[]): ActionName[] {
  return actions(viewOf(state, ...others)).flatMap((action) => (action.allowed ? [action.name] : []));
}

describe("RP-72 flags and operations are one decision", () => {
  const cases: [keyof typeof RUNS, boolean, boolean][] = [
    ["queued", true, false],
    ["running", true, false],
    ["toolApproval", true, false],
    ["toolRunning", true, false],
    ["recovery", true, true],
    ["succeeded", false, false],
    ["failed", false, false],
    ["cancelled", true, false],
  ];
  test.each(cases)("SC-2 %s: cancel %s, restart %s", (name, cancel, restart) => {
    const view = viewOf(RUNS[name]);
    expect(decideCancel(view).ok).toBe(cancel);
    expect(decideRestart(view).ok).toBe(restart);
    const shown = new Map(actions(view).map((action) => [action.name, action.allowed]));
    expect([shown.get("cancel"), shown.get("restart")]).toEqual([cancel, restart]);
  });

  test("RP-65 a run that ended otherwise is terminal for cancel", () => {
    for (const run of [RUNS.succeeded, RUNS.failed]) expect(refusal(decideCancel(viewOf(run))).code).toBe("terminal");
  });

  test("RP-64 restart: terminal for ended runs, preflight for the others, root only", () => {
    expect(refusal(decideRestart(viewOf(RUNS.cancelled))).code).toBe("terminal");
    expect(refusal(decideRestart(viewOf(RUNS.paused))).code).toBe("preflight");
    const child = fold(suspended(STARTED, { type: "recovery" }), CHILD);
    const { code, reason } = refusal(decideRestart(viewOf(child, RUNS.recovery)));
    expect(code).toBe("preflight");
    expect(reason).toContain(RUN_ID);
  });
});

describe("R-27 actions", () => {
  test.each(Object.keys(RUNS) as (keyof typeof RUNS)[])(
    "%s has every name in order, and a reason for each refusal",
    (name) => {
      const shown = actions(viewOf(RUNS[name]));
      expect(shown.map((action) => action.name)).toEqual(ACTION_NAMES);
      for (const action of shown) {
        expect(action.reason === undefined).toBe(action.allowed);
        if (action.reason !== undefined) expect(action.reason).toMatch(/^Cannot [a-z ]+: .+; .+$/);
      }
      expect(JSON.stringify(shown)).not.toContain("PRIVATE-");
    },
  );

  test.each<[keyof typeof RUNS, ActionName[]]>([
    ["queued", ["cancel", "pause", "resume", "raise_budget"]],
    ["running", ["cancel", "pause", "raise_budget"]],
    ["toolApproval", ["cancel", "pause", "approve", "deny", "raise_budget"]],
    ["toolRunning", ["cancel", "pause", "repair", "raise_budget"]],
    ["repair", ["cancel", "pause", "repair", "raise_budget"]],
    ["approval", ["cancel", "pause", "approve", "deny", "raise_budget"]],
    ["input", ["cancel", "pause", "deny", "answer", "raise_budget"]],
    ["timer", ["cancel", "pause", "raise_budget"]],
    ["recovery", ["cancel", "pause", "resume", "restart", "raise_budget"]],
    ["paused", ["cancel", "pause", "resume", "raise_budget"]],
    ["budget", ["cancel", "pause", "raise_budget"]],
    ["succeeded", []],
    ["failed", ["retry"]],
    ["cancelled", ["cancel"]],
  ])("%s allows %j", (name, names) => {
    expect(allowed(RUNS[name])).toEqual(names);
  });

  test("the wait's id stands there when exactly one is meant", () => {
    const one = actions(viewOf(RUNS.approval)).find((action) => action.name === "approve");
    expect(one).toEqual({ name: "approve", allowed: true, wait_id: "w-6" });
    const two = actions(viewOf(twoApprovals())).find((action) => action.name === "approve");
    expect(two).toEqual({ name: "approve", allowed: true });
  });
});

describe("resume", () => {
  test("R-17 a repair anywhere in the tree forbids it, naming the step", () => {
    const child = fold(suspended(waiting(STARTED, "pay", { type: "repair", run_id: CHILD_ID })), CHILD);
    const root = RUNS.recovery;
    for (const decide of [decideResume, decideRestart]) {
      const { code, reason } = refusal(decide(viewOf(root, child)));
      expect(code).toBe(decide === decideRestart ? "preflight" : "not_possible");
      expect(reason).toContain(`pay of the run ${CHILD_ID}`);
    }
    expect(refusal(decideResume(viewOf(RUNS.repair))).reason).toContain("inspect");
  });

  test("R-17 a child names its root, an ended run is terminal, a running one goes on by itself", () => {
    const child = fold(suspended(STARTED, { type: "paused" }), CHILD);
    expect(refusal(decideResume(viewOf(child, RUNS.paused)))).toMatchObject({ code: "not_possible" });
    expect(refusal(decideResume(viewOf(child, RUNS.paused))).reason).toContain(RUN_ID);
    expect(refusal(decideResume(viewOf(RUNS.failed))).code).toBe("terminal");
    expect(refusal(decideResume(viewOf(RUNS.running))).code).toBe("not_possible");
  });

  test("a run that waits for a person says what to do instead", () => {
    expect(refusal(decideResume(viewOf(RUNS.toolApproval))).reason).toContain("approve or deny it");
    expect(refusal(decideResume(viewOf(RUNS.input))).reason).toContain("answer or deny it");
    expect(refusal(decideResume(viewOf(RUNS.timer))).reason).toContain("2026-01-02T03:05:10.000Z");
  });

  test("a time that has passed with nobody there is driven", () => {
    const due = { ...viewOf(RUNS.timer), now_ms: NOW_MS + 5_000 };
    expect(decideResume(due).ok).toBe(true);
    expect(decideResume({ ...viewOf(RUNS.approval), now_ms: NOW_MS + 1 }).ok).toBe(true);
  });

  test("a used-up budget goes on once it is raised", () => {
    const raised: EventBody = { type: "budget_raised", budget: { max_steps: 100 }, decided_by: "os:me" };
    const run = fold([...suspended(STARTED, { type: "budget" }), raised]);
    expect(decideResume(viewOf(run)).ok).toBe(true);
    expect(refusal(decideResume(viewOf(RUNS.budget))).reason).toContain("raise the budget first");
  });

  test("a paused run with an approval open can be resumed: the pause is not the oldest wait", () => {
    const run = fold(suspended(suspended(waiting(STARTED, "gate", { type: "approval" })), { type: "paused" }));
    expect(run.waits[0]?.type).toBe("approval");
    expect(decideResume(viewOf(run)).ok).toBe(true);
  });
});

describe("pause, budget, retry, fork", () => {
  test("GD-62 pausing twice is accepted; what is being stopped is not held up", () => {
    expect(decidePause(viewOf(RUNS.paused)).ok).toBe(true);
    expect(refusal(decidePause(viewOf(stopping()))).code).toBe("not_possible");
    expect(refusal(decidePause(viewOf(RUNS.succeeded))).code).toBe("terminal");
  });

  test("R-12 a run whose stop waits for repair may be cancelled again", () => {
    expect(decideCancel(viewOf(stopping())).ok).toBe(true);
  });

  test("R-17 pause and budget of a child are its root's", () => {
    const child = fold([...STARTED], CHILD);
    expect(refusal(decidePause(viewOf(child, RUNS.running))).reason).toContain(RUN_ID);
    expect(refusal(decideRaiseBudget(viewOf(child, RUNS.running))).reason).toContain(RUN_ID);
    expect(decideCancel(viewOf(child, RUNS.running)).ok).toBe(true);
  });

  test("R-2j only a failed root is retried; fork is refused and says why", () => {
    expect(decideRetry(viewOf(RUNS.failed)).ok).toBe(true);
    for (const run of [RUNS.running, RUNS.succeeded, RUNS.cancelled, RUNS.recovery])
      expect(refusal(decideRetry(viewOf(run))).code).toBe("not_possible");
    const child = fold(
      [...STARTED, { type: "run_failed", failure: { code: "execution_failed", message: "x", retryable: false } }],
      CHILD,
    );
    expect(refusal(decideRetry(viewOf(child, RUNS.running))).reason).toContain(RUN_ID);
    expect(refusal(decideFork(viewOf(RUNS.failed))).reason).toContain("this build does not offer it");
  });
});

describe("approve, deny, answer", () => {
  test("the only open one is meant; several are listed", () => {
    expect(decideApprove(viewOf(RUNS.approval))).toMatchObject({ ok: true, wait: { wait_id: "w-6" } });
    expect(decideDeny(viewOf(RUNS.toolApproval))).toMatchObject({ ok: true, wait: { type: "tool_approval" } });
    const { code, reason } = refusal(decideApprove(viewOf(twoApprovals())));
    expect(code).toBe("usage");
    expect(reason).toContain("w-6 (gate), w-10 (gate-2)");
    expect(decideApprove(viewOf(twoApprovals()), "w-10")).toMatchObject({ ok: true, wait: { step_id: "gate-2" } });
  });

  test("R-40 a decision is on what was shown", () => {
    const view = viewOf(RUNS.toolApproval);
    expect(decideApprove(view, undefined, DIGEST.slice(0, 8)).ok).toBe(true);
    expect(decideApprove(view, undefined, DIGEST).ok).toBe(true);
    const other = refusal(decideApprove(view, "w-6", "ffffffff"));
    expect(other.code).toBe("conflict");
    expect(other.reason).toContain(DIGEST);
    // It is the beginning that was shown, not some other part.
    expect(refusal(decideApprove(view, "w-6", DIGEST.slice(8, 24))).code).toBe("conflict");
    for (const bad of ["0123456", "", "0123456g", `${DIGEST}0`, "0123456G"])
      expect(refusal(decideApprove(view, "w-6", bad)).code).toBe("usage");
  });

  test("R-1 past the deadline it is a conflict, even if the expiry is not written yet", () => {
    const before = { ...viewOf(RUNS.approval), now_ms: NOW_MS };
    const after = { ...viewOf(RUNS.approval), now_ms: NOW_MS + 1 };
    expect(decideApprove(before).ok).toBe(true);
    for (const wait_id of [undefined, "w-6"]) expect(refusal(decideApprove(after, wait_id)).code).toBe("conflict");
    expect(actions(after).find((action) => action.name === "approve")?.allowed).toBe(false);
  });

  test("R-1 the first decision stands: again is accepted, the opposite is a conflict that says by whom", () => {
    const run = fold([
      ...suspended(waiting(STARTED, "inspect", { type: "tool_approval", digest: DIGEST })),
      {
        type: "grant_issued",
        wait_id: "w-6",
        digest: DIGEST,
        decision: { approved: true, decision: "approved", decided_by: "os:ada", decided_at_ms: 1 },
      },
    ]);
    expect(decideApprove(viewOf(run), "w-6").ok).toBe(true);
    const denied = refusal(decideDeny(viewOf(run), "w-6"));
    expect(denied.code).toBe("conflict");
    expect(denied.reason).toContain("approved meanwhile by os:ada");
    expect(refusal(decideDeny(viewOf(run))).code).toBe("not_possible");
    expect(JSON.stringify(actions(viewOf(run)))).not.toContain("os:ada");
  });

  test("a wait that has ended is a conflict, one that never was is not found, another kind is not possible", () => {
    const view = viewOf(RUNS.approval);
    expect(refusal(decideApprove(view, "w-3")).code).toBe("conflict");
    for (const unknown of ["w-99", "w-0", "__proto__", ""])
      expect(refusal(decideApprove(view, unknown)).code).toBe("not_found");
    expect(refusal(decideApprove(viewOf(RUNS.timer), "w-6")).code).toBe("not_possible");
    expect(refusal(decideAnswer(view, "w-6")).reason).toContain("approve or deny it");
    expect(decideAnswer(viewOf(RUNS.input))).toMatchObject({ ok: true, wait: { type: "input" } });
  });

  test("R-28 an input may be denied, never approved", () => {
    const view = viewOf(RUNS.input);
    expect(decideDeny(view)).toMatchObject({ ok: true, wait: { type: "input" } });
    expect(refusal(decideApprove(view, "w-6"))).toMatchObject({ code: "not_possible" });
    expect(actions(view).find(({ name }) => name === "deny")).toEqual({ name: "deny", allowed: true, wait_id: "w-6" });
    expect(refusal(decideDeny(viewOf(RUNS.timer), "w-6")).code).toBe("not_possible");
  });

  test("nothing open here: the run of the tree that asks is named", () => {
    const child = fold(suspended(waiting(STARTED, "gate", { type: "approval", run_id: CHILD_ID })), CHILD);
    const { code, reason } = refusal(decideApprove(viewOf(RUNS.running, child)));
    expect(code).toBe("not_possible");
    expect(reason).toContain(CHILD_ID);
    expect(refusal(decideApprove(viewOf(RUNS.running))).reason).toContain("waits for no approval");
  });

  test("R-12 a run that is being stopped takes no more decisions, but its repairs", () => {
    const run = stopping();
    expect(refusal(decideApprove(viewOf(run))).code).toBe("not_possible");
    expect(decideRepair(viewOf(run), "inspect").ok).toBe(true);
    expect(refusal(decideApprove(viewOf(RUNS.succeeded))).code).toBe("terminal");
  });
});

describe("GD-74 repair", () => {
  test("only a step whose outcome is in question", () => {
    expect(decideRepair(viewOf(RUNS.repair), "inspect")).toMatchObject({ ok: true, wait: { type: "repair" } });
    expect(decideRepair(viewOf(RUNS.toolRunning), "inspect")).toMatchObject({
      ok: true,
      wait: { type: "tool_running" },
    });
    expect(refusal(decideRepair(viewOf(RUNS.running), "inspect")).code).toBe("not_possible");
    expect(refusal(decideRepair(viewOf(RUNS.repair), "inspekt")).code).toBe("not_found");
    expect(refusal(decideRepair(viewOf(RUNS.failed), "inspect")).code).toBe("terminal");
  });

  test("C24 step ids are ordinary text", () => {
    for (const id of ["__proto__", "constructor", "toString"])
      expect(refusal(decideRepair(viewOf(RUNS.repair), id)).code).toBe("not_found");
  });

  test("R-40 the digest that was shown is compared", () => {
    expect(decideRepair(viewOf(RUNS.repair), "inspect", DIGEST.slice(0, 12)).ok).toBe(true);
    expect(refusal(decideRepair(viewOf(RUNS.repair), "inspect", "deadbeef")).code).toBe("conflict");
  });
});

function twoApprovals(): RunState {
  const first = waiting(STARTED, "gate", { type: "approval", digest: DIGEST });
  return fold(suspended(waiting(first, "gate-2", { type: "approval", digest: DIGEST })));
}

/** A cancel that found a mutation open, with an approval beside it. */
function stopping(): RunState {
  const gate = waiting(STARTED, "gate", { type: "approval" });
  return fold([
    ...gate,
    ...started("inspect"),
    { type: "cancel_requested", stop_reason: "cancelled" },
    {
      type: "step_suspended",
      step_id: "inspect",
      reason: "outcome unknown",
      wait: wait({ wait_id: "w-11", type: "repair", step_id: "inspect", stop_reason: "cancelled" }),
    },
    { type: "run_suspended", reason: "repair" },
  ]);
}
