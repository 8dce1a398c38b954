// Owns R-4 in simulation: whichever write or call fails, and however, what was acknowledged is there and the same
// process ends the run, or has said that it never began.
import { expect, test } from "vitest";
import {
  carefulPerson,
  createWorld,
  type Fault,
  type FaultPlan,
  follow,
  type World,
  type WorldProcess,
} from "../../src/testing/index.ts";
import { CHARGE, LOOKED_UP, leaf, PUT, READ, sequence, tool } from "./scenarios.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
const definitions = [
  {
    steps: [
      tool("look", "Look"),
      tool("charge", "Charge"),
      tool("put", "Put"),
      tool("transfer", "Transfer"),
      { id: "sub", type: "workflow", workflow_id: "inner", revision: 1, args: {} },
    ],
    plan: sequence("look", "charge", "put", "transfer", "sub"),
  },
  { id: "inner", steps: [tool("deep", "Look")], plan: leaf("deep") },
];

interface Told {
  readonly world: World;
  readonly process: WorldProcess;
  /** The id that the start was acknowledged with, or what it threw. */
  readonly started: string | { readonly code: string };
  readonly end: string;
}

async function withFaults(faults: FaultPlan): Promise<Told> {
  const world = await createWorld({ seed, definitions, tools: [READ, CHARGE, PUT, LOOKED_UP] });
  const process = await world.process({ faults });
  let started: Told["started"] | undefined;
  void world.start(process).then(
    (id) => {
      started = id;
    },
    (error: { code: string }) => {
      started = { code: error.code };
    },
  );
  await world.until(() => started !== undefined);
  const [run] = await world.store.listRuns({ limit: 1 });
  const end = run === undefined ? "nothing" : await follow(world, process, run.run_id, { person: carefulPerson() });
  return { world, process, started: started ?? { code: "never answered" }, end };
}

/** What a failed write must leave, whatever it was. */
async function expectHonest({ world, started, end }: Told, what: string): Promise<void> {
  const [run] = await world.store.listRuns({ limit: 1 });
  if (typeof started === "string") expect(run?.run_id, what).toBe(started);
  else expect(["storage", "storage_unavailable"], what).toContain(started.code);
  if (run !== undefined) {
    const { status, failure } = await world.state(run.run_id);
    // RP-21: permissions that cannot be read fail the step, and the run says so: that is honest too.
    const refused = failure?.code === "execution_failed" && failure.message.includes("permissions could not be read");
    expect([what, end, refused ? "succeeded" : status]).toEqual([what, "ended", "succeeded"]);
    expect((await world.check(run.run_id)).map((violation) => `${what}: ${violation.rule}: ${violation.why}`)).toEqual(
      [],
    );
    for (const [key, count] of world.effects.counts()) expect(`${what}: ${key} ${count}`).toBe(`${what}: ${key} 1`);
  }
  await world.close();
}

const FAULTS: Readonly<Record<string, Fault>> = {
  "the disk is full": { kind: "full" },
  "an I/O error that wrote nothing": { kind: "io", committed: false },
  "an I/O error after everything was written": { kind: "io", committed: true },
  "the store is busy": { kind: "busy" },
};

for (const [name, fault] of Object.entries(FAULTS))
  test(`R-4 at each write once: ${name}`, async () => {
    const whole = await withFaults({});
    const { writes } = whole.process;
    await expectHonest(whole, "no fault");
    expect(writes).toBeGreaterThan(4);
    for (let n = 1; n <= writes; n++)
      await expectHonest(await withFaults({ write: (at) => (at === n ? fault : undefined) }), `write ${n}`);
  });

for (const fault of ["io", "busy"] as const)
  test(`R-4 ${fault === "io" ? "an I/O error" : "a busy store"} at each call once`, async () => {
    const whole = await withFaults({});
    const { calls } = whole.process;
    await whole.world.close();
    for (let n = 1; n <= calls; n++)
      await expectHonest(await withFaults({ call: (at) => (at === n ? fault : undefined) }), `call ${n}`);
  });
