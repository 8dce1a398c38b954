/**
 * What Holdfast is measured against (performance.md §1-2), on the same driver and disk at the same durability:
 * the raw rate of single-row commits, and the floor: the least that a durable engine must write, a run row and one
 * journal row for each event. `single` commits every event by itself, `group` shares one commit among the events of
 * one turn of the event loop. A floor can neither retry, nor stop, nor say what happened.
 */
import { type Db, openDatabase } from "../src/stores/sqlite/driver.ts";
import { each } from "./subject.ts";

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS raw (a INTEGER PRIMARY KEY, b BLOB);
  CREATE TABLE IF NOT EXISTS runs (run INTEGER PRIMARY KEY, open INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS journal (run INTEGER, sequence INTEGER, body BLOB, PRIMARY KEY (run, sequence)) WITHOUT ROWID;
`;
const NEW_RUN = "INSERT INTO runs (open) VALUES (1)";
const EVENT = "INSERT INTO journal (run, sequence, body) VALUES (?, ?, ?)";
const END = "UPDATE runs SET open = 0 WHERE run = ?";
/** SQLite's number for FULL. */
const FULL_SYNC = 2;
const ROW = Buffer.from('{"at_ms":1764460800000,"output":{},"step_id":"s12","type":"completed"}');

interface Waiting {
  readonly write: () => void;
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

export class Floor {
  readonly #db: Db;
  readonly #group: boolean;
  #waiting: Waiting[] = [];

  constructor(file: string, kind: "single" | "group") {
    this.#db = openDatabase(file, { readOnly: false });
    this.#db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
    const sync = this.#db.get<{ synchronous: number }>("PRAGMA synchronous")?.synchronous;
    if (sync !== FULL_SYNC) throw new Error(`Cannot measure: synchronous is ${sync}, not FULL`);
    this.#db.exec(SCHEMA);
    this.#group = kind === "group";
  }

  close(): void {
    this.#db.close();
  }

  /** Single-row durable commits a second, over some time: what the disk allows to whoever waits for every row. */
  rawRate(forMs: number): number {
    const start = performance.now();
    let commits = 0;
    let ms = 0;
    while (ms < forMs) {
      this.#db.run("INSERT INTO raw (b) VALUES (?)", ROW);
      commits++;
      ms = performance.now() - start;
    }
    return (commits / ms) * 1000;
  }

  /** A run of steps one after the other: start, each step, end. */
  async run(steps: number): Promise<void> {
    const run = await this.#start();
    for (let i = 0; i < steps; i++) await this.#commit(() => this.#event(run, i + 2));
    await this.#end(run, steps + 2);
  }

  /** A run whose steps are all at work at once. */
  async parallel(steps: number): Promise<void> {
    const run = await this.#start();
    await each(steps, steps, (i) => this.#commit(() => this.#event(run, i + 2)));
    await this.#end(run, steps + 2);
  }

  /** Runs that stop after some steps, as a kill would leave them. */
  async leave(runs: number, steps: number): Promise<void> {
    await each(runs, 64, async () => {
      const run = await this.#start();
      for (let i = 0; i < steps; i++) await this.#commit(() => this.#event(run, i + 2));
    });
  }

  /** Finds the runs that are open and takes each to its end. Answers how many there were. */
  async recover(steps: number): Promise<number> {
    const open = this.#db.all<{ run: number; last: number }>(
      "SELECT run, max(sequence) AS last FROM runs JOIN journal USING (run) WHERE open = 1 GROUP BY run",
    );
    await each(open.length, open.length, async (i) => {
      const { run, last } = open[i] as { run: number; last: number };
      for (let at = last + 1; at <= steps + 1; at++) await this.#commit(() => this.#event(run, at));
      await this.#end(run, steps + 2);
    });
    return open.length;
  }

  async #start(): Promise<number> {
    let run = 0;
    await this.#commit(() => {
      run = this.#db.run(NEW_RUN).id;
      this.#event(run, 1);
    });
    return run;
  }

  #end(run: number, sequence: number): Promise<void> {
    return this.#commit(() => {
      this.#event(run, sequence);
      this.#db.run(END, run);
    });
  }

  #event(run: number, sequence: number): void {
    this.#db.run(EVENT, run, sequence, ROW);
  }

  /** Resolves when what was written is durable. */
  async #commit(write: () => void): Promise<void> {
    if (!this.#group) return this.#transaction([write]);
    await new Promise<void>((done, failed) => {
      if (this.#waiting.push({ write, done, failed }) === 1) setImmediate(() => this.#flush());
    });
  }

  #flush(): void {
    const group = this.#waiting;
    this.#waiting = [];
    try {
      this.#transaction(group.map(({ write }) => write));
    } catch (error) {
      for (const { failed } of group) failed(error);
      return;
    }
    for (const { done } of group) done();
  }

  #transaction(writes: readonly (() => void)[]): void {
    this.#db.exec("BEGIN IMMEDIATE");
    for (const write of writes) write();
    this.#db.exec("COMMIT");
  }
}
