import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import type { Json } from "../json.ts";
import { canonicalJson } from "../json.ts";
import { at, type Doc, doc, env, errors, fromStep, OPEN, par, seq, step } from "./compile.fixture.ts";
import { compilePlan, definitionHash } from "./index.ts";

describe("compile", () => {
  test("fills every default and strips the header", () => {
    const { definition, header, problems } = compilePlan(
      doc([step("a")], at("a"), {
        title: "T",
        labels: ["x"],
        invocation_policy: { automatic: true },
        budgets: { max_steps: 300 },
      }),
      env,
    );
    expect(problems).toEqual([]);
    expect(definition).toEqual({
      workflow_schema: 1,
      id: "flow",
      revision: 1,
      input_schema: { type: "object", additionalProperties: true },
      steps: [{ type: "tool", id: "a", failure: "fail_fast", tool: "Read", args: null, capabilities: [] }],
      plan: { type: "step", step: "a" },
      budgets: {
        max_concurrency: 4,
        max_agents: 8,
        max_steps: 300,
        max_retries: 8,
        max_nesting_depth: 4,
        wall_time_ms: 900_000,
      },
    });
    expect(header).toEqual({ title: "T", labels: ["x"], invocation_policy: { explicit: false, automatic: true } });
    expect(compilePlan(doc([step("a")], at("a")), env).header.invocation_policy).toEqual({
      explicit: true,
      automatic: false,
    });
  });

  test("SC-25 refuses the keyword patternProperties, naming it and where it is", () => {
    expect(errors(doc([step("a", { output_schema: { patternProperties: {} } })], at("a")))).toEqual([
      "schema_keyword /steps/0/output_schema/patternProperties",
    ]);
    expect(
      errors(doc([step("a")], at("a"), { input_schema: { properties: { p: { properties: { q: { anyOf: [] } } } } } })),
    ).toEqual(["schema_keyword /input_schema/properties/p/properties/q/anyOf"]);
  });

  test("SC-25 refuses a step placed twice, one not placed, one not declared", () => {
    expect(errors(doc([step("a")], seq(at("a"), at("a"))))).toEqual(["plan /plan/nodes/1/step"]);
    expect(errors(doc([step("a"), step("b")], at("a")))).toEqual(["plan /steps/1/id"]);
    const { problems } = compilePlan(doc([step("inspect")], seq(at("inspect"), at("inspct"))), env);
    expect(problems.map(({ hint }) => hint)).toEqual(['did you mean "inspect"?']);
  });

  test("SC-25 refuses a cycle: parallel [a, b], then c, with a reading c", () => {
    const steps = [step("a", { args: fromStep("c") }), step("b"), step("c", { output_schema: OPEN })];
    expect(errors(doc(steps, seq(par(at("a"), at("b")), at("c"))))).toEqual(["cycle /steps/0/args/step"]);
  });

  test("RP-6 two siblings that read each other, and a step that reads itself, are cycles", () => {
    const steps = [
      step("a", { args: fromStep("b"), output_schema: OPEN }),
      step("b", { args: fromStep("a"), output_schema: OPEN }),
    ];
    expect(errors(doc(steps, par(at("a"), at("b"))))).toEqual(["cycle /steps/0/args/step", "cycle /steps/1/args/step"]);
    expect(errors(doc([step("a", { args: fromStep("a"), output_schema: OPEN })], at("a")))).toEqual([
      "cycle /steps/0/args/step",
    ]);
  });

  test("SC-25 refuses a sibling that reads its sibling", () => {
    const steps = [step("a", { output_schema: OPEN }), step("b", { args: { x: [fromStep("a")] } })];
    expect(errors(doc(steps, par(at("a"), at("b"))))).toEqual(["binding /steps/1/args/x/0/step"]);
    expect(errors(doc(steps, seq(at("a"), at("b"))))).toEqual([]);
  });

  test("SC-25 refuses an args pointer that the input schema does not declare", () => {
    const input_schema = { type: "object", properties: { "a/b": { type: "array", items: { properties: { c: {} } } } } };
    const read = (pointer: string) =>
      errors(doc([step("a", { args: { from: "args", pointer } })], at("a"), { input_schema }));
    expect(read("/missing")).toEqual(["binding /steps/0/args/pointer"]);
    expect(read("/a~1b/7/c")).toEqual([]);
    expect(read("/a~1b/07/c")).toEqual(["binding /steps/0/args/pointer"]);
    expect(read("/a~1b/x")).toEqual(["binding /steps/0/args/pointer"]);
    expect(read("a")).toEqual(["pointer /steps/0/args/pointer"]);
    expect(read("/a~2b")).toEqual(["pointer /steps/0/args/pointer"]);
  });

  test("SC-25 refuses an item outside its map, and a map over a missing pointer or a later step", () => {
    expect(errors(doc([step("a", { args: { from: "item", name: "i" } })], at("a")))).toEqual([
      "binding /steps/0/args/name",
    ]);
    const map = (source: Json, body: Json = at("b")) => ({ type: "map", item: "i", source, body });
    const list = {
      type: "object",
      properties: { l: { type: "array", items: { type: "string" } }, open: { type: "array" } },
    };
    const steps = [step("a", { output_schema: list }), step("b", { args: { from: "item", name: "i" } })];
    expect(errors(doc(steps, seq(at("a"), map(fromStep("a", "/l")))))).toEqual([]);
    expect(errors(doc(steps, seq(at("a"), map(fromStep("a", "/nope")))))).toEqual([
      "binding /plan/nodes/1/source/pointer",
    ]);
    expect(errors(doc(steps, seq(at("a"), map(fromStep("a", "/open")))))).toEqual(["binding /plan/nodes/1/source"]);
    expect(errors(doc(steps, seq(map(fromStep("a", "/l")), at("a"))))).toEqual(["cycle /plan/nodes/0/source/step"]);
    expect(errors(doc([step("b")], map({ from: "literal", value: [1, 2] })))).toEqual([]);
    expect(errors(doc([step("b")], map({ from: "literal", value: "ab" })))).toEqual(["binding /plan/source"]);
  });

  test("SC-25 refuses a map output read after the map, and says how to read it", () => {
    const steps = [step("b", { output_schema: OPEN }), step("c", { args: fromStep("b") })];
    const map = { type: "map", item: "i", source: { from: "literal", value: [1] }, body: at("b") };
    const document = doc(steps, seq(map, at("c")));
    expect(errors(document)).toEqual(["binding /steps/1/args/step"]);
    expect(compilePlan(document, env).problems[0]?.message).toContain("give the map an id");
  });

  test("SC-25 refuses workflow_schema 99 and looks no further", () => {
    const { problems } = compilePlan({ ...(doc([], []) as Doc), workflow_schema: 99, future: 1 }, env);
    expect(problems.map(({ message }) => message)).toEqual([
      "Cannot compile: unsupported schema 99; write workflow_schema: 1",
    ]);
  });

  test("SC-26 choice: both branches and the condition are required", () => {
    const steps = [step("a"), step("b")];
    const condition = { from: "literal", value: true };
    expect(errors(doc(steps, { type: "choice", condition, then_branch: at("a"), else_branch: at("b") }))).toEqual([]);
    expect(errors(doc(steps, { type: "choice", condition, then_branch: at("a") }))[0]).toBe("missing /plan");
    expect(errors(doc(steps, { type: "choice", then_branch: at("a"), else_branch: at("b") }))[0]).toBe("missing /plan");
  });

  test("SC-26 choice: literals and schemas that are not boolean are refused", () => {
    const choice = (condition: Json) => ({ type: "choice", condition, then_branch: at("a"), else_branch: at("b") });
    const steps = [step("a"), step("b")];
    for (const value of ["false", 0, null]) {
      expect(errors(doc(steps, choice({ from: "literal", value })))).toEqual(["binding /plan/condition"]);
    }
    for (const schema of [{}, { type: "string" }, { type: "integer" }, { type: ["boolean", "null"] }]) {
      const more = { input_schema: { type: "object", properties: { x: schema } } };
      expect(errors(doc(steps, choice({ from: "args", pointer: "/x" }), more))).toEqual(["binding /plan/condition"]);
    }
    const more = { input_schema: { type: "object", properties: { x: { type: "boolean" } } } };
    expect(errors(doc(steps, choice({ from: "args", pointer: "/x" }), more))).toEqual([]);
  });

  test("SC-26 choice: forward, cross-branch and after-join references are refused; incoming and branch-local ones pass", () => {
    const choice = (then_branch: Json, else_branch: Json, condition: Json = { from: "literal", value: true }) => ({
      ...{ type: "choice", condition, then_branch, else_branch },
    });
    const out = { output_schema: OPEN };
    const bool = { output_schema: { type: "boolean" } };
    const reads = (id: string, target: string) => step(id, { args: fromStep(target), ...out });
    expect(
      errors(doc([step("a"), step("b"), step("c", bool)], seq(choice(at("a"), at("b"), fromStep("c")), at("c")))),
    ).toEqual(["cycle /plan/nodes/0/condition/step"]);
    expect(errors(doc([step("a", out), reads("b", "a")], choice(at("a"), at("b"))))).toEqual([
      "binding /steps/1/args/step",
    ]);
    expect(errors(doc([step("a", out), step("b"), reads("c", "a")], seq(choice(at("a"), at("b")), at("c"))))).toEqual([
      "binding /steps/2/args/step",
    ]);
    const fine = [step("in", bool), step("a", out), reads("a2", "a"), reads("b", "in")];
    expect(errors(doc(fine, seq(at("in"), choice(seq(at("a"), at("a2")), at("b"), fromStep("in")))))).toEqual([]);
  });

  test("R-32 composites with ids can be read, with the schema of what they make", () => {
    const text = { output_schema: { type: "object", properties: { t: { type: "string" } } } };
    const map = { type: "map", id: "all", item: "i", source: { from: "literal", value: [1] }, body: at("b") };
    const read = (pointer: string) =>
      errors(doc([step("b", text), step("c", { args: fromStep("all", pointer) })], seq(map, at("c"))));
    expect(read("")).toEqual([]);
    expect(read("/3/t")).toEqual([]);
    expect(read("/3/u")).toEqual(["binding /steps/1/args/pointer"]);
    const both = { type: "parallel", id: "all", nodes: [at("a"), at("b")] };
    const bool = { output_schema: { type: "boolean" } };
    const branch = (pointer: string) =>
      errors(
        doc([step("a", bool), step("b", text), step("c", { args: fromStep("all", pointer) })], seq(both, at("c"))),
      );
    expect(branch("/1/t")).toEqual([]);
    expect(branch("/0/t")).toEqual(["binding /steps/2/args/pointer"]);
    expect(branch("/2")).toEqual(["binding /steps/2/args/pointer"]);
    const choice = {
      type: "choice",
      id: "all",
      condition: { from: "literal", value: true },
      then_branch: at("a"),
      else_branch: at("b"),
    };
    expect(
      errors(doc([step("a", text), step("b", text), step("c", { args: fromStep("all", "/t") })], seq(choice, at("c")))),
    ).toEqual([]);
    expect(
      errors(doc([step("a", bool), step("b", text), step("c", { args: fromStep("all") })], seq(choice, at("c")))),
    ).toEqual(["binding /steps/2/args/step"]);
    expect(
      errors(doc([step("a", text), step("b", { args: fromStep("all") })], { ...both, nodes: [at("a"), at("b")] })),
    ).toEqual(["cycle /steps/1/args/step"]);
    expect(errors(doc([step("a"), step("b")], { ...both, id: "a" }))).toEqual(["duplicate /plan/id"]);
  });

  test("R-32 an absent output_schema is filled from the tool or agent, as far as the subset goes", () => {
    const output_schema = { $schema: "x", type: "object", properties: { n: { type: "integer" } } };
    const filled = compilePlan(doc([step("a"), step("b", { args: fromStep("a", "/n") })], seq(at("a"), at("b"))), {
      ...env,
      tool: () => ({ output_schema }),
    });
    expect(filled.problems).toEqual([]);
    expect(filled.definition?.steps[0]?.output_schema).toEqual({
      type: "object",
      properties: { n: { type: "integer" } },
    });
    const wide = compilePlan(doc([step("a")], at("a")), { ...env, tool: () => ({ output_schema: { anyOf: [] } }) });
    expect(wide.definition?.steps[0]).not.toHaveProperty("output_schema");
    const agent = doc([{ id: "a", type: "agent", agent: "r", prompt: "go" }], at("a"));
    expect(
      compilePlan(agent, { ...env, agent: () => ({ output_schema }) }).definition?.steps[0]?.output_schema,
    ).toBeDefined();
  });

  test("names of arguments that a tool does not declare, or requires, are warnings", () => {
    const input_schema = {
      type: "object",
      required: ["path"],
      properties: { path: {}, limit: {} },
      additionalProperties: false,
    };
    const warned = (args: Json) => {
      const { definition, problems } = compilePlan(doc([step("a", { args })], at("a")), {
        ...env,
        tool: () => ({ input_schema }),
      });
      expect(definition).toBeDefined();
      return problems.map(({ severity, path, hint }) => `${severity} ${path.join("/")} ${hint ?? ""}`.trim());
    };
    expect(warned({ path: { from: "args" }, limt: 1 })).toEqual(['warning steps/0/args/limt did you mean "limit"?']);
    expect(warned({ limit: 1 })).toEqual(["warning steps/0/args"]);
    expect(warned(null)).toEqual(["warning steps/0"]);
    expect(warned({ from: "args" })).toEqual([]);
    expect(warned({ from: "object", fields: { path: "x", from: 1 } })).toHaveLength(1);
  });

  test("R-32 default is allowed on top-level inputs only, and must fit", () => {
    const input = (properties: Json) =>
      errors(doc([step("a")], at("a"), { input_schema: { type: "object", properties } }));
    expect(input({ p: { type: "string", default: "TODO" } })).toEqual([]);
    expect(input({ p: { type: "string", default: 3 } })).toEqual(["schema_default /input_schema/properties/p/default"]);
    expect(input({ p: { properties: { q: { default: 1 } } } })).toEqual([
      "schema_keyword /input_schema/properties/p/properties/q/default",
    ]);
    expect(errors(doc([step("a", { output_schema: { properties: { q: { default: 1 } } } })], at("a")))).toHaveLength(1);
  });

  test("R-28 approval, input and wait steps", () => {
    const steps: Doc[] = [
      {
        id: "ask",
        type: "approval",
        prompt: "Ship?",
        outcome: "value",
        deadline_ms: 1000,
        warn_ms: 500,
        details: { from: "args" },
      },
      { id: "name", type: "input", prompt: "Name?", schema: { type: "object", properties: { n: { type: "string" } } } },
      { id: "nap", type: "wait", for_ms: 10 },
      step("use", { args: [fromStep("ask", "/reason"), fromStep("name", "/n"), fromStep("nap")] }),
    ];
    const choice = {
      type: "choice",
      condition: fromStep("ask", "/approved"),
      then_branch: at("name"),
      else_branch: at("nap"),
    };
    expect(errors(doc(steps, seq(at("ask"), at("name"), at("nap"), at("use"))))).toEqual([]);
    expect(errors(doc(steps.slice(0, 3), seq(at("ask"), choice)))).toEqual([]);
    const wait = (more: Doc) => errors(doc([{ id: "w", type: "wait", ...more }], at("w")));
    expect(wait({ until: "2030-01-31T09:00:00Z" })).toEqual([]);
    expect(wait({ until: "next week" })).toEqual(["type /steps/0/until"]);
    expect(wait({})).toEqual(["wait /steps/0"]);
    expect(wait({ for_ms: 1, until: 5 })).toEqual(["wait /steps/0"]);
    expect(wait({ for_ms: { from: "args", pointer: "/ms" } })).toEqual(["binding /steps/0/for_ms/pointer"]);
    const late = { id: "ask", type: "approval", prompt: "Ship?", deadline_ms: 5, warn_ms: 5 };
    expect(errors(doc([late], at("ask")))).toEqual(["range /steps/0/warn_ms"]);
  });

  test("unknown keys are refused at every level with the nearest one as a hint", () => {
    const condition = {
      from: "test",
      of: { from: "args", poiner: "" },
      predicate: { operation: "equals", path: "", value: 1 },
    };
    const document = doc(
      [step("a", { tol: 1, args: { from: "args", pointr: "/x" } }), step("b")],
      { type: "choice", condition, then_branch: at("a"), else_branch: { ...at("b"), stp: 1 } },
      { budgts: {}, budgets: { max_step: 1 }, invocation_policy: { explict: true } },
    );
    const found = compilePlan(document, env).problems.map(({ path, at_key, hint }) => [path.join("/"), at_key, hint]);
    expect(found).toEqual([
      ["budgts", true, 'did you mean "budgets"?'],
      ["invocation_policy/explict", true, 'did you mean "explicit"?'],
      ["budgets/max_step", true, 'did you mean "max_steps"?'],
      ["steps/0/tol", true, 'did you mean "tool"?'],
      ["steps/0/args/pointr", true, 'did you mean "pointer"?'],
      ["plan/condition/of/poiner", true, 'did you mean "pointer"?'],
      ["plan/else_branch/stp", true, 'did you mean "step"?'],
    ]);
  });

  test("RP-1 budgets are bounded, and faults come in its order", () => {
    const budget = (budgets: Doc) => errors(doc([step("a")], at("a"), { budgets }));
    expect(budget({ max_concurrency: 65 })).toEqual(["range /budgets/max_concurrency"]);
    expect(budget({ max_concurrency: 64 })).toEqual([]);
    expect(budget({ max_steps: 0 })).toEqual(["range /budgets/max_steps"]);
    expect(budget({ max_agents: 9, max_steps: 8 })).toEqual(["range /budgets/max_agents"]);
    expect(
      compilePlan(doc([step("a")], at("a"), { budgets: { max_steps: 4 } }), env).definition?.budgets.max_agents,
    ).toBe(4);
    expect(budget({ wall_time_ms: 1.5 })).toEqual(["type /budgets/wall_time_ms"]);
    const broken = doc([{ type: "agent", id: " ", agent: "x", prompt: "", structured_output_attempts: 9 }], [], {
      ...{ id: "", revision: 0, budgets: { max_steps: 0 }, input_schema: [], output_schema: { type: "x" } },
    });
    expect(errors(broken).map((text) => text.split(" ")[1])).toEqual([
      ...["/id", "/revision", "/budgets/max_steps", "/input_schema", "/output_schema/type"],
      ...["/steps/0/id", "/steps/0/structured_output_attempts", "/plan"],
    ]);
  });

  test("RP-1 at least one step, ids of their own, no ids of map items", () => {
    expect(errors(doc([], at("a")))[0]).toBe("steps /steps");
    expect(errors(doc([step("a"), step("a")], at("a")))).toEqual(["duplicate /steps/1/id"]);
    expect(errors(doc([step("a@root[0]")], at("a@root[0]")))).toEqual(["id /steps/0/id"]);
    expect(errors(doc([step("a\u0000b")], at("a\u0000b")))[0]).toBe("blank /steps/0/id");
  });

  test("R-31 an id that cannot be a tool's name is legal, with a warning", () => {
    for (const id of ["Flow", "a--b", "über", "x".repeat(55)]) {
      const { definition, problems } = compilePlan(doc([step("a")], at("a"), { id }), env);
      expect(definition?.id).toBe(id);
      expect(problems.map(({ code, severity }) => [code, severity])).toEqual([["id", "warning"]]);
    }
    expect(errors(doc([step("a")], at("a"), { id: "a1-b_c" }))).toEqual([]);
  });

  test("RP-4 malformed references and handles are errors; text that looks like them and literals are not", () => {
    const args = (value: Json) => errors(doc([step("a", { args: value })], at("a")));
    expect(args({ x: "$(rm)", y: "{{y}}" })).toEqual([]);
    expect(args({ from: "literal", value: { from: "nowhere", more: [{ from: 1 }] } })).toEqual([]);
    expect(args({ from: "nowhere" })).toEqual(["range /steps/0/args/from"]);
    expect(args({ deep: [{ from: "step" }] })).toEqual(["missing /steps/0/args/deep/0"]);
    expect(args({ $secret: "k", more: 1 })).toEqual(["template /steps/0/args"]);
    expect(args({ $secret: " " })).toEqual(["template /steps/0/args"]);
    expect(args({ $secret: "k" })).toEqual([]);
    expect(args({ from: "object", fields: { from: { from: "args" }, to: ["x"] } })).toEqual([]);
  });

  test("R-32 a condition may test a value by a predicate, whose version is written down", () => {
    const predicate = { operation: "numeric_compare", left_path: "n", right_path: "m", comparison: "greater_than" };
    const plan = {
      type: "choice",
      condition: { from: "test", of: { from: "args" }, predicate },
      then_branch: at("a"),
      else_branch: at("b"),
    };
    const compiled = compilePlan(doc([step("a"), step("b")], plan), env);
    expect(compiled.problems).toEqual([]);
    expect(compiled.definition?.plan).toMatchObject({
      condition: { from: "test", predicate: { ...predicate, version: 3 } },
    });
    const wrong = {
      ...plan,
      condition: { ...plan.condition, predicate: { operation: "numeric_compare", version: 1 } },
    };
    expect(
      errors(doc([step("a"), step("b")], wrong)).every((text) =>
        text.startsWith("predicate /plan/condition/predicate"),
      ),
    ).toBe(true);
  });

  test("SC-35 credential material in a definition is a preflight problem", () => {
    expect(errors(doc([step("a", { args: { api_key: "x" } })], at("a")))).toEqual(["credential /steps/0/args/api_key"]);
    expect(errors(doc([step("a", { args: { from: "literal", value: "sk-live" } })], at("a")))).toEqual([
      "credential /steps/0/args/value",
    ]);
    expect(errors(doc([step("a", { args: { api_key: { $secret: "k" }, text: "$(x) {{y}}" } })], at("a")))).toEqual([]);
  });

  test("C24 hostile names are ordinary text", () => {
    for (const name of ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty"]) {
      const input_schema = JSON.parse(`{"type":"object","properties":{"${name}":{"type":"string"}}}`) as Json;
      const args = JSON.parse(`{"${name}":{"from":"args","pointer":"/${name}"}}`) as Json;
      const compiled = compilePlan(
        doc(
          [step(name, { args, tool: name, output_schema: OPEN }), step("z", { args: fromStep(name) })],
          seq(at(name), at("z")),
          { id: name, input_schema },
        ),
        env,
      );
      expect(compiled.problems.filter(({ severity }) => severity === "error")).toEqual([]);
      expect(canonicalJson(compiled.definition?.steps[0] as unknown as Json)).toContain(`"${name}":{"from":"args"`);
      // Names that only the prototype has are not declared.
      expect(errors(doc([step("a", { args: { from: "args", pointer: `/${name}` } })], at("a")))).toEqual([
        "binding /steps/0/args/pointer",
      ]);
      expect(
        errors(
          JSON.parse(`{"workflow_schema":1,"id":"a","revision":1,"steps":[],"plan":{"type":"${name}"}}`) as Json,
        ).at(-1),
      ).toBe("range /plan/type");
      expect(
        errors(
          JSON.parse(
            `{"workflow_schema":1,"id":"a","revision":1,"steps":[],"plan":{"type":"step","step":"x"},"budgets":{"${name}":1}}`,
          ) as Json,
        ),
      ).toContain(`unknown_key /budgets/${name}`);
    }
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test("C25 nesting past the limit is one clear error, whatever the depth", () => {
    for (const depth of [100, 1_000, 5_000, 100_000]) {
      let value: Json = 1;
      for (let i = 0; i < depth; i++) value = [value];
      const { problems } = compilePlan(doc([step("a", { args: value })], at("a")), env);
      expect(problems).toHaveLength(depth === 100 ? 0 : 1);
    }
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    expect(compilePlan(doc([step("a", { args: cycle as Json })], at("a")), env).problems).toHaveLength(1);
  });

  test("C38 chained aliases are refused quickly", () => {
    let value: Json = "lol";
    for (let i = 0; i < 9; i++) value = Array.from({ length: 9 }, () => value);
    const start = performance.now();
    expect(errors(doc([step("a", { args: value })], at("a")))).toEqual(["size /"]);
    expect(performance.now() - start).toBeLessThan(200);
  });

  test("the documented examples compile", () => {
    for (const text of [OPEN_MARKERS, REVIEW_FILE]) {
      const compiled = compilePlan(parse(text) as Json, env);
      expect(compiled.problems).toEqual([]);
    }
  });
});

describe("generated plans", () => {
  const generated = fc
    .record({ size: fc.integer({ min: 1, max: 12 }), choices: fc.array(fc.nat(), { minLength: 40, maxLength: 40 }) })
    .map(({ size, choices }) => generate(size, choices));

  test("compile, compile to themselves, and keep their hash whatever the order of keys", () => {
    fc.assert(
      fc.property(generated, (document) => {
        const first = compilePlan(document, env);
        expect(first.problems).toEqual([]);
        if (first.definition === undefined) return;
        const again = compilePlan(first.definition as unknown as Json, env);
        expect(again.problems).toEqual([]);
        expect(again.definition).toEqual(first.definition);
        expect(definitionHash(compilePlan(reversed(document), env).definition ?? first.definition)).toBe(
          definitionHash(first.definition),
        );
      }),
      { seed: 7, numRuns: 200 },
    );
  });

  test("never throw, whatever stands where a plan is expected", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.jsonValue({ maxDepth: 5 }), (steps, plan) => {
        const { definition, problems } = compilePlan(
          { workflow_schema: 1, id: "x", revision: 1, steps: steps as Json, plan: plan as Json },
          env,
        );
        expect(definition === undefined).toBe(problems.some(({ severity }) => severity === "error"));
      }),
      { seed: 7, numRuns: 300 },
    );
  });
});

/** A well-formed plan over `size` steps in which every reference goes to an earlier step of the same sequence. */
function generate(size: number, choices: readonly number[]): Json {
  let next = 0;
  let cursor = 0;
  const pick = (n: number) => (choices[cursor++ % choices.length] ?? 0) % n;
  const steps: Doc[] = [];
  const leaf = (readable: string[]): Json => {
    const id = `s${next++}`;
    const target = readable[pick(readable.length + 1)];
    steps.push(
      step(id, {
        output_schema: { type: "boolean" },
        args: target === undefined ? { n: pick(5) } : { v: fromStep(target) },
      }),
    );
    readable.push(id);
    return at(id);
  };
  const node = (budget: number, readable: string[]): Json => {
    if (budget <= 1) return leaf(readable);
    const left = 1 + pick(budget - 1);
    const parts = (): [Json, Json] => [node(left, [...readable]), node(budget - left, [...readable])];
    switch (pick(5)) {
      case 0:
        return seq(node(left, readable), node(budget - left, readable));
      case 1:
        return par(...parts());
      case 2: {
        const [then_branch, else_branch] = parts();
        const known = readable[0];
        return {
          type: "choice",
          condition: known === undefined ? { from: "literal", value: true } : fromStep(known),
          then_branch,
          else_branch,
        };
      }
      case 3:
        return {
          type: "map",
          item: "i",
          source: { from: "literal", value: [1, 2] },
          body: node(budget, [...readable]),
        };
      default:
        return { type: "retry", max_attempts: 2, node: node(budget, readable) };
    }
  };
  return doc(steps, node(size, []));
}

function reversed(value: Json): Json {
  if (Array.isArray(value)) return value.map((item: Json) => reversed(item));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, item]) => [key, reversed(item as Json)]),
  );
}

const OPEN_MARKERS = `
workflow_schema: 1
id: open-markers
revision: 1
invocation_policy: {explicit: true, automatic: true}
input_schema:
  type: object
  required: [dir, pattern]
  additionalProperties: false
  properties: {dir: {type: string}, pattern: {type: string}}
output_schema: {type: array}
budgets: {max_concurrency: 4, max_agents: 0, max_steps: 400, max_retries: 2, wall_time_ms: 120000}
steps:
  - id: find
    type: tool
    tool: Glob
    args: {pattern: "**/*.ts", path: {from: args, pointer: /dir}}
    capabilities: [read]
    output_schema:
      type: object
      required: [files, truncated]
      properties: {files: {type: array, items: {type: string}}, truncated: {type: boolean}}
  - {id: tree, type: tool, tool: list_directory, args: {path: {from: args, pointer: /dir}}, capabilities: [read]}
  - {id: all, type: tool, tool: Grep, args: {pattern: {from: args, pointer: /pattern}, path: {from: args, pointer: /dir}, limit: 200}, capabilities: [read]}
  - {id: each, type: tool, tool: Grep, args: {pattern: {from: args, pointer: /pattern}, path: {from: item, name: file}}, capabilities: [read], failure: continue_with_error}
plan:
  type: sequence
  nodes:
    - {type: retry, max_attempts: 3, delay_ms: 200, node: {type: step, step: find}}
    - type: parallel
      nodes:
        - {type: step, step: tree}
        - type: choice
          condition: {from: step, step: find, pointer: /truncated}
          then_branch: {type: step, step: all}
          else_branch: {type: map, item: file, source: {from: step, step: find, pointer: /files}, body: {type: step, step: each}}
`;

const REVIEW_FILE = `
workflow_schema: 1
id: review-file
revision: 1
input_schema: {type: object, required: [path], additionalProperties: false, properties: {path: {type: string}}}
budgets: {max_agents: 3, max_steps: 4, max_tokens: 200000}
steps:
  - id: review
    type: agent
    agent: reviewer
    prompt: {path: {from: args, pointer: /path}}
    capabilities: [read]
    structured_output_attempts: 2
plan: {type: retry, max_attempts: 2, node: {type: step, step: review}}
`;
