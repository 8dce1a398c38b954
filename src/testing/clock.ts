/**
 * A clock that tests move (DESIGN §14.3). It stands still until it is told to go on; then it fires what is due, in
 * order of time, and whatever that sets going has its turn before the next. Timers of one instant fire in an order
 * that the seed draws.
 */
import type { Clock, Timer } from "../ports/index.ts";
import { type Random, seededRandom } from "./random.ts";

/** 2026-01-05T00:00:00Z: a Monday, so that weekdays in tests are easy to tell. */
const DEFAULT_START_MS = 1_767_571_200_000;
/** Event loop turns in which nothing happens before the world counts as quiet. */
const QUIET_TURNS = 4;
/** How long real work of a tool (reading a file) is waited for before time goes on without it, ms of real time. */
const MAX_HOLD_MS = 5_000;
/** A program that never comes to rest is a bug to be shown, not waited for. */
const MAX_TURNS = 200_000;

export interface SimulatedClockOptions {
  /** Draws the order of timers that are due at the same instant. Default 1. */
  readonly seed?: number;
  /** Epoch milliseconds. */
  readonly start?: number;
}

/** A process's own clock: the world's, but for its drift; its timers end with it. */
export interface ProcessClock extends Clock {
  /** Wall clock minus the world's, ms; may be changed at any time, as by an operator or NTP. */
  driftMs: number;
  /** Ends all timers for good: the process is gone. */
  stop(): void;
  /** Fires nothing until `thaw`, as under SIGSTOP; what became due meanwhile fires then. */
  freeze(): void;
  thaw(): void;
}

interface Pending {
  readonly at: number;
  readonly rank: number;
  /** Comes back for ever: nothing that a world would wait for. */
  readonly periodic: boolean;
  readonly callback: () => void;
}

export class SimulatedClock implements Clock {
  readonly #start: number;
  readonly #random: Random;
  #now: number;
  #pending = new Set<Pending>();
  #activity = 0;
  readonly #holds = new Set<{ readonly until: number }>();

  constructor(options: SimulatedClockOptions = {}) {
    this.#start = options.start ?? DEFAULT_START_MS;
    this.#now = this.#start;
    this.#random = seededRandom("clock", options.seed ?? 1);
  }

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now - this.#start;
  }

  at(atMs: number, callback: () => void): Timer {
    return this.#set(atMs, callback, false);
  }

  every(ms: number, callback: () => void): Timer {
    let timer: Timer;
    const arm = (): void => {
      timer = this.#set(
        this.#now + ms,
        () => {
          arm();
          callback();
        },
        true,
      );
    };
    arm();
    return { cancel: () => timer.cancel() };
  }

  #set(at: number, callback: () => void, periodic: boolean): Timer {
    this.touch();
    const timer: Pending = { at, rank: this.#random.next(), periodic, callback };
    this.#pending.add(timer);
    return { cancel: () => void this.#pending.delete(timer) };
  }

  /** How many timers are set. */
  get pending(): number {
    return this.#pending.size;
  }

  /** When the next timer is due, epoch ms. */
  get nextMs(): number | undefined {
    return this.#next()?.at;
  }

  /** Says that something happened: the world is not quiet yet. */
  touch(): void {
    this.#activity++;
  }

  /** Real work is going on outside the simulation: time stands still until it is released. */
  hold(): () => void {
    const hold = { until: performance.now() + MAX_HOLD_MS };
    this.#holds.add(hold);
    return () => {
      this.#holds.delete(hold);
      this.touch();
    };
  }

  get #held(): boolean {
    const now = performance.now();
    for (const hold of this.#holds) if (hold.until > now) return true;
    return false;
  }

  /** Turns the event loop until nothing happens any more; time stands still. */
  async settle(): Promise<void> {
    let quiet = 0;
    for (let turns = 0; quiet < QUIET_TURNS; turns++) {
      if (turns > MAX_TURNS)
        throw new Error("The simulated world does not come to rest: something goes on without end");
      const before = this.#activity;
      await new Promise<void>((resolve) => setImmediate(resolve));
      quiet = this.#activity === before ? quiet + 1 : 0;
      if (quiet < QUIET_TURNS || !this.#held) continue;
      quiet = 0;
      await new Promise<void>((resolve) => setTimeout(resolve, 1));
    }
  }

  /** Goes on to the next timer that is due by `untilMs` and fires it; false when there is none. */
  step(untilMs = Number.POSITIVE_INFINITY): boolean {
    const next = this.#next();
    if (next === undefined || next.at > untilMs) return false;
    return this.#fire(next);
  }

  /** As `step`, but false also when what is left by then only comes back for ever, such as the renewal of a lease. */
  stepToward(untilMs: number): boolean {
    const next = this.#next();
    if (next === undefined || next.at > untilMs) return false;
    for (const timer of this.#pending) if (!timer.periodic && timer.at <= untilMs) return this.#fire(next);
    return false;
  }

  #fire(next: Pending): boolean {
    this.#pending.delete(next);
    this.#now = Math.max(this.#now, next.at);
    this.touch();
    next.callback();
    return true;
  }

  /** Lets `ms` pass. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await this.settle();
    while (this.step(until)) await this.settle();
    this.#now = Math.max(this.#now, until);
  }

  /** Lets time pass until no timer is left. @throws Error after `maxSteps` timers */
  async runUntilIdle(maxSteps = 1_000_000): Promise<void> {
    await this.settle();
    for (let steps = 0; this.step(); steps++) {
      if (steps >= maxSteps) throw new Error(`The simulated world is not idle after ${maxSteps} timers`);
      await this.settle();
    }
  }

  /** A clock for one process of the world. */
  view(driftMs = 0): ProcessClock {
    return new View(this, driftMs);
  }

  #next(): Pending | undefined {
    let next: Pending | undefined;
    for (const timer of this.#pending)
      if (next === undefined || timer.at < next.at || (timer.at === next.at && timer.rank < next.rank)) next = timer;
    return next;
  }
}

class View implements ProcessClock {
  driftMs: number;
  readonly #world: SimulatedClock;
  readonly #timers = new Set<Timer>();
  #held: (() => void)[] | undefined;
  #stopped = false;

  constructor(world: SimulatedClock, driftMs: number) {
    this.#world = world;
    this.driftMs = driftMs;
  }

  now(): number {
    return this.#world.now() + this.driftMs;
  }

  monotonic(): number {
    return this.#world.monotonic();
  }

  at(atMs: number, callback: () => void): Timer {
    return this.#set(() => atMs - this.driftMs, callback, false);
  }

  every(ms: number, callback: () => void): Timer {
    return this.#set(() => ms, callback, true);
  }

  #set(due: () => number, callback: () => void, again: boolean): Timer {
    if (this.#stopped) return { cancel: () => undefined };
    let inner: Timer = { cancel: () => undefined };
    let wanted = true;
    const timer: Timer = {
      cancel: () => {
        wanted = false;
        inner.cancel();
        this.#timers.delete(timer);
      },
    };
    const fire = (): void => {
      if (!wanted || this.#stopped) return;
      if (this.#held !== undefined) {
        this.#held.push(fire);
        return;
      }
      if (!again) this.#timers.delete(timer);
      callback();
    };
    inner = again ? this.#world.every(due(), fire) : this.#world.at(due(), fire);
    this.#timers.add(timer);
    return timer;
  }

  stop(): void {
    this.#stopped = true;
    for (const timer of [...this.#timers]) timer.cancel();
  }

  freeze(): void {
    this.#held ??= [];
  }

  thaw(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const fire of held) fire();
  }
}

/** A clock that tests move by hand. */
export function simulatedClock(options: SimulatedClockOptions = {}): SimulatedClock {
  return new SimulatedClock(options);
}
