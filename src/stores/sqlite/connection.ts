/**
 * The handle of a database file: opening it with what durability needs, waiting for locks without holding up
 * the event loop, transactions, and what happens when a commit fails. Knows nothing of tables.
 */
import { HoldfastError } from "../../domain/errors.ts";
import { atLeast, collectStatements, type Db, OLDEST_SQLITE, type OpenDatabase } from "./driver.ts";
import { isBroken, isBusy, isFull, storageFault, unavailable } from "./faults.ts";
import { assertOurs, markOpened, prepareFile } from "./file.ts";
import { SCHEMA } from "./schema.ts";

export const MEMORY = ":memory:";

/** How long without a write until the log is emptied into the database. */
const IDLE_CHECKPOINT_MS = 1_000;
/** The log is cut back to this after a checkpoint that found it longer. */
const LOG_LIMIT_BYTES = 8 * 1024 * 1024;
/** Pauses while another process holds the lock: 1, 2, 4 and then 8 ms. */
const LONGEST_PAUSE_MS = 8;

export interface ConnectionOptions {
  readonly path: string;
  readonly readOnly: boolean;
  readonly busyTimeoutMs: number;
  readonly open: OpenDatabase;
}

/** What a look at the reopened database says of a group whose commit failed. */
export type Landed = "all" | "none" | "some";

export class Connection {
  readonly #options: ConnectionOptions;
  #db: Db | undefined;
  #closed = false;
  /** While a failed commit is being looked into, everybody waits for the answer. */
  #settling: Promise<void> | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #wroteSinceTimer = false;
  #generation = 0;
  /** The handle keeps all other processes out: given back before anything is written. */
  #alone = false;

  private constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  /** @throws HoldfastError `storage` or `storage_unavailable` */
  static async open(options: ConnectionOptions): Promise<Connection> {
    const connection = new Connection(options);
    if (options.path !== MEMORY) prepareFile(options.path, options.readOnly, options.open);
    await connection.#retrying(`open "${options.path}"`, () => connection.#handle());
    return connection;
  }

  get inMemory(): boolean {
    return this.#options.path === MEMORY;
  }

  /** One or more statements that only read. */
  async read<T>(act: string, body: (db: Db) => T): Promise<T> {
    return this.#retrying(act, () => body(this.#handle()));
  }

  /**
   * One transaction that takes the write lock at its start (C32). `body` must not wait for anything; what it
   * throws rolls everything back.
   * @param landed after a failed COMMIT: whether the transaction is in the reopened database
   */
  async write<T>(act: string, body: (db: Db) => T, landed?: (db: Db) => Landed): Promise<T> {
    const { value, settled } = await this.#retrying(act, () => this.#transact(act, body, landed));
    await settled;
    return value;
  }

  /** Changes whenever another connection has committed; undefined while the database is not open. */
  dataVersion(): string | undefined {
    if (this.#db === undefined) return undefined;
    try {
      const row = this.#db.get<{ data_version: number }>("PRAGMA data_version");
      return `${this.#generation}:${row?.data_version}`;
    } catch {
      return undefined;
    }
  }

  async close(): Promise<void> {
    await this.#settling?.catch(() => {});
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#idleTimer);
    if (this.#db !== undefined && !this.#options.readOnly) checkpoint(this.#db);
    this.#drop();
  }

  #transact<T>(act: string, body: (db: Db) => T, landed: ((db: Db) => Landed) | undefined): Transacted<T> {
    if (this.#alone) {
      this.#drop();
      collectStatements();
    }
    const db = this.#handle();
    db.run("BEGIN IMMEDIATE");
    let value: T;
    try {
      value = body(db);
    } catch (error) {
      this.#rollback(db, error);
      throw error;
    }
    try {
      db.run("COMMIT");
    } catch (error) {
      this.#rollback(db, error);
      if (isBusy(error) || this.inMemory) throw error;
      return { value, settled: this.#settle(act, error, landed) };
    }
    this.#wrote();
    return { value };
  }

  /** SQLite has rolled back by itself after some errors; a handle that saw the disk fail is not used again. */
  #rollback(db: Db, cause: unknown): void {
    try {
      if (db.inTransaction) db.run("ROLLBACK");
      if (isBroken(cause)) this.#drop();
    } catch {
      this.#drop();
    }
  }

  /**
   * after an error in COMMIT its outcome is not known. All is closed and opened again, so that the log is
   * read from the disk; the checkpoint then moves what it holds into the database and empties it, after which
   * frames of the failed commit are either in the database or gone for good. Only then the tips are compared.
   * Begins in the turn of the error: nobody else gets in between.
   */
  #settle(act: string, cause: unknown, landed: ((db: Db) => Landed) | undefined): Promise<void> {
    this.#drop();
    const work = this.#lookAgain(act, cause, landed).finally(() => {
      this.#settling = undefined;
    });
    this.#settling = work;
    return work;
  }

  async #lookAgain(act: string, cause: unknown, landed: ((db: Db) => Landed) | undefined): Promise<void> {
    let answer: Landed | undefined;
    try {
      const whole = await this.#emptyLog();
      const found = landed?.(this.#handle());
      // A full disk is reported by the write of a frame, before the frame that would make it a commit, so its
      // absence is certain even when the full disk also stops the checkpoint.
      if (whole || (isFull(cause) && found === "none")) answer = found;
    } catch {
      this.#drop();
    }
    if (answer === "all") return;
    throw storageFault(act, cause, answer === "none" ? "none" : "unknown");
  }

  async #emptyLog(): Promise<boolean> {
    const deadline = performance.now() + this.#options.busyTimeoutMs;
    for (let attempt = 0; ; attempt++) {
      if (checkpoint(this.#handle())) return true;
      if (performance.now() >= deadline) return false;
      await pause(attempt);
    }
  }

  /** Runs `body` at once and, while others hold a lock, again until the time-out. The event loop keeps turning. */
  async #retrying<T>(act: string, body: () => T): Promise<T> {
    let deadline: number | undefined;
    for (let attempt = 0; ; attempt++) {
      if (this.#settling !== undefined) await this.#settling.catch(() => {});
      if (this.#closed) throw unavailable(act, "the store is closed", "none");
      try {
        return body();
      } catch (error) {
        if (isBroken(error)) this.#drop();
        if (!isBusy(error)) throw storageFault(act, error, "none");
        deadline ??= performance.now() + this.#options.busyTimeoutMs;
        if (performance.now() >= deadline) throw storageFault(act, error, "none");
      }
      await pause(attempt);
    }
  }

  #handle(): Db {
    if (this.#db !== undefined) return this.#db;
    this.#db = this.#openHandle();
    this.#generation++;
    if (!this.inMemory) markOpened(this.#options.path);
    return this.#db;
  }

  #openHandle(): Db {
    try {
      return this.#openConfigured(false);
    } catch (error) {
      if (!isBroken(error) || this.inMemory) throw error;
      try {
        const db = this.#openConfigured(true);
        this.#alone = true;
        return db;
      } catch {
        throw error;
      }
    }
  }

  /**
   * @param alone without the `-shm` file that processes share, for which a full disk may have no room: what is
   *   there can still be read (C34)
   */
  #openConfigured(alone: boolean): Db {
    const { path, readOnly, open } = this.#options;
    const db = open(path, { readOnly });
    try {
      if (alone) db.exec("PRAGMA locking_mode = EXCLUSIVE");
      this.#configure(db);
      return db;
    } catch (error) {
      db.close();
      throw error;
    }
  }

  #configure(db: Db): void {
    const { path, readOnly } = this.#options;
    // Waiting inside SQLite would hold up the event loop.
    db.exec("PRAGMA busy_timeout = 0; PRAGMA foreign_keys = OFF; PRAGMA trusted_schema = OFF");
    const version = db.get<{ v: string }>("SELECT sqlite_version() AS v")?.v ?? "0";
    if (!atLeast(version, OLDEST_SQLITE)) throw unfit(path, `SQLite is ${version}`, `use ${OLDEST_SQLITE} or newer`);
    if (this.inMemory) db.exec(SCHEMA);
    const application = db.get<{ application_id: number }>("PRAGMA application_id")?.application_id ?? 0;
    assertOurs(path, application, db.get<{ user_version: number }>("PRAGMA user_version")?.user_version ?? 0);
    if (!readOnly && !this.inMemory) {
      const mode = db.get<{ journal_mode: string }>("PRAGMA journal_mode = WAL")?.journal_mode;
      if (mode !== "wal") throw unfit(path, `its journal mode is ${mode}`, "put it on a local disk");
      db.exec(`PRAGMA journal_size_limit = ${LOG_LIMIT_BYTES}`);
    }
    // macOS flushes the disk's own cache only when asked to; elsewhere these two change nothing.
    db.exec("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON");
    const synchronous = db.get<{ synchronous: number }>("PRAGMA synchronous")?.synchronous;
    if (synchronous !== 2) throw unfit(path, `synchronous is ${synchronous}`, "use a SQLite that allows FULL");
    db.exec("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8000");
  }

  #drop(): void {
    const db = this.#db;
    if (db === undefined || (this.inMemory && !this.#closed)) return;
    this.#db = undefined;
    this.#alone = false;
    db.close();
  }

  /** One timer: re-armed while there are writes, it empties the log when they have stopped. */
  #wrote(): void {
    this.#wroteSinceTimer = true;
    if (this.#idleTimer !== undefined || this.inMemory) return;
    this.#idleTimer = setTimeout(() => this.#idle(), IDLE_CHECKPOINT_MS);
    this.#idleTimer.unref();
  }

  #idle(): void {
    this.#idleTimer = undefined;
    if (this.#closed || this.#db === undefined) return;
    const quiet = !this.#wroteSinceTimer;
    this.#wroteSinceTimer = false;
    if (quiet && checkpoint(this.#db)) return;
    this.#idleTimer = setTimeout(() => this.#idle(), IDLE_CHECKPOINT_MS);
    this.#idleTimer.unref();
  }
}

interface Transacted<T> {
  readonly value: T;
  /** Present after an error in COMMIT: resolves when the transaction turned out to be there, rejects when not. */
  readonly settled?: Promise<void>;
}

/** Moves the log into the database and empties it; false while others read or write, or on an error. */
function checkpoint(db: Db): boolean {
  try {
    return db.get<{ busy: number }>("PRAGMA wal_checkpoint(TRUNCATE)")?.busy === 0;
  } catch {
    return false;
  }
}

function pause(attempt: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.min(2 ** attempt, LONGEST_PAUSE_MS)));
}

function unfit(path: string, state: string, todo: string): HoldfastError {
  return new HoldfastError("storage", `Cannot open "${path}": ${state}; ${todo}`);
}
