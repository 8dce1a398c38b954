import { describe, expect, test } from "vitest";
import type { Json } from "../../domain/json.ts";
import { membersOf, schemaText } from "./schema.ts";

describe("a schema for people", () => {
  test.each<[Json, string]>([
    [{}, "any value"],
    [{ type: "string", minLength: 2, description: "Who" }, "string, minLength 2: Who"],
    [{ type: ["string", "null"], title: "T", description: "two\n  lines\n" }, "string or null: T: two lines"],
    [{ enum: ["small", "large"] }, "one of small | large"],
    [{ type: "string", enum: ["", " a", "b"] }, 'string, one of "" | " a" | b'],
    [{ enum: ["1", 1, null] }, 'one of "1" | 1 | null'],
    [{ const: 7 }, "exactly 7"],
    [{ type: "array", items: { type: "integer" }, maxItems: 3 }, 'array, items {"type":"integer"}, maxItems 3'],
    [{ type: "string", "x-holdfast-secret": true }, 'a secret handle, {"$secret": "name"}'],
    [{ type: "string", default: "a", pattern: "^\u202ea" }, 'string, default "a", pattern "^\\u202ea"'],
    [{ type: "object" }, "object"],
    [true, "true"],
  ])("%j", (schema, text) => expect(schemaText(schema)).toBe(text));

  test("an object has a line for each member, and nothing of it is left out", () => {
    const schema = {
      type: "object",
      description: "An order",
      required: ["size", "unknown"],
      additionalProperties: false,
      properties: {
        inner: { type: "object", properties: { a: { type: "null" } }, required: ["a"] },
        size: { enum: ["s"], description: "Of it\n  x (any value)" },
      },
    };
    expect(schemaText(schema).split("\n")).toEqual([
      "an object with these and no others: An order:",
      "  size (one of s, required): Of it x (any value)",
      "  unknown (any value, required)",
      '  inner (object, properties {"a":{"type":"null"}}, required ["a"], may be left out)',
    ]);
  });

  test("only what must be an object and is told by its members has members to ask for", () => {
    const properties = { a: {} };
    expect(membersOf({ type: "object", properties })).toEqual(["a"]);
    expect(membersOf({ properties })).toEqual(["a"]);
    for (const other of [
      { type: ["object", "null"], properties },
      { type: "object" },
      { type: "object", enum: [{}], properties },
    ])
      expect(membersOf(other)).toEqual([]);
    expect(membersOf(undefined)).toEqual([]);
  });
});
