import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Json, type JsonObject, sha256 } from "./json.ts";
import { checkPredicate, evaluatePredicate, fillPredicate } from "./predicate.ts";

const at = (...names: (string | number)[]): JsonObject => ({
  segments: names.map((name) => (typeof name === "number" ? { kind: "index", index: name } : { kind: "field", name })),
});
function ask(predicate: JsonObject, value: Json): boolean | string {
  const result = evaluatePredicate(predicate, value);
  return result.ok ? result.value : result.message;
}
function places(predicate: Json): string[] {
  return checkPredicate(predicate).map(({ path }) => path.join("/"));
}

describe("GD-3 predicates", () => {
  const value: Json = { a: { b: [1, 2, "x"] }, n: 1, m: 2.5, big: 2 ** 53, t: "héllo", none: null, "x.y": true };

  test("GD-3 every operation", () => {
    expect(ask({ operation: "equals", path: "a.b", value: [1, 2, "x"] }, value)).toBe(true);
    expect(ask({ operation: "equals", path: "a.b.1", value: 2 }, value)).toBe(true);
    expect(ask({ operation: "equals", path: "", value: 3 }, 3)).toBe(true);
    expect(ask({ operation: "fields_equal", left_path: "n", right_path: "a.b.0" }, value)).toBe(true);
    expect(ask({ operation: "numeric_compare", left_path: "n", right_path: "m", comparison: "less_than" }, value)).toBe(
      true,
    );
    expect(ask({ operation: "selected_equals", selector: at("x.y"), value: true }, value)).toBe(true);
    expect(
      ask({ operation: "selected_values_equal", left_selector: at("n"), right_selector: at("a", "b", 0) }, value),
    ).toBe(true);
    const compare = { operation: "selected_numeric_compare", left_selector: at("m"), right_selector: at("m") };
    expect(ask({ ...compare, comparison: "greater_than" }, value)).toBe(false);
    expect(ask({ ...compare, comparison: "greater_than_or_equal" }, value)).toBe(true);
    expect(ask({ ...compare, comparison: "less_than_or_equal" }, value)).toBe(true);
    const text = (assertion: string, expected: Json): JsonObject => ({
      operation: "selected_assertion",
      selector: at("t"),
      assertion: { assertion, expected },
    });
    expect(ask(text("text_equals", "héllo"), value)).toBe(true);
    expect(ask(text("byte_length", 6), value)).toBe(true);
    expect(ask(text("sha256", sha256("héllo")), value)).toBe(true);
    const yes = { operation: "equals", path: "n", value: 1 };
    const no = { operation: "equals", path: "n", value: 2 };
    expect(ask({ operation: "all", predicates: [yes, no] }, value)).toBe(false);
    expect(ask({ operation: "any", predicates: [no, yes] }, value)).toBe(true);
    expect(ask({ operation: "not", predicate: no }, value)).toBe(true);
  });

  test("GD-3 a missing field, another kind and inexact numbers are errors, not false", () => {
    for (const predicate of [
      { operation: "equals", path: "nope", value: 1 },
      { operation: "equals", path: "n.deeper", value: 1 },
      { operation: "equals", path: "a.b.7", value: 1 },
      { operation: "equals", path: "n", value: "1" },
      { operation: "equals", path: "constructor", value: 1 },
      { operation: "equals", path: "big", value: 1 },
      { operation: "numeric_compare", left_path: "n", right_path: "t", comparison: "less_than" },
      { operation: "numeric_compare", left_path: "n", right_path: "big", comparison: "less_than" },
      { operation: "selected_equals", selector: at("a", "b", "0"), value: 1 },
      { operation: "selected_assertion", selector: at("n"), assertion: { assertion: "text_equals", expected: "1" } },
    ]) {
      const result = evaluatePredicate(predicate, value);
      expect(result, JSON.stringify(predicate)).toMatchObject({ ok: false });
    }
    expect(ask({ operation: "equals", path: "none", value: 1 }, value)).toBe(false);
    expect(ask({ operation: "equals", path: "n", value: null }, value)).toBe(false);
  });

  test("GD-3 versions: an operation newer than its version and a child of another version are refused", () => {
    expect(
      places({ version: 1, operation: "numeric_compare", left_path: "", right_path: "", comparison: "less_than" }),
    ).toEqual(["operation"]);
    expect(
      places({
        version: 2,
        operation: "selected_assertion",
        selector: {},
        assertion: { assertion: "byte_length", expected: 1 },
      }),
    ).toEqual(["operation"]);
    expect(
      places({ version: 2, operation: "not", predicate: { version: 3, operation: "equals", path: "", value: 1 } }),
    ).toEqual(["predicate/version"]);
    expect(places({ version: 4, operation: "equals", path: "", value: 1 })).toEqual(["version"]);
    expect(places({ operation: "selected_equals", selector: {}, value: 1 })).toEqual([]);
    expect(fillPredicate({ operation: "equals" })).toEqual({ operation: "equals", version: 3 });
    expect(fillPredicate({ operation: "equals", version: 1 })).toEqual({ operation: "equals", version: 1 });
  });

  test("GD-3 bounds are inclusive: depth 16, 256 operations, path 512 bytes, constant 65536 bytes, 64 segments", () => {
    const leaf: JsonObject = { operation: "equals", path: "", value: 1 };
    const nested = (depth: number): JsonObject =>
      depth === 1 ? leaf : { operation: "not", predicate: nested(depth - 1) };
    expect(places(nested(16))).toEqual([]);
    expect(places(nested(17))).toHaveLength(1);
    const many = (count: number): JsonObject => ({
      operation: "all",
      predicates: Array.from({ length: count - 1 }, () => leaf),
    });
    expect(places(many(256))).toEqual([]);
    expect(places(many(5_000))).toHaveLength(1);
    expect(places({ ...leaf, path: "x".repeat(512) })).toEqual([]);
    expect(places({ ...leaf, path: "é".repeat(257) })).toEqual(["path"]);
    expect(places({ ...leaf, value: "x".repeat(65_534) })).toEqual([]);
    expect(places({ ...leaf, value: "x".repeat(65_535) })).toEqual(["value"]);
    const selected = (selector: JsonObject) => places({ operation: "selected_equals", selector, value: 1 });
    expect(selected(at(...Array.from({ length: 64 }, () => 1_000_000)))).toEqual([]);
    expect(selected(at(...Array.from({ length: 65 }, () => 0)))).toEqual(["selector/segments"]);
    expect(selected(at(1_000_001))).toEqual(["selector/segments/0"]);
  });

  test("unknown keys and operations are refused with the nearest one", () => {
    expect(checkPredicate({ operation: "equal", path: "", value: 1 })[0]).toMatchObject({
      hint: 'did you mean "equals"?',
    });
    expect(
      checkPredicate({ operation: "equals", path: "", valu: 1 }).map(({ at_key, hint }) => [at_key, hint]),
    ).toEqual([
      [true, 'did you mean "value"?'],
      [undefined, undefined],
    ]);
    expect(places({ operation: "toString" })).toEqual(["operation"]);
  });

  test("never throws, whatever it is given", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (predicate, given) => {
        checkPredicate(predicate as Json);
        evaluatePredicate(predicate as JsonObject, given as Json);
      }),
      { seed: 3, numRuns: 300 },
    );
  });
});
