import { describe, expect, test } from "vitest";
import { openSandbox } from "../fixture.ts";
import { locate, parsePath } from "./confine.ts";
import { compileGlob } from "./pattern.ts";
import { walk } from "./walk.ts";

const TREE = {
  "a.ts": "",
  "b.js": "",
  ".hidden/c.ts": "",
  "src/a.ts": "",
  "src/a/b.ts": "",
  "src/a/deep/c.ts": "",
  "src/z.test.ts": "",
  ".git/config": "",
  "node_modules/m/index.ts": "",
  "src/node_modules/n.ts": "",
};

describe("Glob", () => {
  test("finds files in the order of their paths, dots included, .git and node_modules left out", async () => {
    await using sandbox = await openSandbox(TREE);
    const files = [".hidden/c.ts", "a.ts", "src/a.ts", "src/a/b.ts", "src/a/deep/c.ts", "src/z.test.ts"];
    expect(files.toSorted()).toEqual(files);
    expect(await sandbox.output("Glob", { pattern: "**/*.ts" })).toEqual({ files, truncated: false });
  });

  const cases: readonly [string, string | undefined, readonly string[]][] = [
    ["*.ts", undefined, ["a.ts"]],
    ["*", undefined, ["a.ts", "b.js"]],
    ["src/*.ts", undefined, ["src/a.ts", "src/z.test.ts"]],
    ["*.ts", "src", ["src/a.ts", "src/z.test.ts"]],
    ["./src/**", undefined, ["src/a.ts", "src/a/b.ts", "src/a/deep/c.ts", "src/z.test.ts"]],
    ["src/**/c.ts", undefined, ["src/a/deep/c.ts"]],
    ["**/a/**", undefined, ["src/a/b.ts", "src/a/deep/c.ts"]],
    ["{a,b}.{ts,js}", undefined, ["a.ts", "b.js"]],
    ["src/{a,a/deep}/*.ts", undefined, ["src/a/b.ts", "src/a/deep/c.ts"]],
    ["?.[jt]s", undefined, ["a.ts", "b.js"]],
    ["[!a].*", undefined, ["b.js"]],
    ["src/a.ts", undefined, ["src/a.ts"]],
    ["nothing/here/*", undefined, []],
    ["a.ts/*", undefined, []],
    ["node_modules/**", undefined, ["node_modules/m/index.ts"]],
    ["**", "node_modules/m", ["node_modules/m/index.ts"]],
    [".git/*", undefined, [".git/config"]],
  ];
  test.each(cases)("%s in %s", async (pattern, path, files) => {
    await using sandbox = await openSandbox(TREE);
    expect(await sandbox.output("Glob", { pattern, ...(path === undefined ? {} : { path }) })).toEqual({
      files,
      truncated: false,
    });
  });

  test("R-32 limit keeps the first files and says that there are more", async () => {
    await using sandbox = await openSandbox(TREE);
    const glob = (limit: number) => sandbox.output("Glob", { pattern: "src/**", limit });
    expect(await glob(2)).toEqual({ files: ["src/a.ts", "src/a/b.ts"], truncated: true });
    expect(await glob(4)).toMatchObject({ truncated: false });
    expect(await sandbox.call("Glob", { pattern: "**", limit: 0 })).toMatchObject({ kind: "bad_arguments" });
  });

  test("what other globs know and this one does not is an error, never a silent miss", async () => {
    await using sandbox = await openSandbox(TREE);
    for (const pattern of ["!a", "/etc/*", "../*", "src/", "", "!(a).ts", "+(a)", "[a", "[]", "a".repeat(1_001)])
      expect(await sandbox.call("Glob", { pattern }), pattern).toMatchObject({ kind: "bad_arguments" });
    expect(await sandbox.call("Glob", { pattern: "*", path: "none" })).toMatchObject({ kind: "execution" });
    expect(await sandbox.call("Glob", { pattern: "*", path: "a.ts" })).toMatchObject({ kind: "execution" });
  });

  test("names with spaces, quotes, brackets and emoji are found as they are", async () => {
    const names = ["a b.txt", "it's.txt", "[x].txt", "(group).txt", "{y}.txt", "😀.txt", "$1.txt", "a\\b.txt"];
    await using sandbox = await openSandbox(Object.fromEntries(names.map((name) => [name, ""])));
    expect((await sandbox.output("Glob", { pattern: "*.txt" }))["files"]).toEqual(names.toSorted());
    for (const [pattern, name] of [
      ["\\[x\\].txt", "[x].txt"],
      ["(group).txt", "(group).txt"],
      ["{y}.txt", "{y}.txt"],
      ["?.txt", "😀.txt"],
      ["a\\\\b.txt", "a\\b.txt"],
    ] as const)
      expect(await sandbox.output("Glob", { pattern }), pattern).toMatchObject({ files: [name] });
  });

  test("a walk out of time says that it is incomplete", async () => {
    await using sandbox = await openSandbox(TREE);
    const start = await locate(sandbox.root, parsePath("."));
    let time = 0;
    const walking = walk({
      root: sandbox.root,
      start,
      signal: new AbortController().signal,
      now: () => (time += 10_000),
    });
    const files: string[] = [];
    for await (const file of walking.files()) files.push(file.path);
    expect(walking.incomplete).toBe(true);
    expect(files.length).toBeLessThan(6);
  });
});

describe("glob patterns", () => {
  test.each([
    ["a**b", "axxb", true],
    ["a**b", "ax/xb", false],
    ["**/x", "x", true],
    ["**/x", "a/b/x", true],
    ["a/**/x", "a/x", true],
    ["a/**", "a", false],
    ["[+-9]", "/", false],
    ["[+-9]", "5", true],
    ["[^a]b", "/b", false],
    ["[]a]", "]", true],
    ["[a-]", "-", true],
    ["{a,{b,c}}", "c", true],
    ["{a,{b}}", "{b}", true],
    ["{a{b,c}", "{ac", true],
    ["a.b", "axb", false],
    ["*.ts", "a.TS", false],
  ])("%s on %s: %s", (pattern, path, expected) => {
    const glob = compileGlob(pattern);
    const base = glob.base.length === 0 ? "" : `${glob.base.join("/")}/`;
    expect(path.startsWith(base) && glob.matches(path.slice(base.length))).toBe(expected);
  });

  test("C40 many stars take linear time", () => {
    const glob = compileGlob(`${"*a".repeat(100)}b`);
    const before = performance.now();
    expect(glob.matches("a".repeat(4_000))).toBe(false);
    expect(performance.now() - before).toBeLessThan(2_000);
  });
});
