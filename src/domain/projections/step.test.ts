import { describe, expect, test } from "vitest";
import type { EventBody } from "../events.ts";
import { dispatchId } from "../journal.ts";
import { BORN_MS, events, fold, RUN_ID, STARTED, started, suspended, waiting } from "./projections.fixture.ts";
import { stepDetail } from "./step.ts";
import type { StepDetail } from "./types.ts";

const HASH = "ef".repeat(32);
const FAILURE = { code: "execution_failed", message: "it broke", retryable: true } as const;

function detailOf(bodies: readonly EventBody[], id = "inspect"): StepDetail {
  const step = fold(bodies).steps.get(id);
  if (step === undefined) throw new Error("no such step");
  return stepDetail(RUN_ID, events(...bodies), step);
}

const again = (attempt: number, redispatch?: number): EventBody => ({
  type: "step_started",
  step_id: "inspect",
  attempt,
  side_effect: "mutating",
  input_hash: HASH,
  ...(redispatch === undefined ? {} : { redispatch }),
});

describe("RP-30 the tries of a step", () => {
  test("one that succeeded: input from its start, receipt, the dispatch id of its attempt", () => {
    const shown = detailOf([
      ...STARTED,
      ...started("inspect", { input: { a: 1 }, tool: "probe" }),
      { type: "receipt", step_id: "inspect", receipt: { ticket: 7 } },
      { type: "step_completed", step_id: "inspect", output: { ok: true } },
    ]);
    expect(shown).toEqual({
      id: "inspect",
      status: "succeeded",
      attempts: 1,
      tool: "probe",
      side_effect: "mutating",
      input_hash: HASH,
      input: { a: 1 },
      output: { ok: true },
      tries: [
        {
          attempt: 1,
          dispatch_id: dispatchId(RUN_ID, "inspect", 1),
          started_at_ms: BORN_MS + 5,
          ended_at_ms: BORN_MS + 7,
          redispatches: 0,
          outcome: "succeeded",
          receipt: { ticket: 7 },
        },
      ],
    });
  });

  test("RP-47 a retry is a second try with its own dispatch id; the tool's own words stay beside the failure", () => {
    const shown = detailOf([
      ...STARTED,
      ...started("inspect"),
      { type: "step_failed", step_id: "inspect", failure: FAILURE, detail: "ECONNRESET" },
      { type: "phase", name: "retry_reserved", key: "r", due_at_ms: 1 },
      { type: "phase", name: "step_reserved" },
      { type: "step_queued", step_id: "inspect", visit: 2 },
      again(2),
    ]);
    expect(shown.attempts).toBe(2);
    expect(shown.tries).toMatchObject([
      { attempt: 1, outcome: "failed", failure: FAILURE, detail: "ECONNRESET" },
      { attempt: 2, dispatch_id: dispatchId(RUN_ID, "inspect", 2) },
    ]);
    expect(shown.tries[1]).not.toHaveProperty("outcome");
    expect(shown.failure).toBeUndefined();
  });

  test("R-10 sent again after a crash is the same try, counted", () => {
    const shown = detailOf([
      ...suspended(
        [...STARTED, ...started("inspect"), { type: "step_suspended", step_id: "inspect", reason: "lost" }],
        { type: "recovery" },
      ),
      { type: "run_started" },
      again(1, 1),
    ]);
    expect(shown.tries).toMatchObject([{ attempt: 1, redispatches: 1, started_at_ms: BORN_MS + 5 }]);
    expect(shown.tries[0]).not.toHaveProperty("outcome");
  });

  test("R-9 a try that waits is suspended, and goes on as itself once granted", () => {
    const asked = suspended(waiting(STARTED, "inspect", { type: "tool_approval" }));
    expect(detailOf(asked).tries).toMatchObject([{ attempt: 1, outcome: "suspended" }]);
    const granted = detailOf([
      ...asked,
      { type: "run_started" },
      again(1),
      { type: "step_cancelled", step_id: "inspect" },
    ]);
    expect(granted.tries).toMatchObject([{ attempt: 1, outcome: "cancelled", ended_at_ms: BORN_MS + 10 }]);
  });

  test("GD-74 a try given up for a retry ends as it stood, the next one has a new number", () => {
    const open = suspended(waiting(STARTED, "inspect", { type: "repair" }));
    const shown = detailOf([
      ...open,
      { type: "repaired", step_id: "inspect", wait_id: "w-6", resolution: "retry", decided_by: "os:me" },
      { type: "run_started" },
      again(2),
    ]);
    expect(shown.tries).toMatchObject([
      { attempt: 1, outcome: "suspended", ended_at_ms: BORN_MS + 8 },
      { attempt: 2, dispatch_id: dispatchId(RUN_ID, "inspect", 2) },
    ]);
  });

  test("RP-51 a step that failed without being entered has no try", () => {
    const shown = detailOf([...STARTED, { type: "step_failed", step_id: "inspect", visit: 1, failure: FAILURE }]);
    expect(shown).toMatchObject({ status: "failed", attempts: 0, tries: [], failure: FAILURE });
  });

  test("events of other steps are passed over", () => {
    const bodies = [
      ...STARTED,
      ...started("inspect"),
      ...started("other"),
      { type: "step_completed", step_id: "other", output: 1 } as const,
    ];
    expect(detailOf(bodies).tries).toHaveLength(1);
    expect(detailOf(bodies).tries[0]).not.toHaveProperty("outcome");
  });
});
