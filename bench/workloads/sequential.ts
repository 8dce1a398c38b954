/** One run whose steps follow each other, beside the raw rate: read-only, strict, and mutating steps. */
import { join } from "node:path";
import { Floor } from "../floors.ts";
import {
  atLeast,
  type Bench,
  type Bound,
  type Cost,
  type Figure,
  type Measured,
  medianOf,
  repeat,
  shown,
  timed,
  type Workload,
} from "../measure.ts";
import { profiled } from "../profile.ts";
import { finish, openSubject, type SubjectOptions, sequenceOf } from "../subject.ts";

interface Kind {
  readonly work: string;
  readonly tool: "look" | "change";
  readonly durability: NonNullable<SubjectOptions["durability"]>;
  /** Whether a step waits for the disk. */
  readonly waits: boolean;
  readonly must: Bound;
  readonly aim: Bound;
}

const RATE = "× raw rate";

/** Runs before the first that counts: by then every path of a step has been compiled, as in a process that has work. */
const WARM_UPS = 10;

function workloadOf(name: string, kind: Kind): Workload {
  const stepsOf = ({ size }: Bench): number => (kind.waits ? size.durableSteps : size.steps);
  const open = (bench: Bench, folder: string): ReturnType<typeof openSubject> =>
    openSubject({ folder, workflows: [sequenceOf("line", stepsOf(bench), kind.tool)], durability: kind.durability });
  return {
    name,
    measure: async (bench) => {
      const folder = bench.folder();
      await using holdfast = await open(bench, folder);
      const floor = new Floor(join(folder, "floor.db"), "single");
      const measured = await measure(bench, kind, stepsOf(bench), floor, () => finish(holdfast, "line"));
      floor.close();
      return measured;
    },
    profile: async (bench) => {
      await using holdfast = await open(bench, bench.folder());
      await finish(holdfast, "line");
      return await profiled(() => repeat(bench.size.repetitions, () => finish(holdfast, "line")));
    },
  };
}

async function measure(
  bench: Bench,
  kind: Kind,
  steps: number,
  floor: Floor,
  run: () => Promise<void>,
): Promise<Measured> {
  const { size } = bench;
  await repeat(Math.min(WARM_UPS, steps), run);
  const taken = await repeat(size.repetitions, async () => {
    const before = floor.rawRate(size.rawMs);
    const time = await timed(run);
    const raw = (before + floor.rawRate(size.rawMs)) / 2;
    return { time, raw, rate: (steps / time.ms) * 1000 };
  });
  const figure: Figure = {
    work: kind.work,
    value: medianOf(taken, ({ rate, raw }) => rate / raw),
    must: kind.must,
    aim: kind.aim,
    beside: `${shown(medianOf(taken, ({ rate }) => rate))} steps/s; raw ${shown(medianOf(taken, ({ raw }) => raw))} commits/s`,
  };
  const cost: Cost = {
    work: kind.work,
    stepMicros: medianOf(taken, ({ time }) => time.cpuMicros / steps),
    others: medianOf(taken, ({ time }) => time.others),
  };
  return { figures: [figure], costs: [cost] };
}

export const sequential: readonly Workload[] = [
  workloadOf("read-only", {
    work: "sequential steps, read-only",
    tool: "look",
    durability: "standard",
    waits: false,
    must: atLeast(4, RATE),
    aim: atLeast(10, RATE),
  }),
  workloadOf("strict", {
    work: "sequential steps, strict",
    tool: "look",
    durability: "strict",
    waits: true,
    must: atLeast(0.4, RATE),
    aim: atLeast(0.7, RATE),
  }),
  workloadOf("mutating", {
    work: "sequential steps, mutating",
    tool: "change",
    durability: "standard",
    waits: true,
    must: atLeast(0.4, RATE),
    aim: atLeast(0.7, RATE),
  }),
];
