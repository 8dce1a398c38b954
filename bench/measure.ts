/** Taking figures: medians, times with their CPU, and what a figure is held against (DESIGN §15). */
import { cpus } from "node:os";

/** How much work a measure does. Only `FULL` gives figures to rely on. */
export interface Size {
  readonly repetitions: number;
  /** Of what takes seconds: W3, W5. */
  readonly longRepetitions: number;
  /** W1: runs in one repetition. */
  readonly shortRuns: number;
  /** Steps of the sequential rows; `strict` and mutating ones wait for the disk and are fewer. */
  readonly steps: number;
  readonly durableSteps: number;
  /** W2, W5. */
  readonly runs: number;
  /** W3. */
  readonly growthSteps: number;
  /** W3: steps over which the time of one is taken, at the beginning and at the end. */
  readonly growthWindow: number;
  /** W4. */
  readonly parallelSteps: number;
  /** W6. */
  readonly sleepers: number;
  readonly idleMs: number;
  /** How long single rows are committed to know the raw rate. */
  readonly rawMs: number;
  /** Starts of a process. */
  readonly starts: number;
}

export const FULL: Size = {
  repetitions: 5,
  longRepetitions: 3,
  shortRuns: 100,
  steps: 1_000,
  durableSteps: 300,
  runs: 1_000,
  growthSteps: 10_000,
  growthWindow: 1_000,
  parallelSteps: 1_000,
  sleepers: 10_000,
  idleMs: 10_000,
  rawMs: 300,
  starts: 7,
};

/** Shows that every workload works; its figures mean nothing. */
export const TINY: Size = {
  repetitions: 1,
  longRepetitions: 1,
  shortRuns: 3,
  steps: 10,
  durableSteps: 5,
  runs: 5,
  growthSteps: 60,
  growthWindow: 10,
  parallelSteps: 10,
  sleepers: 5,
  idleMs: 100,
  rawMs: 10,
  starts: 1,
};

/** A bound of DESIGN §15: the figure must be at most, or at least, this. */
export interface Bound {
  readonly is: "at most" | "at least";
  readonly value: number;
  readonly unit: string;
}

export const atMost = (value: number, unit: string): Bound => ({ is: "at most", value, unit });
export const atLeast = (value: number, unit: string): Bound => ({ is: "at least", value, unit });

/** One line of the table: a figure, its bounds, and what it was taken beside. */
export interface Figure {
  readonly work: string;
  /** In the unit of its bounds. */
  readonly value: number;
  readonly must: Bound;
  readonly aim: Bound;
  /** The absolute figures behind it, ours first. */
  readonly beside: string;
}

/** What the engine itself costs, without the disk. */
export interface Cost {
  readonly work: string;
  /** CPU of the whole process, in microseconds a step. */
  readonly stepMicros: number;
  /** CPU that other processes took meanwhile, in cores. */
  readonly others: number;
}

export interface Measured {
  readonly figures: readonly Figure[];
  readonly costs?: readonly Cost[];
}

export interface Bench {
  readonly size: Size;
  /** Makes a folder of its own for one piece of work; all are removed in the end. */
  folder(): string;
}

export interface Workload {
  /** How it is asked for: `npm run bench -- w2`. */
  readonly name: string;
  measure(bench: Bench): Promise<Measured>;
  /** The work of one repetition once more, for the profiler; absent where there is nothing of ours to profile. */
  profile?(bench: Bench): Promise<readonly Hot[]>;
}

/** A function that took time, from a profile. */
export interface Hot {
  /** `src/engine/engine.ts: create`, or what V8 calls time that belongs to no function. */
  readonly where: string;
  /** Share of the time in which the process was at work, 0 to 1. */
  readonly share: number;
}

export interface Timed {
  readonly ms: number;
  /** CPU of this process, all threads. */
  readonly cpuMicros: number;
  readonly others: number;
}

export async function timed(work: () => unknown): Promise<Timed> {
  const [own, all, start] = [process.cpuUsage(), busyMicros(), performance.now()];
  await work();
  const ms = performance.now() - start;
  const used = process.cpuUsage(own);
  const cpuMicros = used.user + used.system;
  return { ms, cpuMicros, others: Math.max(0, (busyMicros() - all - cpuMicros) / 1000 / ms) };
}

/** What all processors have worked since the machine started. */
function busyMicros(): number {
  return cpus().reduce((sum, { times }) => sum + (times.user + times.nice + times.sys + times.irq) * 1000, 0);
}

/** Does something `count` times in a row. */
export async function repeat<T>(count: number, take: (repetition: number) => Promise<T>): Promise<T[]> {
  const taken: T[] = [];
  for (let i = 0; i < count; i++) taken.push(await take(i));
  return taken;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

/** The value below which a share of all lies, between two neighbours by distance. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)] ?? 0;
  return below + ((sorted[Math.ceil(at)] ?? below) - below) * (at - Math.floor(at));
}

/** The median of one field over repetitions. */
export function medianOf<T>(taken: readonly T[], field: (each: T) => number): number {
  return median(taken.map(field));
}

/** A number as the table shows it: three digits, or whole. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Collects what the last work left, where the process was started with `--expose-gc`. */
export function collectGarbage(): void {
  globalThis.gc?.();
}
