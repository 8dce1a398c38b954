/** Chance that can be had again: everything the simulated world leaves to luck is drawn from one seed. */
import { sha256 } from "../domain/json.ts";
import type { Ids } from "../ports/index.ts";

export interface Random {
  /** 0 ≤ x < 1. */
  next(): number;
  /** A whole number, 0 ≤ n < `below`. */
  int(below: number): number;
  /** A whole number from `least` to `most`, both possible. */
  between(least: number, most: number): number;
  chance(probability: number): boolean;
  pick<T>(list: readonly T[]): T;
  shuffle<T>(list: readonly T[]): T[];
}

/** Random numbers that depend on these words alone, whatever else was drawn before. */
export function seededRandom(...words: readonly (string | number)[]): Random {
  let state = Number.parseInt(sha256(words.join("\0")).slice(0, 8), 16);
  const next = (): number => {
    // mulberry32: 32 bits of state are enough for orders and delays, and it is the same on every machine.
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const int = (below: number): number => Math.floor(next() * below);
  return {
    next,
    int,
    between: (least, most) => least + int(most - least + 1),
    chance: (probability) => next() < probability,
    pick: <T>(list: readonly T[]) => list[int(list.length)] as T,
    shuffle<T>(list: readonly T[]): T[] {
      const out = [...list];
      for (let i = out.length - 1; i > 0; i--) {
        const j = int(i + 1);
        [out[i], out[j]] = [out[j] as T, out[i] as T];
      }
      return out;
    },
  };
}

/** UUIDv7s whose time is the clock's and whose chance is the seed's. */
export function seededIds(clock: { now(): number }, ...words: readonly (string | number)[]): Ids {
  const random = seededRandom("ids", ...words);
  const hex = (digits: number): string => Array.from({ length: digits }, () => random.int(16).toString(16)).join("");
  return {
    uuid() {
      const time = Math.floor(clock.now()).toString(16).padStart(12, "0").slice(-12);
      return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(3)}-${"89ab"[random.int(4)]}${hex(3)}-${hex(12)}`;
    },
  };
}
