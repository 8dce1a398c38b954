/**
 * What the tests run in a process of its own, so that it can be killed: bundled by them, started as
 * `node process.mjs ACT FILE OWNER`. Every line on stdout is a promise that was kept before it was written.
 */
import { existsSync, writeSync } from "node:fs";
import { type OpenDatabase, openDatabase } from "../../src/stores/sqlite/driver.ts";
import { openSqliteStore, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { startCommit, TestJournal, treeCommit } from "../../src/testing/index.ts";

const [act = "", file = "", owner = ""] = process.argv.slice(2);

function say(line: string): void {
  writeSync(1, `${line}\n`);
}

/** Kills this process just before the commit after the `n`th. */
function killedAtCommit(n: number): OpenDatabase {
  let left = n;
  return (path, options) => {
    const db = openDatabase(path, options);
    return {
      get inTransaction() {
        return db.inTransaction;
      },
      exec: db.exec,
      run: (sql, ...values) => {
        if (sql === "COMMIT" && left-- === 0) process.kill(process.pid, "SIGKILL");
        return db.run(sql, ...values);
      },
      get: db.get,
      all: db.all,
      iterate: db.iterate,
      close: db.close,
    };
  };
}

const acts: { readonly [act: string]: () => Promise<void> } = {
  /** Commits until it is killed. */
  async endless() {
    await writeForever(await openSqliteStore({ path: file }));
  },
  /** Dies in a transaction so large that part of it is in the log already. */
  async midway() {
    await writeForever(await openSqliteStore({ path: file, open: killedAtCommit(3) }), 12 * 1024 * 1024);
  },
  /** Holds two trees for an hour, and lives until it is killed. */
  async hold() {
    const store = await openSqliteStore({ path: file });
    await store.registerOwner(owner);
    for (let i = 0; i < 2; i++) {
      const journal = new TestJournal({ run_id: `${owner}-${i}` });
      await store.commit([startCommit(journal, { owner, lease_expires_at_ms: Date.now() + 3_600_000 })]);
    }
    say("held");
    setInterval(() => {}, 60_000);
  },
  /** Told to go, claims, reads, appends and ends trees until none is left. */
  async work() {
    const store = await openSqliteStore({ path: file });
    await store.registerOwner(owner);
    say("ready");
    while (!existsSync(`${file}.go`)) await new Promise((resolve) => setTimeout(resolve, 2));
    for (;;) {
      const [claim] = await store.claimDue({ owner, leaseMs: 60_000, graceMs: 0, limit: 1 });
      if (claim === undefined) break;
      const run = await store.getRun(claim.root_run_id);
      const journal = new TestJournal({ run_id: claim.root_run_id });
      const [last] = await store.readSegments(claim.root_run_id, 0, 1_000);
      journal.sequence = run?.last_sequence ?? 0;
      journal.tip = last?.hash ?? "";
      const commit = treeCommit([journal.next({ status: "succeeded" })], { fence: claim.fence, tree: { ended: true } });
      const [result] = await store.commit([commit]);
      say(`${owner} ${claim.root_run_id} ${result?.ok}`);
      // As a worker has work between two claims: who never pauses leaves the other no turn at the lock.
      await new Promise((resolve) => setTimeout(resolve, 4));
    }
    await store.close();
  },
};

async function writeForever(store: SqliteStore, artifactBytes = 100): Promise<void> {
  const journal = new TestJournal({ run_id: "endless" });
  await store.commit([startCommit(journal, { owner: "o" })]);
  say("1");
  for (;;) {
    const sha256 = String(journal.sequence).padStart(64, "0");
    const artifacts = [{ sha256, bytes: Buffer.alloc(artifactBytes, journal.sequence) }];
    await store.commit([treeCommit([journal.next({ bytes: Buffer.alloc(700, 65) })], { artifacts })]);
    say(String(journal.sequence));
  }
}

await acts[act]?.();
