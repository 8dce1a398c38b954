import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { runStoreConformance, sessionStoreConformance, type TestedStore } from "../../testing/index.ts";
import { openSqliteStore } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "holdfast-store-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
const paths = new WeakMap<TestedStore, string>();

async function openFile(path: string, clock?: { now(): number }): Promise<TestedStore> {
  const store = await openSqliteStore({ path, ...(clock === undefined ? {} : { clock }) });
  paths.set(store, path);
  return store;
}

const fresh = (): string => join(folder, `s${++files}`, "holdfast.db");
const kit = { describe, test, expect };

runStoreConformance(kit, {
  name: "sqlite, a file",
  open: (clock) => openFile(fresh(), clock),
  second: (store, clock) => openFile(paths.get(store) ?? "", clock),
});

runStoreConformance(kit, {
  name: "sqlite, in memory",
  open: (clock) => openSqliteStore({ path: ":memory:", clock }),
  // A database in memory has one handle.
  second: async (store) => store,
});

sessionStoreConformance(kit, { name: "sqlite, a file", open: () => openFile(fresh()) });
sessionStoreConformance(kit, { name: "sqlite, in memory", open: () => openSqliteStore({ path: ":memory:" }) });
