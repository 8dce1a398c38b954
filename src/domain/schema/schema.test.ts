import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Json, JsonObject } from "../json.ts";
import { applyDefaults, checkInputSchema, checkSchema, compileSchema, schemaAt } from "./index.ts";

function verdict(schema: Json, value: Json): string {
  const result = compileSchema(schema).validate(value);
  return result.ok ? "ok" : `${result.path} ${result.message}`;
}
function faults(schema: Json): string[] {
  return checkSchema(schema, ["s"]).map(({ path, code }) => `${code} ${path.join("/")}`);
}

describe("the schema subset", () => {
  test("RP-2 any other keyword is an error that names it, its place and the nearest one", () => {
    const [problem] = checkSchema({ properties: { p: { items: { minLenght: 1 } } } }, ["input_schema"]);
    expect(problem).toMatchObject({
      ...{ path: ["input_schema", "properties", "p", "items", "minLenght"], at_key: true, code: "schema_keyword" },
      hint: 'did you mean "minLength"?',
    });
    expect(problem?.message).toContain('"minLenght"');
    for (const keyword of [
      "patternProperties",
      "anyOf",
      "allOf",
      "$ref",
      "not",
      "$defs",
      "dependentRequired",
      "__proto__x",
      "constructor",
    ]) {
      expect(faults({ [keyword]: {} })).toEqual([`schema_keyword s/${keyword}`]);
    }
    expect(faults(JSON.parse('{"__proto__": {}}') as Json)).toEqual(["schema_keyword s/__proto__"]);
  });

  test("RP-2 every keyword's value is checked", () => {
    const wrong: JsonObject = {
      ...{
        type: "text",
        properties: [],
        required: [1],
        additionalProperties: {},
        items: [],
        enum: 1,
        minimum: "1",
        maximum: null,
      },
      ...{
        minLength: -1,
        maxLength: 1.5,
        minItems: "1",
        maxItems: {},
        pattern: 1,
        format: 1,
        title: 1,
        description: [],
        "x-holdfast-secret": "yes",
      },
    };
    for (const [name, value] of Object.entries(wrong)) expect(faults({ [name]: value })).toHaveLength(1);
    expect(faults({ type: [] })).toEqual(["schema s/type"]);
    expect(faults({ type: ["string", "strnig"] })).toEqual(["schema s/type/1"]);
    expect(faults(true)).toEqual(["schema s"]);
    expect(faults({ const: null, format: "email", title: "t", description: "d", enum: [] })).toEqual([]);
  });

  test("RP-2 required on a non-object and bounds on a non-number fail the value", () => {
    expect(verdict({ required: [] }, 1)).toBe(" must be an object");
    expect(verdict({ minimum: 1 }, "5")).toBe(" must be a number");
    expect(verdict({ maximum: 1 }, null)).toBe(" must be a number");
    expect(verdict({ required: ["a"] }, {})).toBe("/a is required");
    expect(verdict({ properties: { a: {} } }, 1)).toBe("ok");
  });

  test("SC-35 RP-2 a secret place accepts a handle only; elsewhere a handle is an ordinary object", () => {
    const schema = { type: "object", properties: { key: { type: "string", "x-holdfast-secret": true } } };
    expect(verdict(schema, { key: { $secret: "k" } })).toBe("ok");
    for (const key of ["k", { $secret: "" }, { $secret: " " }, { $secret: "k", more: 1 }, null]) {
      expect(verdict(schema, { key })).toContain("/key must be a secret handle");
    }
    expect(verdict({ type: "object" }, { $secret: "k" })).toBe("ok");
    expect(verdict({ type: "string", "x-holdfast-secret": false }, "k")).toBe("ok");
  });

  test("messages say what must hold and where, never what the value was", () => {
    const schema = {
      type: "object",
      properties: { "a/b": { type: "array", items: { type: ["integer", "null"], minimum: 0 } } },
      additionalProperties: false,
    };
    expect(verdict(schema, { "a/b": [1, "PRIVATE"] })).toBe("/a~1b/1 must be an integer or null");
    expect(verdict(schema, { "a/b": [-1] })).toBe("/a~1b/0 must be at least 0");
    expect(verdict(schema, { x: "PRIVATE" })).toBe("/x is not a known property");
  });

  test("lengths count characters", () => {
    expect(verdict({ minLength: 2, maxLength: 2 }, "😀😀")).toBe("ok");
    expect(verdict({ minLength: 3 }, "😀😀")).toContain("at least 3");
    expect(verdict({ maxLength: 1 }, "😀😀")).toContain("at most 1");
  });

  test("C24 names that only the prototype has are absent, own ones are ordinary", () => {
    for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
      const value = JSON.parse(`{"${name}":1}`) as Json;
      const closed = JSON.parse(
        `{"required":["${name}"],"properties":{"${name}":{"type":"integer"}},"additionalProperties":false}`,
      ) as Json;
      expect(verdict(closed, {})).toBe(`/${name} is required`);
      expect(verdict(closed, value)).toBe("ok");
      expect(verdict({ additionalProperties: false }, value)).toBe(`/${name} is not a known property`);
      expect(schemaAt({ properties: {} }, `/${name}`)).toBeUndefined();
    }
  });

  test("C40 a pattern takes linear time, on itself and on many texts", () => {
    const start = performance.now();
    expect(verdict({ pattern: "^(a+)+$" }, `${"a".repeat(31)}!`)).toContain("must match");
    expect(verdict({ pattern: "^(a+)+$" }, `${"a".repeat(50_000)}!`)).toContain("must match");
    expect(performance.now() - start).toBeLessThan(200);
    expect(faults({ pattern: "(?=a)" })).toEqual(["schema_pattern s/pattern"]);
    expect(faults({ pattern: "(a)\\1" })).toEqual(["schema_pattern s/pattern"]);
    expect(faults({ pattern: "(a{1000}){1000}" })).toEqual(["schema_pattern s/pattern"]);
    expect(faults({ pattern: "[" })).toEqual(["schema_pattern s/pattern"]);
    expect(faults({ pattern: "a".repeat(1_001) })).toEqual(["schema_pattern s/pattern"]);
    expect(verdict({ pattern: "a[ab]{400}[cd]$" }, "ab".repeat(50_000))).toContain("too long to be matched");
    const many = Array.from({ length: 5_000 }, () => "ab".repeat(1_000));
    expect(verdict({ items: { pattern: "a[ab]{400}[cd]$" } }, many)).toContain("must match");
    expect(verdict({ pattern: "^\\u00e9\\d+$" }, "é12")).toBe("ok");
  });

  test("C40 a huge, deep or endless schema is refused before it is looked into", () => {
    const wide = Object.fromEntries(Array.from({ length: 60_000 }, (_, i) => [`p${i}`, { type: "string" }]));
    let deep: Json = {};
    for (let i = 0; i < 5_000; i++) deep = { items: deep };
    const endless: Record<string, Json> = {};
    endless.items = endless;
    const start = performance.now();
    for (const schema of [{ properties: wide }, { description: "x".repeat(5_000_000) }, deep, endless]) {
      expect(faults(schema)).toEqual(["schema_size s"]);
      expect(() => compileSchema(schema)).toThrow(/^Cannot use this schema/);
    }
    expect(performance.now() - start).toBeLessThan(500);
  });

  test("agrees with ajv, RP-2's three differences aside, on generated schemas and values", () => {
    const ajv = new Ajv2020({ strict: false });
    fc.assert(
      fc.property(schemas, values, (schema, value) => {
        expect(checkSchema(schema as Json, [])).toEqual([]);
        const oracle = ajv.compile(forOracle(schema as JsonObject));
        const result = compileSchema(schema as Json).validate(value as Json);
        expect(result.ok, `${JSON.stringify(schema)} on ${JSON.stringify(value)}`).toBe(oracle(value));
        ajv.removeSchema();
      }),
      { seed: 11, numRuns: 400 },
    );
  });
});

describe("inputs", () => {
  const schema = { type: "object", properties: { a: { type: "string", default: "x" }, b: { default: null }, c: {} } };
  test("R-32 defaults fill what is absent and nothing else", () => {
    expect(checkInputSchema(schema, [])).toEqual([]);
    expect(applyDefaults(schema, {})).toEqual({ a: "x", b: null });
    expect(applyDefaults(schema, { a: "y", c: 1 })).toEqual({ a: "y", b: null, c: 1 });
    expect(applyDefaults(schema, [1])).toEqual([1]);
    const full = { a: "y", b: 1 };
    expect(applyDefaults(schema, full)).toBe(full);
    const proto = JSON.parse('{"properties":{"__proto__":{"default":1}}}') as JsonObject;
    expect(Object.keys(applyDefaults(proto, {}) as object)).toEqual(["__proto__"]);
  });

  test("RP-5 a pointer goes through properties and items, with ~ escapes", () => {
    const nested = { properties: { "a/b": { items: { properties: { "~": { type: "null" } } } } } };
    expect(schemaAt(nested, "/a~1b/0/~0")).toEqual({ type: "null" });
    expect(schemaAt(nested, "")).toBe(nested);
    for (const pointer of ["/a", "/a~1b/x", "/a~1b/-1", "/a~1b/01", "a", "/a~2b"])
      expect(schemaAt(nested, pointer)).toBeUndefined();
  });
});

/** RP-2 makes these fail values that JSON Schema lets pass. */
function forOracle(schema: JsonObject): JsonObject {
  const all: Json[] = [];
  if (schema.required !== undefined) all.push({ type: "object" });
  if (schema.minimum !== undefined || schema.maximum !== undefined) all.push({ type: "number" });
  const { properties, items, ...rest } = schema;
  const inner =
    properties === undefined
      ? {}
      : { properties: mapValues(properties as JsonObject, (item) => forOracle(item as JsonObject)) };
  return {
    ...rest,
    ...inner,
    ...(items === undefined ? {} : { items: forOracle(items as JsonObject) }),
    ...(all.length === 0 ? {} : { allOf: all }),
  };
}

function mapValues(object: JsonObject, change: (value: Json) => Json): JsonObject {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));
}

const names = fc.constantFrom("a", "b", "c");
const scalars = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.integer({ min: -3, max: 3 }),
  fc.constantFrom(0.5, 1e300),
  fc.constantFrom("", "a", "ab", "a1", "😀b", "aaa"),
);
const { value: values } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    scalars,
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(names, tie("value"), { maxKeys: 3, noNullPrototype: true }),
  ),
}));
const typeNames = fc.constantFrom("null", "boolean", "object", "array", "number", "integer", "string");
const lengths = fc.integer({ min: 0, max: 3 });
const { schema: schemas } = fc.letrec((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3 },
    fc.record({ type: typeNames }, { requiredKeys: [], noNullPrototype: true }),
    fc.record(
      {
        type: fc.oneof(typeNames, fc.uniqueArray(typeNames, { minLength: 1, maxLength: 3 })),
        enum: fc.uniqueArray(values, { minLength: 1, maxLength: 4, selector: (value) => JSON.stringify(value) }),
        const: values,
        minimum: fc.integer({ min: -2, max: 2 }),
        maximum: fc.integer({ min: -2, max: 2 }),
        minLength: lengths,
        maxLength: lengths,
        minItems: lengths,
        maxItems: lengths,
        pattern: fc.constantFrom("^a", "b$", "[0-9]", "^a*$"),
        required: fc.uniqueArray(names, { maxLength: 2 }),
        properties: fc.dictionary(names, tie("schema"), { maxKeys: 2, noNullPrototype: true }),
        additionalProperties: fc.boolean(),
        items: tie("schema"),
      },
      { requiredKeys: [], noNullPrototype: true },
    ),
  ),
}));
