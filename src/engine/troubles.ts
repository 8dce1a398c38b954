/**
 * Trees that this process had to let go of because something failed under them (R-4, C34): a full disk, a store that
 * does not answer, a bug. Their lease is given up at once so that whoever is asked to may go on; where it fails again
 * and again without getting further, drivers are told to come later each time, so that nothing spins. A lease that
 * cannot be given up now is given up as soon as the store takes it: no restart is needed (GD-31).
 */
import type { ErrorCode, HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import type { Claim, Clock, RunStore, Timer } from "../ports/index.ts";

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
/** Trees whose failures are remembered; the oldest are forgotten first. */
const MOST_REMEMBERED = 10_000;

export interface Trouble {
  readonly code: ErrorCode;
  readonly message: string;
  readonly since_ms: number;
  /** When drivers are to try again, epoch ms. */
  readonly again_at_ms: number;
}

interface Entry extends Trouble {
  readonly times: number;
  timer: Timer | undefined;
}

export class Troubles {
  readonly #store: RunStore;
  readonly #clock: Clock;
  readonly #of = new Map<string, Entry>();
  #closed = false;

  constructor(store: RunStore, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** What keeps a tree from going on here. */
  of(rootRunId: string): Trouble | undefined {
    return this.#of.get(rootRunId);
  }

  /** Gives the lease up. Drivers wait with it: not at all the first time, then for a pause that doubles. */
  letGo(rootRunId: string, fence: number, error: HoldfastError): void {
    if (this.#closed) return;
    const before = this.#of.get(rootRunId);
    before?.timer?.cancel();
    const times = (before?.times ?? 0) + 1;
    const now = this.#clock.now();
    const pause = times === 1 ? 0 : pauseMs(times - 1);
    const { code, message } = error;
    const entry: Entry = {
      code,
      message,
      since_ms: before?.since_ms ?? now,
      again_at_ms: now + pause,
      times,
      timer: undefined,
    };
    this.#of.delete(rootRunId);
    this.#of.set(rootRunId, entry);
    if (this.#of.size > MOST_REMEMBERED) this.#forgetOldest();
    void this.#release(rootRunId, fence, entry, 0);
  }

  async #release(rootRunId: string, fence: number, entry: Entry, tries: number): Promise<void> {
    entry.timer = undefined;
    if (this.#closed) return;
    try {
      await this.#store.release(rootRunId, fence);
    } catch {
      if (this.#closed) return;
      entry.timer = this.#clock.at(
        this.#clock.now() + pauseMs(tries + 1),
        () => void this.#release(rootRunId, fence, entry, tries + 1),
      );
    }
  }

  /** Whether a driver that has claimed it is too early; then it is given back, to be due when its pause is over. */
  async isEarly({ root_run_id, fence }: Pick<Claim, "root_run_id" | "fence">): Promise<boolean> {
    const entry = this.#of.get(root_run_id);
    if (entry === undefined || entry.again_at_ms <= this.#clock.now()) return false;
    const tree = { release: true, wake_at_ms: entry.again_at_ms } as const;
    try {
      // An open signal makes a free tree due at once: given back, it would be claimed and given back without end.
      if ((await this.#store.signals({ root_run_id })).length > 0) {
        entry.timer?.cancel();
        entry.timer = this.#clock.at(entry.again_at_ms, () => void this.#release(root_run_id, fence, entry, 0));
        return true;
      }
      await this.#store.commit([{ root_run_id, fence, runs: [], artifacts: [], signals_done: [], tree }]);
    } catch {
      entry.timer?.cancel();
      entry.timer = this.#clock.at(entry.again_at_ms, () => void this.#release(root_run_id, fence, entry, 0));
    }
    return true;
  }

  /** Something of the tree is durable: when that settled anything, it is in trouble no longer. */
  heard(rootRunId: string, events: readonly RunEvent[]): void {
    if (this.#of.size > 0 && this.#of.has(rootRunId) && events.some((event) => SETTLES.has(event.type)))
      this.over(rootRunId);
  }

  over(rootRunId: string): void {
    const entry = this.#of.get(rootRunId);
    if (entry === undefined) return;
    // A lease that is still to be given up is another claim's by now, or is given up by the store's fence.
    entry.timer?.cancel();
    this.#of.delete(rootRunId);
  }

  #forgetOldest(): void {
    for (const [root, { timer }] of this.#of)
      if (timer === undefined) {
        this.#of.delete(root);
        return;
      }
  }

  close(): void {
    this.#closed = true;
    for (const { timer } of this.#of.values()) timer?.cancel();
    this.#of.clear();
  }
}

const SETTLES: ReadonlySet<RunEvent["type"]> = new Set([
  "step_completed",
  "step_failed",
  "step_cancelled",
  "run_succeeded",
  "run_failed",
  "run_cancelled",
]);

function pauseMs(times: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(times - 1, 16));
}
