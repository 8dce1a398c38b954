import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { TreeCommit } from "../../ports/index.ts";
import { SESSION_ID, sessionRecord, startCommit, TestJournal, treeCommit } from "../../testing/index.ts";
import { type Db, type OpenDatabase, openDatabase } from "./driver.ts";
import { openSqliteStore, type SqliteStore } from "./index.ts";

const folder = fs.mkdtempSync(join(tmpdir(), "holdfast-faults-"));
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

let files = 0;
const fresh = (): string => join(folder, `f${++files}`, "holdfast.db");

function sqliteError(errcode: number, text: string): Error {
  return Object.assign(new Error(text), { code: "ERR_SQLITE_ERROR", errcode });
}

const IOERR_FSYNC = 1034;
const FULL = 13;

interface Fault {
  /** Fails this statement … */
  readonly at: string;
  /** … this time it is run (1 is the next), once. */
  nth: number;
  readonly errcode: number;
  /** The statement is done all the same: the disk said no after it had written. */
  readonly done?: boolean;
}

/** The same database with some of it replaced. */
function forward(db: Db, changes: Partial<Db>): Db {
  return {
    get inTransaction() {
      return db.inTransaction;
    },
    exec: changes.exec ?? db.exec,
    run: changes.run ?? db.run,
    get: changes.get ?? db.get,
    all: changes.all ?? db.all,
    iterate: db.iterate,
    close: db.close,
  };
}

/** Opens databases whose statements fail as `fault.current` says. */
function failing(fault: { current: Fault | undefined }): OpenDatabase {
  return (path, options) => {
    const db = openDatabase(path, options);
    const guard = <T>(sql: string, work: () => T): T => {
      const now = fault.current;
      if (now === undefined || !sql.startsWith(now.at) || --now.nth !== 0) return work();
      if (now.done === true) work();
      throw sqliteError(now.errcode, "injected");
    };
    type Values = Parameters<Db["run"]>[1][];
    return forward(db, {
      run: (sql, ...values) => guard(sql, () => db.run(sql, ...values)),
      get: <T>(sql: string, ...values: Values) => guard(sql, () => db.get<T>(sql, ...values)),
      all: <T>(sql: string, ...values: Values) => guard(sql, () => db.all<T>(sql, ...values)),
    });
  };
}

interface Setting {
  readonly store: SqliteStore;
  readonly path: string;
  readonly fault: { current: Fault | undefined };
  readonly journal: TestJournal;
}

async function setting(): Promise<Setting> {
  const path = fresh();
  const fault: Setting["fault"] = { current: undefined };
  const store = await openSqliteStore({ path, open: failing(fault), busyTimeoutMs: 200 });
  await store.createSession(sessionRecord());
  const journal = new TestJournal();
  await store.commit([startCommit(journal, { owner: "a" })]);
  return { store, path, fault, journal };
}

async function outcomeOf(commit: Promise<unknown>): Promise<unknown> {
  return commit.then(
    () => "committed",
    (error: { code: string; details: { outcome: string } }) => `${error.code}: ${error.details.outcome}`,
  );
}

describe("a commit that fails", () => {
  test("R-4 an error in COMMIT after which the commit is there is success", async () => {
    const { store, fault, journal } = await setting();
    fault.current = { at: "COMMIT", nth: 1, errcode: IOERR_FSYNC, done: true };
    expect(await outcomeOf(store.commit([treeCommit([journal.next()])]))).toBe("committed");
    fault.current = undefined;
    expect(await outcomeOf(store.commit([treeCommit([journal.next()])]))).toBe("committed");
    expect((await store.getRun(journal.run_id))?.last_sequence).toBe(3);
    await store.close();
  });

  test("R-4 an error in COMMIT after which nothing is there says so, and the next commit goes through", async () => {
    const { store, fault, journal } = await setting();
    for (const errcode of [IOERR_FSYNC, FULL]) {
      fault.current = { at: "COMMIT", nth: 1, errcode };
      expect(await outcomeOf(store.commit([treeCommit([journal.fork().next()])]))).toBe("storage: none");
    }
    fault.current = undefined;
    expect((await store.getRun(journal.run_id))?.last_sequence).toBe(1);
    expect(await outcomeOf(store.commit([treeCommit([journal.next()])]))).toBe("committed");
    await store.close();
  });

  test("R-4 without a checkpoint that empties the log the outcome stays unknown: never retried into success", async () => {
    const { store, path, fault, journal } = await setting();
    // A reader of another process keeps the log from being emptied.
    const reader = openDatabase(path, { readOnly: false });
    reader.exec("BEGIN; SELECT count(*) FROM runs");
    fault.current = { at: "COMMIT", nth: 1, errcode: IOERR_FSYNC, done: true };
    expect(await outcomeOf(store.commit([treeCommit([journal.next()])]))).toBe("storage: unknown");
    reader.close();
    fault.current = undefined;
    expect((await store.getRun(journal.run_id))?.last_sequence).toBe(2);
    await store.close();
  });

  test("R-4 calls made while the outcome is looked into wait for it", async () => {
    const { store, path, fault, journal } = await setting();
    const reader = openDatabase(path, { readOnly: false });
    reader.exec("BEGIN; SELECT count(*) FROM runs");
    fault.current = { at: "COMMIT", nth: 1, errcode: IOERR_FSYNC };
    const failed = outcomeOf(store.commit([treeCommit([journal.fork().next()])]));
    const after = outcomeOf(store.commit([treeCommit([journal.next({ bytes: Buffer.from("other\n") })])]));
    const order: unknown[] = [];
    const both = [failed, after].map((commit) => commit.then((outcome) => order.push(outcome)));
    reader.close();
    await Promise.all(both);
    expect(order).toEqual(["storage: none", "committed"]);
    await store.close();
  });

  test("C34 an error at any statement of a group leaves nothing of it, and the store goes on", async () => {
    for (const at of ["SAVEPOINT", "UPDATE", "INSERT", "SELECT", "RELEASE"])
      for (let nth = 1; nth <= 3; nth++) {
        const { store, fault, journal } = await setting();
        const group = (): TreeCommit[] => [
          treeCommit([journal.fork().next()], { artifacts: [{ sha256: "aa".repeat(32), bytes: Buffer.from("v") }] }),
          startCommit(new TestJournal(), { owner: "a" }),
        ];
        fault.current = { at, nth, errcode: nth === 2 ? FULL : 778 };
        const outcome = await outcomeOf(store.commit(group()));
        const hit = fault.current.nth <= 0;
        fault.current = undefined;
        expect([at, nth, outcome]).toEqual([at, nth, hit ? "storage: none" : "committed"]);
        const [tip, open] = [(await store.getRun(journal.run_id))?.last_sequence, await store.openRuns(SESSION_ID)];
        expect([tip, open]).toEqual(hit ? [1, 1] : [2, 2]);
        if (hit) expect(await outcomeOf(store.commit(group()))).toBe("committed");
        await store.close();
      }
  });

  test("C34 a full disk: the write fails cleanly, reading works, and it goes on when there is space", async () => {
    const limit = { pages: 2 ** 30 };
    const open: OpenDatabase = (file, options) => {
      const db = openDatabase(file, options);
      const run: Db["run"] = (sql, ...values) => {
        db.exec(`PRAGMA max_page_count = ${limit.pages}`);
        return db.run(sql, ...values);
      };
      return forward(db, { run });
    };
    const store = await openSqliteStore({ path: fresh(), open });
    await store.createSession(sessionRecord());
    const journal = new TestJournal();
    await store.commit([startCommit(journal, { owner: "a" })]);
    limit.pages = 60;
    let written = 1;
    for (;;) {
      const outcome = await outcomeOf(
        store.commit([treeCommit([journal.fork().next({ bytes: Buffer.alloc(9_000, 1) })])]),
      );
      if (outcome !== "committed") {
        expect(outcome).toBe("storage: none");
        break;
      }
      journal.next({ bytes: Buffer.alloc(9_000, 1) });
      written++;
    }
    expect((await store.getRun(journal.run_id))?.last_sequence).toBe(written);
    expect((await store.readSegments(journal.run_id, 0, 1_000_000)).length).toBe(written);
    limit.pages = 2 ** 30;
    expect(await outcomeOf(store.commit([treeCommit([journal.next()])]))).toBe("committed");
    await store.close();
  });
});

describe("a disk too full to open the store", () => {
  test("C34 what is there is read without the shared-memory file; with space, writing and sharing work again", async () => {
    const { store, path: original, journal } = await setting();
    await store.close();
    const path = fresh();
    fs.mkdirSync(dirname(path));
    fs.copyFileSync(original, path);
    const disk = { full: true };
    const open: OpenDatabase = (file, options) => {
      const db = openDatabase(file, options);
      let alone = false;
      const exec: Db["exec"] = (sql) => {
        alone ||= sql.includes("locking_mode = EXCLUSIVE");
        db.exec(sql);
      };
      const get: Db["get"] = <T>(sql: string) => {
        if (disk.full && !alone) throw sqliteError(4874, "no room for the -shm file");
        return db.get<T>(sql);
      };
      return forward(db, { exec, get: (sql, ...values) => (values.length === 0 ? get(sql) : db.get(sql, ...values)) });
    };
    const cramped = await openSqliteStore({ path, open });
    expect((await cramped.getRun(journal.run_id))?.last_sequence).toBe(1);
    disk.full = false;
    expect(await outcomeOf(cramped.commit([treeCommit([journal.next()])]))).toBe("committed");
    const other = await openSqliteStore({ path });
    expect((await other.getRun(journal.run_id))?.last_sequence).toBe(2);
    await other.close();
    await cramped.close();
  });
});

describe("a lock that another process holds", () => {
  test("C32 past the time-out it is storage_unavailable, and the event loop kept turning", async () => {
    const { path, journal, store } = await setting();
    const other = openDatabase(path, { readOnly: false });
    other.exec("BEGIN IMMEDIATE");
    let turns = 0;
    const ticker = setInterval(() => turns++, 5);
    expect(await outcomeOf(store.commit([treeCommit([journal.fork().next()])]))).toBe("storage_unavailable: none");
    clearInterval(ticker);
    expect(turns).toBeGreaterThan(10);
    // Reading needs no lock.
    expect((await store.getRun(journal.run_id))?.last_sequence).toBe(1);
    const waiting = store.commit([treeCommit([journal.next()])]);
    other.exec("ROLLBACK");
    expect(await outcomeOf(waiting)).toBe("committed");
    other.close();
    await store.close();
  });

  test("a closed store says so", async () => {
    const { store, journal } = await setting();
    await store.close();
    await store.close();
    await expect(store.getRun(journal.run_id)).rejects.toMatchObject({ code: "storage_unavailable" });
  });
});
