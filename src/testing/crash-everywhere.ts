/**
 * Crash-everywhere (DESIGN §14.4): a workflow is run once; then once for every write that it made, with the process
 * gone exactly before and exactly after it, and recovered by a fresh one; then once more with the recovering process
 * gone at each of its own writes. However it was cut, it must end the same and have done nothing twice.
 */
import type { Json } from "../domain/json.ts";
import type { RunStatus } from "../domain/run.ts";
import { type Action, carefulPerson, follow, type Person } from "./person.ts";
import { seededRandom } from "./random.ts";
import type { Violation } from "./rules.ts";
import { createWorld, type StartOptions, type World, type WorldOptions, type WorldProcess } from "./world.ts";

export interface CrashOptions extends Omit<WorldOptions, "seed" | "store"> {
  readonly seed?: number;
  readonly run?: StartOptions;
  /** Answers what stands still; default `carefulPerson()`. */
  readonly person?: Person;
  /** Asked for at moments of their own: a cancel, a pause. */
  readonly actions?: readonly Action[];
  /** How many of the first crashes are tried, spread evenly; default all. */
  readonly points?: number;
  /**
   * How many second crashes are tried in all, chosen by the seed; default 300. There are about four times the square
   * of the boundaries, so a workflow of more than a handful of steps is sampled.
   */
  readonly again?: number;
  /** Called after every world, with how many are done and how many there will be. */
  readonly onProgress?: (done: number, of: number) => void;
}

/** Where the process was stopped: before or after its nth write. */
export interface Point {
  readonly write: number;
  readonly when: "before" | "after";
}

export interface CrashFailure extends Violation {
  readonly seed: number;
  /** Empty for the uninterrupted run; two for a recovery that was stopped again. */
  readonly stopped: readonly Point[];
}

export interface Outcome {
  readonly status: RunStatus;
  readonly output?: Json;
  readonly failure_code?: string;
  /** How often each effect happened, by tool, step and input. */
  readonly effects: Readonly<Record<string, number>>;
}

export interface CrashReport {
  readonly ok: boolean;
  readonly seed: number;
  /** Writes of the uninterrupted run. */
  readonly boundaries: number;
  /** Worlds that were run, the first one included. */
  readonly worlds: number;
  readonly expected: Outcome;
  readonly failures: readonly CrashFailure[];
}

const DEFAULT_AGAIN = 300;
/** More failures than this say nothing new. */
const MAX_FAILURES = 200;

export async function crashEverywhere(options: CrashOptions): Promise<CrashReport> {
  const seed = options.seed ?? 1;
  const failures: CrashFailure[] = [];
  const found = (stopped: readonly Point[], violations: readonly Violation[]): void => {
    for (const violation of violations)
      if (failures.length < MAX_FAILURES) failures.push({ ...violation, seed, stopped });
  };
  const first = await attempt(options, seed, [], undefined);
  found([], first.violations);
  const boundaries = first.writes[0] ?? 0;
  const points = spread(pointsOf(boundaries), options.points);
  const again = options.again ?? DEFAULT_AGAIN;
  const second: [Point, Point][] = [];
  let worlds = 1;
  for (const point of points) {
    const cut = await attempt(options, seed, [point], first.outcome);
    worlds++;
    found([point], cut.violations);
    for (const later of pointsOf(cut.writes[1] ?? 0)) second.push([point, later]);
    options.onProgress?.(worlds, 1 + points.length + again);
  }
  const chosen = second.length <= again ? second : seededRandom("again", seed).shuffle(second).slice(0, again);
  for (const pair of chosen) {
    found(pair, (await attempt(options, seed, pair, first.outcome)).violations);
    worlds++;
    options.onProgress?.(worlds, 1 + points.length + chosen.length);
  }
  return { ok: failures.length === 0, seed, boundaries, worlds, expected: first.outcome, failures };
}

function pointsOf(writes: number): Point[] {
  const points: Point[] = [];
  for (let write = 1; write <= writes; write++) points.push({ write, when: "before" }, { write, when: "after" });
  return points;
}

function spread<T>(list: readonly T[], most: number | undefined): readonly T[] {
  if (most === undefined || list.length <= most) return list;
  return Array.from({ length: most }, (_, i) => list[Math.floor((i * list.length) / most)] as T);
}

interface Attempt {
  readonly outcome: Outcome;
  readonly violations: readonly Violation[];
  /** Writes of each process in turn. */
  readonly writes: readonly number[];
}

/** One world: a process for each point, which stops there, and one more that ends the run. */
export async function attempt(
  options: CrashOptions,
  seed: number,
  points: readonly Point[],
  expected: Outcome | undefined,
): Promise<Attempt> {
  const world = await createWorld({ ...options, seed });
  try {
    const writes: number[] = [];
    let runId: string | undefined;
    let end: "ended" | "gone" | "stuck" = "gone";
    for (let i = 0; i <= points.length && end === "gone"; i++) {
      const process = await world.process({ ...faultsOf(points[i]) });
      runId = await begin(world, process, options, runId);
      end = process.alive
        ? await follow(world, process, runId ?? "", {
            person: options.person ?? carefulPerson(),
            ...(options.actions === undefined ? {} : { actions: options.actions }),
          })
        : "gone";
      writes.push(process.writes);
    }
    return { ...(await judge(world, runId, end, expected)), writes };
  } finally {
    await world.close();
  }
}

function faultsOf(point: Point | undefined): Parameters<World["process"]>[0] {
  if (point === undefined) return {};
  return { faults: { write: (n) => (n === point.write ? { kind: "stop", when: point.when } : undefined) } };
}

/** Starts the run where the store does not have it yet: a start that nobody acknowledged is asked for again. */
async function begin(
  world: World,
  process: WorldProcess,
  options: CrashOptions,
  before: string | undefined,
): Promise<string | undefined> {
  const known = before ?? (await world.store.listRuns({ limit: 1 }))[0]?.run_id;
  if (known !== undefined) return known;
  let runId: string | undefined;
  let refused: unknown;
  void world.start(process, options.run).then(
    (id) => {
      runId = id;
    },
    (error: unknown) => {
      refused = error;
    },
  );
  await world.clock.settle();
  if (refused !== undefined) throw refused;
  return runId ?? (await world.store.listRuns({ limit: 1 }))[0]?.run_id;
}

async function judge(
  world: World,
  runId: string | undefined,
  end: string,
  expected: Outcome | undefined,
): Promise<Omit<Attempt, "writes">> {
  if (runId === undefined) {
    const why = "the run was never begun";
    return {
      outcome: { status: "queued", effects: {} },
      violations: [{ rule: "a_run_ends", cites: "DESIGN §1", sequence: 0, why }],
    };
  }
  const violations = [...(await world.check(runId))];
  const { status } = await world.record(runId);
  const last = (await world.store.getRun(runId))?.last_sequence ?? 0;
  if (end !== "ended") {
    const waits = (await world.store.listWaits({ root_run_id: runId, limit: 20 })).map(
      (wait) => `${wait.type}${wait.step_id === undefined ? "" : ` of ${wait.step_id}`}`,
    );
    violations.push({
      rule: "a_run_ends",
      cites: "DESIGN §1, C02",
      run_id: runId,
      sequence: last,
      why: `it stands ${status} and nothing can happen any more${waits.length === 0 ? "" : `; open: ${waits.join(", ")}`}`,
    });
  }
  const state = await world.state(runId).catch(() => undefined);
  const outcome: Outcome = {
    status,
    ...(state?.output === undefined ? {} : { output: state.output }),
    ...(state?.failure === undefined ? {} : { failure_code: state.failure.code }),
    effects: Object.fromEntries(world.effects.counts()),
  };
  if (expected !== undefined) violations.push(...compare(outcome, expected, runId, last));
  return { outcome, violations };
}

function compare(outcome: Outcome, expected: Outcome, run_id: string, sequence: number): Violation[] {
  const found: Violation[] = [];
  for (const what of ["status", "output", "failure_code"] as const) {
    const [is, should] = [JSON.stringify(outcome[what]), JSON.stringify(expected[what])];
    if (is !== should)
      found.push({
        rule: "same_outcome",
        cites: "DESIGN §14.4",
        run_id,
        sequence,
        why: `its ${what} is ${is}, uninterrupted it is ${should}`,
      });
  }
  const keys = new Set([...Object.keys(outcome.effects), ...Object.keys(expected.effects)]);
  for (const key of keys) {
    const [is, should] = [outcome.effects[key] ?? 0, expected.effects[key] ?? 0];
    // A run that was stopped may have been stopped just before or just after an effect, as chance had it.
    const most = outcome.status === "succeeded" ? should : Math.max(should, 1);
    if (is > most || (is < should && outcome.status === "succeeded"))
      found.push({
        rule: "same_effects",
        cites: "DESIGN §14.4",
        run_id,
        sequence,
        why: `${key} happened ${is} times, uninterrupted ${should}`,
      });
  }
  return found;
}

/** A failure in one line: rule, where it is written, where the process was stopped, seed and event. */
export function describeFailure(failure: CrashFailure): string {
  const stopped = failure.stopped.map((point) => `${point.when} write ${point.write}`).join(", then ");
  const event =
    failure.sequence === 0
      ? ""
      : ` at event ${failure.sequence}${failure.event === undefined ? "" : ` (${failure.event})`}`;
  return `${failure.rule} (${failure.cites})${event}: ${failure.why} [stopped ${stopped === "" ? "nowhere" : stopped}; seed ${failure.seed}]`;
}
