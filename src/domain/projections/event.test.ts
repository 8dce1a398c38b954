import { describe, expect, test } from "vitest";
import { type EventBody, type PhaseBody, PUBLIC_PHASES, RP_EVENT_TYPES } from "../events.ts";
import { operatorEvent, publicEvent } from "./event.ts";
import { events, RUN_ID, wait } from "./projections.fixture.ts";

const FAILURE = { code: "execution_failed", message: "PRIVATE-failure", retryable: false } as const;
const STEP = { step_id: "inspect" } as const;

/** All 14 kinds of RP in RP's order, private payloads in each; the phase's name is one that RP does not list. */
const FOURTEEN: readonly EventBody[] = [
  { type: "run_queued" },
  { type: "run_started" },
  { type: "phase", name: "PRIVATE-phase" } as unknown as PhaseBody,
  { type: "step_queued", ...STEP, visit: 1 },
  {
    type: "step_started",
    ...STEP,
    attempt: 1,
    side_effect: "mutating",
    input_hash: "PRIVATE-hash",
    input: "PRIVATE-input",
    tool: "PRIVATE-tool",
  },
  {
    type: "step_suspended",
    ...STEP,
    reason: "PRIVATE-reason",
    wait: wait({ wait_id: "w-6", type: "repair", tool: "PRIVATE-tool" }),
  },
  { type: "step_completed", ...STEP, output: { value: "PRIVATE-output" } },
  { type: "step_failed", ...STEP, failure: FAILURE, detail: "PRIVATE-detail" },
  { type: "step_cancelled", ...STEP, by: "PRIVATE-key" },
  { type: "step_skipped", ...STEP, visit: 1, reason: "PRIVATE-reason" },
  {
    type: "run_suspended",
    reason: "PRIVATE-reason",
    wait: wait({ wait_id: "w-11", type: "paused", reason: "PRIVATE-reason" }),
  },
  { type: "run_succeeded", output: "PRIVATE-output" },
  { type: "run_failed", failure: FAILURE },
  { type: "run_cancelled", reason: "PRIVATE-reason", decided_by: "PRIVATE-person" },
];

describe("the public event", () => {
  const shown = events(...FOURTEEN).map((event) => publicEvent(RUN_ID, event));

  test("SC-6 all 14 kinds: no marker, sequences kept, failures in fixed words", () => {
    expect(JSON.stringify(shown)).not.toContain("PRIVATE-");
    expect(shown.map((event) => event.type)).toEqual(RP_EVENT_TYPES);
    expect(shown.map((event) => event.sequence)).toEqual(FOURTEEN.map((_, i) => i + 1));
    expect(shown[2]).toMatchObject({ type: "phase", name: "workflow_progressed" });
    expect(shown[6]).toEqual({
      run_id: RUN_ID,
      sequence: 7,
      at: "2026-01-02T03:04:05.007Z",
      step_id: "inspect",
      type: "step_completed",
    });
    expect(shown[11]).toEqual({ run_id: RUN_ID, sequence: 12, at: "2026-01-02T03:04:05.012Z", type: "run_succeeded" });
    expect(shown[7]?.failure).toEqual({
      code: "execution_failed",
      message: "Workflow execution failed",
      retryable: false,
    });
    expect(shown[12]?.failure?.message).toBe("Workflow execution failed");
  });

  test.each(PUBLIC_PHASES)("RP-73 the phase %s keeps its name", (name) => {
    const body = { type: "phase", name, instance: "inspect", tokens: 7, cost_micros: 8, key: "PRIVATE-", due_at_ms: 9 };
    const [event] = events(body as unknown as EventBody);
    if (event === undefined) throw new Error("no event");
    expect(publicEvent(RUN_ID, event)).toEqual({
      run_id: RUN_ID,
      sequence: 1,
      at: "2026-01-02T03:04:05.001Z",
      step_id: "inspect",
      type: "phase",
      name,
    });
  });

  const beyond: EventBody[] = [
    { type: "decision", key: "PRIVATE-key", value: "PRIVATE-value" },
    { type: "handed_off", ...STEP },
    { type: "receipt", ...STEP, receipt: "PRIVATE-receipt" },
    { type: "wait_opened", ...STEP, visit: 1, wait: wait({ wait_id: "w-1", type: "input", prompt: "PRIVATE-prompt" }) },
    { type: "wait_warned", wait_id: "w-1" },
    { type: "wait_closed", wait_id: "w-1", by: "answer", value: "PRIVATE-answer", decided_by: "PRIVATE-person" },
    {
      type: "grant_issued",
      wait_id: "w-1",
      digest: "PRIVATE-digest",
      decision: {
        approved: true,
        decision: "approved",
        decided_by: "PRIVATE-person",
        decided_at_ms: 1,
        reason: "PRIVATE-",
      },
    },
    { type: "child_linked", ...STEP, child_run_id: "PRIVATE-child" },
    { type: "cancel_requested", stop_reason: "cancelled", reason: "PRIVATE-reason", decided_by: "PRIVATE-person" },
    {
      type: "repaired",
      ...STEP,
      wait_id: "w-1",
      resolution: "failed",
      message: "PRIVATE-message",
      decided_by: "PRIVATE-person",
    },
    { type: "late_result", ...STEP, attempt: 1, result: "PRIVATE-result" },
    { type: "budget_raised", budget: { "PRIVATE-field": 1 }, decided_by: "PRIVATE-person" },
  ];
  test.each(beyond.map((body) => [body.type, body] as const))("R-22 %s is published as progress", (_, body) => {
    const [event] = events(body);
    if (event === undefined) throw new Error("no event");
    const shownBeyond = publicEvent(RUN_ID, event);
    expect(shownBeyond).toMatchObject({ sequence: 1, type: "phase", name: "workflow_progressed" });
    expect(JSON.stringify(shownBeyond)).not.toContain("PRIVATE-");
  });
});

test("RP-73 the operator's event keeps every field and its own type, with the time as `at`", () => {
  for (const event of events(...FOURTEEN)) {
    const { at_ms: _, ...rest } = event;
    const shown = operatorEvent(RUN_ID, event);
    expect(shown).toEqual({ run_id: RUN_ID, at: new Date(event.at_ms).toISOString(), ...rest });
    expect(Object.keys(shown).slice(0, 4)).toEqual(["run_id", "sequence", "at", "type"]);
  }
});
