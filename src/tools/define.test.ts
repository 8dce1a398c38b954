import type { StandardSchemaV1 } from "@standard-schema/spec";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Json } from "../domain/json.ts";
import { defineTool, isTool } from "./define.ts";
import { toolContext } from "./fixture.ts";
import { ToolError } from "./tool-error.ts";

const context = toolContext();

describe("defineTool types", () => {
  test("from zod: run gets what the schema answers, the caller gives what it accepts", async () => {
    const tool = defineTool({
      name: "repeat",
      description: "Repeats a word.",
      input: z.object({ word: z.string(), times: z.number().int().default(2), at: z.iso.datetime().optional() }),
      output: z.object({ text: z.string(), count: z.number() }),
      sideEffect: "read_only",
      run(input, ctx) {
        expectTypeOf(input).toEqualTypeOf<{ word: string; times: number; at?: string | undefined }>();
        expectTypeOf(ctx.dispatch_id).toBeString();
        return { text: input.word.repeat(input.times), count: input.times };
      },
    });
    const result = await tool.run({ word: "ab" }, context);
    expectTypeOf(result).toEqualTypeOf<{ text: string; count: number }>();
    expect(result).toEqual({ text: "abab", count: 2 });
    // @ts-expect-error `word` is required
    await expect(tool.run({}, context)).rejects.toThrow(/\$\.word/);
  });

  test("from a JSON Schema written in place", async () => {
    const tool = defineTool({
      name: "sum",
      description: "Adds.",
      input: {
        type: "object",
        properties: { values: { type: "array", items: { type: "number" } }, unit: { enum: ["m", "s"] } },
        required: ["values"],
        additionalProperties: false,
      },
      output: { type: "object", properties: { total: { type: "number" } }, required: ["total"] },
      run(input) {
        expectTypeOf(input).toEqualTypeOf<{ values: number[]; unit?: "m" | "s" }>();
        return { total: input.values.reduce((a, b) => a + b, 0) };
      },
    });
    const result = await tool.run({ values: [1, 2] }, context);
    expectTypeOf(result).toEqualTypeOf<{ total: number }>();
    expect(result).toEqual({ total: 3 });
  });

  test("a wrong result is a type error, and a tool without `output` answers JSON", async () => {
    defineTool({
      name: "wrong",
      description: "Wrong.",
      input: z.object({}),
      output: z.object({ n: z.number() }),
      // @ts-expect-error a text is no number
      run: () => ({ n: "1" }),
    });
    const free = defineTool({ name: "free", description: "Free.", input: z.object({}), run: () => [1] });
    expectTypeOf(free.run({}, context)).resolves.toEqualTypeOf<Json>();
  });
});

describe("defineTool schemas", () => {
  test("JSON Schemas are written from zod without $schema and safe-integer bounds", () => {
    const tool = defineTool({
      name: "t",
      description: "T.",
      input: z.object({ n: z.int() }),
      output: z.object({
        a: z
          .string()
          .transform(() => 1)
          .pipe(z.number()),
      }),
      run: () => ({ a: "x" }),
    });
    expect(tool.inputSchema).toEqual({ type: "object", properties: { n: { type: "integer" } }, required: ["n"] });
    expect(tool.outputSchema).toMatchObject({ properties: { a: { type: "number" } }, additionalProperties: false });
  });

  test("any Standard Schema with a JSON form is taken; one without is refused and says what to do", async () => {
    const props: StandardSchemaV1.Props<{ n: number }> = {
      version: 1,
      vendor: "homemade",
      validate: async (value) =>
        typeof value === "object" && value !== null && "n" in value && typeof value.n === "number"
          ? { value: { n: value.n } }
          : { issues: [{ message: "n is no number", path: ["n"] }] },
    };
    const jsonSchema = { input: () => ({ type: "object" }), output: () => ({ type: "object" }) };
    const schema = { "~standard": { ...props, jsonSchema } };
    const tool = defineTool({ name: "h", description: "H.", input: schema, run: (input) => input.n + 1 });
    expect(await tool.run({ n: 1 }, context)).toBe(2);
    await expect(tool.run({ n: "1" } as never, context)).rejects.toMatchObject({
      kind: "bad_arguments",
      message: expect.stringContaining("$.n: n is no number"),
    });
    expect(() => defineTool({ name: "h", description: "H.", input: { "~standard": props }, run: () => 1 })).toThrow(
      /homemade gives none/,
    );
  });

  test("a type that JSON lacks is refused where it is written", () => {
    expect(() => defineTool({ name: "d", description: "D.", input: z.object({ at: z.date() }), run: () => 1 })).toThrow(
      /Cannot write the input schema as JSON Schema/,
    );
    expect(() => defineTool({ name: "d", description: "D.", input: { type: "objekt" }, run: () => 1 })).toThrow(
      /input schema of the tool "d"/,
    );
  });

  test("C40 a pattern in a tool's schema runs in linear time", async () => {
    const tool = defineTool({
      name: "p",
      description: "P.",
      input: { anyOf: [{ type: "string", pattern: "^(a+)+$" }] },
      run: () => 1,
    });
    const before = performance.now();
    await expect(tool.run(`${"a".repeat(40)}!`, context)).rejects.toThrow(/pattern/);
    expect(performance.now() - before).toBeLessThan(1_000);
    await expect(tool.run("aaa", context)).resolves.toBe(1);
  });
});

describe("defineTool refuses", () => {
  const good = { name: "t", description: "T.", input: z.object({}), run: () => 1 };
  const wrong: readonly [string, object, RegExp][] = [
    ["an unknown key", { ...good, sideEfect: "mutating" }, /"sideEfect" is not an option; did you mean "sideEffect"/],
    ["no name", { ...good, name: undefined }, /its name is not text/],
    ["C24 __proto__ as a name", { ...good, name: "__proto__" }, /a name is a letter/],
    ["a name with a space", { ...good, name: "a b" }, /a name is a letter/],
    ["a reserved name", { ...good, name: "workflow__x" }, /Holdfast's own/],
    ["a blank description", { ...good, description: " " }, /its description/],
    ["no input", { ...good, input: undefined }, /its input is missing/],
    ["a side effect that is none", { ...good, sideEffect: "readonly" }, /use read_only, idempotent, mutating/],
    ["a capability that is no text", { ...good, capabilities: [1] }, /the capability 1/],
    ["no run", { ...good, run: undefined }, /run is not a function/],
    ["a lookup that is no function", { ...good, lookup: true }, /lookup is not a function/],
    ["a plan that is no function", { ...good, plan: { type: "ready" } }, /plan is not a function; give one/],
    ["a cancel that is no function", { ...good, cancel: null }, /cancel is not a function; give one/],
    ["a misspelt plan", { ...good, plann: () => 1 }, /"plann" is not an option; did you mean "plan"/],
    ["a misspelt cancel", { ...good, cancle: () => 1 }, /"cancle" is not an option; did you mean "cancel"/],
  ];
  test.each(wrong)("%s", (_, options, message) => {
    expect(() => defineTool(options as typeof good)).toThrow(message);
    expect(() => defineTool(options as typeof good)).toThrow(expect.objectContaining({ code: "usage" }));
  });

  test("nothing that is right, and fills what is left out (R-13)", () => {
    const tool = defineTool(good);
    expect(isTool(tool)).toBe(true);
    expect(isTool({ ...good })).toBe(false);
    expect(tool).toMatchObject({ sideEffect: "mutating", capabilities: ["write"] });
    expect(defineTool({ ...good, sideEffect: "read_only" }).capabilities).toEqual(["read"]);
    expect(defineTool({ ...good, capabilities: ["network", "network"] }).capabilities).toEqual(["network"]);
  });
});

describe("plan and cancel", () => {
  const query = { dispatch_id: "d", signal: new AbortController().signal };

  test("plan is asked with an input that fits, cancel by id and receipt; both keep their `this`", async () => {
    const told: unknown[] = [];
    const options = {
      name: "deploy",
      description: "Deploys.",
      input: z.object({ version: z.string() }),
      queue: "main",
      run: (_: object, { intent }: { readonly intent?: Json }) => intent ?? "none",
    };
    const { queue, ...rest } = options;
    const tool = defineTool({
      ...rest,
      plan({ input, dispatch_id }) {
        expectTypeOf(input).toEqualTypeOf<{ version: string }>();
        return { type: "ready", intent: { queue, version: input.version, dispatch_id, by: this.name } };
      },
      cancel(query) {
        told.push([this.name, query]);
      },
    });
    expect(await tool.plan?.({ ...query, input: { version: "1" } })).toEqual({
      type: "ready",
      intent: { queue: "main", version: "1", dispatch_id: "d", by: "deploy" },
    });
    await expect(tool.plan?.({ ...query, input: { version: 1 } })).rejects.toMatchObject({
      kind: "bad_arguments",
      message: expect.stringContaining("$.version"),
    });
    // A secret is still its handle, which the schema of its value need not take.
    const { plan } = defineTool({ ...rest, plan: ({ input }) => ({ type: "ready", intent: input as Json }) });
    expect(await plan?.({ ...query, input: { version: { $secret: "v" } } })).toMatchObject({ type: "ready" });
    await tool.cancel?.({ dispatch_id: "d", receipt: 7 });
    expect(told).toEqual([["deploy", { dispatch_id: "d", receipt: 7 }]]);
    expect(await tool.run({ version: "1" }, toolContext({ intent: ["planned"] }))).toEqual(["planned"]);
  });
});

describe("C22 outputs", () => {
  const values: readonly [string, unknown, string][] = [
    ["a Date", { d: new Date(0) }, "$.d: a Date"],
    ["a Map", { m: new Map([[1, 2]]) }, "$.m: a Map"],
    ["an undefined", { u: undefined }, "$.u: undefined"],
    ["a BigInt", { a: [{ b: 1n }] }, "$.a[0].b: bigint"],
    ["NaN", { n: Number.NaN }, "$.n: NaN"],
    ["infinity", [Number.POSITIVE_INFINITY], "$[0]: Infinity"],
    ["C23 a lone surrogate", { t: "\ud800" }, "$.t: the text contains half"],
  ];
  test.each(values)("C22 %s is refused with its path", async (_, value, path) => {
    const tool = defineTool({ name: "t", description: "T.", input: z.object({}), run: () => value });
    const error = await tool.run({}, context).catch((caught: unknown) => caught);
    expect(ToolError.is(error)).toBe(true);
    expect(error).toMatchObject({ kind: "bad_output", retryable: false, message: expect.stringContaining(path) });
  });

  test("C22 -0 becomes 0, nothing returned becomes null, NUL stays", async () => {
    const run = (value: unknown) =>
      defineTool({ name: "t", description: "T.", input: z.object({}), run: () => value }).run({}, context);
    expect(Object.is(await run(-0), 0)).toBe(true);
    expect(await run(undefined)).toBeNull();
    expect(await run("a\0b")).toBe("a\0b");
  });

  test("C22 an output that is not as declared is refused with its path", async () => {
    const output = z.object({ n: z.number() });
    const tool = defineTool({
      name: "t",
      description: "T.",
      input: z.object({}),
      output,
      run: () => ({ n: "1" }) as never,
    });
    await expect(tool.run({}, context)).rejects.toMatchObject({
      kind: "bad_output",
      message: expect.stringContaining("$.n:"),
    });
  });
});
