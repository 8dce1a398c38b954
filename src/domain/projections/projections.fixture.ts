/** Runs for the tests of this room: folded from events, so that no state is shown that no journal can have. */
import type { EventBody, RunEvent } from "../events.ts";
import type { Definition } from "../plan/definition.ts";
import { DEFAULT_BUDGETS, type RunHeader, type Wait } from "../run.ts";
import { evolve, initialState, type RunState } from "../state.ts";
import type { RunView } from "./decisions.ts";

export const RUN_ID = "0190c000-0000-7000-8000-000000000001";
export const CHILD_ID = "0190c000-0000-8000-8000-000000000002";
export const SESSION_ID = "0190c000-0000-7000-8000-00000000000a";
/** 2026-01-02T03:04:05.000Z; event `n` is at `n` ms after it. */
export const BORN_MS = Date.UTC(2026, 0, 2, 3, 4, 5);
export const NOW_MS = BORN_MS + 60_000;

export function header(changes: Partial<RunHeader> = {}): RunHeader {
  return {
    run_id: RUN_ID,
    root_run_id: RUN_ID,
    session_id: SESSION_ID,
    kind: "plan",
    workflow_id: "review-flow",
    workflow_revision: 42,
    bundle_hash: "ab".repeat(32),
    args: { key: "PRIVATE-args" },
    args_hash: "cd".repeat(32),
    budget: { ...DEFAULT_BUDGETS, max_steps: 8, max_agents: 4 },
    created_at_ms: BORN_MS,
    depth: 0,
    engine_version: 1,
    durability: "standard",
    origin: "explicit",
    ...changes,
  };
}

export const CHILD: Partial<RunHeader> = {
  run_id: CHILD_ID,
  parent_run_id: RUN_ID,
  parent_step_id: "nested",
  depth: 1,
};

export function events(...bodies: readonly EventBody[]): RunEvent[] {
  return bodies.map((body, i) => ({ sequence: i + 1, at_ms: BORN_MS + i + 1, ...body }));
}

export function fold(bodies: readonly EventBody[], changes: Partial<RunHeader> = {}): RunState {
  return events(...bodies).reduce(evolve, initialState(header(changes)));
}

export function viewOf(state: RunState, ...others: readonly RunState[]): RunView {
  const root = others.find((run) => run.header.parent_run_id === undefined) ?? state;
  return { state, root, tree: [state, ...others], now_ms: NOW_MS };
}

export function wait(changes: Partial<Wait> & Pick<Wait, "wait_id" | "type">): Wait {
  return { run_id: RUN_ID, since_ms: BORN_MS, ...changes };
}

/** `R` of RP §3: queued and started. */
export const STARTED: readonly EventBody[] = [{ type: "run_queued" }, { type: "run_started" }];

export function started(
  step_id: string,
  more: Partial<Extract<EventBody, { type: "step_started" }>> = {},
): EventBody[] {
  return [
    { type: "phase", name: "step_reserved" },
    { type: "step_queued", step_id, visit: 1 },
    { type: "step_started", step_id, attempt: 1, side_effect: "mutating", input_hash: "ef".repeat(32), ...more },
  ];
}

/** A step that waits; its wait has the id `w-N` of its own sequence. */
export function waiting(
  before: readonly EventBody[],
  step_id: string,
  more: Partial<Wait> & Pick<Wait, "type">,
): EventBody[] {
  const sequence = before.length + 4;
  const open = wait({ wait_id: `w-${sequence}`, step_id, ...more });
  return [...before, ...started(step_id), { type: "step_suspended", step_id, reason: "PRIVATE-reason", wait: open }];
}

export function suspended(
  before: readonly EventBody[],
  own?: Omit<Wait, "wait_id" | "run_id" | "since_ms">,
): EventBody[] {
  const open = own === undefined ? {} : { wait: wait({ wait_id: `w-${before.length + 1}`, ...own }) };
  return [...before, { type: "run_suspended", reason: "PRIVATE-reason", ...open }];
}

export const DIGEST = "0123456789abcdef".repeat(4);

const TOOL_APPROVAL = {
  type: "tool_approval",
  tool: "PRIVATE-tool",
  tool_call_id: "PRIVATE-call",
  input: { secret: "PRIVATE-input" },
  digest: DIGEST,
} as const;

const REPAIR = { type: "repair", tool: "PRIVATE-tool", reason: "PRIVATE-cause", digest: DIGEST } as const;

/** A run in every state that RP and DESIGN name, each with its shortest journal. */
export const RUNS = {
  queued: fold([{ type: "run_queued" }]),
  running: fold([...STARTED, ...started("inspect")]),
  toolApproval: fold(suspended(waiting(STARTED, "inspect", TOOL_APPROVAL))),
  toolRunning: fold(
    suspended(waiting(STARTED, "inspect", { type: "tool_running", tool: "PRIVATE-tool", killed: true })),
  ),
  repair: fold(suspended(waiting(STARTED, "inspect", REPAIR))),
  approval: fold(
    suspended(
      waiting(STARTED, "gate", {
        type: "approval",
        prompt: "PRIVATE-prompt",
        digest: DIGEST,
        deadline_at_ms: NOW_MS + 1,
      }),
    ),
  ),
  input: fold(
    suspended(waiting(STARTED, "ask", { type: "input", prompt: "PRIVATE-prompt", schema: {}, digest: DIGEST })),
  ),
  timer: fold(suspended(waiting(STARTED, "sleep", { type: "timer", due_at_ms: NOW_MS + 5_000 }))),
  recovery: fold(
    suspended([...STARTED, ...started("inspect"), { type: "step_suspended", step_id: "inspect", reason: "lost" }], {
      type: "recovery",
      reason: "PRIVATE-recovery",
    }),
  ),
  paused: fold(suspended(STARTED, { type: "paused", reason: "PRIVATE-pause" })),
  budget: fold(
    suspended(STARTED, {
      type: "budget",
      reason: "the step budget of 8 is exhausted; raise it or make the run smaller",
    }),
  ),
  succeeded: fold([...STARTED, { type: "run_succeeded", output: { out: "PRIVATE-output" } }]),
  failed: fold([
    ...STARTED,
    { type: "run_failed", failure: { code: "execution_failed", message: "PRIVATE-failure", retryable: false } },
  ]),
  cancelled: fold([...STARTED, { type: "run_cancelled", reason: "PRIVATE-why" }]),
} as const satisfies { readonly [name: string]: RunState };

/** SC-1: retry(3) over map over `inspect`, with something private in every place. */
export const DEFINITION: Definition = {
  workflow_schema: 1,
  id: "review-flow",
  revision: 42,
  input_schema: { title: "PRIVATE-schema" },
  output_schema: { title: "PRIVATE-output-schema" },
  steps: [
    {
      id: "inspect",
      type: "tool",
      tool: "PRIVATE-tool",
      args: { path: "PRIVATE-path" },
      capabilities: ["PRIVATE-capability"],
      failure: "fail_fast",
      output_schema: { title: "PRIVATE-step-schema" },
    },
  ],
  plan: {
    type: "retry",
    max_attempts: 3,
    delay_ms: 987_654,
    node: {
      type: "map",
      source: { from: "args", pointer: "/PRIVATE-binding" },
      item: "PRIVATE-item",
      body: { type: "step", step: "inspect" },
    },
  },
  budgets: { ...DEFAULT_BUDGETS, max_steps: 8, max_agents: 4 },
};
