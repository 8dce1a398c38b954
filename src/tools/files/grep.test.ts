import { describe, expect, test } from "vitest";
import { openSandbox } from "../fixture.ts";
import { MAX_FILE_BYTES } from "./limits.ts";
import { createSearcher, type LineMatch } from "./search.ts";

async function lines(pattern: string, text: string, ignoreCase = false): Promise<LineMatch[]> {
  const found: LineMatch[] = [];
  await createSearcher(pattern, ignoreCase, async () => {}).search(text, 10_000, (match) => found.push(match));
  return found;
}

describe("Grep", () => {
  test("finds lines in the order of paths and lines, with paths from the workspace", async () => {
    await using sandbox = await openSandbox({
      "b.txt": "no\nTODO: b\n",
      "a/x.txt": "TODO one\r\nnothing\r\nTODO two",
      "a.txt": "FIXME",
      ".git/x": "TODO",
      "node_modules/y": "TODO",
    });
    const all = {
      matches: [
        { path: "a.txt", line: 1, text: "FIXME" },
        { path: "a/x.txt", line: 1, text: "TODO one" },
        { path: "a/x.txt", line: 3, text: "TODO two" },
        { path: "b.txt", line: 2, text: "TODO: b" },
      ],
      truncated: false,
    };
    for (let i = 0; i < 3; i++) expect(await sandbox.output("Grep", { pattern: "TODO|FIXME" })).toEqual(all);
    expect(await sandbox.output("Grep", { pattern: "todo", path: "a" })).toEqual({ matches: [], truncated: false });
    expect(await sandbox.output("Grep", { pattern: "todo", path: "a/x.txt", ignore_case: true })).toEqual({
      matches: all.matches.slice(1, 3),
      truncated: false,
    });
  });

  test("a limit keeps the first matches and says whether there are more", async () => {
    await using sandbox = await openSandbox({ "a.txt": "x\nx\n", "b.txt": "x\n", "c.txt": "y" });
    const grep = (limit: number) => sandbox.output("Grep", { pattern: "x", limit });
    expect(await grep(1)).toEqual({ matches: [{ path: "a.txt", line: 1, text: "x" }], truncated: true });
    expect(await grep(2)).toMatchObject({ matches: { length: 2 }, truncated: true });
    expect(await grep(3)).toMatchObject({ matches: { length: 3 }, truncated: false });
  });

  test("glob keeps files by name, or by path when it has a slash", async () => {
    await using sandbox = await openSandbox({ "a.ts": "x", "src/b.ts": "x", "src/c.js": "x", "src/d/e.ts": "x" });
    const paths = async (glob: string, path?: string) =>
      (
        (await sandbox.output("Grep", { pattern: "x", glob, ...(path && { path }) }))["matches"] as { path: string }[]
      ).map((match) => match.path);
    expect(await paths("*.ts")).toEqual(["a.ts", "src/b.ts", "src/d/e.ts"]);
    expect(await paths("src/*.ts")).toEqual(["src/b.ts"]);
    expect(await paths("d/*", "src")).toEqual(["src/d/e.ts"]);
    expect(await paths("*.js", "src/c.js")).toEqual(["src/c.js"]);
    expect(await paths("*.ts", "src/c.js")).toEqual([]);
  });

  test("binary files are passed over; a file over 8 MiB is searched so far, and the answer says so", async () => {
    await using sandbox = await openSandbox();
    await sandbox.write("binary", Buffer.concat([Buffer.from("needle\0")]));
    await sandbox.write("latin.txt", Buffer.from([0xe9, 0x6e, 0x0a]));
    expect(await sandbox.output("Grep", { pattern: "n" })).toEqual({
      matches: [{ path: "latin.txt", line: 1, text: "\ufffdn" }],
      truncated: false,
    });
    const line = `${"z".repeat(99)}\n`;
    await sandbox.write("big.txt", `needle\n${line.repeat(MAX_FILE_BYTES / 100 + 1)}needle\n`);
    const found = await sandbox.output("Grep", { pattern: "needle" });
    expect(found).toEqual({ matches: [{ path: "big.txt", line: 1, text: "needle" }], truncated: true });
  });

  test("C40 a pattern that freezes other engines, and one that is too large", async () => {
    await using sandbox = await openSandbox({ "a.txt": `${"a".repeat(30_000)}!` });
    const before = performance.now();
    expect(await sandbox.output("Grep", { pattern: "^(a+)+$" })).toEqual({ matches: [], truncated: false });
    expect(performance.now() - before).toBeLessThan(2_000);
    for (const pattern of ["(", "(?=a)", "(a)\\1", "x".repeat(1_001), "(a{1000}|b{1000}|c{1000})", "a{2}".repeat(17)])
      expect(await sandbox.call("Grep", { pattern }), pattern).toMatchObject({ kind: "bad_arguments" });
  });

  test("this repository is searched in less than 0.3 s", async () => {
    await using sandbox = await openSandbox();
    const workspace = process.cwd();
    const grep = () => sandbox.call("Grep", { pattern: "workflow.*run", path: "src" }, { workspace });
    await grep();
    const before = performance.now();
    const outcome = await grep();
    // Ten times the time it takes alone: other tests run beside this one.
    expect(performance.now() - before).toBeLessThan(1_000);
    expect(outcome).toMatchObject({ type: "succeeded" });
  });
});

describe("searching lines", () => {
  test("edges are each line's, on every kind of line end", async () => {
    for (const text of ["ab\nb\n", "ab\r\nb\r\n", "ab\nb"]) {
      expect(await lines("^b$", text)).toEqual([{ line: 2, text: "b" }]);
      expect(await lines("\\Ab", text)).toEqual([{ line: 2, text: "b" }]);
      expect(await lines("b\\z", text)).toHaveLength(2);
      expect(await lines("(?-m:^b)", text)).toEqual([{ line: 2, text: "b" }]);
      expect(await lines("b$", text)).toHaveLength(2);
    }
    expect(await lines("^$", "a\n\nb\n")).toEqual([{ line: 2, text: "" }]);
    expect(await lines("", "a\nb\n")).toHaveLength(2);
    expect(await lines("a\\sb", "a\nb")).toEqual([]);
  });

  test("numbers are right over many pieces, and every line is found as by looking at each one", async () => {
    const text = Array.from({ length: 20_000 }, (_, i) => (i % 997 === 0 ? `needle ${i}` : "x".repeat(i % 90))).join(
      "\n",
    );
    const expected = text
      .split("\n")
      .flatMap((line, i) => (line.startsWith("needle") ? [{ line: i + 1, text: line }] : []));
    expect(await lines("^needle \\d+$", text)).toEqual(expected);
  });

  test("C23 of a long line the part around the match is shown, cut between characters", async () => {
    const emoji = "😀".repeat(3_000);
    const [match] = await lines("needle", `${emoji}needle${emoji}`);
    expect(match).toMatchObject({ line: 1, truncated: true });
    expect(match?.text).toContain("needle");
    expect(match?.text.isWellFormed()).toBe(true);
    expect(match?.text.length).toBeLessThanOrEqual(1_000);
    const [first] = await lines("^", `x${emoji}`);
    expect(first?.text.length).toBe(999);
  });

  test("a line is searched up to 65,536 characters, and the rest is said to be missing", async () => {
    const searcher = createSearcher("needle", false, async () => {});
    const into = (match: LineMatch) => expect(match.line).toBe(2);
    expect(await searcher.search(`${"x".repeat(70_000)}needle\nneedle\n`, 10, into)).toBe(true);
    expect(await searcher.search(`${"x".repeat(60_000)}\nneedle\n`, 10, into)).toBe(false);
  });
});
