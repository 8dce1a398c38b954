/** Time and identity of the real world: the only place of the engine that reads a clock or rolls dice. */
import { v7 } from "uuid";
import type { Clock, Ids, Timer } from "../ports/index.ts";

/** The longest delay that `setTimeout` keeps; longer ones are taken in steps (C18). */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  at(atMs: number, callback: () => void): Timer {
    let handle: NodeJS.Timeout;
    const arm = (): void => {
      const left = atMs - Date.now();
      handle = setTimeout(() => (Date.now() >= atMs ? callback() : arm()), Math.min(Math.max(left, 0), MAX_TIMEOUT_MS));
    };
    arm();
    return { cancel: () => clearTimeout(handle) };
  },
};

/** Random bytes fetched at a time: one call to the operating system for many ids. */
const POOL = new Uint8Array(4096);
let unused = 0;
let last = { ms: 0, seq: 0 };

/** Ids of one process rise also within a millisecond, so lists by id keep their order. */
function uuid(): string {
  if (unused < 16) unused = crypto.getRandomValues(POOL).length;
  const random = POOL.slice(unused - 16, unused);
  unused -= 16;
  const ms = Math.max(Date.now(), last.ms);
  // A new millisecond starts at a random number of the lower half: there is room to count up.
  const seq = ms === last.ms ? last.seq + 1 : ((random[0] ?? 0) << 16) | ((random[1] ?? 0) << 8) | (random[2] ?? 0);
  last = { ms, seq };
  return v7({ random, msecs: ms, seq });
}

export const systemIds: Ids = { uuid };
