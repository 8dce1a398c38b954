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

export const systemIds: Ids = { uuid: () => v7() };
