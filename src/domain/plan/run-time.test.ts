import { describe, expect, test } from "vitest";
import { type Json, setOwn } from "../json.ts";
import { DEFAULT_BUDGETS, UNTRUSTED_CEILINGS } from "../run.ts";
import {
  type Bundle,
  bundleBytes,
  bundleHash,
  type CompileEnv,
  checkBundleLimits,
  checkBundleSize,
  checkCeilings,
  compilePlan,
  containsSecret,
  type Definition,
  declaredSecrets,
  definitionKey,
  frontier,
  inheritCeilings,
  leafBound,
  leaves,
  maxDepth,
  nestedRefs,
  type Plan,
  publicPlan,
  readBudgetRequest,
  resolveCondition,
  resolveReference,
  resolveTemplate,
  secretHandles,
  substituteSecrets,
  type TemplateScope,
  tightenBudget,
  validateBundle,
  worstCase,
} from "./index.ts";

const env: CompileEnv = { maxConcurrency: 64 };
const at = (step: string): Plan => ({ type: "step", step });
type Doc = Record<string, Json>;

function compiled(more: Doc): Definition {
  const { definition, problems } = compilePlan({ workflow_schema: 1, id: "flow", revision: 1, ...more }, env);
  expect(problems).toEqual([]);
  if (definition === undefined) throw new Error("does not compile");
  return definition;
}
function bundle(...definitions: Definition[]): Bundle {
  const [root] = definitions;
  const byKey: Record<string, Definition> = {};
  for (const definition of definitions) setOwn(byKey, definitionKey(definition.id, definition.revision), definition);
  return {
    publication_revision: 1,
    root_id: root?.id ?? "",
    root_revision: root?.revision ?? 1,
    root_invocation_policy: { explicit: true, automatic: false },
    definitions: byKey,
  };
}

describe("templates", () => {
  const scope: TemplateScope = {
    args: { a: { b: [1, { c: null }] }, flag: true, handle: { $secret: "k" } },
    step: (id) => (id === "s" ? { n: 1 } : undefined),
    item: (name) => (name === "i" ? "member" : undefined),
  };
  test("SC-35 RP-4 references become values; text, handles and literals pass as they are", () => {
    const template = {
      ...{
        text: "$(rm -rf) {{y}}",
        arg: { from: "args", pointer: "/a/b/1/c" },
        list: [
          { from: "step", step: "s", pointer: "/n" },
          { from: "item", name: "i" },
        ],
      },
      ...{ literal: { from: "literal", value: { from: "args", $secret: 1 } }, handle: { $secret: "k" } },
      mail: { from: "object", fields: { from: "me", to: { from: "args", pointer: "/flag" } } },
    };
    expect(resolveTemplate(template, scope)).toEqual({
      ok: true,
      value: {
        ...{
          text: "$(rm -rf) {{y}}",
          arg: null,
          list: [1, "member"],
          literal: { from: "args", $secret: 1 },
          handle: { $secret: "k" },
        },
        mail: { from: "me", to: true },
      },
    });
  });

  test("RP-4 what leads nowhere is unknown_reference, with the place and without values", () => {
    for (const reference of [
      { from: "args", pointer: "/missing" },
      { from: "args", pointer: "/constructor" },
      { from: "step", step: "later" },
      { from: "step", step: "s", pointer: "/n/x" },
      { from: "item", name: "j" },
    ] as const) {
      expect(resolveTemplate([reference], scope)).toMatchObject({
        ok: false,
        failure: { code: "unknown_reference", retryable: false },
      });
      expect(resolveReference(reference, scope)).toMatchObject({ ok: false });
    }
  });

  test("RP-33 a condition is a boolean or a predicate over a value", () => {
    expect(resolveCondition({ from: "args", pointer: "/flag" }, scope)).toEqual({ ok: true, value: true });
    expect(resolveCondition({ from: "step", step: "s", pointer: "/n" }, scope)).toMatchObject({
      ok: false,
      failure: { code: "invalid_input" },
    });
    expect(resolveCondition({ from: "step", step: "x" }, scope)).toMatchObject({
      ok: false,
      failure: { code: "unknown_reference" },
    });
    const predicate = { version: 3, operation: "equals", path: "n", value: 1 };
    expect(resolveCondition({ from: "test", of: { from: "step", step: "s" }, predicate }, scope)).toEqual({
      ok: true,
      value: true,
    });
    expect(resolveCondition({ from: "test", of: { from: "args" }, predicate }, scope)).toMatchObject({
      ok: false,
      failure: { code: "invalid_input" },
    });
  });

  test("C24 __proto__ as a key of a template and of a value", () => {
    const template = JSON.parse('{"__proto__":{"from":"args","pointer":"/__proto__"}}') as Json;
    const result = resolveTemplate(template, { ...scope, args: JSON.parse('{"__proto__":{"polluted":1}}') as Json });
    expect(JSON.stringify(result)).toBe('{"ok":true,"value":{"__proto__":{"polluted":1}}}');
    expect(resolveTemplate(template, { ...scope, args: {} })).toMatchObject({ ok: false });
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test("SC-35 RP-42 handles are found, filled in memory, and noticed when they come back", () => {
    const input = { a: [{ $secret: "one" }, { $secret: "two" }], b: { $secret: "one" }, c: { $secret: "", d: 1 } };
    expect(secretHandles(input)).toEqual(["one", "two"]);
    const secrets = new Map([
      ["one", "s3cr3t"],
      ["two", "other"],
    ]);
    expect(substituteSecrets(input, secrets)).toEqual({
      a: ["s3cr3t", "other"],
      b: "s3cr3t",
      c: { $secret: "", d: 1 },
    });
    expect(containsSecret({ echo: ["see s3cr3t here"] }, secrets.values())).toBe(true);
    expect(containsSecret({ "key-s3cr3t": 1 }, secrets.values())).toBe(true);
    expect(containsSecret({ pin: 1234 }, ["1234"])).toBe(true);
    expect(containsSecret({ fine: "s3cr3" }, secrets.values())).toBe(false);
    expect(containsSecret("anything", [""])).toBe(false);
    const definition = compiled({
      steps: [{ id: "a", type: "tool", tool: "T", args: { k: { $secret: "mine" } } }],
      plan: { type: "step", step: "a" },
    });
    expect([...declaredSecrets(definition, { x: { $secret: "yours" } })]).toEqual(["mine", "yours"]);
  });
});

describe("walks", () => {
  const plan: Plan = {
    type: "sequence",
    nodes: [
      {
        type: "choice",
        condition: { from: "literal", value: true },
        then_branch: { type: "parallel", nodes: [at("a"), at("b")] },
        else_branch: at("c"),
      },
      {
        type: "map",
        source: { from: "args", pointer: "/list" },
        item: "i",
        body: { type: "retry", node: at("d"), max_attempts: 3, delay_ms: 5 },
      },
    ],
  };
  test("RP-34 leaves add up, a choice counts its larger branch", () => {
    expect(leaves(plan)).toEqual(["a", "b", "c", "d"]);
    expect(leafBound(plan)).toBe(3);
  });
  test("RP-51 the frontier: sequence first, parallel all, choice both, map and retry their body", () => {
    expect(frontier(plan)).toEqual(["a", "b", "c"]);
    expect(frontier(plan.type === "sequence" ? (plan.nodes[1] as Plan) : plan)).toEqual(["d"]);
  });
  test("RP-70 the public plan has the listed fields and no others", () => {
    expect(publicPlan(plan)).toEqual({
      type: "sequence",
      nodes: [
        { type: "choice", then_branch: { type: "parallel", nodes: [at("a"), at("b")] }, else_branch: at("c") },
        { type: "map", body: { type: "retry", node: at("d"), max_attempts: 3 } },
      ],
    });
  });

  const tool = (id: string): Doc => ({ id, type: "tool", tool: "Read" });
  const agent = (id: string): Doc => ({ id, type: "agent", agent: "r", prompt: "go", structured_output_attempts: 3 });
  test("the worst case multiplies retries, uses known array sizes and is never above the budgets", () => {
    const retried = {
      type: "retry",
      max_attempts: 4,
      node: {
        type: "sequence",
        nodes: [
          { type: "step", step: "a" },
          { type: "step", step: "b" },
        ],
      },
    };
    const budgets = { max_steps: 500, max_agents: 100 };
    expect(worstCase(bundle(compiled({ budgets, steps: [tool("a"), agent("b")], plan: retried })))).toEqual({
      steps: 8,
      agents: 12,
      retries: 3,
    });
    const map = (source: Json, schema: Json = {}) =>
      worstCase(
        bundle(
          compiled({
            ...{
              budgets,
              steps: [agent("a")],
              plan: { type: "map", item: "i", source, body: { type: "step", step: "a" } },
            },
            input_schema: { type: "object", properties: { l: { type: "array", items: {}, ...(schema as Doc) } } },
          }),
        ),
      );
    expect(map({ from: "literal", value: [1, 2, 3] })).toEqual({ steps: 3, agents: 9, retries: 0 });
    expect(map({ from: "args", pointer: "/l" }, { maxItems: 5 })).toEqual({ steps: 5, agents: 15, retries: 0 });
    expect(map({ from: "args", pointer: "/l" })).toEqual({ steps: 500, agents: 100, retries: 0 });
    // A step's own retries count as those of a retry node, and inside one they multiply.
    const policy = { ...tool("a"), retry: { max_attempts: 5 } };
    const bounds = (plan: Json, max_retries = 8) =>
      worstCase(bundle(compiled({ budgets: { ...budgets, max_retries }, steps: [policy], plan })));
    const leaf = { type: "step", step: "a" };
    expect(bounds(leaf)).toEqual({ steps: 5, agents: 0, retries: 4 });
    expect(bounds(leaf, 2)).toEqual({ steps: 3, agents: 0, retries: 2 });
    expect(bounds({ type: "retry", max_attempts: 2, node: leaf }, 100)).toEqual({ steps: 10, agents: 0, retries: 9 });
    const each = { type: "map", item: "i", source: { from: "literal", value: [1, 2, 3] }, body: leaf };
    expect(bounds(each, 100)).toEqual({ steps: 15, agents: 0, retries: 12 });
    // RP-34: a map is admitted by the leaves of one pass; retries come out of what is left.
    expect(leafBound(each as unknown as Plan)).toBe(1);
    const child = compiled({
      id: "child",
      steps: [tool("x"), tool("y")],
      plan: { type: "parallel", nodes: [at("x"), at("y")] as unknown as Json },
    });
    const parent = compiled({
      steps: [{ id: "n", type: "workflow", workflow_id: "child", revision: 1, args: {} }],
      plan: { type: "step", step: "n" },
    });
    expect(worstCase(bundle(parent, child))).toEqual({ steps: 3, agents: 0, retries: 0 });
  });
});

describe("budgets", () => {
  const six = {
    max_concurrency: 1,
    max_agents: 0,
    max_steps: 2,
    max_retries: 0,
    max_nesting_depth: 1,
    wall_time_ms: 5_000,
  };
  test("RP-23 a request only tightens, and a present optional beats an absent one", () => {
    expect(tightenBudget(DEFAULT_BUDGETS, { ...six, max_tokens: 500 }, { complete: true })).toEqual({
      ok: true,
      budgets: { ...six, max_tokens: 500 },
    });
    expect(
      tightenBudget({ ...DEFAULT_BUDGETS, max_tokens: 5 }, { ...six, max_steps: 9_999 }, { complete: true }),
    ).toEqual({
      ok: true,
      budgets: { ...six, max_steps: 256, max_tokens: 5 },
    });
    expect(tightenBudget(DEFAULT_BUDGETS, { max_steps: 3 }, { complete: false })).toMatchObject({
      ok: true,
      budgets: { max_steps: 3, max_agents: 3, max_retries: 8 },
    });
  });
  test("RP-23 zero and missing fields", () => {
    for (const field of ["max_concurrency", "max_steps", "max_nesting_depth", "wall_time_ms"] as const) {
      expect(tightenBudget(DEFAULT_BUDGETS, { ...six, [field]: 0 }, { complete: true })).toMatchObject({
        ok: false,
        field,
      });
    }
    const zero = { ...six, max_agents: 0, max_retries: 0, max_tokens: 0, max_cost_micros: 0 };
    expect(tightenBudget(DEFAULT_BUDGETS, zero, { complete: true })).toEqual({ ok: true, budgets: zero });
    const { max_retries: _left, ...five } = six;
    expect(tightenBudget(DEFAULT_BUDGETS, five, { complete: true })).toMatchObject({ ok: false, field: "max_retries" });
    expect(readBudgetRequest({ max_stpes: 1 })).toMatchObject({
      ok: false,
      field: "max_stpes",
      hint: 'did you mean "max_steps"?',
    });
    for (const value of [-1, 1.5, "4", null, 2 ** 60])
      expect(readBudgetRequest({ max_steps: value })).toMatchObject({ ok: false, field: "max_steps" });
    expect(readBudgetRequest(JSON.parse('{"__proto__":1}') as Json)).toMatchObject({ ok: false, field: "__proto__" });
    expect(readBudgetRequest([])).toMatchObject({ ok: false });
    expect(readBudgetRequest(six)).toEqual({ ok: true, requested: six });
  });
  test("RP-24 above a ceiling is refused, at it passes; token and cost limits are inherited", () => {
    expect(checkCeilings({ ...DEFAULT_BUDGETS, max_steps: 512 }, UNTRUSTED_CEILINGS)).toEqual([]);
    expect(
      checkCeilings({ ...DEFAULT_BUDGETS, max_steps: 513, max_tokens: 2_000_001 }, UNTRUSTED_CEILINGS).map(
        ({ field }) => field,
      ),
    ).toEqual(["max_steps", "max_tokens"]);
    expect(inheritCeilings({ ...DEFAULT_BUDGETS, max_tokens: 0 }, UNTRUSTED_CEILINGS)).toEqual({
      ...DEFAULT_BUDGETS,
      max_tokens: 0,
      max_cost_micros: 100_000_000,
    });
  });
});

describe("bundles", () => {
  const flow = (id: string, nested: string[], more: Doc = {}): Definition =>
    compiled({
      ...{
        id,
        steps: nested.map((target) => ({
          id: `to-${target}`,
          type: "workflow",
          workflow_id: target,
          revision: 1,
          args: {},
        })),
      },
      plan: { type: "parallel", nodes: nested.map((target) => ({ type: "step", step: `to-${target}` })) },
      ...more,
    });
  const leaf = (id: string, more: Doc = {}): Definition =>
    compiled({ id, steps: [{ id: "s", type: "tool", tool: "Read" }], plan: { type: "step", step: "s" }, ...more });
  const refused = (made: Bundle, requested?: Definition) =>
    validateBundle(made, env, requested).map(({ kind, definition }) => `${kind} ${definition}`);

  test("SC-20 bundle limits: (32, 524288) pass; 33 or 524289 fail", () => {
    const limits = { maxDefinitions: 32, maxBytes: 524_288 };
    expect(checkBundleSize({ definitions: 32, bytes: 524_288 }, limits)).toBeUndefined();
    expect(checkBundleSize({ definitions: 33, bytes: 524_288 }, limits)).toMatchObject({ limit: "maxDefinitions" });
    expect(checkBundleSize({ definitions: 32, bytes: 524_289 }, limits)).toMatchObject({ limit: "maxBytes" });
    const all = Array.from({ length: 33 }, (_, i) => leaf(`w${i}`));
    expect(checkBundleLimits(bundle(...all), limits)).toMatchObject({ limit: "maxDefinitions" });
    const some = bundle(...all.slice(0, 32));
    expect(checkBundleLimits(some, limits)).toBeUndefined();
    const bytes = bundleBytes(some);
    expect(checkBundleLimits(some, { ...limits, maxBytes: bytes })).toBeUndefined();
    expect(checkBundleLimits(some, { ...limits, maxBytes: bytes - 1 })).toMatchObject({ limit: "maxBytes" });
  });

  test("RP-13 a whole bundle passes; depth and references are known", () => {
    const whole = bundle(flow("a", ["b", "c"]), flow("b", ["c"]), leaf("c"));
    expect(refused(whole)).toEqual([]);
    expect(maxDepth(whole)).toBe(2);
    expect(nestedRefs(flow("a", ["b", "c"]))).toEqual([
      { workflow_id: "b", revision: 1 },
      { workflow_id: "c", revision: 1 },
    ]);
    expect(bundleHash(whole)).toBe(bundleHash(JSON.parse(JSON.stringify(whole)) as Bundle));
  });

  test("RP-13 a missing definition, another identity, other content, a credential and a circle are preflight", () => {
    expect(refused(bundle(flow("a", ["b"])))).toEqual(["preflight a@1"]);
    const root = leaf("a");
    expect(refused({ ...bundle(root), definitions: { "a@1": root, "b@1": leaf("c") } })).toEqual(["preflight b@1"]);
    expect(refused({ ...bundle(root), root_revision: 2 })).toEqual(["preflight a@2"]);
    expect(refused(bundle(root), leaf("a", { output_schema: {} }))).toEqual(["preflight a@1"]);
    expect(refused(bundle(root), JSON.parse(JSON.stringify(root)) as Definition)).toEqual([]);
    expect(
      refused(
        bundle({ ...root, steps: [{ ...root.steps[0], args: { password: "x" } } as Definition["steps"][number]] }),
      ),
    ).toEqual(["preflight a@1"]);
    expect(refused(bundle(flow("a", ["b"]), flow("b", ["a"])))).toEqual(["preflight a@1"]);
    expect(maxDepth(bundle(flow("a", ["b"]), flow("b", ["a"])))).toBe(Number.POSITIVE_INFINITY);
    expect(refused(bundle({ ...root, steps: [] }))).toEqual(["definition a@1"]);
  });

  test("RP-13 the nested input contract", () => {
    const object: Doc = {
      type: "object",
      required: ["n"],
      properties: { n: { type: "integer" } },
      additionalProperties: false,
    };
    const contract = (args: Json, input: Json, more: Doc = {}) =>
      refused(
        bundle(
          compiled({
            ...{
              id: "a",
              steps: [{ id: "n", type: "workflow", workflow_id: "b", revision: 1, args }],
              plan: { type: "step", step: "n" },
            },
            ...more,
          }),
          leaf("b", { input_schema: input }),
        ),
      );
    const fails = ["preflight a@1"];
    expect(contract({ n: 1 }, object)).toEqual([]);
    expect(contract({ n: "1" }, object)).toEqual(fails);
    expect(contract({ from: "literal", value: { n: 1 } }, object)).toEqual([]);
    expect(contract({ from: "literal", value: { m: 1 } }, object)).toEqual(fails);
    expect(contract({}, { ...object, properties: { n: { type: "integer", default: 3 } } })).toEqual([]);
    expect(contract({ from: "args" }, object, { input_schema: { ...object, title: "same but for this" } })).toEqual([]);
    expect(contract({ from: "args" }, object, { input_schema: { type: "object" } })).toEqual(fails);
    const inner = { input_schema: { type: "object", properties: { s: { type: "string" }, n: { type: "integer" } } } };
    expect(contract({ from: "args", pointer: "/s" }, { type: "string", minLength: 3 }, inner)).toEqual([]);
    expect(contract({ from: "args", pointer: "/n" }, { type: "string" }, inner)).toEqual(fails);
    expect(contract({ n: { from: "args", pointer: "/n" } }, object, inner)).toEqual(fails);
    expect(contract({ from: "object", fields: { n: { from: "args", pointer: "/n" } } }, object, inner)).toEqual(fails);
    const map = {
      plan: { type: "map", item: "i", source: { from: "literal", value: ["x"] }, body: { type: "step", step: "n" } },
    };
    expect(contract({ from: "item", name: "i" }, { type: "string" }, map)).toEqual(fails);
  });
});
