/** W2: many runs of 5 steps, 64 at once, beside the raw rate and the floor that shares its commits. */
import { join } from "node:path";
import { Floor } from "../floors.ts";
import { atLeast, type Bench, type Measured, medianOf, repeat, shown, timed, type Workload } from "../measure.ts";
import { profiled } from "../profile.ts";
import { each, finish, openSubject, sequenceOf } from "../subject.ts";

const STEPS = 5;
const AT_ONCE = 64;
const WORKFLOW = sequenceOf("five", STEPS);

export const manyRuns: Workload = {
  name: "w2",
  measure,
  profile: async ({ folder, size }) => {
    await using holdfast = await openSubject({ folder: folder(), workflows: [WORKFLOW] });
    const work = (): Promise<void> => each(size.runs, AT_ONCE, () => finish(holdfast, "five"));
    await work();
    return await profiled(work);
  },
};

async function measure({ folder, size }: Bench): Promise<Measured> {
  const place = folder();
  await using holdfast = await openSubject({ folder: place, workflows: [WORKFLOW] });
  const group = new Floor(join(place, "floor-group.db"), "group");
  const steps = size.runs * STEPS;
  const ours = (): Promise<void> => each(size.runs, AT_ONCE, () => finish(holdfast, "five"));
  const rateOf = (ms: number): number => (steps / ms) * 1000;
  await each(Math.min(size.runs, AT_ONCE), AT_ONCE, () => finish(holdfast, "five"));
  const taken = await repeat(size.repetitions, async () => {
    const before = group.rawRate(size.rawMs);
    const floor = rateOf((await timed(() => each(size.runs, AT_ONCE, () => group.run(STEPS)))).ms);
    const time = await timed(ours);
    const raw = (before + group.rawRate(size.rawMs)) / 2;
    return { raw, floor, time, rate: rateOf(time.ms) };
  });
  group.close();
  const at = (field: (one: (typeof taken)[number]) => number): string => shown(medianOf(taken, field));
  const name = `W2 ${size.runs.toLocaleString("en-US")} runs × ${STEPS} steps, ${AT_ONCE} at once`;
  const rate = `${at((one) => one.rate)} steps/s`;
  return {
    figures: [
      {
        work: name,
        value: medianOf(taken, (one) => one.rate / one.raw),
        must: atLeast(3, "× raw rate"),
        aim: atLeast(medianOf(taken, (one) => one.floor / one.raw) / 2, "× raw rate"),
        beside: `${rate}; raw ${at((one) => one.raw)} commits/s; group floor ${at((one) => one.floor)} steps/s (we: ${at((one) => one.rate / one.floor)} ×)`,
      },
    ],
    costs: [
      {
        work: name,
        stepMicros: medianOf(taken, (one) => one.time.cpuMicros / steps),
        others: medianOf(taken, (one) => one.time.others),
      },
    ],
  };
}
