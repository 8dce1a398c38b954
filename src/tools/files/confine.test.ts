import { execFileSync } from "node:child_process";
import { link, mkdir, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { openSandbox, type Sandbox } from "../fixture.ts";
import { openInside, parsePath } from "./confine.ts";

const SECRET = "only outside";

/** A workspace `ws`, and beside it `outside/` and the sibling `ws-evil/`, each with a secret. */
async function prepare(): Promise<Sandbox> {
  const sandbox = await openSandbox({
    "in.txt": "inside",
    "dir/a.txt": "a",
    ".holdfast/state/server.json": SECRET,
    ".Holdfast/STATE/server.json": SECRET,
  });
  for (const folder of ["../outside", "../ws-evil"]) await sandbox.write(join(folder, "secret.txt"), SECRET);
  const links: readonly [string, string][] = [
    ["../outside/secret.txt", "file-link"],
    ["../outside/missing.txt", "missing-link"],
    ["../outside", "dir-link"],
    ["../missing", "missing-dir-link"],
    ["chain-2", "chain-1"],
    ["chain-3", "chain-2"],
    ["../outside/secret.txt", "chain-3"],
    [join(dirname(sandbox.root), "outside/secret.txt"), "absolute-link"],
    ["/etc/passwd", "passwd-link"],
    ["../ws-evil", "evil-link"],
    ["..", "parent-link"],
    ["/", "root-link"],
    ["dir/../../outside/secret.txt", "dotted-link"],
    ["dir-link/secret.txt", "through-link"],
    ["loop-b", "loop-a"],
    ["loop-a", "loop-b"],
    ["dir/a.txt", "good-link"],
    ["dir", "good-dir"],
    ["../ws/in.txt", "back-link"],
    [join(sandbox.root, "in.txt"), "absolute-good"],
    [".holdfast/state", "state-link"],
  ];
  for (const [target, name] of links) await symlink(target, join(sandbox.root, name));
  return sandbox;
}

const ESCAPES = [
  "../outside/secret.txt",
  "../ws-evil/secret.txt",
  "dir/../../outside/secret.txt",
  "..",
  "../",
  "./..",
  "dir//../..//outside",
  "/etc/passwd",
  "//etc/passwd",
  "file-link",
  "file-link/",
  "dir-link",
  "dir-link/",
  "dir-link/secret.txt",
  "dir-link//secret.txt",
  "dir-link/missing.txt",
  "missing-link",
  "missing-dir-link/x",
  "chain-1",
  "absolute-link",
  "passwd-link",
  "evil-link/secret.txt",
  "parent-link/outside/secret.txt",
  "root-link/etc/passwd",
  "dotted-link",
  "through-link",
  ".holdfast/state/server.json",
  ".holdfast/state",
  ".Holdfast/STATE/server.json",
  "state-link/server.json",
  "dir/../.holdfast/./state/server.json",
  "in.txt\0.png",
  "",
  `${"a/".repeat(3_000)}x`,
];

describe("C39 nothing outside is reached", () => {
  test("C39 every way out is refused by every tool, with nothing of the outside in the answer", async () => {
    await using sandbox = await prepare();
    for (const path of ESCAPES)
      for (const [tool, input] of [
        ["Read", { path }],
        ["read_file", { path }],
        ["GetFileInfo", { path }],
        ["list_directory", { path }],
        ["Grep", { path, pattern: "." }],
        ["Glob", { path, pattern: "**" }],
      ] as const) {
        const outcome = await sandbox.call(tool, input);
        expect(outcome, `${tool} ${path}`).toMatchObject({ type: "failed", kind: "bad_arguments", retryable: false });
        expect(JSON.stringify(outcome)).not.toMatch(/only outside|root:/);
      }
  });

  test("C39 the answer does not tell whether something is there", async () => {
    await using sandbox = await prepare();
    const message = async (path: string) => {
      const outcome = await sandbox.call("Read", { path });
      return outcome.type === "failed" ? outcome.message.replace(path, "PATH") : outcome.type;
    };
    expect(await message("file-link")).toBe(await message("missing-link"));
    expect(await message("dir-link/secret.txt")).toBe(await message("dir-link/missing.txt"));
    expect(await message("missing-dir-link/x.txt")).toBe(await message("dir-link/secret.txt"));
    expect(await message("../outside/secret.txt")).toBe(await message("../outside/missing.txt"));
    expect(await message("root-link/etc/passwd")).toBe(await message("root-link/etc/nothing-here"));
  });

  test("C39 %2e is no dot, and a name that begins with two dots is a name", async () => {
    await using sandbox = await prepare();
    expect(await sandbox.call("Read", { path: "%2e%2e/outside/secret.txt" })).toMatchObject({ kind: "execution" });
    await sandbox.write("%2e%2e/x.txt", "named so");
    await sandbox.write("..x/y.txt", "dots");
    expect(await sandbox.output("Read", { path: "%2e%2e/x.txt" })).toMatchObject({ content: "named so" });
    expect(await sandbox.output("Read", { path: "..x/y.txt" })).toMatchObject({ content: "dots" });
  });

  test("C39 a walk lists no link and follows none", async () => {
    await using sandbox = await prepare();
    expect(await sandbox.output("Glob", { pattern: "**" })).toEqual({
      files: ["dir/a.txt", "in.txt"],
      truncated: false,
    });
    const found = await sandbox.output("Grep", { pattern: "." });
    expect(found).toEqual({
      matches: [
        { path: "dir/a.txt", line: 1, text: "a" },
        { path: "in.txt", line: 1, text: "inside" },
      ],
      truncated: false,
    });
    expect(await sandbox.call("Glob", { pattern: "dir-link/**" })).toMatchObject({ kind: "bad_arguments" });
    expect(await sandbox.call("Glob", { pattern: ".holdfast/state/*" })).toMatchObject({ kind: "bad_arguments" });
    expect(await sandbox.output("list_directory", { path: ".holdfast" })).toEqual({ entries: [], truncated: false });
  });

  test("C39 links that stay inside are followed, also by way of the outside's own names", async () => {
    await using sandbox = await prepare();
    expect(await sandbox.output("Read", { path: "good-link" })).toMatchObject({ path: "good-link", content: "a" });
    expect(await sandbox.output("Read", { path: "good-dir/a.txt" })).toMatchObject({ content: "a" });
    expect(await sandbox.output("Read", { path: "back-link" })).toMatchObject({ content: "inside" });
    expect(await sandbox.output("Read", { path: "absolute-good" })).toMatchObject({ content: "inside" });
    expect(await sandbox.output("Read", { path: "./dir/..//in.txt" })).toMatchObject({ path: "in.txt" });
    expect(await sandbox.output("Glob", { path: "good-dir", pattern: "*" })).toMatchObject({
      files: ["good-dir/a.txt"],
    });
    // `..` takes back the name before it, whatever that name is: what is left is all that is looked at.
    expect(await sandbox.output("Read", { path: "dir-link/../in.txt" })).toMatchObject({ path: "in.txt" });
    expect(await sandbox.call("Read", { path: "in.txt/" })).toMatchObject({ kind: "execution" });
    expect(await sandbox.call("Read", { path: "in.txt/x" })).toMatchObject({ kind: "execution" });
    expect(await sandbox.call("Read", { path: "loop-a" })).toMatchObject({ message: expect.stringContaining("links") });
  });

  test("C39 a workspace that is itself reached by a link is its real folder", async () => {
    await using sandbox = await prepare();
    const alias = join(dirname(sandbox.root), "alias");
    await symlink(sandbox.root, alias);
    expect(await sandbox.call("Read", { path: "in.txt" }, { workspace: alias })).toMatchObject({ type: "succeeded" });
    expect(await sandbox.call("Read", { path: "file-link" }, { workspace: alias })).toMatchObject({
      kind: "bad_arguments",
    });
  });

  test("C39 devices and pipes are not opened", async () => {
    await using sandbox = await prepare();
    execFileSync("mkfifo", [join(sandbox.root, "pipe")]);
    expect(await sandbox.call("Read", { path: "pipe" })).toMatchObject({ message: expect.stringContaining("regular") });
    expect(await sandbox.output("GetFileInfo", { path: "pipe" })).toMatchObject({ type: "other", size_bytes: 0 });
    expect(await sandbox.output("Grep", { pattern: "x" })).toMatchObject({ truncated: false });
  });
});

describe.each([true, false])("C39 swapped between check and use (handle names: %s)", (handleNames) => {
  const swaps: readonly [string, string, (root: string) => Promise<void>][] = [
    [
      "the file by a link to the outside",
      "in.txt",
      async (root) => {
        await unlink(join(root, "in.txt"));
        await symlink("../outside/secret.txt", join(root, "in.txt"));
      },
    ],
    [
      "its folder by a link to the outside",
      "dir/secret.txt",
      async (root) => {
        await rename(join(root, "dir"), join(root, "dir-was"));
        await symlink("../outside", join(root, "dir"));
      },
    ],
    [
      "its folder by a link to nothing outside",
      "dir/secret.txt",
      async (root) => {
        await rename(join(root, "dir"), join(root, "dir-was"));
        await symlink("../nothing", join(root, "dir"));
      },
    ],
  ];
  test.each(swaps)("C39 %s", async (_, path, swap) => {
    await using sandbox = await prepare();
    await sandbox.write("dir/secret.txt", "inside");
    let swapped = false;
    const opening = openInside(sandbox.root, parsePath(path), "file", {
      handleNames,
      beforeOpen: async () => {
        if (!swapped) await swap(sandbox.root);
        swapped = true;
      },
    });
    await expect(opening).rejects.toMatchObject({
      kind: "bad_arguments",
      message: expect.stringContaining("leads out"),
    });
  });

  test("C39 back and forth all the time: never the outside, in the end an error", async () => {
    await using sandbox = await prepare();
    await mkdir(join(sandbox.root, "flip"));
    await writeFile(join(sandbox.root, "flip/secret.txt"), "inside");
    const path = join(sandbox.root, "flip");
    const opening = openInside(sandbox.root, parsePath("flip/secret.txt"), "file", {
      handleNames,
      beforeOpen: async () => {
        // Put back by the next look, as a very quick opponent would.
        await rename(path, `${path}-was`);
        await symlink("../outside", path);
        setImmediate(() => {
          void rm(path).then(() => rename(`${path}-was`, path));
        });
      },
    });
    const result = await opening.then(
      async ({ handle }) => {
        const text = await handle.readFile("utf8");
        await handle.close();
        return text;
      },
      () => "refused",
    );
    expect(["inside", "refused"]).toContain(result);
  });

  test("a file replaced by another file is read as the new one", async () => {
    await using sandbox = await prepare();
    let swaps = 0;
    const { handle } = await openInside(sandbox.root, parsePath("in.txt"), "file", {
      handleNames,
      beforeOpen: async () => {
        if (swaps++ > 0) return;
        await writeFile(join(sandbox.root, "new"), "new");
        await rename(join(sandbox.root, "new"), join(sandbox.root, "in.txt"));
      },
    });
    expect(await handle.readFile("utf8")).toBe("new");
    await handle.close();
  });
});

test("a hard link is a file of the workspace like any other (no link can be told from it)", async () => {
  await using sandbox = await prepare();
  await link(join(sandbox.root, "in.txt"), join(sandbox.root, "hard"));
  expect(await sandbox.output("Read", { path: "hard" })).toMatchObject({ content: "inside" });
});
