/**
 * What `Idempotency-Key` headers were used for (interfaces §3), besides starts and restarts, whose keys the store
 * keeps with the run. One line of JSON a remembered request, appended and flushed before its answer leaves:
 *
 *   {"scope": hash of caller-independent session, route and key, "request": hash of the body, "status", "about", "at_ms"}
 *
 * `about` is the run or session the answer was of; a replay answers with how that is now. A crash between act and
 * line runs the request again, which every such operation bears: it is guarded by the state that it changes.
 */
import { createHash } from "node:crypto";
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { refusal } from "./problem.ts";

export interface Remembered {
  readonly status: number;
  readonly about?: string;
}

interface Line extends Remembered {
  readonly scope: string;
  readonly request: string;
  readonly at_ms: number;
}

/** The newest so many requests are remembered. */
const MOST = 100_000;

export class KeyMemory {
  readonly #file: string | undefined;
  readonly #known = new Map<string, Line>();
  readonly #running = new Map<string, Promise<unknown>>();
  #lines = 0;

  /** Without a file (a store in memory) it lasts as long as the store does. */
  constructor(file?: string) {
    this.#file = file;
    if (file !== undefined) this.#load(file);
  }

  /**
   * Runs `act` unless this key has been used in this scope; requests with one key go one after the other.
   * @returns the remembered answer, or that of `act`, which is then remembered
   * @throws HoldfastError `idempotency_key_reused` for another request under the same key
   */
  async once<T extends Remembered>(
    name: { readonly scope: string; readonly key: string; readonly request: string },
    act: () => Promise<T>,
  ): Promise<{ readonly replayed: Remembered } | { readonly answer: T }> {
    const scope = digest(`${name.scope}\0${name.key}`);
    const request = digest(name.request);
    for (let before = this.#running.get(scope); before !== undefined; before = this.#running.get(scope))
      await before.catch(() => undefined);
    const known = this.#known.get(scope);
    if (known !== undefined) {
      if (known.request === request) return { replayed: known };
      throw refusal(
        "idempotency_key_reused",
        "Cannot use this Idempotency-Key: it was used for another request; use a new key for a new request",
      );
    }
    const work = act();
    this.#running.set(scope, work);
    try {
      const answer = await work;
      this.#remember({
        scope,
        request,
        status: answer.status,
        ...(answer.about === undefined ? {} : { about: answer.about }),
        at_ms: Date.now(),
      });
      return { answer };
    } finally {
      this.#running.delete(scope);
    }
  }

  #remember(line: Line): void {
    this.#known.set(line.scope, line);
    if (this.#known.size > MOST) this.#known.delete(this.#known.keys().next().value as string);
    if (this.#file === undefined) return;
    const fd = openSync(this.#file, "a", 0o600);
    try {
      writeSync(fd, `${JSON.stringify(line)}\n`);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    if (++this.#lines > 2 * MOST) this.#compact(this.#file);
  }

  #load(file: string): void {
    let text = "";
    try {
      text = readFileSync(file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
    for (const each of text.split("\n")) {
      const line = parseLine(each);
      if (line === undefined) continue;
      this.#lines++;
      this.#known.delete(line.scope);
      this.#known.set(line.scope, line);
    }
    while (this.#known.size > MOST) this.#known.delete(this.#known.keys().next().value as string);
  }

  #compact(file: string): void {
    const draft = `${file}.new`;
    writeFileSync(draft, [...this.#known.values()].map((line) => `${JSON.stringify(line)}\n`).join(""), {
      mode: 0o600,
    });
    renameSync(draft, file);
    this.#lines = this.#known.size;
  }
}

/** A line that a crash cut short is no line. */
function parseLine(text: string): Line | undefined {
  try {
    const value = JSON.parse(text) as Partial<Line> | null;
    if (typeof value?.scope === "string" && typeof value.request === "string" && typeof value.status === "number")
      return value as Line;
  } catch {
    return undefined;
  }
  return undefined;
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}
