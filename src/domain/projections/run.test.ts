import { describe, expect, test } from "vitest";
import type { EventBody } from "../events.ts";
import type { Definition } from "../plan/definition.ts";
import type { FailureCode, RunStatus, Usage } from "../run.ts";
import type { RunState } from "../state.ts";
import {
  BORN_MS,
  CHILD,
  CHILD_ID,
  DEFINITION,
  fold,
  RUN_ID,
  RUNS,
  SESSION_ID,
  STARTED,
  started,
  viewOf,
  wait,
} from "./projections.fixture.ts";
import { operatorRun, publicRun, runSummary } from "./run.ts";
import { publicFailure, rfc3339 } from "./values.ts";
import { publicSuspension, publicWait } from "./wait.ts";

const USAGE: Usage = { steps: 5, retries: 1, agents: 3, tokens: 70, cost_micros: null };

/** SC-1's snapshot: one step with something private in every field, in any status. */
function stuffed(status: RunStatus, suspension: "tool_approval" | "recovery" = "tool_approval"): RunState {
  const base = RUNS.toolApproval;
  const inspect = base.steps.get("inspect");
  if (inspect === undefined) throw new Error("no step");
  const open = wait({
    wait_id: "w-6",
    type: suspension,
    step_id: "inspect@root[0]",
    tool: "PRIVATE-approval-tool",
    tool_call_id: "PRIVATE-call-id",
    reason: "PRIVATE-reason",
    prompt: "PRIVATE-prompt",
    details: "PRIVATE-details",
    input: { value: "PRIVATE-value" },
    digest: "PRIVATE-digest",
    capabilities: ["PRIVATE-capability"],
    schema: { title: "PRIVATE-schema" },
  });
  const { waits: _, ...rest } = base;
  return {
    ...rest,
    status,
    waits: status === "suspended" ? [open] : [],
    steps: base.steps.clear().set("inspect@root[0]", {
      ...inspect,
      id: "inspect@root[0]",
      status: "failed",
      attempts: 2,
      input_hash: "PRIVATE-input-hash",
      input: { value: "PRIVATE-step-input" },
      output: { value: "PRIVATE-step-output" },
      receipt: "PRIVATE-receipt",
      tool: "PRIVATE-tool",
      failure: { code: "execution_failed", message: "PRIVATE-step-failure", retryable: true },
    }),
    output: { value: "PRIVATE-run-output" },
    failure: { code: "execution_failed", message: "PRIVATE-run-failure", retryable: false },
    last_sequence: 9,
  };
}

const PRIVATE = [
  "PRIVATE-",
  "input_hash",
  "output_schema",
  "root_invocation_policy",
  "delay_ms",
  "987654",
  "tool_call_id",
];

describe("the public run", () => {
  test.each<[RunStatus, boolean]>([
    ["queued", true],
    ["running", true],
    ["suspended", true],
    ["cancelled", true],
    ["succeeded", false],
    ["failed", false],
  ])("SC-1 %s: nothing private, can_cancel %s", (status, canCancel) => {
    const shown = publicRun(viewOf(stuffed(status)), DEFINITION, USAGE);
    expect(shown).toMatchObject({
      run_id: RUN_ID,
      session_id: SESSION_ID,
      workflow_id: "review-flow",
      workflow_revision: 42,
      definition_bundle_hash: "ab".repeat(32),
      can_cancel: canCancel,
      can_restart_as_new_run: false,
      planned_steps: [{ id: "inspect", kind: "tool" }],
      plan: { type: "retry", max_attempts: 3, node: { type: "map", body: { type: "step", step: "inspect" } } },
      steps: [
        {
          id: "inspect@root[0]",
          status: "failed",
          attempts: 2,
          failure: { code: "execution_failed", message: "Workflow execution failed", retryable: true },
        },
      ],
      budget: { max_steps: 8, max_agents: 4 },
      usage: USAGE,
      child_agent_count: 3,
      last_sequence: 9,
      failure: { code: "execution_failed", message: "Workflow execution failed", retryable: false },
    });
    for (const absent of ["definition", "definition_bundle", "validated_args", "args", "output"])
      expect(shown).not.toHaveProperty(absent);
    if (status === "suspended") expect(shown.suspension).toEqual({ type: "tool_approval", step_id: "inspect@root[0]" });
    else expect(shown).not.toHaveProperty("suspension");
    const text = JSON.stringify(shown);
    for (const marker of PRIVATE) expect(text).not.toContain(marker);
  });

  test("SC-1 with recovery: both flags true, the reason hidden", () => {
    const shown = publicRun(viewOf(stuffed("suspended", "recovery")), DEFINITION, USAGE);
    expect(shown).toMatchObject({ can_cancel: true, can_restart_as_new_run: true, suspension: { type: "recovery" } });
    for (const marker of PRIVATE) expect(JSON.stringify(shown)).not.toContain(marker);
  });

  test("RP-69 has exactly its fields, then actions and waits", () => {
    const keys = Object.keys(publicRun(viewOf(RUNS.running), DEFINITION, USAGE));
    const required =
      "run_id session_id workflow_id workflow_revision definition_bundle_hash status can_cancel can_restart_as_new_run planned_steps plan steps budget usage child_agent_count last_sequence created_at updated_at actions waits";
    expect(keys).toEqual(required.split(" "));
    const child = publicRun(viewOf(fold(STARTED, CHILD), RUNS.running), DEFINITION, USAGE);
    expect(child).toMatchObject({ run_id: CHILD_ID, parent_run_id: RUN_ID, parent_step_id: "nested" });
  });

  test("RP-74 a field that nobody listed stays private", () => {
    const unknown = { ...stuffed("running"), later: "PRIVATE-later" } as RunState;
    const definition = { ...DEFINITION, later: "PRIVATE-later" } as Definition;
    expect(JSON.stringify(publicRun(viewOf(unknown), definition, USAGE))).not.toContain("PRIVATE-");
  });

  test("R-25 times are RFC 3339 in UTC, and none is out of range", () => {
    const shown = publicRun(viewOf(RUNS.queued), DEFINITION, USAGE);
    expect(shown.created_at).toBe("2026-01-02T03:04:05.000Z");
    expect(shown.updated_at).toBe("2026-01-02T03:04:05.001Z");
    expect(rfc3339(Number.MAX_SAFE_INTEGER)).toBe("+275760-09-13T00:00:00.000Z");
  });

  test("steps stand as the definition lists them, instances by their place", () => {
    const definition: Definition = {
      ...DEFINITION,
      steps: ["zeta", "alpha"].flatMap((id) => DEFINITION.steps.map((step) => ({ ...step, id }))),
    };
    const bodies: EventBody[] = [...STARTED];
    for (const id of [
      "alpha",
      "alpha@root[10]",
      "alpha@root[2]",
      "zeta@root[1]",
      "beta",
      "alpha@root[2][0]",
      "__proto__",
    ])
      bodies.push(...started(id));
    const shown = publicRun(viewOf(fold(bodies)), definition, USAGE);
    expect(shown.steps.map((step) => step.id)).toEqual([
      "zeta@root[1]",
      "alpha",
      "alpha@root[2]",
      "alpha@root[2][0]",
      "alpha@root[10]",
      "__proto__",
      "beta",
    ]);
  });
});

describe("RP-71 suspensions and waits", () => {
  test("RP's three shapes, else type, step and wait", () => {
    const of = (run: RunState) => publicRun(viewOf(run), DEFINITION, USAGE).suspension;
    expect(of(RUNS.toolApproval)).toEqual({ type: "tool_approval", step_id: "inspect" });
    expect(of(RUNS.toolRunning)).toEqual({ type: "tool_running", step_id: "inspect", killed: true });
    expect(of(RUNS.recovery)).toEqual({ type: "recovery" });
    expect(of(RUNS.timer)).toEqual({ type: "timer", step_id: "sleep", wait_id: "w-6" });
    expect(of(RUNS.paused)).toEqual({ type: "paused", wait_id: "w-3" });
    expect(publicSuspension(wait({ wait_id: "w-1", type: "tool_running", step_id: "x" }))).toHaveProperty(
      "killed",
      false,
    );
  });

  test("RP-74 a public wait says who waits since when and until when, and nothing else", () => {
    const open = stuffed("suspended").waits[0];
    if (open === undefined) throw new Error("no wait");
    expect(publicWait({ ...open, due_at_ms: 1, deadline_at_ms: 2, warn_at_ms: 3, child_run_id: CHILD_ID })).toEqual({
      wait_id: "w-6",
      type: "tool_approval",
      run_id: RUN_ID,
      step_id: "inspect@root[0]",
      since_ms: BORN_MS,
      due_at_ms: 1,
      deadline_at_ms: 2,
      warn_at_ms: 3,
    });
  });
});

describe("the operator's run", () => {
  test("args, output, failures and waits stand whole beside the public fields", () => {
    const run = stuffed("suspended");
    const shown = operatorRun(viewOf(run), DEFINITION, USAGE);
    expect(shown).toMatchObject({
      kind: "plan",
      root_run_id: RUN_ID,
      args: { key: "PRIVATE-args" },
      output: { value: "PRIVATE-run-output" },
      failure: { message: "PRIVATE-run-failure" },
      steps: [{ failure: { message: "PRIVATE-step-failure" } }],
      waits: [{ tool: "PRIVATE-approval-tool", input: { value: "PRIVATE-value" } }],
    });
    expect(operatorRun(viewOf(RUNS.running), DEFINITION, USAGE)).not.toHaveProperty("failure");
  });
});

describe("one row of a list", () => {
  test("R-27 has no plan, steps or budget", () => {
    const { header } = RUNS.timer;
    const record = {
      ...header,
      status: "suspended",
      suspension: "timer",
      wait_count: 1,
      usage: USAGE,
      last_sequence: 7,
      updated_at_ms: BORN_MS,
    } as const;
    expect(runSummary(record)).toEqual({
      run_id: RUN_ID,
      session_id: SESSION_ID,
      workflow_id: "review-flow",
      workflow_revision: 42,
      kind: "plan",
      status: "suspended",
      suspension: "timer",
      wait_count: 1,
      usage: USAGE,
      last_sequence: 7,
      created_at: "2026-01-02T03:04:05.000Z",
      updated_at: "2026-01-02T03:04:05.000Z",
    });
  });
});

test.each<[FailureCode, string]>([
  ["invalid_definition", "Workflow definition is invalid"],
  ["invalid_input", "Workflow input is invalid"],
  ["invalid_output", "Workflow output is invalid"],
  ["unknown_reference", "Workflow reference is unavailable"],
  ["permission_denied", "Workflow permission was denied"],
  ["untrusted_workspace", "Workflow workspace is not trusted"],
  ["budget_exceeded", "Workflow execution budget was exceeded"],
  ["retry_exhausted", "Workflow retry budget was exhausted"],
  ["execution_failed", "Workflow execution failed"],
  ["cancelled", "Workflow execution was cancelled"],
  ["recovery_suspended", "Workflow recovery requires attention"],
  ["suspended", "Workflow execution is suspended"],
  ["dependency_skipped", "Workflow dependency was skipped"],
  ["storage", "Workflow storage is unavailable"],
])("RP-75 %s reads %j", (code, message) => {
  expect(publicFailure({ code, message: "PRIVATE-", retryable: true })).toEqual({ code, message, retryable: true });
});
