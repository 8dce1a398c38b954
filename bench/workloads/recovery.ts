/**
 * W5: every run is inside its third step when the process is killed; another process takes all of them to their end.
 * The time counts from the start of that process, so what it loads is in it, for the floor too.
 */
import { join } from "node:path";
import { inChild, profileInChild, startChild } from "../child.ts";
import { Floor } from "../floors.ts";
import { atMost, type Bench, type Measured, medianOf, repeat, shown, type Workload } from "../measure.ts";
import { demandSuccess, each, openSubject, sequenceOf } from "../subject.ts";

const STEPS = 5;
const SETTLED = 2;
const AT_ONCE = 64;
const HELD = `s${SETTLED + 1}`;
const WORKFLOW = sequenceOf("held", STEPS);
const PAGE = 200;

interface Request {
  readonly folder: string;
  readonly runs: number;
}

interface Recovered {
  readonly ended: number;
  /** Bodies of the steps before the one in flight that ran again. */
  readonly repeated: number;
  /** Bodies of the step in flight that ran again. */
  readonly redone: number;
}

export const recovery: Workload = {
  name: "w5",
  measure,
  profile: async (bench) => {
    const request = { folder: bench.folder(), runs: bench.size.runs };
    await leaveKilled(request);
    return profileInChild("recover", request);
  },
};

async function measure(bench: Bench): Promise<Measured> {
  const { runs } = bench.size;
  const taken = await repeat(bench.size.longRepetitions, async () => {
    const floor = { folder: bench.folder(), runs };
    await leaveFloor(floor);
    const floorStart = performance.now();
    await inChild("recover-floor", floor);
    const floorMs = performance.now() - floorStart;
    const ours = { folder: bench.folder(), runs };
    await leaveKilled(ours);
    const start = performance.now();
    const recovered = await inChild<Recovered>("recover", ours);
    return { floorMs, ms: performance.now() - start, ...recovered };
  });
  const lost = Math.max(...taken.map(({ ended }) => runs - ended));
  const repeated = Math.max(...taken.map((one) => one.repeated));
  const floorMs = medianOf(taken, (one) => one.floorMs);
  const work = `W5 ${runs.toLocaleString("en-US")} runs in flight, SIGKILL, restart`;
  return {
    figures: [
      {
        work,
        value: medianOf(taken, ({ ms }) => ms / 1000),
        must: atMost(3, "s"),
        aim: atMost((3 * floorMs) / 1000, "s"),
        beside: `floor ${shown(floorMs)} ms; steps in flight sent again ${shown(medianOf(taken, (one) => one.redone))}`,
      },
      {
        work: "W5 runs lost",
        value: lost,
        must: atMost(0, "runs"),
        aim: atMost(0, "runs"),
        beside: "the most of all repetitions",
      },
      {
        work: "W5 settled steps run again",
        value: repeated,
        must: atMost(runs * SETTLED, "steps"),
        aim: atMost(0, "steps"),
        beside: "read-only ones that had not reached the disk may be; the most of all repetitions",
      },
    ],
  };
}

async function leaveFloor({ folder, runs }: Request): Promise<void> {
  const floor = new Floor(join(folder, "floor.db"), "group");
  await floor.leave(runs, SETTLED);
  floor.close();
}

/** Has a process start all runs, and kills it when each is in its third step. */
async function leaveKilled(request: Request): Promise<void> {
  const child = startChild("hold", request);
  await child.told;
  await child.kill();
}

/** The child that is killed. */
export async function hold({ folder, runs }: Request, tell: (message: unknown) => void): Promise<void> {
  let held = 0;
  const holdfast = await openSubject({
    folder,
    workflows: [WORKFLOW],
    heard: ({ step_id }) => {
      if (step_id !== HELD) return undefined;
      if (++held === runs) tell("all are held");
      return new Promise(() => undefined);
    },
  });
  await each(runs, AT_ONCE, async () => {
    await holdfast.start({ workflow: "held", args: {} });
  });
  // Nothing ends here by itself: the parent kills this process.
  await new Promise(() => setInterval(() => undefined, 60_000));
}

/** The child that takes them to their end. */
export async function recover({ folder }: Request): Promise<Recovered> {
  const ran = new Map<string, number>();
  const holdfast = await openSubject({
    folder,
    workflows: [WORKFLOW],
    heard: ({ step_id }) => {
      ran.set(step_id, (ran.get(step_id) ?? 0) + 1);
      return undefined;
    },
  });
  await holdfast.recover();
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await holdfast.runs.list({ limit: PAGE, ...(cursor === undefined ? {} : { cursor }) });
    ids.push(...page.runs.map(({ run_id }) => run_id));
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  await Promise.all(ids.map(async (id) => demandSuccess(await holdfast.runs.drive(id))));
  await holdfast.close();
  let repeated = 0;
  for (let i = 1; i <= SETTLED; i++) repeated += ran.get(`s${i}`) ?? 0;
  return { ended: ids.length, repeated, redone: ran.get(HELD) ?? 0 };
}

export async function recoverFloor({ folder }: Request): Promise<number> {
  const floor = new Floor(join(folder, "floor.db"), "group");
  const ended = await floor.recover(STEPS);
  floor.close();
  return ended;
}
