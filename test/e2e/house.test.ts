// What happens before any of the product's own code runs: installing, building in a checkout, starting from anywhere.
import { spawn } from "node:child_process";
import {
  chmodSync,
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
import { afterEach, describe, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A checkout with the house's files and nothing else, in a folder whose name has spaces. */
function checkout(): string {
  const parent = mkdtempSync(path.join(os.tmpdir(), "house-"));
  folders.push(parent);
  chmodSync(parent, 0o755);
  const folder = path.join(parent, "my check out");
  mkdirSync(folder);
  for (const name of ["bin", "dev", "package.json"])
    cpSync(path.join(ROOT, name), path.join(folder, name), { recursive: true });
  return folder;
}

function write(folder: string, file: string, text: string): string {
  const at = path.join(folder, file);
  mkdirSync(path.dirname(at), { recursive: true });
  writeFileSync(at, text);
  return at;
}

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(args: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv; uid?: number } = {}): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ...options.env };
    for (const [key, value] of Object.entries(env)) if (value === "") delete env[key];
    const child = spawn(process.execPath, args, { ...options, env, stdio: ["ignore", "pipe", "pipe"] });
    let [stdout, stderr] = ["", ""];
    child.stdout.on("data", (text: Buffer) => (stdout += text.toString()));
    child.stderr.on("data", (text: Buffer) => (stderr += text.toString()));
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, stdout, stderr }));
  });
}

describe("R-43 dev/ensure.mjs", () => {
  const LOCK = {
    "": { name: "holdfast" },
    "node_modules/one": { version: "1.0.0" },
    "node_modules/vitest": { version: "4.0.0", dev: true },
    "node_modules/other-platform": { version: "1.0.0", optional: true },
  };

  /** A checkout and, in place of npm, a program that notes its arguments and installs what the lock names. */
  function bare(lock: object = LOCK): { folder: string; env: NodeJS.ProcessEnv; calls: () => string[] } {
    const folder = checkout();
    write(folder, "package-lock.json", JSON.stringify({ packages: lock }));
    const calls = path.join(folder, "calls.txt");
    const npm = write(
      folder,
      "fake/npm-cli.cjs",
      `const fs = require("fs");
       fs.appendFileSync(${JSON.stringify(calls)}, process.argv.slice(2).join(" ") + "\\n");
       const { packages } = JSON.parse(fs.readFileSync("package-lock.json", "utf8"));
       const there = Object.entries(packages).filter(([name, p]) => name && !p.optional && (!p.dev || process.argv.includes("--include=dev")));
       for (const [name] of there) { fs.mkdirSync(name, { recursive: true }); fs.writeFileSync(name + "/package.json", "{}"); }
       fs.writeFileSync("node_modules/.package-lock.json", JSON.stringify({ packages: Object.fromEntries(there) }));
       process.exit(Number(process.env.FAKE_STATUS || 0));`,
    );
    return {
      folder,
      env: { npm_execpath: npm },
      calls: () => (existsSync(calls) ? readFileSync(calls, "utf8").trim().split("\n") : []),
    };
  }

  test("installs run-time packages only, and then nothing more", async () => {
    const { folder, env, calls } = bare();
    const first = await run([path.join(folder, "dev/ensure.mjs")], { env, cwd: os.tmpdir() });
    expect(first).toMatchObject({ status: 0, stderr: "" });
    expect(first.stdout).toContain(
      "Holdfast installs its run-time packages first: there is no node_modules folder yet.",
    );
    expect(calls()).toEqual(["ci --omit=dev --no-audit --no-fund --prefer-offline"]);
    const second = await run([path.join(folder, "dev/ensure.mjs")], { env });
    expect(second.stdout).toContain("is ready");
    expect(calls()).toHaveLength(1);
    expect(existsSync(path.join(folder, ".cache/ensure.lock"))).toBe(false);
  });

  test("for tests adds the development tools, and never takes them away again", async () => {
    const { folder, env, calls } = bare();
    await run([path.join(folder, "dev/ensure.mjs")], { env });
    const tools = await run([path.join(folder, "dev/ensure.mjs"), "--dev"], { env });
    expect(tools.stdout).toContain("the development tools are not there yet");
    write(
      folder,
      "package-lock.json",
      JSON.stringify({ packages: { ...LOCK, "node_modules/one": { version: "2.0.0" } } }),
    );
    const changed = await run([path.join(folder, "dev/ensure.mjs")], { env });
    expect(changed.stdout).toContain("one is not at version 2.0.0");
    expect(calls().map((call) => call.split(" ")[1])).toEqual(["--omit=dev", "--include=dev", "--include=dev"]);
  });

  test("two at once install once", async () => {
    const { folder, env, calls } = bare();
    const both = await Promise.all([1, 2].map(() => run([path.join(folder, "dev/ensure.mjs")], { env })));
    expect(both.map(({ status }) => status)).toEqual([0, 0]);
    expect(calls()).toHaveLength(1);
  });

  test("a lock left by a process that died holds up nobody", async () => {
    const { folder, env } = bare();
    const gone = await run(["-p", "process.pid"]);
    write(folder, ".cache/ensure.lock", gone.stdout.trim());
    expect(await run([path.join(folder, "dev/ensure.mjs")], { env })).toMatchObject({ status: 0 });
  });

  test("passes on npm's status, frees its turn, and says where npm's words are", async () => {
    const { folder, env } = bare();
    const ended = await run([path.join(folder, "dev/ensure.mjs")], { env: { ...env, FAKE_STATUS: "7" } });
    expect(ended).toMatchObject({ status: 7 });
    expect(ended.stderr).toContain("`npm ci` ended with status 7");
    expect(existsSync(path.join(folder, ".cache/ensure.lock"))).toBe(false);
  });

  test("takes npm from the path where npm_execpath is missing or another package manager's", async () => {
    const { folder, env, calls } = bare();
    const bin = path.join(folder, "fake/bin");
    mkdirSync(bin);
    symlinkSync(env.npm_execpath ?? "", path.join(bin, "npm.cjs"));
    write(bin, "npm", `#!/bin/sh\nexec "${process.execPath}" "${path.join(bin, "npm.cjs")}" "$@"\n`);
    chmodSync(path.join(bin, "npm"), 0o755);
    const PATH = `${bin}${path.delimiter}${process.env.PATH ?? ""}`;
    for (const npm_execpath of ["", "/opt/pnpm/bin/pnpm.cjs"]) {
      rmSync(path.join(folder, "node_modules"), { recursive: true, force: true });
      expect(await run([path.join(folder, "dev/ensure.mjs")], { env: { PATH, npm_execpath } })).toMatchObject({
        status: 0,
      });
    }
    expect(calls()).toHaveLength(2);
  });

  test("refuses an old Node before anything else", async () => {
    const { folder, env, calls } = bare();
    const old = write(folder, "old.cjs", `Object.defineProperty(process, "versions", { value: { node: "20.18.3" } });`);
    for (const program of ["dev/ensure.mjs", "bin/holdfast"]) {
      const ended = await run(["--require", old, path.join(folder, program)], { env });
      expect(ended).toEqual({
        status: 2,
        stdout: "",
        stderr: "Holdfast needs Node 20.19 or newer; this is 20.18.3.\n",
      });
    }
    expect(calls()).toEqual([]);
  });

  test.skipIf(process.platform === "win32")(
    "in a checkout that cannot be written: status 5 and what to do",
    async () => {
      const { folder, env, calls } = bare();
      chmodSync(folder, 0o555);
      // Root may write everywhere, so it becomes nobody for this.
      const uid = process.getuid?.() === 0 ? { uid: 65_534 } : {};
      const ended = await run([path.join(folder, "dev/ensure.mjs")], { env, ...uid });
      chmodSync(folder, 0o755);
      expect(ended.status).toBe(5);
      expect(ended.stderr).toMatch(
        /^Cannot install: there is no node_modules folder yet, .*copy it to a folder that can be/,
      );
      expect(calls()).toEqual([]);
    },
  );
});

describe("bin/holdfast in a checkout", () => {
  function withCommand(): string {
    const folder = checkout();
    symlinkSync(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
    write(folder, "src/words.ts", `export const word: string = "one";\n`);
    write(
      folder,
      "src/cli/main.ts",
      `import { readdirSync } from "node:fs";
       const { word } = await import("../words.ts");
       const builtin = readdirSync(new URL("./builtin/", import.meta.url));
       console.log(JSON.stringify({ word, args: process.argv.slice(2), builtin }));`,
    );
    write(folder, "src/catalog/builtin/a.yaml", "a: 1\n");
    return folder;
  }
  const bundles = (folder: string) =>
    readdirSync(path.join(folder, ".cache")).filter((name) => /^holdfast-/.test(name));

  test("builds itself, then again only when a file it was made from changed", async () => {
    const folder = withCommand();
    const start = async (...args: string[]) => {
      const ended = await run([path.join(folder, "bin/holdfast"), ...args], { cwd: os.tmpdir() });
      expect(ended.stderr).toBe("");
      return JSON.parse(ended.stdout) as unknown;
    };
    expect(await start("a b", "--x")).toEqual({ word: "one", args: ["a b", "--x"], builtin: ["a.yaml"] });
    expect(await start()).toMatchObject({ word: "one" });
    expect(bundles(folder)).toHaveLength(1);
    write(folder, "src/words.ts", `export const word: string = "two";\n`);
    expect(await start()).toMatchObject({ word: "two" });
    write(folder, "src/catalog/builtin/b.yaml", "b: 1\n");
    expect(await start()).toMatchObject({ builtin: ["a.yaml", "b.yaml"] });
    // The older ones stay: a process that runs may still load parts of them.
    expect(bundles(folder).length).toBeGreaterThan(1);
  });

  test("four processes may start it at once before it is built", async () => {
    const folder = withCommand();
    const all = await Promise.all([1, 2, 3, 4].map(() => run([path.join(folder, "bin/holdfast")])));
    expect(all.map(({ status, stderr }) => ({ status, stderr }))).toEqual(all.map(() => ({ status: 0, stderr: "" })));
    expect(readdirSync(path.join(folder, ".cache")).filter((name) => /^build-|\.\d+\.json$/.test(name))).toEqual([]);
  });

  test("starts through a link, and from a checkout that cannot be written", async () => {
    const folder = withCommand();
    const link = path.join(path.dirname(folder), "hf");
    symlinkSync(path.join(folder, "bin/holdfast"), link);
    expect(await run([link])).toMatchObject({ status: 0 });
    rmSync(path.join(folder, ".cache"), { recursive: true });
    write(folder, ".cache", "a file where the folder should be, so that it cannot be made");
    const ended = await run([link]);
    expect(ended).toMatchObject({ status: 0, stderr: "" });
    expect(JSON.parse(ended.stdout)).toMatchObject({ word: "one", builtin: ["a.yaml"] });
  });

  test("names the file and line that cannot be built, and the missing packages", async () => {
    const folder = withCommand();
    write(folder, "src/words.ts", "export const word = ;\n");
    const broken = await run([path.join(folder, "bin/holdfast")]);
    expect(broken).toMatchObject({ status: 70, stdout: "" });
    expect(broken.stderr).toMatch(/^src\/words\.ts:1:21: /);
    rmSync(path.join(folder, "node_modules"));
    const missing = await run([path.join(folder, "bin/holdfast")]);
    expect(missing).toMatchObject({ status: 5, stderr: expect.stringContaining("run `npm start`") as string });
  });
});

describe("dev/test.mjs", () => {
  const LINES = `import { test } from "vitest";
    test("passes", () => {});
    test("fails", () => { throw new Error("as it should"); });
    test.skip("is skipped", () => {});`;

  async function lastLine(files: Record<string, string>): Promise<{ status: number | null; line: string | undefined }> {
    const folder = checkout();
    symlinkSync(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
    cpSync(path.join(ROOT, "vitest.config.ts"), path.join(folder, "vitest.config.ts"));
    for (const [file, text] of Object.entries(files)) write(folder, file, text);
    const ended = await run([path.join(folder, "dev/test.mjs"), "src"], { env: { VITEST: "", NODE_ENV: "" } });
    return { status: ended.status, line: ended.stdout.trimEnd().split("\n").at(-1) };
  }

  test("ends with one plain line, in which a file that cannot be loaded counts as failed", async () => {
    const files = { "src/a.test.ts": LINES, "src/b.test.ts": `import "./nowhere.ts";` };
    expect(await lastLine(files)).toEqual({ status: 1, line: "1 passed, 2 failed, 1 skipped" });
  });

  test("passes when all pass; never when nothing ran, nor with an error outside of tests", async () => {
    const good = `import { test } from "vitest"; test("passes", () => {});`;
    expect(await lastLine({ "src/a.test.ts": good })).toEqual({ status: 0, line: "1 passed, 0 failed" });
    expect(await lastLine({})).toEqual({ status: 1, line: "0 passed, 0 failed" });
    const loose = `${good} Promise.reject(new Error("nobody waits for this"));`;
    expect(await lastLine({ "src/a.test.ts": loose })).toEqual({ status: 1, line: "1 passed, 1 failed" });
  });
});
