/** W6: many runs asleep until a time, in a process of their own: what they hold in memory, and what they cost. */
import { setTimeout as pause } from "node:timers/promises";
import type { Holdfast, RunStatus } from "../../src/index.ts";
import { inChild, profileInChild } from "../child.ts";
import { atMost, type Bench, collectGarbage, type Measured, shown, timed, type Workload } from "../measure.ts";
import { each, openSubject, sleepOf } from "../subject.ts";

const AT_ONCE = 64;
const HOUR_MS = 3_600_000;
const LOOK_EVERY_MS = 20;
const MIB = 1024 * 1024;
/** Runs before the measurement, so that compiling and filling buffers is not taken for what sleepers hold (as in W3). */
const NAPS = 1_000;

interface Request {
  readonly folder: string;
  readonly sleepers: number;
  readonly idleMs: number;
}

interface Asleep {
  /** Once opened, before anything ran. */
  readonly openBytes: number;
  /** Once compiled code and buffers are there: after naps that have ended. */
  readonly startBytes: number;
  readonly asleepBytes: number;
  /** What is kept, without what the process holds in reserve. */
  readonly heapBytes: number;
  readonly cores: number;
  readonly startedMs: number;
}

export const asleep: Workload = {
  name: "w6",
  measure,
  profile: (bench) => profileInChild("sleep", requestOf(bench)),
};

function requestOf({ folder, size }: Bench): Request {
  return { folder: folder(), sleepers: size.sleepers, idleMs: size.idleMs };
}

async function measure(bench: Bench): Promise<Measured> {
  // Once: falling asleep and watching them sleep takes longer than all else, and neither figure wanders much.
  const one = await inChild<Asleep>("sleep", requestOf(bench));
  const count = bench.size.sleepers.toLocaleString("en-US");
  return {
    figures: [
      {
        work: `W6 ${count} asleep: memory over start`,
        value: (one.asleepBytes - one.startBytes) / MIB,
        must: atMost(30, "MB"),
        aim: atMost(5, "MB"),
        beside: `resident ${shown(one.asleepBytes / MIB)} MB, ${shown(one.startBytes / MIB)} MB after ${NAPS} naps, ${shown(one.openBytes / MIB)} MB once opened; live JavaScript values ${shown(one.heapBytes / MIB)} MB more`,
      },
      {
        work: `W6 ${count} asleep: CPU`,
        value: one.cores * 100,
        must: atMost(1, "% of a core"),
        aim: atMost(0.1, "% of a core"),
        beside: `over ${shown(bench.size.idleMs / 1000)} s; all were asleep after ${shown(one.startedMs / 1000)} s`,
      },
    ],
  };
}

/** The child's part. */
export async function sleep({ folder, sleepers, idleMs }: Request): Promise<Asleep> {
  const holdfast = await openSubject({ folder, workflows: [sleepOf("sleeper", HOUR_MS), sleepOf("nap", 1)] });
  collectGarbage();
  const { rss: openBytes } = process.memoryUsage();
  await fallAsleep(holdfast, "nap", NAPS, ["queued", "running", "suspended"]);
  collectGarbage();
  const { rss: startBytes, heapUsed } = process.memoryUsage();
  const started = await timed(() => fallAsleep(holdfast, "sleeper", sleepers, ["queued", "running"]));
  collectGarbage();
  const { rss: asleepBytes, heapUsed: heapNow } = process.memoryUsage();
  const idle = await timed(() => pause(idleMs));
  await holdfast.close();
  const heapBytes = heapNow - heapUsed;
  return {
    openBytes,
    startBytes,
    asleepBytes,
    heapBytes,
    cores: idle.cpuMicros / 1000 / idle.ms,
    startedMs: started.ms,
  };
}

/** Starts runs and waits until none has one of the statuses any more. */
async function fallAsleep(
  holdfast: Holdfast,
  workflow: string,
  count: number,
  until: readonly RunStatus[],
): Promise<void> {
  await each(count, AT_ONCE, async () => {
    await holdfast.start({ workflow, args: {} });
  });
  while ((await holdfast.runs.list({ status: until, limit: 1 })).runs.length > 0) await pause(LOOK_EVERY_MS);
}
