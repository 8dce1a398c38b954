/** W4: one run whose steps are all at work at once, beside the floor that shares its commits. */
import { join } from "node:path";
import { Floor } from "../floors.ts";
import { atMost, type Bench, type Measured, medianOf, repeat, shown, timed, type Workload } from "../measure.ts";
import { profiled } from "../profile.ts";
import { finish, openSubject, parallelOf } from "../subject.ts";

export const wideRun: Workload = {
  name: "w4",
  measure,
  profile: async ({ folder, size }) => {
    const workflows = [parallelOf("wide", size.parallelSteps)];
    await using holdfast = await openSubject({ folder: folder(), workflows });
    await finish(holdfast, "wide");
    return await profiled(() => repeat(size.repetitions, () => finish(holdfast, "wide")));
  },
};

async function measure({ folder, size }: Bench): Promise<Measured> {
  const place = folder();
  const steps = size.parallelSteps;
  await using holdfast = await openSubject({ folder: place, workflows: [parallelOf("wide", steps)] });
  const floor = new Floor(join(place, "floor-group.db"), "group");
  await floor.parallel(steps);
  const first = await timed(() => finish(holdfast, "wide"));
  const taken = await repeat(size.repetitions, async () => ({
    floor: await timed(() => floor.parallel(steps)),
    ours: await timed(() => finish(holdfast, "wide")),
  }));
  floor.close();
  const work = `W4 ${steps.toLocaleString("en-US")} parallel steps`;
  return {
    figures: [
      {
        work,
        value: medianOf(taken, ({ ours }) => ours.ms),
        must: atMost(250, "ms"),
        aim: atMost(100, "ms"),
        beside: `group floor ${shown(medianOf(taken, (one) => one.floor.ms))} ms; the first one in the process ${shown(first.ms)} ms`,
      },
    ],
    costs: [
      {
        work,
        stepMicros: medianOf(taken, ({ ours }) => ours.cpuMicros / steps),
        others: medianOf(taken, ({ ours }) => ours.others),
      },
    ],
  };
}
