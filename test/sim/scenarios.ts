// Owns the workflows that are crashed everywhere: one for each way in which a run can be on its way.
import { type Action, type CrashOptions, carefulPerson, failed, type MockTool, ok } from "../../src/testing/index.ts";

export const tool = (id: string, name: string, more: object = {}): object => ({
  id,
  type: "tool",
  tool: name,
  capabilities: [],
  args: { n: id },
  ...more,
});
export const leaf = (step: string): object => ({ type: "step", step });
export const sequence = (...ids: readonly string[]): object => ({ type: "sequence", nodes: ids.map(leaf) });

export const READ: MockTool = { name: "Look", sideEffect: "read_only" };
export const PUT: MockTool = { name: "Put", sideEffect: "idempotent" };
export const CHARGE: MockTool = { name: "Charge" };
export const LOOKED_UP: MockTool = { name: "Transfer", lookup: true };
export const OBSERVED: MockTool = { name: "Build", observe: true };

/** Fails the first time it is asked in a place, and may be tried again. */
const FLAKY: MockTool = {
  name: "Flaky",
  sideEffect: "read_only",
  answer: (call) => (call.attempt === 1 ? failed(true) : ok(call.input)),
};
const BROKEN: MockTool = { name: "Broken", sideEffect: "read_only", answer: () => failed(false) };
/** Ends only when it is told to. */
const endless = (name: string, more: Partial<MockTool>): MockTool => ({
  name,
  takes_ms: [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY],
  ...more,
});

const approved = {
  fingerprint: "ask",
  decide: (request: { target: string }) =>
    request.target === "Charge"
      ? { decision: "ask" as const, reason: "it costs money" }
      : { decision: "allow" as const },
};

/** Cancels once the named step is at work. */
const cancelDuring = (step: string): Action => ({
  name: "cancel",
  kind: "cancel",
  payload: { reason: "not needed any more", decided_by: "os:person" },
  when: ({ root }) => root.steps.get(step)?.status === "running" || root.steps.get(step)?.status === "suspended",
});

export const SCENARIOS: Readonly<Record<string, CrashOptions>> = {
  "a sequence with a mutating tool that nobody can be asked about": {
    definitions: [
      {
        steps: [tool("look", "Look"), tool("charge", "Charge"), tool("put", "Put"), tool("after", "Look")],
        plan: sequence("look", "charge", "put", "after"),
      },
    ],
    tools: [READ, CHARGE, PUT],
  },
  "a sequence with a mutating tool whose owner can be asked, and one with a receipt": {
    definitions: [
      {
        steps: [tool("look", "Look"), tool("transfer", "Transfer"), tool("build", "Build"), tool("after", "Look")],
        plan: sequence("look", "transfer", "build", "after"),
      },
    ],
    tools: [READ, LOOKED_UP, OBSERVED],
  },
  "a strict sequence": {
    definitions: [
      {
        steps: [tool("look", "Look"), tool("charge", "Charge"), tool("after", "Look")],
        plan: sequence("look", "charge", "after"),
      },
    ],
    tools: [READ, CHARGE],
    run: { durability: "strict" },
  },
  "a map of 4 that claims a resource and is tried again by its steps' own policy": {
    definitions: [
      {
        budgets: { max_concurrency: 3 },
        steps: [
          tool("build", "Build", { resources: [{ resource: "farm" }] }),
          tool("flaky", "Flaky", {
            resources: [
              { resource: { from: "item", name: "it" }, access: "read" },
              { resource: "farm", access: "read" },
            ],
            retry: { max_attempts: 3, initial_backoff_ms: 500 },
          }),
        ],
        plan: {
          type: "map",
          source: { from: "literal", value: ["a", "a", "b", "farm"] },
          item: "it",
          body: sequence("flaky", "build"),
        },
      },
    ],
    tools: [OBSERVED, FLAKY],
  },
  "a map of 20 in a retry in a parallel beside a choice": {
    definitions: [
      {
        input_schema: {
          type: "object",
          required: ["items", "yes"],
          properties: { items: { type: "array", items: { type: "integer" } }, yes: { type: "boolean" } },
        },
        budgets: { max_steps: 200, max_concurrency: 8 },
        steps: [
          { id: "each", type: "tool", tool: "Put", capabilities: [], args: { item: { from: "item", name: "it" } } },
          tool("flaky", "Flaky"),
          tool("yes", "Transfer"),
          tool("no", "Look"),
        ],
        plan: {
          type: "parallel",
          nodes: [
            {
              type: "retry",
              max_attempts: 3,
              delay_ms: 1_000,
              node: {
                type: "sequence",
                nodes: [
                  { type: "map", source: { from: "args", pointer: "/items" }, item: "it", body: leaf("each") },
                  leaf("flaky"),
                ],
              },
            },
            {
              type: "choice",
              condition: { from: "args", pointer: "/yes" },
              then_branch: leaf("yes"),
              else_branch: leaf("no"),
            },
          ],
        },
      },
    ],
    tools: [PUT, FLAKY, LOOKED_UP, READ],
    run: { args: { items: Array.from({ length: 20 }, (_, i) => i), yes: true } },
  },
  "nested workflows with continue_with_error and skip_dependents": {
    definitions: [
      {
        steps: [
          { id: "first", type: "workflow", workflow_id: "inner", revision: 1, args: {} },
          tool("charge", "Transfer"),
          tool("softly", "Broken", { failure: "continue_with_error" }),
          {
            id: "second",
            type: "workflow",
            workflow_id: "skipping",
            revision: 1,
            args: {},
            failure: "continue_with_error",
          },
          tool("after", "Look"),
        ],
        plan: sequence("first", "charge", "softly", "second", "after"),
      },
      { id: "inner", steps: [tool("look", "Look"), tool("deep", "Transfer")], plan: sequence("look", "deep") },
      {
        id: "skipping",
        steps: [tool("broken", "Broken", { failure: "skip_dependents" }), tool("never", "Transfer")],
        plan: sequence("broken", "never"),
      },
    ],
    tools: [READ, BROKEN, LOOKED_UP],
  },
  "a fail-fast parallel whose sibling is in flight": {
    definitions: [
      {
        steps: [tool("broken", "Broken"), tool("slow", "Slow"), tool("look", "Look")],
        plan: { type: "parallel", nodes: [{ type: "sequence", nodes: [leaf("look"), leaf("broken")] }, leaf("slow")] },
      },
    ],
    tools: [READ, BROKEN, endless("Slow", { sideEffect: "idempotent" })],
  },
  "a cancel while idempotent work is in flight": {
    definitions: [
      {
        steps: [tool("look", "Look"), tool("slow", "Slow"), tool("after", "Look")],
        plan: sequence("look", "slow", "after"),
      },
    ],
    tools: [READ, endless("Slow", { sideEffect: "idempotent" })],
    actions: [cancelDuring("slow")],
  },
  "a cancel while a mutation is in flight": {
    definitions: [
      {
        steps: [tool("look", "Look"), tool("slow", "Slow"), tool("after", "Look")],
        plan: sequence("look", "slow", "after"),
      },
    ],
    tools: [READ, endless("Slow", { deaf: true })],
    actions: [cancelDuring("slow")],
  },
  "the wall time ending while work is in flight": {
    definitions: [
      {
        budgets: { wall_time_ms: 60_000 },
        steps: [tool("look", "Look"), tool("slow", "Slow")],
        plan: sequence("look", "slow"),
      },
    ],
    tools: [READ, endless("Slow", { sideEffect: "idempotent" })],
  },
  "an approval that policy asks for": {
    definitions: [
      {
        steps: [tool("look", "Look"), tool("charge", "Charge"), tool("after", "Look")],
        plan: sequence("look", "charge", "after"),
      },
    ],
    tools: [READ, CHARGE],
    policy: approved,
  },
  "an approval that is denied": {
    definitions: [
      {
        steps: [
          tool("look", "Look"),
          tool("charge", "Charge", { failure: "continue_with_error" }),
          tool("after", "Look"),
        ],
        plan: sequence("look", "charge", "after"),
      },
    ],
    tools: [READ, CHARGE],
    policy: approved,
    person: carefulPerson({ approvals: "deny" }),
  },
  "a gate and an input that the author wrote": {
    definitions: [
      {
        steps: [
          { id: "gate", type: "approval", prompt: "Go on?" },
          { id: "ask", type: "input", prompt: "How many?", schema: { type: "integer" } },
          tool("transfer", "Transfer"),
        ],
        plan: sequence("gate", "ask", "transfer"),
      },
    ],
    tools: [LOOKED_UP],
    person: carefulPerson({ input: 3 }),
  },
  "a timer of 30 days": {
    definitions: [
      {
        budgets: { wall_time_ms: 60_000 },
        steps: [
          tool("look", "Look"),
          { id: "month", type: "wait", for_ms: 30 * 86_400_000 },
          tool("transfer", "Transfer"),
        ],
        plan: sequence("look", "month", "transfer"),
      },
    ],
    tools: [READ, LOOKED_UP],
  },
};
