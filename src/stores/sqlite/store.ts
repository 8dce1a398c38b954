/** The SQLite store: RunStore and SessionStore over one database file, or one in memory. */
import * as path from "node:path";
import type { Wait } from "../../domain/run.ts";
import type {
  Claim,
  CommitResult,
  ResourceClaim,
  RunQuery,
  RunRecord,
  RunStore,
  Segment,
  SessionLink,
  SessionPatch,
  SessionRecord,
  SessionStore,
  Signal,
  SnapshotBlob,
  StoreInfo,
  TreeCommit,
  TreeRecord,
  WaitQuery,
} from "../../ports/index.ts";
import { ChangeWatch } from "./change-watch.ts";
import { Connection, MEMORY } from "./connection.ts";
import { bindHash, type Db, type OpenDatabase, openDatabase } from "./driver.ts";
import { HostLocks } from "./host-lock.ts";
import { assertGroup, commitGroup, getKeyedStart, getSnapshot, groupLanded, readSegments } from "./journal.ts";
import { acquireLeases, mayAcquire } from "./resource-leases.ts";
import { getRun, listRuns, treeRuns } from "./runs.ts";
import { SCHEMA_VERSION } from "./schema.ts";
import { linkSession, sessionLinks } from "./session-links.ts";
import { createSession, getSession, listSessions, openRuns, updateSession } from "./sessions.ts";
import { deleteSignals, listSignals, putSignal, signalExists } from "./signals.ts";
import {
  type Claimer,
  claimTree,
  dueTrees,
  findTree,
  getTree,
  heldTrees,
  holdsTrees,
  nextWakeMs,
  owners,
  releaseTree,
  renewLeases,
} from "./trees.ts";
import { listWaits } from "./waits.ts";

const DEFAULT_BUSY_TIMEOUT_MS = 5_000;

export interface SqliteStoreOptions {
  /** A file, made with its folder when it is missing, or `:memory:`. */
  readonly path: string;
  /** The clock of leases: epoch milliseconds. Default: the system's. */
  readonly clock?: { now(): number };
  /** How long a call waits for another process's lock before `storage_unavailable`. Default 5,000 ms. */
  readonly busyTimeoutMs?: number;
  /** Nothing is written; the file must exist. */
  readonly readOnly?: boolean;
  /** How the library opens a database. Tests put faults in between. */
  readonly open?: OpenDatabase;
}

/**
 * Opens the store, making it where there is none.
 * @throws HoldfastError `storage` (no Holdfast store, another schema version, no permission, disk full; an
 *   existing file is left untouched) or `storage_unavailable` (held by another process past the time-out)
 */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<SqliteStore> {
  const open = options.open ?? openDatabase;
  const file = options.path === MEMORY ? MEMORY : path.resolve(options.path);
  const connection = await Connection.open({
    path: file,
    readOnly: options.readOnly === true,
    busyTimeoutMs: options.busyTimeoutMs ?? DEFAULT_BUSY_TIMEOUT_MS,
    open,
  });
  return new SqliteStore(connection, { file, clock: options.clock ?? Date, open });
}

export class SqliteStore implements RunStore, SessionStore {
  readonly #connection: Connection;
  readonly #file: string;
  readonly #clock: { now(): number };
  readonly #locks: HostLocks;
  readonly #watch: ChangeWatch;

  /** Use `openSqliteStore`. */
  constructor(connection: Connection, parts: { file: string; clock: { now(): number }; open: OpenDatabase }) {
    const { file, clock, open } = parts;
    const folder = file === MEMORY ? undefined : path.join(path.dirname(file), "owners");
    this.#connection = connection;
    this.#file = file;
    this.#clock = clock;
    this.#locks = new HostLocks(folder, open);
    this.#watch = new ChangeWatch({
      version: () => connection.dataVersion(),
      nudgeFile: file === MEMORY ? undefined : `${file}-nudge`,
    });
  }

  info(): Promise<StoreInfo> {
    return this.#connection.read("describe the store", (db) => describe(db, this.#file));
  }

  async commit(group: readonly TreeCommit[]): Promise<readonly CommitResult[]> {
    if (group.length === 0) return [];
    assertGroup(group);
    let results: CommitResult[] = [];
    await this.#connection.write(
      "commit",
      (db) => {
        results = commitGroup(db, group, this.#clock.now());
      },
      (db) => groupLanded(db, group, results),
    );
    if (group.some((tree, i) => results[i]?.ok === true && concernsOthers(tree))) this.#watch.announce();
    return results;
  }

  getRun(runId: string): Promise<RunRecord | undefined> {
    return this.#connection.read("read a run", (db) => getRun(db, runId));
  }

  treeRuns(rootRunId: string): Promise<readonly RunRecord[]> {
    return this.#connection.read("read a run tree", (db) => treeRuns(db, rootRunId));
  }

  getTree(rootRunId: string): Promise<TreeRecord | undefined> {
    return this.#connection.read("read a run tree", (db) => getTree(db, rootRunId));
  }

  readSegments(runId: string, since: number, maxBytes: number): Promise<readonly Segment[]> {
    return this.#connection.read("read a journal", (db) => readSegments(db, runId, since, maxBytes));
  }

  getSnapshot(runId: string): Promise<SnapshotBlob | undefined> {
    return this.#connection.read("read a snapshot", (db) => getSnapshot(db, runId));
  }

  getBundle(hash: string): Promise<Uint8Array | undefined> {
    return this.#bytes("SELECT bytes FROM bundles WHERE hash = ?", hash);
  }

  getArtifact(sha256: string): Promise<Uint8Array | undefined> {
    return this.#bytes("SELECT bytes FROM artifacts WHERE sha256 = ?", sha256);
  }

  #bytes(sql: string, hash: string): Promise<Uint8Array | undefined> {
    return this.#connection.read("read a value", (db) => db.get<{ bytes: Uint8Array }>(sql, bindHash(hash))?.bytes);
  }

  listRuns(query: RunQuery): Promise<readonly RunRecord[]> {
    return this.#connection.read("list runs", (db) => listRuns(db, query));
  }

  listWaits(query: WaitQuery): Promise<readonly Wait[]> {
    return this.#connection.read("list waits", (db) => listWaits(db, query));
  }

  getKeyedStart(sessionId: string, key: string): Promise<{ run_id: string; request_hash: string } | undefined> {
    return this.#connection.read("find a start", (db) => getKeyedStart(db, sessionId, key));
  }

  async claim(rootRunId: string, by: Claimer): Promise<Claim | undefined> {
    const seen = await this.#connection.read("claim a run tree", (db) => findTree(db, rootRunId)?.owner);
    // Asked before the transaction: the lock is another file, and nobody should wait for that.
    if (typeof seen === "string" && seen !== by.owner) this.#locks.isDead(seen, true);
    return this.#connection.write("claim a run tree", (db) => this.#claim(db, rootRunId, by));
  }

  async claimDue(by: Claimer & { limit: number }): Promise<readonly Claim[]> {
    if (by.limit < 1) return [];
    const act = "claim run trees";
    const look = (db: Db, isDead: (owner: string) => boolean): string[] => dueTrees(db, by, this.#clock.now(), isDead);
    // Most looks find nothing, so they take no lock.
    const due = await this.#connection.read(act, (db) => look(db, (owner) => this.#locks.isDead(owner, false)));
    if (due.length === 0) return [];
    return this.#connection.write(act, (db) =>
      look(db, (owner) => this.#locks.knownDead(owner)).flatMap((root) => this.#claim(db, root, by) ?? []),
    );
  }

  #claim(db: Db, rootRunId: string, by: Claimer): Claim | undefined {
    return claimTree(db, rootRunId, by, this.#clock.now(), (owner) => this.#locks.knownDead(owner));
  }

  async renew(owner: string, leaseMs: number): Promise<readonly { root_run_id: string; control_version: number }[]> {
    if (!(await this.#connection.read("renew leases", (db) => holdsTrees(db, owner)))) return [];
    return this.#connection.write("renew leases", (db) => {
      renewLeases(db, owner, this.#clock.now() + leaseMs);
      return heldTrees(db, owner);
    });
  }

  async release(rootRunId: string, fence: number): Promise<void> {
    const act = "release a run tree";
    const released = await this.#connection.write(act, (db) => releaseTree(db, rootRunId, fence, this.#clock.now()));
    if (released) this.#watch.announce();
  }

  nextWakeMs(): Promise<number | undefined> {
    return this.#connection.read("look for the next wake-up", nextWakeMs);
  }

  async acquireLeases(
    rootRunId: string,
    fence: number,
    dispatchId: string,
    claims: readonly ResourceClaim[],
  ): Promise<boolean> {
    const act = "claim resources";
    if (!(await this.#connection.read(act, (db) => mayAcquire(db, rootRunId, fence, dispatchId, claims)))) return false;
    return this.#connection.write(act, (db) => acquireLeases(db, rootRunId, fence, dispatchId, claims));
  }

  linkSession(fence: number, link: SessionLink): Promise<void> {
    return this.#connection.write("link a session", (db) => linkSession(db, fence, link));
  }

  sessionLinks(of: { root_run_id: string } | { session_id: string }): Promise<readonly SessionLink[]> {
    return this.#connection.read("read session links", (db) => sessionLinks(db, of));
  }

  async putSignal(signal: Signal, raisesControl: boolean): Promise<{ control_version: number }> {
    const act = `store a ${signal.kind} signal`;
    const stored = await this.#connection.write(
      act,
      (db) => putSignal(db, signal, raisesControl, this.#clock.now()),
      (db) => (signalExists(db, signal.signal_id) ? "all" : "none"),
    );
    this.#watch.announce();
    return stored;
  }

  signals(of: { owner: string } | { root_run_id: string }): Promise<readonly Signal[]> {
    return this.#connection.read("read signals", (db) => listSignals(db, of));
  }

  signalExists(signalId: string): Promise<boolean> {
    return this.#connection.read("read a signal", (db) => signalExists(db, signalId));
  }

  async deleteSignals(signalIds: readonly string[]): Promise<void> {
    if (signalIds.length === 0) return;
    await this.#connection.write("delete signals", (db) => deleteSignals(db, signalIds));
    this.#watch.announce();
  }

  async registerOwner(owner: string): Promise<void> {
    const needed = await this.#connection.read("register a worker process", owners);
    this.#locks.register(owner);
    this.#locks.sweep(needed);
  }

  async isGone(owner: string): Promise<boolean> {
    return this.#locks.isDead(owner, true);
  }

  watch(onChange: () => void): () => void {
    return this.#watch.subscribe(onChange);
  }

  createSession(session: SessionRecord): Promise<void> {
    return this.#connection.write("create a session", (db) => createSession(db, session));
  }

  getSession(idOrName: string): Promise<SessionRecord | undefined> {
    return this.#connection.read("read a session", (db) => getSession(db, idOrName));
  }

  listSessions(page: { limit: number; after_ms?: number; after_id?: string }): Promise<readonly SessionRecord[]> {
    return this.#connection.read("list sessions", (db) => listSessions(db, page));
  }

  updateSession(sessionId: string, patch: SessionPatch, nowMs: number): Promise<SessionRecord | undefined> {
    return this.#connection.write("update a session", (db) => updateSession(db, sessionId, patch, nowMs));
  }

  openRuns(sessionId: string): Promise<number> {
    return this.#connection.read("count open runs", (db) => openRuns(db, sessionId));
  }

  async close(): Promise<void> {
    this.#watch.close();
    const holding = new Set(await this.#connection.read("close the store", owners).catch(() => []));
    this.#locks.close((owner) => holding.has(owner));
    await this.#connection.close();
  }
}

/** Whether another process may be waiting for it: a tree to claim, or the end of one. */
function concernsOthers(commit: TreeCommit): boolean {
  const unclaimed = commit.create !== undefined && commit.create.claim === undefined;
  if (commit.leases_freed !== undefined) return true;
  // An ended tree wants nobody; who follows it from elsewhere sees it by `data_version`.
  return unclaimed || (commit.tree?.release === true && commit.tree.ended !== true);
}

function describe(db: Db, file: string): StoreInfo {
  const number = (sql: string): number => Number(Object.values(db.get<Record<string, number>>(sql) ?? {})[0] ?? 0);
  return {
    url: `sqlite:${file}`,
    engine: "sqlite",
    engine_version: db.get<{ v: string }>("SELECT sqlite_version() AS v")?.v ?? "",
    schema_version: SCHEMA_VERSION,
    synchronous: number("PRAGMA synchronous") === 2 ? "full" : "not full",
    bytes: number("PRAGMA page_count") * number("PRAGMA page_size"),
    runs: number("SELECT count(*) FROM runs"),
  };
}
