import { runInNewContext } from "node:vm";
import canonicalize from "canonicalize";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  canonicalJson,
  getOwn,
  hashJson,
  type Json,
  JsonError,
  jsonEquals,
  MAX_JSON_DEPTH,
  normalizeJson,
  pointerTokens,
  resolvePointer,
  setOwn,
  toPointer,
} from "./json.ts";

const SEED = { seed: 20260102, numRuns: 500 } as const;
/** Any JSON value, its texts over all of Unicode but lone surrogates. */
const values = fc.jsonValue({ stringUnit: "binary", maxDepth: 4 });

function refused(value: unknown): { path: string; reason: string } {
  try {
    normalizeJson(value);
  } catch (error) {
    if (error instanceof JsonError) return { path: error.path, reason: error.reason };
    throw error;
  }
  throw new Error("it was taken");
}

/** `depth` containers around a number. */
function nested(depth: number, wrap: (inner: unknown) => unknown): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = wrap(value);
  return value;
}

describe("values that come in", () => {
  test("C21 NUL is kept, in values and in keys", () => {
    const value = normalizeJson({ "k\u0000ey": "a\u0000b" });
    expect(value).toEqual({ "k\u0000ey": "a\u0000b" });
    expect(canonicalJson(value)).toBe('{"k\\u0000ey":"a\\u0000b"}');
    expect(JSON.parse(canonicalJson(value))).toEqual(value);
  });

  class Point {
    readonly x = 1;
  }
  test.each<[string, unknown, string, RegExp]>([
    ["Date", { d: new Date(0) }, "$.d", /Date instance/],
    ["Map", { m: new Map([[1, 2]]) }, "$.m", /Map instance/],
    ["Set", { s: new Set() }, "$.s", /Set instance/],
    ["a class", { a: [new Point()] }, "$.a[0]", /Point instance/],
    ["undefined", { u: undefined }, "$.u", /undefined/],
    ["BigInt", { b: 1n }, "$.b", /bigint/],
    ["NaN", { n: [0, Number.NaN] }, "$.n[1]", /NaN/],
    ["Infinity", { i: Number.POSITIVE_INFINITY }, "$.i", /Infinity/],
    ["-Infinity", [Number.NEGATIVE_INFINITY], "$[0]", /-Infinity/],
    ["a function", { f: () => 1 }, "$.f", /function/],
    ["a symbol", { s: Symbol("s") }, "$.s", /symbol/],
    ["a hole in an array", Object.assign(new Array(3), { 0: 0, 2: 2 }), "$[1]", /undefined/],
    ["an object with toJSON", { o: { toJSON: () => 1 } }, "$.o.toJSON", /function/],
    ["bytes", { b: new Uint8Array(1) }, "$.b", /Uint8Array instance/],
    ["nothing at all", undefined, "$", /undefined/],
    ["a Map of another realm", { m: runInNewContext("new Map()") }, "$.m", /Map instance/],
    ["a key that needs quotes", { "a b": { 'c"d': 1n } }, '$["a b"]["c\\"d"]', /bigint/],
  ])("C22 %s is refused where it stands", (_, value, path, reason) => {
    const found = refused(value);
    expect(found.path).toBe(path);
    expect(found.reason).toMatch(reason);
  });

  test("C22 the view before a pause, after it and after a crash is the same", () => {
    expect(Object.is((normalizeJson({ z: -0 }) as { z: number }).z, 0)).toBe(true);
    fc.assert(
      fc.property(values, (value) => {
        const live = normalizeJson(value);
        const stored = JSON.parse(canonicalJson(live)) as Json;
        expect(stored).toStrictEqual(live);
        expect(normalizeJson(stored)).toStrictEqual(live);
        expect(Object.keys(Object(live))).toEqual(Object.keys(Object(stored)));
      }),
      SEED,
    );
  });

  test("C22 nothing is shared with the caller", () => {
    const inner = { n: 1 };
    const copy = normalizeJson([inner, inner]) as { n: number }[];
    inner.n = 2;
    expect(copy).toEqual([{ n: 1 }, { n: 1 }]);
    expect(copy[0]).not.toBe(copy[1]);
  });

  test("C22 plain objects of another realm and without a prototype are plain", () => {
    expect(normalizeJson(runInNewContext("({a: [1, {b: null}]})"))).toEqual({ a: [1, { b: null }] });
    expect(normalizeJson(Object.assign(Object.create(null), { a: 1 }))).toEqual({ a: 1 });
  });

  test("C23 half of a surrogate pair is refused, in values and in keys; whole pairs are kept", () => {
    expect(refused({ t: ["ok", "\ud800"] })).toEqual({
      path: "$.t[1]",
      reason: "the text contains half of a surrogate pair",
    });
    expect(refused("x\udc00").path).toBe("$");
    expect(refused({ a: { "\ud800": 1 } })).toEqual({ path: "$.a", reason: "a key contains half of a surrogate pair" });
    expect(normalizeJson({ "😀": "😀" })).toEqual({ "😀": "😀" });
  });

  test("C24 `__proto__` and its like are keys as any other", () => {
    const given: unknown = JSON.parse(
      '{"__proto__": {"polluted": true}, "constructor": 1, "toString": 2, "hasOwnProperty": 3, "prototype": 4}',
    );
    const value = normalizeJson(given) as { readonly [key: string]: Json };
    expect(Object.keys(value).sort()).toEqual(["__proto__", "constructor", "hasOwnProperty", "prototype", "toString"]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(getOwn(value, "__proto__")).toEqual({ polluted: true });
    expect(resolvePointer(value, "/__proto__/polluted")).toBe(true);
    expect(canonicalJson(value)).toBe(
      '{"__proto__":{"polluted":true},"constructor":1,"hasOwnProperty":3,"prototype":4,"toString":2}',
    );
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test("C24 inherited names are absent", () => {
    const value = normalizeJson({}) as { readonly [key: string]: Json };
    for (const key of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
      expect(getOwn(value, key)).toBeUndefined();
      expect(resolvePointer(value, `/${key}`)).toBeUndefined();
      const target: Record<string, number> = {};
      setOwn(target, key, 1);
      expect(getOwn(target, key)).toBe(1);
      expect(Object.keys(target)).toEqual([key]);
    }
  });

  test.each([
    ["arrays", (inner: unknown): unknown => [inner]],
    ["objects", (inner: unknown): unknown => ({ k: inner })],
  ])("C25 %s nest to the limit and not past it, without a stack overflow", (_, wrap) => {
    expect(() => normalizeJson(nested(MAX_JSON_DEPTH, wrap))).not.toThrow();
    for (const depth of [MAX_JSON_DEPTH + 1, 1_000, 5_000, 100_000])
      expect(refused(nested(depth, wrap)).reason).toBe(`nested deeper than ${MAX_JSON_DEPTH} levels`);
  });

  test("C25 a cycle is refused, not followed", () => {
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    expect(refused(cycle).reason).toMatch(/nested deeper/);
  });
});

describe("RFC 8785 text", () => {
  test("RP-11 it is that of the reference implementation, for any value", () => {
    fc.assert(
      fc.property(values, (value) => {
        const expected = canonicalize(value);
        expect(canonicalJson(normalizeJson(value))).toBe(expected);
        // The text does not depend on the normal form: it sorts for itself.
        expect(canonicalJson(value as Json)).toBe(expected);
      }),
      SEED,
    );
  });

  test("keys are sorted by UTF-16 units, also those that engines move ahead", () => {
    // U+FB33 sorts after the pair of U+1F600 by units, before it by code points.
    const value = normalizeJson({ b: 1, "10": 2, "9": 3, a: 4, "\ufb33": 5, "😀": 6, "": 7 });
    expect(canonicalJson(value)).toBe('{"":7,"10":2,"9":3,"a":4,"b":1,"😀":6,"\ufb33":5}');
  });

  test.each([
    [1e21, "1e+21"],
    [1e-7, "1e-7"],
    [0.1 + 0.2, "0.30000000000000004"],
    [-0, "0"],
    [Number.MAX_SAFE_INTEGER, "9007199254740991"],
    [5e-324, "5e-324"],
  ])("the number %s is written %s", (value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  test("members that are absent or undefined hash alike; equal values hash alike whatever their order", () => {
    expect(canonicalJson({ a: 1, b: undefined } as unknown as Json)).toBe('{"a":1}');
    expect(hashJson({ a: 1, b: [2, { c: 3, d: 4 }] })).toBe(hashJson({ b: [2, { d: 4, c: 3 }], a: 1 }));
    expect(hashJson([])).toBe("4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945");
    expect(jsonEquals({ a: [1] }, { a: [1] })).toBe(true);
    expect(jsonEquals({ a: [1] }, { a: ["1"] })).toBe(false);
  });
});

describe("RFC 6901 pointers", () => {
  const document: Json = { foo: ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "m~n": 8, " ": 7 };
  test.each<[string, Json | undefined]>([
    ["", document],
    ["/foo", ["bar", "baz"]],
    ["/foo/0", "bar"],
    ["/", 0],
    ["/a~1b", 1],
    ["/c%d", 2],
    ["/m~0n", 8],
    ["/ ", 7],
    ["/foo/2", undefined],
    ["/foo/01", undefined],
    ["/foo/-", undefined],
    ["/foo/length", undefined],
    ["/foo/0/0", undefined],
    ["/missing/deeper", undefined],
    ["foo", undefined],
    ["/m~2n", undefined],
    ["/m~", undefined],
  ])("%j reads its value or nothing", (pointer, value) => {
    expect(resolvePointer(document, pointer)).toEqual(value);
  });

  test("tokens survive the way there and back", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "binary" })), (tokens) => {
        expect(pointerTokens(toPointer(tokens))).toEqual(tokens);
      }),
      SEED,
    );
  });
});
