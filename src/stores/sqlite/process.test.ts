import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sessionRecord, startCommit, TestJournal } from "../../testing/index.ts";
import { type OpenDatabase, openDatabase } from "./driver.ts";
import { openSqliteStore, type SqliteStore } from "./index.ts";

const folder = fs.mkdtempSync(join(tmpdir(), "holdfast-process-"));
// Below the package, so that the bundle finds the SQLite library.
const cache = fileURLToPath(new URL("../../../node_modules/.cache/", import.meta.url));
let bundles = "";

beforeAll(async () => {
  fs.mkdirSync(cache, { recursive: true });
  bundles = fs.mkdtempSync(join(cache, "holdfast-process-"));
  await build({
    entryPoints: [fileURLToPath(new URL("../../../test/crash/sqlite-child.ts", import.meta.url))],
    outfile: join(bundles, "process.mjs"),
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    logLevel: "error",
  });
});

afterAll(() => {
  for (const path of [folder, bundles]) fs.rmSync(path, { recursive: true, force: true });
});

let files = 0;
async function madeStore(): Promise<{ path: string; store: SqliteStore }> {
  const path = join(folder, `p${++files}`, "holdfast.db");
  const store = await openSqliteStore({ path });
  await store.createSession(sessionRecord());
  return { path, store };
}

interface Child {
  readonly process: ChildProcess;
  readonly lines: Interface;
  readonly exited: Promise<unknown>;
}

function run(act: string, path: string, owner = "o"): Child {
  const child = spawn(process.execPath, [join(bundles, "process.mjs"), act, path, owner], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  return { process: child, lines: createInterface({ input: child.stdout }), exited: once(child, "exit") };
}

/** Whole, in order, and chained: what a journal must be whatever happened. */
async function checkedLength(store: SqliteStore): Promise<number> {
  const segments = await store.readSegments("endless", 0, 1_000_000_000);
  for (const [i, segment] of segments.entries()) {
    expect(segment.first).toBe(i + 1);
    if (i > 0) expect(segment.prev).toBe(segments[i - 1]?.hash);
    const artifact = await store.getArtifact(String(i).padStart(64, "0"));
    if (i > 0) expect(artifact?.[0]).toBe(i % 256);
  }
  expect((await store.getRun("endless"))?.last_sequence ?? 0).toBe(segments.length);
  return segments.length;
}

describe("a database killed inside a commit reopens at the last whole commit", () => {
  test("SC-23 killed at any moment: every acknowledged commit is there, and at most one more", async () => {
    for (const acknowledged of [1, 7, 40]) {
      const { path, store } = await madeStore();
      await store.close();
      const child = run("endless", path);
      let last = 0;
      for await (const line of child.lines) {
        last = Number(line);
        if (last === acknowledged) child.process.kill("SIGKILL");
      }
      await child.exited;
      const reopened = await openSqliteStore({ path });
      const length = await checkedLength(reopened);
      expect([last, last + 1]).toContain(length);
      await reopened.close();
    }
  }, 30_000);

  test("SC-23 killed in a transaction that is partly in the log: nothing of it is seen", async () => {
    const { path, store } = await madeStore();
    await store.close();
    const child = run("midway", path);
    let last = 0;
    for await (const line of child.lines) last = Number(line);
    await child.exited;
    expect(last).toBe(3);
    const reopened = await openSqliteStore({ path });
    expect(await checkedLength(reopened)).toBe(3);
    await reopened.close();
  }, 30_000);

  test("SC-23 a log cut at any byte opens as a whole number of commits, and never fewer for more bytes", async () => {
    const { path, store } = await madeStore();
    await store.close();
    const child = run("endless", path);
    for await (const line of child.lines) if (Number(line) === 12) child.process.kill("SIGKILL");
    await child.exited;
    const whole = fs.readFileSync(`${path}-wal`);
    let before = 0;
    for (let cut = 0; cut <= whole.length; cut += 2_801) {
      const copy = join(folder, `cut-${cut}`, "holdfast.db");
      fs.mkdirSync(join(folder, `cut-${cut}`));
      fs.copyFileSync(path, copy);
      fs.writeFileSync(`${copy}-wal`, whole.subarray(0, cut));
      const opened = await openSqliteStore({ path: copy });
      const length = await checkedLength(opened);
      expect(length).toBeGreaterThanOrEqual(before);
      before = length;
      await opened.close();
    }
    expect(before).toBeGreaterThanOrEqual(11);
  }, 30_000);
});

describe("two processes on one file", () => {
  test("C32 both claim and append while a third reads: no busy error reaches them, and no tree is claimed by two", async () => {
    const { path, store } = await madeStore();
    const journals = Array.from({ length: 120 }, () => new TestJournal());
    await store.commit(journals.map((journal) => startCommit(journal)));
    const said: string[] = [];
    const children = ["a", "b"].map((owner) => run("work", path, owner));
    const ready = children.map((child) => once(child.lines, "line"));
    await Promise.all(ready);
    for (const child of children) child.lines.on("line", (line) => said.push(line));
    let over = false;
    const exits = Promise.all(children.map((child) => child.exited)).finally(() => {
      over = true;
    });
    fs.writeFileSync(`${path}.go`, "");
    let reads = 0;
    for (; !over; reads++) {
      await store.listRuns({ limit: 1_000 });
      // Reading is done in the turn that asks for it; the children are heard in another.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    expect(await exits).toEqual([
      [0, null],
      [0, null],
    ]);
    const done = said.map((line) => line.split(" "));
    expect(done.map(([, runId, ok]) => `${runId} ${ok}`).sort()).toEqual(
      journals.map((journal) => `${journal.run_id} true`).sort(),
    );
    // Both did some of it, and it was read meanwhile.
    expect([new Set(done.map(([owner]) => owner)), reads > 10]).toEqual([new Set(["a", "b"]), true]);
    expect(await store.openRuns(sessionRecord().session_id)).toBe(0);
    expect(fs.readdirSync(join(path, "..", "owners"))).toEqual([]);
    await store.close();
  }, 60_000);

  test("C32 a transaction that reads first and writes later has the lock from its start: nobody commits in between", async () => {
    const { path, store } = await madeStore();
    const journals = [new TestJournal(), new TestJournal()];
    await store.commit(journals.map((journal) => startCommit(journal)));
    const intruder = openDatabase(path, { readOnly: false });
    const attempts: unknown[] = [];
    const intrude = (): void => {
      try {
        intruder.exec("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; UPDATE trees SET recoveries = recoveries; COMMIT");
        attempts.push("committed");
      } catch (error) {
        attempts.push((error as { errcode?: number }).errcode);
      }
    };
    // After each read inside a transaction somebody else tries to write.
    const open: OpenDatabase = (file, options) => {
      const db = openDatabase(file, options);
      const meddled = <T>(value: T): T => {
        if (db.inTransaction) intrude();
        return value;
      };
      return {
        get inTransaction() {
          return db.inTransaction;
        },
        exec: db.exec,
        run: db.run,
        get: <T>(sql: string, ...values: Parameters<typeof db.get>[1][]) => meddled(db.get<T>(sql, ...values)),
        all: <T>(sql: string, ...values: Parameters<typeof db.all>[1][]) => meddled(db.all<T>(sql, ...values)),
        iterate: db.iterate,
        close: db.close,
      };
    };
    const watched = await openSqliteStore({ path, open });
    await watched.registerOwner("me");
    const by = { owner: "me", leaseMs: 1_000, graceMs: 0 };
    expect(await watched.claim(journals[0]?.run_id ?? "", by)).toMatchObject({ fence: 2 });
    expect(await watched.claimDue({ ...by, limit: 10 })).toHaveLength(1);
    const SQLITE_BUSY = 5;
    expect(attempts.length).toBeGreaterThan(2);
    expect(new Set(attempts)).toEqual(new Set([SQLITE_BUSY]));
    await watched.close();
    intruder.close();
    await store.close();
  });

  test("R-5 a living owner keeps its trees; a killed one loses them at once, whatever its lease says", async () => {
    const { path, store } = await madeStore();
    const child = run("hold", path, "holder");
    await once(child.lines, "line");
    const me = { owner: "me", leaseMs: 1_000, graceMs: 100 };
    await store.registerOwner(me.owner);
    expect(await store.claim("holder-0", me)).toBe(undefined);
    child.process.kill("SIGKILL");
    await child.exited;
    const claim = await store.claim("holder-0", me);
    expect([claim?.fence, claim?.taken_over, claim?.recoveries]).toEqual([2, true, 1]);
    const rest = await store.claimDue({ ...me, limit: 10 });
    expect(rest.map((tree) => [tree.root_run_id, tree.taken_over])).toEqual([["holder-1", true]]);
    await store.close();
  }, 30_000);

  test("R-5 a lost lock file proves nothing", async () => {
    const { path, store } = await madeStore();
    const child = run("hold", path, "holder");
    await once(child.lines, "line");
    fs.rmSync(join(path, "..", "owners", "holder.lock"));
    child.process.kill("SIGKILL");
    await child.exited;
    expect(await store.claim("holder-0", { owner: "me", leaseMs: 1_000, graceMs: 100 })).toBe(undefined);
    await store.close();
  }, 30_000);

  test("a signal put through another handle is heard within milliseconds", async () => {
    const { path, store } = await madeStore();
    const other = await openSqliteStore({ path });
    const journal = new TestJournal();
    await store.commit([startCommit(journal, { owner: "a" })]);
    const delays: number[] = [];
    for (let i = 0; i < 5; i++) {
      const heard = new Promise<void>((resolve) => {
        const stop = store.watch(() => {
          stop();
          resolve();
        });
      });
      const start = performance.now();
      const signal = { signal_id: `s${i}`, root_run_id: journal.run_id, run_id: journal.run_id, created_at_ms: 1 };
      await other.putSignal({ ...signal, kind: "cancel", payload: null }, true);
      await heard;
      delays.push(performance.now() - start);
    }
    expect(Math.min(...delays)).toBeLessThan(100);
    await other.close();
    await store.close();
  });
});
