/**
 * Host locks: each owner holds a lock on a small file in the state folder for as long as its process
 * lives. The system drops the lock with the process, so whoever can take it has proved that the owner is dead.
 *
 * The lock is SQLite's own: a database `owners/<owner>.lock` held by BEGIN EXCLUSIVE. It works the same on
 * every system and between all copies of SQLite in a process, and nothing is ever written to the file.
 *
 * A missing file proves nothing: the owner may be on another host, or its folder may have been cleaned.
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import type { Db, OpenDatabase } from "./driver.ts";
import { isBusy, storageFault } from "./faults.ts";

/** An owner that was found alive is not asked again for so long, where many are asked at once. */
const PROBE_EVERY_MS = 500;
/** Files looked at when a process cleans up after dead ones. */
const SWEEP_LIMIT = 200;

export class HostLocks {
  /** Undefined for a database in memory, whose owners all live in this process. */
  readonly #folder: string | undefined;
  readonly #open: OpenDatabase;
  readonly #held = new Map<string, Db>();
  readonly #dead = new Set<string>();
  readonly #probedAt = new Map<string, number>();

  constructor(folder: string | undefined, open: OpenDatabase) {
    this.#folder = folder;
    this.#open = open;
  }

  /** Takes the lock of `owner`. @throws HoldfastError `storage` or `storage_unavailable` */
  register(owner: string): void {
    if (this.#folder === undefined || this.#held.has(owner)) return;
    const act = `take the host lock of ${owner}`;
    try {
      fs.mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      for (let attempt = 0; attempt < 3; attempt++) {
        const file = this.#file(owner);
        fs.closeSync(fs.openSync(file, "a", 0o600));
        const lock = this.#lock(file);
        // Between its making and its locking another process may have taken it for a dead one's and removed it.
        if (lock !== undefined && fs.existsSync(file)) {
          this.#held.set(owner, lock);
          return;
        }
        lock?.close();
      }
    } catch (error) {
      throw storageFault(act, error, "none");
    }
    throw storageFault(act, Object.assign(new Error("held"), { errcode: 5 }), "none");
  }

  /** Proved dead before; asks nobody. */
  knownDead(owner: string): boolean {
    return this.#dead.has(owner);
  }

  /**
   * Whether the owner is proved dead; death is for good.
   * @param fresh ask even when it was found alive a moment ago
   */
  isDead(owner: string, fresh: boolean): boolean {
    if (this.#dead.has(owner)) return true;
    if (this.#folder === undefined || this.#held.has(owner)) return false;
    const now = performance.now();
    if (!fresh && now - (this.#probedAt.get(owner) ?? Number.NEGATIVE_INFINITY) < PROBE_EVERY_MS) return false;
    this.#remember(owner, now);
    const file = this.#file(owner);
    if (!fs.existsSync(file)) return false;
    const lock = this.#tryLock(file);
    lock?.close();
    if (lock !== undefined) this.#dead.add(owner);
    return lock !== undefined;
  }

  /** Removes files that dead processes left; not those of owners in `stillNeeded`: they are the proof for others. */
  sweep(stillNeeded: readonly string[]): void {
    if (this.#folder === undefined) return;
    const needed = new Set(stillNeeded.map((owner) => path.basename(this.#file(owner))));
    const held = new Set([...this.#held.keys()].map((owner) => path.basename(this.#file(owner))));
    const files = fs.readdirSync(this.#folder).filter((name) => name.endsWith(".lock"));
    for (const name of files.slice(0, SWEEP_LIMIT)) {
      if (needed.has(name) || held.has(name)) continue;
      const file = path.join(this.#folder, name);
      const lock = this.#tryLock(file);
      if (lock === undefined) continue;
      fs.rmSync(file, { force: true });
      lock.close();
    }
  }

  /**
   * Gives back all locks. The file of an owner that still holds trees stays, unlocked: it lets others take them
   * over at once.
   */
  close(holdsTrees: (owner: string) => boolean): void {
    for (const [owner, lock] of this.#held) {
      if (!holdsTrees(owner)) fs.rmSync(this.#file(owner), { force: true });
      lock.close();
    }
    this.#held.clear();
  }

  #file(owner: string): string {
    const name = /^[A-Za-z0-9_-]{1,128}$/.test(owner) ? owner : createHash("sha256").update(owner).digest("hex");
    return path.join(this.#folder ?? "", `${name}.lock`);
  }

  #lock(file: string): Db | undefined {
    const db = this.#open(file, { readOnly: false });
    try {
      db.exec("PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE");
      return db;
    } catch (error) {
      db.close();
      if (isBusy(error)) return undefined;
      throw error;
    }
  }

  /** As `#lock`; a file that cannot be opened proves nothing. */
  #tryLock(file: string): Db | undefined {
    try {
      return this.#lock(file);
    } catch {
      return undefined;
    }
  }

  #remember(owner: string, now: number): void {
    if (this.#probedAt.size > 1_000) this.#probedAt.clear();
    this.#probedAt.set(owner, now);
  }
}
