/**
 * Hearing of changes: at once within the process, within milliseconds from other processes, and within 250 ms
 * whatever happens. Costs nothing while nobody listens.
 *
 * Other processes are told by touching one file in the state folder, which they watch: no connection to keep,
 * nothing to clean up after a dead process, and where the file system cannot be watched, `data_version` still
 * says every 250 ms whether anybody has committed.
 */
import * as fs from "node:fs";

const POLL_MS = 250;

export interface ChangeSource {
  /** Differs after a commit of any other connection; undefined when it cannot be told now. */
  readonly version: () => string | undefined;
  /** The file that is touched; undefined for a database in memory. */
  readonly nudgeFile: string | undefined;
}

export class ChangeWatch {
  readonly #source: ChangeSource;
  readonly #listeners = new Set<() => void>();
  #seen: string | undefined;
  #poll: NodeJS.Timeout | undefined;
  #watcher: fs.FSWatcher | undefined;
  #nudge: number | undefined;
  #announced = false;

  constructor(source: ChangeSource) {
    this.#source = source;
  }

  subscribe(onChange: () => void): () => void {
    // A wrapper, so that the same function may listen twice.
    const listener = (): void => onChange();
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#start();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop();
    };
  }

  /** This process has committed a change that others may wait for. Many in one turn are told once. */
  announce(): void {
    if (this.#announced) return;
    this.#announced = true;
    queueMicrotask(() => {
      this.#announced = false;
      this.#touch();
      this.#tell();
    });
  }

  close(): void {
    this.#listeners.clear();
    this.#stop();
    if (this.#nudge !== undefined) fs.closeSync(this.#nudge);
    this.#nudge = undefined;
  }

  #start(): void {
    this.#seen = this.#source.version();
    this.#poll = setInterval(() => this.#look(), POLL_MS);
    this.#poll.unref();
    if (this.#source.nudgeFile === undefined) return;
    try {
      this.#nudge ??= openNudge(this.#source.nudgeFile);
      this.#watcher = fs.watch(this.#source.nudgeFile, { persistent: false }, () => this.#look());
      // The poll goes on; a watch that fails later (its file was removed, too many watches) is only given up.
      this.#watcher.on("error", () => this.#watcher?.close());
    } catch {
      this.#watcher = undefined;
    }
  }

  #stop(): void {
    clearInterval(this.#poll);
    this.#watcher?.close();
    this.#poll = undefined;
    this.#watcher = undefined;
  }

  #look(): void {
    const version = this.#source.version();
    if (version === undefined || version === this.#seen) return;
    this.#seen = version;
    this.#tell();
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) listener();
  }

  #touch(): void {
    const file = this.#source.nudgeFile;
    if (file === undefined) return;
    try {
      this.#nudge ??= openNudge(file);
      const now = new Date();
      fs.futimesSync(this.#nudge, now, now);
    } catch {
      // Only a hint: the others look every 250 ms anyway.
    }
  }
}

function openNudge(file: string): number {
  return fs.openSync(file, "a", 0o600);
}
