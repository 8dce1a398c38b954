/**
 * A process that stands still past its lease (C05): frozen just before each of its writes in turn, while another
 * takes the run over and ends it; then woken. Nothing that it still writes may be taken, nor anything happen twice.
 * And once more with one that claims the run and is gone before it writes a word: then only the fence, and no
 * sequence number, says that the woken process is late.
 */

import type { CrashFailure, CrashOptions } from "./crash-everywhere.ts";
import { carefulPerson, type FollowOptions, follow } from "./person.ts";
import type { Violation } from "./rules.ts";
import { createWorld, type World, type WorldProcess } from "./world.ts";

/** Long enough for any lease under test to have run out. */
const FROZEN_MS = 120_000;
const MAX_WRITES = 500;
/** Longest that a woken process needs to find out that it lost a run, and to take it again. */
const WOKEN_MS = 10 * 86_400_000;

export async function frozenEverywhere(
  options: CrashOptions,
): Promise<{ readonly worlds: number; readonly failures: readonly CrashFailure[] }> {
  const seed = options.seed ?? 1;
  const failures: CrashFailure[] = [];
  let worlds = 0;
  for (let write = 1; write <= MAX_WRITES; write++) {
    for (const other of [takenOver, claimedOnly]) {
      const world = await createWorld({ ...options, seed });
      const violations = await frozenAt(world, options, write, other);
      await world.close();
      if (violations === undefined) return { worlds, failures };
      worlds++;
      failures.push(
        ...violations.map((violation) => ({ ...violation, seed, stopped: [{ write, when: "before" as const }] })),
      );
    }
  }
  return { worlds, failures };
}

interface Frozen {
  readonly world: World;
  readonly process: WorldProcess;
  readonly runId: string;
  readonly answers: FollowOptions;
}

/** Undefined when the process makes fewer writes. */
async function frozenAt(
  world: World,
  options: CrashOptions,
  write: number,
  other: (frozen: Frozen) => Promise<readonly Violation[]>,
): Promise<readonly Violation[] | undefined> {
  let frozen = false;
  const onFreeze = (): void => {
    frozen = true;
  };
  const first = await world.process({
    faults: { write: (n) => (n === write ? { kind: "freeze" } : undefined), onFreeze },
  });
  void world.start(first, options.run).catch(() => undefined);
  await world.clock.settle();
  const answers = {
    person: options.person ?? carefulPerson(),
    ...(options.actions === undefined ? {} : { actions: options.actions }),
  };
  const runId = (await world.store.listRuns({ limit: 1 }))[0]?.run_id;
  // Whoever follows it sees nothing happen any more once it is frozen.
  if (runId !== undefined) await follow(world, first, runId, { ...answers, until: () => frozen });
  if (!frozen) return undefined;
  if (runId === undefined) {
    first.thaw();
    await world.clock.settle();
    return world.violations;
  }
  await world.clock.advance(FROZEN_MS);
  return [...(await other({ world, process: first, runId, answers })), ...(await world.check(runId))];
}

/** Another ends the run; then the first wakes. */
async function takenOver({ world, process: first, runId, answers }: Frozen): Promise<readonly Violation[]> {
  const second = await world.process();
  const end = await follow(world, second, runId, answers);
  const before = (await world.record(runId)).last_sequence;
  // What was handed over before it froze may still arrive; what counts is that nothing new is.
  const sent = world.effects.calls.length;
  first.thaw();
  await world.clock.advance(FROZEN_MS);
  const violations: Violation[] = [];
  const late = (why: string): void =>
    void violations.push({
      rule: "late_writes_are_refused",
      cites: "DESIGN §7, C05",
      run_id: runId,
      sequence: before,
      why,
    });
  if (end !== "ended") late(`the other process did not end the run: ${end}`);
  if ((await world.record(runId)).last_sequence !== before)
    late("the woken process wrote into a run that another had ended");
  if (world.effects.calls.length !== sent) late("the woken process handed something over");
  return violations;
}

/** Another claims the run and is gone at once; then the first wakes, and whoever may goes on. */
async function claimedOnly({ world, process: first, runId, answers }: Frozen): Promise<readonly Violation[]> {
  await world.process({ faults: { write: () => ({ kind: "stop", when: "after" }) } });
  await world.clock.settle();
  first.thaw();
  await world.clock.settle();
  // The person who followed the first process may still be answered by it.
  const end = await follow(world, first, runId, { ...answers, withinMs: WOKEN_MS });
  if (end === "ended") return [];
  return [
    {
      rule: "a_run_ends",
      cites: "DESIGN §7, C05",
      run_id: runId,
      sequence: (await world.record(runId)).last_sequence,
      why: `after the fence was lost: ${end}`,
    },
  ];
}
