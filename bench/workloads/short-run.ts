/** W1: one run of 3 steps, from the start to its result, beside the floor that commits every event by itself. */
import { join } from "node:path";
import { Floor } from "../floors.ts";
import {
  atMost,
  type Bench,
  type Measured,
  median,
  medianOf,
  percentile,
  repeat,
  shown,
  type Workload,
} from "../measure.ts";
import { profiled } from "../profile.ts";
import { finish, openSubject, sequenceOf } from "../subject.ts";

const STEPS = 3;
const WORKFLOW = sequenceOf("short", STEPS);
const WARM_UP = 30;

export const shortRun: Workload = {
  name: "w1",
  measure,
  profile: async ({ folder, size }) => {
    await using holdfast = await openSubject({ folder: folder(), workflows: [WORKFLOW] });
    return await profiled(() => repeat(size.shortRuns * size.repetitions, () => finish(holdfast, "short")));
  },
};

async function measure({ folder, size }: Bench): Promise<Measured> {
  const place = folder();
  await using holdfast = await openSubject({ folder: place, workflows: [WORKFLOW] });
  const floor = new Floor(join(place, "floor.db"), "single");
  const turns = { ours: () => finish(holdfast, "short"), floor: () => floor.run(STEPS) };
  await repeat(Math.min(WARM_UP, size.shortRuns), turns.ours);
  await repeat(Math.min(WARM_UP, size.shortRuns), turns.floor);
  // One of each in turn: what else the machine does then reaches both alike.
  const taken = await repeat(size.repetitions, async () => {
    const pairs = await repeat(size.shortRuns, async () => ({
      floor: await latency(turns.floor),
      ours: await latency(turns.ours),
    }));
    return { floor: pairs.map((pair) => pair.floor), ours: pairs.map((pair) => pair.ours) };
  });
  floor.close();
  const at = (share: number, who: "ours" | "floor"): string =>
    shown(medianOf(taken, (each) => percentile(each[who], share)));
  return {
    figures: [
      {
        work: "W1 one run of 3 steps, start to result (p50)",
        value: medianOf(taken, ({ ours, floor }) => median(ours) / median(floor)),
        must: atMost(2, "× floor"),
        aim: atMost(1.3, "× floor"),
        beside: `p50 ${at(0.5, "ours")} ms, p95 ${at(0.95, "ours")} ms; floor ${at(0.5, "floor")} and ${at(0.95, "floor")} ms`,
      },
    ],
  };
}

/** How long it took, in ms. */
async function latency(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
