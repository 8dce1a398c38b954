/**
 * A process that stands still past its lease (C05): frozen just before each of its writes in turn, while another
 * takes the run over and ends it; then woken. Nothing that it still writes may be taken, nor anything happen twice.
 */
import { carefulPerson, follow } from "./person.ts";
import type { CrashFailure, CrashOptions } from "./crash-everywhere.ts";
import type { Violation } from "./rules.ts";
import { createWorld, type World } from "./world.ts";

/** Long enough for any lease under test to have run out. */
const FROZEN_MS = 120_000;
const MAX_WRITES = 500;

export async function frozenEverywhere(options: CrashOptions): Promise<{ readonly worlds: number; readonly failures: readonly CrashFailure[] }> {
  const seed = options.seed ?? 1;
  const failures: CrashFailure[] = [];
  for (let write = 1; write <= MAX_WRITES; write++) {
    const world = await createWorld({ ...options, seed });
    const violations = await frozenAt(world, options, write);
    await world.close();
    if (violations === undefined) return { worlds: write - 1, failures };
    failures.push(...violations.map((violation) => ({ ...violation, seed, stopped: [{ write, when: "before" as const }] })));
  }
  return { worlds: MAX_WRITES, failures };
}

/** Undefined when the process makes fewer writes. */
async function frozenAt(world: World, options: CrashOptions, write: number): Promise<readonly Violation[] | undefined> {
  let frozen = false;
  const first = await world.process({
    faults: { write: (n) => (n === write ? { kind: "freeze" } : undefined), onFreeze: () => void (frozen = true) },
  });
  void world.start(first, options.run).catch(() => undefined);
  await world.clock.settle();
  const answers = { person: options.person ?? carefulPerson(), ...(options.actions === undefined ? {} : { actions: options.actions }) };
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
  const second = await world.process();
  const end = await follow(world, second, runId, answers);
  const before = (await world.record(runId)).last_sequence;
  // What was handed over before it froze may still arrive; what counts is that nothing new is.
  const sent = world.effects.calls.length;
  first.thaw();
  await world.clock.advance(FROZEN_MS);
  const violations = [...(await world.check(runId))];
  const late = (why: string): void => void violations.push({ rule: "late_writes_are_refused", cites: "DESIGN §7, C05", run_id: runId, sequence: before, why });
  if (end !== "ended") late(`the other process did not end the run: ${end}`);
  if ((await world.record(runId)).last_sequence !== before) late("the woken process wrote into a run that another had ended");
  if (world.effects.calls.length !== sent) late("the woken process handed something over");
  return violations;
}
