import { describe, expect, test } from "vitest";
import {
  ago,
  byteSize,
  clip,
  displayWidth,
  elapsed,
  jsonText,
  oneLine,
  printable,
  shellQuote,
  shortId,
} from "./text.ts";

describe("text from runs on a terminal", () => {
  test("R-40 hidden, control and bidirectional characters are escaped, letters and emoji stay", () => {
    expect(printable("a\u001b[31mred\u0007")).toBe("a\\u001b[31mred\\u0007");
    expect(printable("user\u202egpj.exe")).toBe("user\\u202egpj.exe");
    expect(printable("a\u200bb\ufeff\u2066c\u00ad")).toBe("a\\u200bb\\ufeff\\u2066c\\u00ad");
    expect(printable("\u{e0041}")).toBe("\\udb40\\udc41");
    expect(printable("\u009b31m\r\n")).toBe("\\u009b31m\\u000d\n");
    expect(printable("grün 漢字 👍\tok")).toBe("grün 漢字 👍\tok");
  });

  test("R-40 JSON keeps its meaning when escaped", () => {
    const value = { "k\u202e": "v\u001b\u2028\u{e0041}" };
    const text = jsonText(value, 2);
    expect(text).not.toMatch(/[\u001b\u2028\u202e]/);
    expect(JSON.parse(text)).toEqual(value);
  });

  test("one line stays one line", () => {
    expect(oneLine("a\nb\tc")).toBe("a\\nb\\tc");
  });
});

describe("widths", () => {
  test("wide and combining characters", () => {
    expect(displayWidth("漢字")).toBe(4);
    expect(displayWidth("e\u0301")).toBe(1);
    expect(displayWidth("\u001b[31mred\u001b[39m")).toBe(3);
  });

  test("cutting never splits a character and marks the end", () => {
    expect(clip("abcdef", 4)).toBe("abc…");
    expect(clip("漢字漢字", 5)).toBe("漢字…");
    expect(clip("👍👍👍", 4)).toBe("👍…");
    expect(clip("abc", 3)).toBe("abc");
  });
});

test("R-43 words are quoted for the shell only where they must be", () => {
  expect(shellQuote("each@root[3]")).toBe("'each@root[3]'");
  expect(shellQuote("/a b/c")).toBe("'/a b/c'");
  expect(shellQuote("it's")).toBe("'it'\\''s'");
  expect(shellQuote("")).toBe("''");
  expect(shellQuote("sqlite:/tmp/x.db")).toBe("sqlite:/tmp/x.db");
});

test("times, sizes and ids for people", () => {
  expect([0, 850, 4_200, 185_000, 7_800_000, 273_600_000].map(elapsed)).toEqual([
    "0 ms",
    "850 ms",
    "4.2 s",
    "3 min 05 s",
    "2 h 10 min",
    "3 d 4 h",
  ]);
  expect([0, 59_000, 240_000, 10_800_000].map((ms) => ago(0, ms))).toEqual([
    "just now",
    "59 s ago",
    "4 min ago",
    "3 h ago",
  ]);
  expect([812, 4_100, 12_300_000].map(byteSize)).toEqual(["812 B", "4.1 kB", "12.3 MB"]);
  expect(shortId("0197f0a0-1111-7222-8333-123456789abc")).toBe("123456789abc");
  expect(shortId("nightly")).toBe("nightly");
});
