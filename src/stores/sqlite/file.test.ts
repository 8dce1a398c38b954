import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { HoldfastError } from "../../domain/errors.ts";
import { SESSION_ID, sessionRecord, startCommit, TestJournal, treeCommit } from "../../testing/index.ts";
import { type Db, openDatabase } from "./driver.ts";
import { openSqliteStore } from "./index.ts";
import { APPLICATION_ID, SCHEMA_VERSION } from "./schema.ts";

const folder = fs.mkdtempSync(join(tmpdir(), "holdfast-file-"));
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

let files = 0;
const fresh = (): string => join(folder, `f${++files}`, "state", "holdfast.db");

async function made(): Promise<string> {
  const path = fresh();
  const store = await openSqliteStore({ path });
  await store.createSession(sessionRecord());
  await store.close();
  return path;
}

function database(path: string, sql: string): void {
  const db = openDatabase(path, { readOnly: false });
  db.exec(sql);
  db.close();
}

async function refused(path: string): Promise<HoldfastError> {
  const error: unknown = await openSqliteStore({ path }).then(
    (store) => store.close(),
    (reason: unknown) => reason,
  );
  if (HoldfastError.is(error)) return error;
  throw new Error(`expected a refusal, got ${String(error)}`);
}

/** Everything in the folder that a write would change. */
function traces(path: string): unknown {
  return fs.readdirSync(dirname(path)).map((name) => {
    const stat = fs.statSync(join(dirname(path), name));
    return [name, stat.mtimeMs, stat.ino, stat.isFile() ? fs.readFileSync(join(dirname(path), name), "base64") : ""];
  });
}

describe("a file that is not ours to write", () => {
  const others: readonly [string, (path: string) => void][] = [
    [
      "an unknown version",
      (path) => database(path, `PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = 0`),
    ],
    ["a newer version", (path) => database(path, `PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = 9`)],
    ["a database of another program", (path) => database(path, "CREATE TABLE t (a); PRAGMA user_version = 1")],
    ["a database in WAL mode", (path) => database(path, "PRAGMA journal_mode = WAL; CREATE TABLE t (a)")],
    ["no database", (path) => fs.writeFileSync(path, "dear diary".repeat(100))],
    ["a short file", (path) => fs.writeFileSync(path, "x")],
  ];
  for (const [name, make] of others)
    test(`${name} is refused and left untouched, with nothing beside it`, async () => {
      const path = join(folder, `other-${++files}`, "holdfast.db");
      fs.mkdirSync(dirname(path));
      make(path);
      const before = traces(path);
      const error = await refused(path);
      expect(error.code).toBe("storage");
      expect(error.message).toMatch(/^Cannot open ".*": .*; .*nothing was changed$/);
      expect(traces(path)).toEqual(before);
    });

  test("a newer version that is still in the log only is seen", async () => {
    const path = await made();
    const writer = openDatabase(path, { readOnly: false });
    writer.exec("PRAGMA wal_autocheckpoint = 0; CREATE TABLE later (a); PRAGMA user_version = 2");
    const copy = join(folder, `crashed-${++files}`, "holdfast.db");
    fs.mkdirSync(dirname(copy));
    for (const end of ["", "-wal"]) fs.copyFileSync(path + end, copy + end);
    writer.close();
    const before = traces(copy);
    const error = await refused(copy);
    expect(error.message).toContain(`its schema is 2, this build knows ${SCHEMA_VERSION}`);
    expect(traces(copy)).toEqual(before);
  });
});

describe("opening", () => {
  test("R-35 a new state folder is private and ignored by git; the file too is for its owner only", async () => {
    const path = await made();
    const mode = (file: string): number => fs.statSync(file).mode & 0o777;
    expect([mode(dirname(path)), mode(path)]).toEqual([0o700, 0o600]);
    expect(fs.readFileSync(join(dirname(path), ".gitignore"), "utf8")).toBe("*\n");
    expect(fs.statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0).toBe(0);
  });

  test("a folder that was there is left as it is", async () => {
    const path = join(folder, `mine-${++files}`, "holdfast.db");
    fs.mkdirSync(dirname(path), { mode: 0o755 });
    await (await openSqliteStore({ path })).close();
    expect(fs.existsSync(join(dirname(path), ".gitignore"))).toBe(false);
    expect(fs.statSync(dirname(path)).mode & 0o777).toBe(0o755);
  });

  test("several openings at once make one store", async () => {
    const path = fresh();
    const stores = await Promise.all(Array.from({ length: 5 }, () => openSqliteStore({ path })));
    await stores[0]?.createSession(sessionRecord());
    for (const store of stores) expect((await store.getSession("default"))?.session_id).toBe(SESSION_ID);
    for (const store of stores) await store.close();
    expect(fs.readdirSync(dirname(path)).filter((name) => name.endsWith(".new"))).toEqual([]);
  });

  test("an empty file becomes a store", async () => {
    const path = join(folder, `empty-${++files}.db`);
    fs.writeFileSync(path, "");
    const store = await openSqliteStore({ path });
    expect((await store.info()).runs).toBe(0);
    await store.close();
  });

  test("every commit is flushed: synchronous is FULL and checked, whatever the library's own default", async () => {
    const store = await openSqliteStore({ path: fresh() });
    const info = await store.info();
    expect([info.synchronous, info.engine]).toEqual(["full", "sqlite"]);
    await store.close();
    const stubborn = openSqliteStore({
      path: await made(),
      open: (path, options) => {
        const db = openDatabase(path, options);
        return forward(db, { exec: (sql) => db.exec(sql.replaceAll("synchronous = FULL", "synchronous = NORMAL")) });
      },
    });
    await expect(stubborn).rejects.toMatchObject({
      code: "storage",
      message: expect.stringContaining("synchronous is 1"),
    });
  });

  test("read-only writes nothing, reads while another writes, and needs a store", async () => {
    const path = await made();
    const writer = await openSqliteStore({ path });
    const reader = await openSqliteStore({ path, readOnly: true });
    const journal = new TestJournal();
    await writer.commit([startCommit(journal, { owner: "a" })]);
    expect((await reader.getRun(journal.run_id))?.status).toBe("queued");
    await expect(reader.createSession(sessionRecord({ name: "x" }))).rejects.toMatchObject({ code: "storage" });
    await writer.close();
    await reader.close();
    const alone = await openSqliteStore({ path, readOnly: true });
    expect((await alone.getRun(journal.run_id))?.run_id).toBe(journal.run_id);
    await alone.close();
    await expect(openSqliteStore({ path: fresh(), readOnly: true })).rejects.toMatchObject({ code: "storage" });
  });

  test("the log is emptied when the store is closed while another stays open", async () => {
    const path = await made();
    const [first, second] = [await openSqliteStore({ path }), await openSqliteStore({ path })];
    const journal = new TestJournal();
    await first.commit([startCommit(journal, { owner: "a" })]);
    for (let i = 0; i < 50; i++) await first.commit([treeCommit([journal.next({ bytes: Buffer.alloc(5_000) })])]);
    expect(fs.statSync(`${path}-wal`).size).toBeGreaterThan(100_000);
    await first.close();
    expect(fs.statSync(`${path}-wal`).size).toBe(0);
    await second.close();
  });
});

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
