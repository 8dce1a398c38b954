/** Reading YAML: what is accepted, where faults are shown, and that no text can hurt (C24, C25, C38). */
import { describe, expect, test } from "vitest";
import { readYaml } from "./yaml.ts";

const read = (text: string) => readYaml(text, "a.yaml");

/** `line:column code` of every fault. */
function faults(text: string): string[] {
  const result = read(text);
  return (result.diagnostics ?? []).map((each) => `${each.line}:${each.column} ${each.code}`);
}

describe("values", () => {
  test("are those of YAML 1.2's core schema, in normal form", () => {
    const text =
      "b: no\na: [1, 0x10, 0o17, 1.5, -0, ~, true, 'x', \"\\u0041\", 2026-01-01, yes]\nc: |\n  two\n  lines\n";
    expect(read(text).value).toEqual({
      a: [1, 16, 15, 1.5, 0, null, true, "x", "A", "2026-01-01", "yes"],
      b: "no",
      c: "two\nlines\n",
    });
    expect(Object.keys(read(text).value as object)).toEqual(["a", "b", "c"]);
    expect(Object.is((read("a: -0").value as { a: number }).a, 0)).toBe(true);
  });

  test("absent ones are null, comments and one --- are nothing", () => {
    expect(read("---\n# c\na:\nb: # d\n...\n").value).toEqual({ a: null, b: null });
  });

  test("C24 names of Object.prototype are keys like any other", () => {
    const value = read("__proto__: {polluted: true}\nconstructor: 1\ntoString: 2\n").value as object;
    expect(Object.keys(value).sort()).toEqual(["__proto__", "constructor", "toString"]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });
});

describe("places", () => {
  const text = "id: x\nsteps:\n  - id: one\n    args: {pattern: 1,\n      path: 2}\n  - id:\n";
  const document = read(text);
  if (document.diagnostics !== undefined) throw new Error("must read");

  test("of values and of keys", () => {
    expect(document.locate([])).toEqual({ line: 1, column: 1 });
    expect(document.locate(["id"])).toEqual({ line: 1, column: 5 });
    expect(document.locate(["id"], true)).toEqual({ line: 1, column: 1 });
    expect(document.locate(["steps", 0])).toEqual({ line: 3, column: 5 });
    expect(document.locate(["steps", 0, "args", "path"])).toEqual({ line: 5, column: 13 });
    expect(document.locate(["steps", 0, "args", "path"], true)).toEqual({ line: 5, column: 7 });
  });

  test("of what is absent: the nearest thing around it", () => {
    expect(document.locate(["steps", 0, "tool"])).toEqual({ line: 3, column: 5 });
    expect(document.locate(["steps", 7, "tool"])).toEqual({ line: 3, column: 3 });
    expect(document.locate(["steps", 1, "id"])).toEqual({ line: 6, column: 8 });
    expect(document.locate(["constructor"])).toEqual({ line: 1, column: 1 });
  });

  test("count CRLF lines and lines after a byte order mark alike", () => {
    expect(faults("\uFEFFa: 1\r\nb: &x 1\r\n")).toEqual(["2:4 yaml_anchor"]);
  });
});

describe("refused, with place and reason:", () => {
  test.each([
    ["an anchor", "a: 1\nb: &x 1\n", "2:4 yaml_anchor"],
    ["an alias", "a: 1\nb: *x\n", "2:4 yaml_alias"],
    ["a tag", "a: !!int 1\n", "1:4 yaml_tag"],
    ["a merge key", "a:\n  <<: {b: 1}\n", "2:3 yaml_merge"],
    ["a directive", "%YAML 1.1\n---\na: 1\n", "1:1 yaml_directive"],
    ["a second document", "a: 1\n---\nb: 2\n", "2:1 yaml_documents"],
    ["a document after the end of the first", "a: 1\n...\nb: 2\n", "3:1 yaml_documents"],
    ["a key given twice", "a: 1\nb: 2\na: 3\n", "3:1 duplicate_key"],
    ["a key given twice in flow", "{a: 1, 'a': 2}", "1:8 duplicate_key"],
    ["a tab as indentation", "a:\n\tb: 1\n", "2:1 yaml_syntax"],
    ["a number as key", "1: a\n", "1:1 yaml_key"],
    ["a list as key", "[a]: b\n", "1:1 yaml_key"],
    ["a number beyond 2^53-1", "a: 9007199254740992\n", "1:4 number"],
    ["infinity", "a: .inf\n", "1:4 number"],
    ["a number that overflows", "a: 1e999\n", "1:4 number"],
    ["half of a surrogate pair", 'a: "\\ud800"\n', "1:4 yaml_text"],
    ["a second colon", "a: b: c\n", "1:4 yaml_syntax"],
    ["an open bracket", "a: [1, 2\n", "2:1 yaml_syntax"],
    ["nothing", "# only a comment\n", "1:1 yaml_empty"],
    ["no text at all", "", "1:1 yaml_empty"],
  ])("%s", (_, text, fault) => {
    expect(faults(text)).toEqual([fault]);
  });

  test("several faults at once, at most 20", () => {
    expect(faults("a: 1\na: 2\n3: x\nb: .nan\n")).toEqual(["2:1 duplicate_key", "3:1 yaml_key", "4:4 number"]);
    expect(faults("a: 1\n".repeat(100))).toHaveLength(20);
  });

  test("a `<<` in quotes is a key", () => {
    expect(read("'<<': 1\n").value).toEqual({ "<<": 1 });
  });

  test("C25 nesting past 128 levels, in block and flow, and 128 is accepted", () => {
    expect(read("[".repeat(128) + "]".repeat(128)).diagnostics).toBeUndefined();
    expect(faults("[".repeat(129) + "]".repeat(129))).toEqual(["1:129 too_deep"]);
    expect(read(`${"- ".repeat(128)}a`).diagnostics).toBeUndefined();
    expect(faults(`${"- ".repeat(129)}a`)[0]).toMatch(/too_deep/);
    expect(faults(Array.from({ length: 200 }, (_, i) => `${" ".repeat(i)}a:`).join("\n"))[0]).toMatch(/too_deep/);
  });
});

describe("C38 bombs are refused in less than 200 ms and 64 MiB:", () => {
  const MIB = 1_048_576;
  const full = (part: string, before = "", after = "") =>
    before + part.repeat(Math.floor((MIB - before.length - after.length) / part.length)) + after;
  const aliases = ["a: &a [x,x,x,x,x,x,x,x,x]"];
  for (let i = 1; i < 9; i++) {
    const [name, previous] = ["abcdefghi"[i], "abcdefghi"[i - 1]];
    aliases.push(`${name}: &${name} [${Array(9).fill(`*${previous}`).join(",")}]`);
  }
  const bombs: [name: string, text: string][] = [
    ["9 levels of 9 aliases", aliases.join("\n")],
    ["5000 opening brackets", "[".repeat(5_000)],
    ["10 KB of dashes", "- ".repeat(5_000)],
    ["50 KB of merge keys", `a: &a {x: 1}\nb:\n${"  <<: *a\n".repeat(5_500)}`],
    ["50 KB of merge keys without aliases", `b:\n${"  <<: {}\n".repeat(5_500)}`],
    ["more than 1 MiB", full("a: b\n") + "x: y\n".repeat(10)],
    ["1 MiB of closing brackets", full("]")],
    ["1 MiB of closing braces", full("}", "a: 1\n")],
    ["1 MiB of document ends", full("...\n")],
    ["1 MiB of empty lines", full("\n")],
    ["1 MiB of comments", full("# c\n")],
    ["1 MiB of items", full("a,", "[")],
    ["1 MiB of commas", full(",", "[")],
    [
      "1 MiB of different keys",
      Array.from({ length: 90_000 }, (_, i) => `k${i}:`)
        .join("\n")
        .slice(0, MIB),
    ],
    ["1 MiB of question marks", full("? ")],
    ["1 MiB of colons", full(":")],
    ["1 MiB of pipes", full("|")],
  ];
  const cost = (text: string) => {
    const start = process.cpuUsage();
    const result = read(text);
    const { user, system } = process.cpuUsage(start);
    return { result, ms: (user + system) / 1_000 };
  };

  test.each(bombs)("%s", (_, text) => {
    const before = process.memoryUsage().heapUsed;
    const first = cost(text);
    const bytes = process.memoryUsage().heapUsed - before;
    const { result } = first;
    // Processor time and the best of three, so that a busy machine does not decide.
    const ms = Math.min(first.ms, cost(text).ms, cost(text).ms);
    expect(result.diagnostics).toHaveLength(result.diagnostics?.length === 20 ? 20 : 1);
    expect(result.diagnostics?.[0]?.line).toBeGreaterThan(0);
    expect(result.diagnostics?.[0]?.message.length).toBeLessThan(250);
    expect(ms).toBeLessThan(200);
    expect(bytes).toBeLessThan(64 * MIB);
  });
});
