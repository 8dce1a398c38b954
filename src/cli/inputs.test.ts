import { describe, expect, test } from "vitest";
import type { JsonObject } from "../domain/json.ts";
import { readBudget, readInputs } from "./inputs.ts";

const SCHEMA: JsonObject = {
  type: "object",
  required: ["version"],
  additionalProperties: false,
  properties: {
    version: { type: "string", description: "Which one" },
    count: { type: "integer" },
    ratio: { type: "number" },
    dry_run: { type: "boolean" },
    tags: { type: "array" },
    either: { type: ["string", "integer"] },
    level: { enum: ["low", "high"] },
    free: {},
    dir: { type: "string", default: "." },
  },
};

function read(...pairs: string[]) {
  return readInputs({ pairs }, SCHEMA, ["holdfast", "run", "release"]);
}

describe("--input is read by the schema", () => {
  test("a property that allows only strings takes the text as it stands", () => {
    expect(read("version=1.10")).toEqual({ version: "1.10" });
    expect(read("version=true")).toEqual({ version: "true" });
    expect(read('version="x"')).toEqual({ version: '"x"' });
    expect(read("version=a=b")).toEqual({ version: "a=b" });
    expect(read("version=")).toEqual({ version: "" });
  });

  test("else JSON, else text where a string is allowed", () => {
    expect(read("version=1", "count=3", "ratio=2", "dry_run=true", "tags=[1]", "free=null")).toEqual({
      version: "1",
      count: 3,
      ratio: 2,
      dry_run: true,
      tags: [1],
      free: null,
    });
    expect(read("version=1", "either=7", "free=some words")).toEqual({ version: "1", either: 7, free: "some words" });
    expect(read("version=1", "either=true")).toEqual({ version: "1", either: "true" });
    expect(read("version=1", "level=low")).toEqual({ version: "1", level: "low" });
  });

  test("else an error naming key, type and what was given", () => {
    expect(() => read("version=1", "count=many")).toThrow(
      '--input count: it must be an integer and "many" is plain text',
    );
    expect(() => read("version=1", "count=1.5")).toThrow('must be an integer and "1.5" is a number');
    expect(() => read("version=1", "dry_run=yes")).toThrow(
      'must be a boolean and "yes" is plain text; give a value such as true',
    );
    expect(() => read("version=1", "count=12345678901234567890")).toThrow("too large to be held exactly");
  });

  test("a secret is given by its handle, whatever kind the secret is of", () => {
    const schema = { type: "object", properties: { key: { type: "string", "x-holdfast-secret": true } } };
    expect(readInputs({ pairs: ['key={"$secret":"hook"}'] }, schema, [])).toEqual({ key: { $secret: "hook" } });
    expect(() => readInputs({ pairs: ["key=hunter2"] }, schema, [])).toThrow("--input key: it must be an object");
  });

  test("missing inputs are listed together, with a ready command", () => {
    const schema = {
      type: "object",
      required: ["a", "b", "dir"],
      properties: { a: { type: "string" }, b: { type: "integer" }, dir: { default: "." } },
    };
    expect(() => readInputs({ pairs: [] }, schema, ["holdfast", "run", "my flow.yaml"])).toThrow(
      "it needs a (string), b (integer); for example: holdfast run 'my flow.yaml' --input a=TEXT --input b=1",
    );
  });

  test("unknown, repeated and shapeless inputs are refused", () => {
    expect(() => read("verison=1")).toThrow("did you mean version?");
    expect(() => read("version=1", "version=2")).toThrow("given twice");
    expect(() => read("version")).toThrow('it has no "="');
  });

  test("C24 inherited names are keys like any other", () => {
    const open = { type: "object" };
    const args = readInputs({ pairs: ["__proto__=1", "constructor=2"] }, open, []) as JsonObject;
    expect(Object.keys(args).sort()).toEqual(["__proto__", "constructor"]);
    expect(Object.getPrototypeOf(args)).toBe(Object.prototype);
    expect(() => read("version=1", "toString=1")).toThrow("no such input");
  });

  test("pairs go over the file, key by key; a file alone may hold any JSON", () => {
    const file = (text: string) => ({ name: "in.json", text });
    expect(readInputs({ pairs: ["count=2"], file: file('{"version":"1","count":1}') }, SCHEMA, [])).toEqual({
      version: "1",
      count: 2,
    });
    expect(readInputs({ pairs: [], file: file("[1]") }, undefined, [])).toEqual([1]);
    expect(() => readInputs({ pairs: ["count=2"], file: file("[1]") }, SCHEMA, [])).toThrow(
      "holds an array, not an object",
    );
    expect(() => readInputs({ pairs: [], file: file("{") }, SCHEMA, [])).toThrow("Cannot read in.json: it is not JSON");
  });
});

describe("--budget", () => {
  test("limits by field name, time also as a duration", () => {
    expect(readBudget(["max_steps=10", "wall_time_ms=15m", "max_agents=0"])).toEqual({
      max_steps: 10,
      wall_time_ms: 900_000,
      max_agents: 0,
    });
    expect(readBudget([])).toBeUndefined();
  });

  test("the nearest name is suggested", () => {
    expect(() => readBudget(["max_step=10"])).toThrow("did you mean max_steps?");
    expect(() => readBudget(["__proto__=10"])).toThrow("is no limit");
    expect(() => readBudget(["max_steps=-1"])).toThrow("not a whole number from 0");
    expect(() => readBudget(["max_steps=1", "max_steps=2"])).toThrow("given twice");
  });
});
