/** RP-9 when the disk fails, or tells times coarsely: shown by a file system that does, since root could read any folder. */

import type * as Fs from "node:fs";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openCatalog } from "./catalog.ts";

const failing = new Set<string>();
/** When set, every file was changed last at this time: a file system with coarse time stamps. */
let frozenMs: number | undefined;

vi.mock("node:fs", async (original) => {
  const fs = await original<typeof Fs>();
  const refuse = (path: unknown): void => {
    if (failing.has(String(path))) throw Object.assign(new Error("EIO"), { code: "EIO" });
  };
  const freeze = (stat: object): object => {
    const ns = frozenMs === undefined ? undefined : BigInt(frozenMs) * 1_000_000n;
    return ns === undefined ? stat : Object.assign(stat, { mtimeNs: ns, ctimeNs: ns });
  };
  return {
    ...fs,
    statSync: (path: string, options: object) => freeze(fs.statSync(path, options)),
    fstatSync: (handle: number, options: object) => freeze(fs.fstatSync(handle, options)),
    readdirSync: (path: string) => {
      refuse(path);
      return fs.readdirSync(path);
    },
    openSync: (path: string, flags: number) => {
      refuse(path);
      return fs.openSync(path, flags);
    },
  };
});

let workspace: string;
let folder: string;
const PLAN =
  "workflow_schema: 1\nid: a\nrevision: 1\nsteps: [{id: s, type: tool, tool: Glob}]\nplan: {type: step, step: s}\n";

beforeEach(() => {
  workspace = mkdtempSync(join(tmpdir(), "holdfast-disk-"));
  folder = join(workspace, ".holdfast", "workflows");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "a.yaml"), PLAN);
});
afterEach(() => {
  failing.clear();
  frozenMs = undefined;
  rmSync(workspace, { recursive: true, force: true });
});

const open = () => openCatalog({ workspace, env: { maxConcurrency: 64 } });

test("RP-9 a folder that cannot be read any more leaves the last good publication in force", () => {
  const catalog = open();
  failing.add(folder);
  const failed = catalog.reload();
  expect(failed).toMatchObject({ failed: true, changed: false, publication_revision: 1 });
  expect(failed.diagnostics).toMatchObject([{ code: "unreadable", message: "the folder cannot be read (EIO)" }]);
  expect(catalog.pin("a").bundle.publication_revision).toBe(1);
  failing.clear();
  expect(catalog.reload()).toMatchObject({ failed: false, changed: false, publication_revision: 1 });
});

test("RP-9 the same for one file", () => {
  const catalog = open();
  failing.add(join(folder, "a.yaml"));
  expect(catalog.reload()).toMatchObject({ failed: true, publication_revision: 1 });
  expect(catalog.entry("a")?.state).toBe("valid");
  failing.clear();
  expect(catalog.reload()).toMatchObject({ failed: false, changed: false, publication_revision: 1 });
});

test("at the start a failing folder is a diagnostic, not a crash, and heals", () => {
  failing.add(folder);
  const catalog = open();
  expect(catalog.entries()).toEqual([]);
  expect(catalog.diagnostics()).toMatchObject([{ file: ".holdfast/workflows", code: "unreadable", severity: "error" }]);
  expect(catalog.reload()).toMatchObject({ failed: false, changed: false });
  failing.clear();
  expect(catalog.reload()).toMatchObject({ changed: true, publication_revision: 2 });
  expect(catalog.entry("a")?.state).toBe("valid");
});

test("a change that leaves size and times as they were is seen while the file is young, and not looked for later", () => {
  frozenMs = 1_000_000;
  let nowMs = frozenMs + 100;
  const catalog = openCatalog({ workspace, env: { maxConcurrency: 64 }, now: () => nowMs });
  const rewrite = (revision: number) =>
    writeFileSync(join(folder, "a.yaml"), PLAN.replace("revision: 1", `revision: ${revision}`));
  rewrite(2);
  expect(catalog.pin("a").bundle.root_revision).toBe(2);
  nowMs += 10_000;
  catalog.reload();
  rewrite(3);
  expect(catalog.pin("a").bundle.root_revision).toBe(2);
  frozenMs += 1;
  expect(catalog.pin("a").bundle.root_revision).toBe(3);
});
