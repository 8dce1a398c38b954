/**
 * When this process may still begin work: no dispatch begins later than two thirds of a lease after *sending*
 * the last successful renewal, by the larger of monotonic and wall time elapsed. Takers wait longer than that.
 */
import type { Clock } from "../ports/index.ts";

export interface LeaseGuard {
  /** Checked in the same tick as the hand-over. */
  mayDispatch(): boolean;
}

export class LeaseClock implements LeaseGuard {
  readonly #clock: Clock;
  readonly #limitMs: number;
  #sent: { wall: number; monotonic: number };

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#limitMs = (leaseMs * 2) / 3;
    this.#sent = this.now();
  }

  now(): { wall: number; monotonic: number } {
    return { wall: this.#clock.now(), monotonic: this.#clock.monotonic() };
  }

  /** A renewal (or claim) that was sent at `sent` has succeeded. */
  renewed(sent: { wall: number; monotonic: number }): void {
    this.#sent = sent;
  }

  mayDispatch(): boolean {
    const now = this.now();
    const elapsed = Math.max(now.wall - this.#sent.wall, now.monotonic - this.#sent.monotonic);
    return elapsed <= this.#limitMs;
  }
}
