/** Time and chance come only from here, so that tests can own them. */
export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Wall clock, epoch milliseconds. */
  now(): number;
  /** Milliseconds that never run backwards, from an arbitrary start. */
  monotonic(): number;
  /** Calls back once, not before `at_ms` on the wall clock, however far away (no 2^31 limit, C18). */
  at(atMs: number, callback: () => void): Timer;
  /**
   * Calls back every `ms` of monotonic time until it is cancelled. Only a clock that is moved by hand needs to have
   * it: without it the system's own interval is used, which no change of the wall clock delays.
   */
  every?(ms: number, callback: () => void): Timer;
}

export interface Ids {
  /** UUIDv7. */
  uuid(): string;
}
