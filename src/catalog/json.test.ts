/** Reading JSON: strict, with places, equal to `JSON.parse` wherever both accept. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { normalizeJson } from "../domain/json.ts";
import { readJson } from "./json.ts";

function faults(text: string): string[] {
  return (readJson(text, "a.json").diagnostics ?? []).map((each) => `${each.line}:${each.column} ${each.code}`);
}

describe("readJson", () => {
  test("reads what JSON.parse reads, in normal form", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom(undefined, 2, "\t"), (value, space) => {
        const text = JSON.stringify(value, null, space);
        fc.pre(!/[eE]\+|\d{16}/.test(text));
        const { value: read, diagnostics } = readJson(text, "a.json");
        expect(diagnostics).toBeUndefined();
        expect(JSON.stringify(read)).toBe(JSON.stringify(normalizeJson(JSON.parse(text))));
      }),
      { seed: 7, numRuns: 300 },
    );
  });

  test("never accepts what JSON.parse refuses", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'{}[]",:01.e-\\ntrfals \n'), maxLength: 12 }), (text) => {
        let accepted = true;
        try {
          JSON.parse(text);
        } catch {
          accepted = false;
        }
        if (!accepted) expect(readJson(text, "a.json").diagnostics).toHaveLength(1);
      }),
      { seed: 7, numRuns: 3_000 },
    );
  });

  test.each([
    ["a key given twice", '{"a": 1,\n "a": 2}', "2:2 duplicate_key"],
    ["a trailing comma", '{"a": 1,\n}', "2:1 json_syntax"],
    ["a key without quotes", "{a: 1}", "1:2 json_syntax"],
    ["a comment", "// no\n{}", "1:1 json_syntax"],
    ["something after the value", "{} {}", "1:4 json_syntax"],
    ["nothing", "", "1:1 json_syntax"],
    ["a bad escape", '["\\x"]', "1:2 json_syntax"],
    ["a control character", '["a\u0001"]', "1:2 json_syntax"],
    ["half of a surrogate pair", '["\\ud800"]', "1:2 json_text"],
    ["a number beyond 2^53-1", "[9007199254740993]", "1:2 number"],
  ])("refuses %s", (_, text, fault) => {
    expect(faults(text)).toEqual([fault]);
  });

  test("C25 refuses deep nesting, C24 keeps odd names", () => {
    expect(faults("[".repeat(100_000))).toEqual(["1:129 too_deep"]);
    expect(readJson("[".repeat(128) + "]".repeat(128), "a.json").diagnostics).toBeUndefined();
    expect(Object.keys(readJson('{"__proto__": 1}', "a.json").value as object)).toEqual(["__proto__"]);
  });

  test("places values and keys", () => {
    const read = readJson('{\n  "a": [1,\n    {"b": 2}]\n}', "a.json");
    expect(read.diagnostics === undefined && read.locate(["a", 1, "b"])).toEqual({ line: 3, column: 11 });
    expect(read.diagnostics === undefined && read.locate(["a", 1, "b"], true)).toEqual({ line: 3, column: 6 });
  });
});
