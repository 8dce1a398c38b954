// The house rules that a machine can check (style §2, DESIGN §3). Each rule is first shown a fault that it must find.
import { describe, expect, test } from "vitest";
import { importProblem, roomOf } from "./tidy/import-rules.ts";
import { files, importsOf, isTest, read } from "./tidy/repository.ts";
import { commandsIn, impurity, longestAllowed, machineTrace, opensWithComment, unfinished } from "./tidy/text-rules.ts";

/** Files that are longer than `longestAllowed`, with the most they may have: a ratchet, to be lowered and never raised without a reason. */
const LONG_FILES: Readonly<Record<string, number>> = {};

const source = files("src").filter((file) => /\.tsx?$/.test(file));
const product = source.filter((file) => !isTest(file));
const everything = files().filter((file) => !/\.(?:png|ico|woff2|db|tgz)$/.test(file));
const manifest = JSON.parse(read("package.json")) as {
  scripts: Record<string, string>;
  dependencies: Record<string, string>;
  peerDependencies?: Record<string, string>;
};

/** One line for each file that has a problem. */
function problems(of: readonly string[], rule: (text: string, file: string) => string | undefined): string[] {
  return of.flatMap((file) => {
    const problem = rule(read(file), file);
    return problem === undefined ? [] : [`${file}: ${problem}`];
  });
}

describe("imports", () => {
  const problem = (file: string, specifier: string) =>
    importProblem(importsOf(file, `import type { X } from "${specifier}";`)[0] ?? { file, specifier });

  test.each([
    ["src/domain/run.ts", "../ports/index.ts", "imports go down only"],
    ["src/domain/run.ts", "node:fs", "domain is pure"],
    ["src/ports/clock.ts", "../engine/index.ts", "imports go down only"],
    ["src/engine/driver.ts", "../stores/sqlite/index.ts", "imports go down only"],
    ["src/tools/define.ts", "../catalog/index.ts", "do not know each other"],
    ["src/tools/define.ts", "../engine/writer.ts", "through its index.ts"],
    ["src/tools/define.ts", "../index.ts", "only the command line"],
    ["src/server/routes.ts", "../cli/index.ts", "do not know each other"],
    ["src/engine/driver.ts", "../testing/index.ts", "src/testing"],
    ["src/testing/world.ts", "../access/index.ts", "below access"],
    ["src/tools/define.ts", "../../test/tidy/repository.ts", "leaves src"],
    ["src/tools/define.ts", "./define.test.ts", "imports a test"],
    ["src/helpers/x.ts", "../domain/run.ts", "no room"],
  ])("%s does not import %s", (file, specifier, words) => expect(problem(file, specifier)).toContain(words));

  test.each([
    ["src/ports/clock.ts", "../domain/run.ts"],
    ["src/domain/json.ts", "node:crypto"],
    ["src/stores/sqlite/index.ts", "../../ports/index.ts"],
    ["src/cli/main.ts", "../index.ts"],
    ["src/cli/commands/run.ts", "../../config/index.ts"],
    ["src/engine/driver.test.ts", "../stores/sqlite/index.ts"],
  ])("%s may import %s", (file, specifier) => expect(problem(file, specifier)).toBeUndefined());

  test("go down only, between rooms through index.ts", () => {
    expect(
      source.flatMap((file) =>
        importsOf(file, read(file)).flatMap((found) => {
          const fault = importProblem(found);
          return fault === undefined ? [] : [`${file} imports ${found.specifier}: ${fault}`];
        }),
      ),
    ).toEqual([]);
  });

  test("of packages are those that package.json brings along", () => {
    const known = new Set([...Object.keys(manifest.dependencies), ...Object.keys(manifest.peerDependencies ?? {})]);
    const packages = product.flatMap((file) => importsOf(file, read(file)));
    const missing = packages.filter(({ specifier }) => isPackage(specifier) && !known.has(packageOf(specifier)));
    expect(missing.map(({ file, specifier }) => `${file}: ${specifier}`)).toEqual([]);
  });

  test("use every package that users are made to install", () => {
    // Also those that createRequire brings in, so the text counts and not only import statements.
    const text = product.map(read).join("\n");
    expect(Object.keys(manifest.dependencies).filter((name) => !new RegExp(`"${name}["/]`).test(text))).toEqual([]);
  });
});

describe("files", () => {
  test("of src open with a comment that says what they own", () => {
    expect(opensWithComment("import x from 'y';\n// later")).toBe(false);
    expect(opensWithComment("// eslint one two three\n")).toBe(false);
    expect(opensWithComment("#!/usr/bin/env node\n// Owns one thing.\n")).toBe(true);
    expect(problems(product, (text) => (opensWithComment(text) ? undefined : "no opening comment"))).toEqual([]);
  });

  test("have names of what they own, in kebab-case", () => {
    const bad = /(?:^|\/)(?:utils?|helpers?|common|misc|shared)(?:\.[a-z.]+)?(?:\/|$)|[A-Z_]|\s/;
    expect(bad.test("src/tools/utils.ts") && bad.test("src/utils/x.ts") && bad.test("src/a/fooBar.ts")).toBe(true);
    expect(source.filter((file) => bad.test(file))).toEqual([]);
  });

  test("have at most 500 lines (tests 800), or stand in the list of long ones", () => {
    const lines = (file: string) => read(file).split("\n").length - 1;
    const code = [...source, ...files("test"), ...files("dev")].filter((file) => /\.(?:tsx?|[cm]js)$/.test(file));
    expect(
      code.flatMap((file) => {
        const most = LONG_FILES[file] ?? longestAllowed(file);
        return lines(file) > most ? [`${file}: ${lines(file)} lines, at most ${most}`] : [];
      }),
    ).toEqual([]);
    const short = Object.keys(LONG_FILES).filter((file) => !code.includes(file) || lines(file) <= longestAllowed(file));
    expect(short, "no longer long: take them off the list").toEqual([]);
  });

  test("hold nothing put off or switched off", () => {
    expect(unfinished(["//", "TODO: later"].join(" "))).toBeDefined();
    expect(unfinished("pattern: 'TODO|FIXME'")).toBeUndefined();
    expect(problems(product, unfinished)).toEqual([]);
  });

  test("of domain know no clock, no chance, no process", () => {
    expect(impurity("const at = Date.now();")).toBe("Date.now");
    expect(impurity('import { createHash, randomBytes } from "node:crypto";')).toBeDefined();
    expect(impurity("/** Date.now is the shell's. */ const at = new Date(at_ms);")).toBeUndefined();
    expect(
      problems(
        product.filter((file) => roomOf(file) === "domain"),
        impurity,
      ),
    ).toEqual([]);
  });

  test("name no path or download host of the machine they were written on", () => {
    expect(machineTrace(["", "root", ".npmrc"].join("/"))).toBeDefined();
    expect(machineTrace(["https:/", "registry.example.org", "x"].join("/"))).toBeDefined();
    expect(machineTrace("inspect@root/x and src/root/x")).toBeUndefined();
    expect(problems(everything, machineTrace)).toEqual([]);
  });
});

describe("documents", () => {
  const documents = everything.filter((file) => file.endsWith(".md"));

  test("tell only commands that exist", () => {
    expect(commandsIn("Try `holdfast fly` or\n```sh\nnpm run nothing\nbin/holdfast run x\n```")).toEqual({
      holdfast: ["fly", "run"],
      npm: ["nothing"],
    });
    const commands = new Set(commandNames(read("src/cli/commands/index.ts")));
    expect(commands.size).toBeGreaterThan(0);
    expect(
      documents.flatMap((file) => {
        const told = commandsIn(read(file));
        const unknown = told.holdfast.filter((name) => !commands.has(name)).map((name) => `holdfast ${name}`);
        const noScript = told.npm.filter((name) => !(name in manifest.scripts)).map((name) => `npm run ${name}`);
        return [...unknown, ...noScript].map((command) => `${file}: ${command}`);
      }),
    ).toEqual([]);
  });

  test("of decisions are numbered once and have at most 40 lines", () => {
    const decisions = files("docs/decisions").filter((file) => !/(?:README|template)\.md$/.test(file));
    const numbers = decisions.map((file) => /\/(\d{4})-[a-z0-9-]+\.md$/.exec(file)?.[1]);
    expect(numbers).not.toContain(undefined);
    expect(new Set(numbers).size).toBe(numbers.length);
    expect(problems(decisions, (text) => (text.split("\n").length > 41 ? "over 40 lines" : undefined))).toEqual([]);
  });
});

function isPackage(specifier: string): boolean {
  return !specifier.startsWith(".") && !specifier.startsWith("node:");
}

function packageOf(specifier: string): string {
  const parts = specifier.split("/");
  return parts.slice(0, specifier.startsWith("@") ? 2 : 1).join("/");
}

/** Names and aliases in the command line's one table. */
function commandNames(table: string): string[] {
  const names = [...table.matchAll(/\b(?:name|alias): "([a-z-]+)"/g)].map((found) => found[1] ?? "");
  const lists = [...table.matchAll(/\baliases: \[([^\]]*)\]/g)].flatMap((found) => (found[1] ?? "").split(","));
  return [...names, ...lists.map((name) => name.trim().replaceAll('"', "")).filter((name) => name !== "")];
}
