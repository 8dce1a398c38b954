// The package as a stranger gets it: packed, installed in another folder, type-checked and run with README's own examples.
import { execFile } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const SOURCES = [
  "src",
  "dev",
  "examples",
  "docs",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "tsconfig.build.json",
];
const ALONE = ["tsdown.config.ts", "README.md", "LICENSE"];
const parent = mkdtempSync(path.join(os.tmpdir(), "package-"));
const project = path.join(parent, "their project");

/** npm as it was called, else the one on the path. */
const viaNode = /npm-cli\.c?js$/.test(process.env.npm_execpath ?? "");
const [NPM, NPM_ARGS] = viaNode ? [process.execPath, [process.env.npm_execpath ?? ""]] : ["npm", []];

function run(file: string, args: readonly string[], cwd: string): Promise<{ stdout: string; stderr: string }> {
  // What the npm that runs these tests was told must not reach the npm of another project.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(
      ([key]) => !/^npm_(?!config_(?:registry|cache|cafile|userconfig|globalconfig))/.test(key),
    ),
  );
  return promisify(execFile)(file, [...args], { cwd, env: { ...env, NO_COLOR: "1" }, maxBuffer: 16 * 1024 * 1024 });
}

/** README's code blocks of one language, in order. */
function examples(language: string): string[] {
  const readme = readFileSync(path.join(ROOT, "README.md"), "utf8");
  return [...readme.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, "g"))].map((found) => found[1] ?? "");
}

function write(file: string, text: string): void {
  const at = path.join(project, file);
  mkdirSync(path.dirname(at), { recursive: true });
  writeFileSync(at, text);
}

describe.runIf(existsSync(path.join(ROOT, "src/index.ts")))("the published package", () => {
  beforeAll(async () => {
    const copy = path.join(parent, "packed");
    mkdirSync(copy);
    for (const name of [...SOURCES, ...ALONE].filter((file) => existsSync(path.join(ROOT, file)))) {
      cpSync(path.join(ROOT, name), path.join(copy, name), { recursive: true });
    }
    symlinkSync(path.join(ROOT, "node_modules"), path.join(copy, "node_modules"));
    await run(NPM, [...NPM_ARGS, "pack", "--pack-destination", parent], copy);
    const archive = readdirSync(parent).find((name) => /^holdfast-.*\.tgz$/.test(name)) ?? "";
    write("package.json", JSON.stringify({ name: "theirs", private: true, type: "module" }));
    await run(
      NPM,
      [...NPM_ARGS, "install", "--prefer-offline", "--no-audit", "--no-fund", path.join(parent, archive)],
      project,
    );
    for (const [index, name] of ["headings", "checkout"].entries()) {
      write(`.holdfast/workflows/${name}.yaml`, examples("yaml")[index] ?? "");
    }
    write("docs/a.md", "# One\n\ntext\n\n## Two\n");
  }, 180_000);

  afterAll(() => rmSync(parent, { recursive: true, force: true }));

  test("holds what it needs and nothing of the tests", () => {
    const inside = readdirSync(path.join(project, "node_modules/holdfast"));
    expect(inside).toEqual(expect.arrayContaining(["dist", "LICENSE", "README.md", "package.json"]));
    expect(inside).not.toEqual(expect.arrayContaining(["src"]));
    const built = readdirSync(path.join(project, "node_modules/holdfast/dist"));
    expect(built).toEqual(
      expect.arrayContaining(["index.mjs", "index.d.mts", "testing.mjs", "testing.d.mts", "cli.mjs"]),
    );
    const builtin = path.join(ROOT, "src/catalog/builtin");
    const yaml = existsSync(builtin) ? readdirSync(builtin).filter((name) => name.endsWith(".yaml")) : [];
    if (yaml.length > 0) {
      expect(readdirSync(path.join(project, "node_modules/holdfast/dist/builtin"))).toEqual(
        expect.arrayContaining(yaml),
      );
    }
  });

  test("has types that a strict project accepts, for README's own program", async () => {
    write("app.ts", examples("ts")[0] ?? "");
    write(
      "use.ts",
      `import { HoldfastError } from "holdfast";\nimport * as testing from "holdfast/testing";\nexport const both = [HoldfastError, testing];\n`,
    );
    const options = { strict: true, noEmit: true, module: "NodeNext", target: "ES2023", skipLibCheck: false };
    write("tsconfig.json", JSON.stringify({ compilerOptions: { ...options, types: [] }, files: ["app.ts", "use.ts"] }));
    symlinkSync(path.join(ROOT, "node_modules/@types"), path.join(project, "node_modules/@types"));
    const tsc = path.join(ROOT, "node_modules/typescript/bin/tsc");
    const problems = await run(process.execPath, [tsc, "-p", "."], project).then(
      () => "",
      (error: { stdout: string }) => error.stdout,
    );
    expect(problems).toBe("");
  });

  test("runs README's program", async () => {
    write("app.mjs", examples("ts")[0] ?? "");
    const { stdout } = await run(process.execPath, ["app.mjs"], project);
    expect(stdout).toMatch(/^succeeded \{ receipt: 'A-1-[0-9a-f]{8}' \}/);
  });

  test("brings the command, which runs README's workflow without trust", async () => {
    const bin = path.join(project, "node_modules/.bin/holdfast");
    expect((await run(bin, ["--help"], project)).stdout).toContain("preview");
    const { stdout } = await run(bin, ["run", "headings", "--input", "dir=docs", "--json"], project);
    const { status, output } = JSON.parse(stdout) as { status: string; output: { matches: { text: string }[] }[] };
    expect(status).toBe("succeeded");
    expect(output.flatMap(({ matches }) => matches.map(({ text }) => text))).toEqual(["# One", "## Two"]);
  });
});
