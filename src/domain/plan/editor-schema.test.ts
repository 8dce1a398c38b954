import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, test } from "vitest";
import type { Json, JsonObject } from "../json.ts";
import { planEditorSchema } from "./index.ts";

const validate = new Ajv2020({
  strict: true,
  strictTypes: false,
  strictRequired: false,
  allowUnionTypes: true,
  formats: { "date-time": true },
}).compile(planEditorSchema());

/** interfaces §4.1, and one of every other kind. */
const PLAN = {
  workflow_schema: 1,
  id: "open-markers",
  revision: 1,
  title: "Open markers",
  labels: ["demo"],
  invocation_policy: { explicit: true, automatic: true },
  input_schema: {
    type: "object",
    required: ["dir"],
    additionalProperties: false,
    properties: { dir: { type: "string", default: "src" }, at: {} },
  },
  output_schema: { type: "array" },
  budgets: { max_concurrency: 4, max_agents: 0, max_steps: 400, max_retries: 2, wall_time_ms: 120_000 },
  steps: [
    {
      id: "find",
      type: "tool",
      tool: "Glob",
      args: { pattern: "**/*.ts", path: { from: "args", pointer: "/dir" } },
      capabilities: ["read"],
      timeout_ms: 5,
      resources: [{ resource: "index", access: "read" }, { resource: { from: "args", pointer: "/dir" } }],
      retry: { max_attempts: 3, eligible_failures: ["owner_reported_retryable"], backoff_multiplier: 3 },
    },
    {
      id: "each",
      type: "tool",
      tool: "Grep",
      args: [{ path: { from: "item", name: "file" }, key: { $secret: "k" } }],
      failure: "continue_with_error",
    },
    {
      id: "ask",
      type: "agent",
      agent: "reviewer",
      prompt: { from: "object", fields: { from: { from: "literal", value: { from: 1 } } } },
    },
    { id: "nest", type: "workflow", workflow_id: "other", revision: 2 },
    { id: "ok", type: "approval", prompt: "Ship?", outcome: "value" },
    { id: "who", type: "input", prompt: "Who?", schema: { type: "string", minLength: 1, "x-holdfast-secret": false } },
    { id: "nap", type: "wait", for_ms: { from: "args", pointer: "/at" } },
  ],
  plan: {
    type: "sequence",
    nodes: [
      { type: "retry", max_attempts: 3, delay_ms: 200, node: { type: "step", step: "find" } },
      {
        type: "choice",
        condition: {
          from: "test",
          of: { from: "args" },
          predicate: {
            operation: "all",
            predicates: [
              { operation: "selected_equals", selector: { segments: [{ kind: "index", index: 0 }] }, value: 1 },
            ],
          },
        },
        then_branch: { type: "parallel", id: "both", nodes: [{ type: "step", step: "ask" }] },
        else_branch: {
          type: "map",
          item: "file",
          source: { from: "step", step: "find", pointer: "/files" },
          body: { type: "step", step: "each" },
        },
      },
    ],
  },
} as const satisfies JsonObject;

/** Every object of the plan that has a closed key set, each with one more key. */
function withExtraKeys(value: Json, path: string): [path: string, changed: Json][] {
  if (typeof value !== "object" || value === null) return [];
  const changed = (key: string | number, item: Json): Json =>
    Array.isArray(value) ? value.map((old: Json, i) => (i === key ? item : old)) : { ...value, [key]: item };
  const below = Object.entries(value).flatMap(([key, item]) =>
    withExtraKeys(item as Json, `${path}/${key}`).map(
      ([at, inner]) => [at, changed(Array.isArray(value) ? Number(key) : key, inner)] as [string, Json],
    ),
  );
  const open = Array.isArray(value) || /\/(args|properties|fields|value)$|\/args\/0$|\/fields\/from\/value$/.test(path);
  return open ? below : [[path, { ...value, misspelt: 1 }], ...below];
}

describe("the editor schema", () => {
  test("accepts the documented example and one of every kind", () => {
    expect(validate(PLAN), JSON.stringify(validate.errors)).toBe(true);
  });

  test("rejects a misspelt key wherever the key set is closed", () => {
    const variants = withExtraKeys(PLAN, "");
    expect(variants.length).toBeGreaterThan(30);
    for (const [path, changed] of variants) expect(validate(changed), path).toBe(false);
  });

  test("rejects a default below the top-level inputs, and values that the compiler refuses", () => {
    const change = (more: JsonObject): Json => ({ ...PLAN, ...more });
    expect(validate(change({ input_schema: { properties: { a: { properties: { b: { default: 1 } } } } } }))).toBe(
      false,
    );
    expect(validate(change({ output_schema: { default: 1 } }))).toBe(false);
    expect(validate(change({ workflow_schema: 2 }))).toBe(false);
    expect(validate(change({ id: " " }))).toBe(false);
    expect(validate(change({ steps: [] }))).toBe(false);
    expect(validate(change({ budgets: { max_steps: 0 } }))).toBe(false);
    const step = (more: JsonObject): boolean =>
      validate(change({ steps: [{ id: "a", type: "tool", tool: "Read", ...more }] })) as boolean;
    expect(step({ retry: { max_attempts: 1 } })).toBe(true);
    for (const retry of [
      {},
      { max_attempts: 0 },
      { max_attempts: 1, eligible_failures: [] },
      { max_attempts: 1, backoff_multiplier: 101 },
    ])
      expect(step({ retry })).toBe(false);
    for (const resource of [" ", 7, "x".repeat(513), { from: "no" }])
      expect(step({ resources: [{ resource }] })).toBe(false);
  });

  test("describes every key", () => {
    const bare: string[] = [];
    const visit = (schema: Json | undefined, path: string): void => {
      if (typeof schema !== "object" || schema === null) return;
      const { properties, $defs, oneOf, anyOf, ...rest } = schema as JsonObject;
      for (const [key, item] of Object.entries((properties ?? {}) as JsonObject)) {
        if (typeof (item as JsonObject).description !== "string") bare.push(`${path}/${key}`);
        visit(item, `${path}/${key}`);
      }
      for (const [key, item] of Object.entries(($defs ?? {}) as JsonObject)) visit(item, `$${key}`);
      for (const item of [oneOf ?? [], anyOf ?? []].flat() as Json[]) visit(item, path);
      for (const key of ["items", "additionalProperties", "if", "then", "else"]) visit(rest[key], path);
    };
    visit(planEditorSchema(), "");
    expect(bare).toEqual([]);
  });
});
