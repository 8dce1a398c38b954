/**
 * W3: one run that grows, in a process of its own. A step must cost at its end what it cost at its beginning, in
 * time, on disk and in memory.
 */

import { openDatabase } from "../../src/stores/sqlite/driver.ts";
import { inChild, profileInChild } from "../child.ts";
import {
  atMost,
  type Bench,
  collectGarbage,
  type Measured,
  medianOf,
  repeat,
  shown,
  timed,
  type Workload,
} from "../measure.ts";
import { databaseOf, finish, openSubject, sequenceOf } from "../subject.ts";

const BEGINNING = 100;
/** Steps of another run before: code that is not compiled yet would make the beginning slow, and growth look small. */
const WARM_UP = 1_000;
const RSS_EVERY = 100;
const MIB = 1024 * 1024;

interface Request {
  readonly folder: string;
  readonly steps: number;
  readonly window: number;
}

interface Grown {
  readonly earlyMs: number;
  readonly lateMs: number;
  readonly stepBytes: number;
  readonly startBytes: number;
  readonly peakBytes: number;
  readonly stepMicros: number;
  readonly others: number;
}

export const growth: Workload = {
  name: "w3",
  measure,
  profile: (bench) => profileInChild("grow", requestOf(bench)),
};

function requestOf({ folder, size }: Bench): Request {
  return { folder: folder(), steps: size.growthSteps, window: size.growthWindow };
}

async function measure(bench: Bench): Promise<Measured> {
  const taken = await repeat(bench.size.longRepetitions, () => inChild<Grown>("grow", requestOf(bench)));
  const at = (field: (one: Grown) => number): string => shown(medianOf(taken, field));
  const steps = bench.size.growthSteps.toLocaleString("en-US");
  return {
    figures: [
      {
        work: `W3 growth to ${steps} steps: time of step ${steps} over step ${BEGINNING}`,
        value: medianOf(taken, (one) => one.lateMs / one.earlyMs),
        must: atMost(1.25, "×"),
        aim: atMost(1.05, "×"),
        beside: `${at((one) => one.lateMs)} ms at the end, ${at((one) => one.earlyMs)} ms at the beginning`,
      },
      {
        work: "W3 disk",
        value: medianOf(taken, (one) => one.stepBytes),
        must: atMost(600, "B a step"),
        aim: atMost(300, "B a step"),
        beside: "database after a checkpoint, the pinned definition left out (stored once for all runs)",
      },
      {
        work: "W3 memory, peak over start",
        value: medianOf(taken, (one) => (one.peakBytes - one.startBytes) / MIB),
        must: atMost(60, "MB"),
        aim: atMost(20, "MB"),
        beside: `resident ${at((one) => one.peakBytes / MIB)} MB at most, ${at((one) => one.startBytes / MIB)} MB once opened`,
      },
    ],
    costs: [
      {
        work: `W3 growth to ${steps} steps`,
        stepMicros: medianOf(taken, (one) => one.stepMicros),
        others: medianOf(taken, (one) => one.others),
      },
    ],
  };
}

/** The child's part. */
export async function grow({ folder, steps, window }: Request): Promise<Grown> {
  const beginning = Math.min(BEGINNING, steps - window);
  const warmUp = Math.min(WARM_UP, steps);
  const times = new Float64Array(steps + warmUp);
  let done = 0;
  let peakBytes = 0;
  const holdfast = await openSubject({
    folder,
    workflows: [sequenceOf("warm-up", warmUp), sequenceOf("long", steps)],
    heard: () => {
      times[done++] = performance.now();
      if (done % RSS_EVERY === 0) peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
      return undefined;
    },
  });
  collectGarbage();
  const startBytes = process.memoryUsage.rss();
  const emptyBytes = bytesOf(folder);
  await finish(holdfast, "warm-up");
  const time = await timed(() => finish(holdfast, "long"));
  peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
  await holdfast.close();
  const at = (step: number): number => times[warmUp + step - 1] ?? 0;
  const over = (from: number): number => (at(from + window) - at(from)) / window;
  return {
    earlyMs: over(beginning),
    lateMs: over(steps - window),
    stepBytes: (bytesOf(folder) - emptyBytes) / (steps + warmUp),
    startBytes,
    peakBytes,
    stepMicros: time.cpuMicros / steps,
    others: time.others,
  };
}

/** Size of the database once its log is emptied into it, without the definitions. */
function bytesOf(folder: string): number {
  const db = openDatabase(databaseOf(folder), { readOnly: false });
  db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  const number = (sql: string): number => Object.values(db.get<Record<string, number>>(sql) ?? {})[0] ?? 0;
  const bytes = number("PRAGMA page_count") * number("PRAGMA page_size");
  const bundles = number("SELECT coalesce(sum(length(bytes)), 0) FROM bundles");
  db.close();
  return bytes - bundles;
}
