// Owns the cases about deciding and about neighbours that want a whole simulated world: C07, C12, C14, C36.
import { expect, test } from "vitest";
import type { PolicyPort, RunStore, SessionStore } from "../../src/ports/index.ts";
import {
  carefulPerson,
  createWorld,
  follow,
  type MockTool,
  seededRandom,
  type World,
  type WorldProcess,
} from "../../src/testing/index.ts";
import { CHARGE, LOOKED_UP, leaf, PUT, tool } from "./scenarios.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
const ASK: PolicyPort = { fingerprint: "ask", decide: () => ({ decision: "ask", reason: "it costs money" }) };
const person = carefulPerson();

async function started(world: World, process: WorldProcess): Promise<string> {
  let runId = "";
  void world.start(process).then((id) => {
    runId = id;
  });
  await world.clock.settle();
  return runId;
}

const waitOf = async (world: World, runId: string, step: string) => {
  const wait = (await world.state(runId)).waits.find((each) => each.step_id === step);
  if (wait === undefined) throw new Error(`${step} waits for nothing`);
  return wait;
};

const ORDERS = [
  ["a", "b", "c"],
  ["a", "c", "b"],
  ["b", "a", "c"],
  ["b", "c", "a"],
  ["c", "a", "b"],
  ["c", "b", "a"],
] as const;

test("C12 three approvals in each of six orders, with every process killed between the answers: the block ends after the third", async () => {
  for (const [n, order] of ORDERS.entries()) {
    const world = await createWorld({
      seed: seed + n,
      definitions: [
        {
          steps: ["a", "b", "c"].map((id) => ({ id, type: "approval", prompt: id, outcome: "value" })),
          plan: { type: "parallel", nodes: ["a", "b", "c"].map(leaf) },
        },
      ],
    });
    let process = await world.process();
    const runId = await started(world, process);
    for (const [i, step] of order.entries()) {
      const wait = await waitOf(world, runId, step);
      process.kill();
      await world.clock.settle();
      process = await world.process();
      await world.clock.settle();
      void process.engine.signal({ root_run_id: runId, run_id: runId }, "approve", {
        wait_id: wait.wait_id,
        decided_by: `os:${step}`,
      });
      await world.clock.advance(1_000);
      const state = await world.state(runId);
      expect([order, state.status]).toEqual([order, i === 2 ? "succeeded" : "suspended"]);
      for (const done of order.slice(0, i + 1)) expect(state.steps.get(done)?.status).toBe("succeeded");
    }
    expect((await world.state(runId)).output).toMatchObject(["a", "b", "c"].map((id) => ({ decided_by: `os:${id}` })));
    expect(await world.check(runId)).toEqual([]);
    await world.close();
  }
});

test("C14 a cancel and an approval at the same time, 1,000 times over two engines: what was approved happens once unless the cancel overtakes it, what was not never, and every run ends", async () => {
  const charge: MockTool = { ...CHARGE, takes_ms: [0, 0] };
  const world = await createWorld({
    seed,
    definitions: [{ steps: [tool("do", "Charge")], plan: leaf("do") }],
    tools: [charge],
    policy: ASK,
  });
  const [a, b] = [await world.process(), await world.process()];
  const random = seededRandom("C14", seed);
  const outcomes = new Map<string, number>();
  const turns = async (): Promise<void> => {
    for (let n = random.int(4); n > 0; n--) await new Promise<void>((resolve) => setImmediate(resolve));
  };
  for (let round = 0; round < 1_000; round++) {
    const runId = await started(world, random.pick([a, b]));
    const { wait_id } = await waitOf(world, runId, "do");
    const target = { root_run_id: runId, run_id: runId };
    const before = world.effects.effects.length;
    const sides = random.shuffle([
      () => random.pick([a, b]).engine.signal(target, "approve", { wait_id, decided_by: "os:yes" }),
      () => random.pick([a, b]).engine.signal(target, "cancel", { decided_by: "os:no" }),
    ]);
    const asked: Promise<unknown>[] = [];
    for (const side of sides) {
      asked.push(side().catch(() => undefined));
      await turns();
    }
    let answered = false;
    void Promise.all(asked).then(() => {
      answered = true;
    });
    await world.until(() => answered);
    const effects = world.effects.effects.length - before;
    const granted = (await world.kinds(runId)).includes("grant_issued");
    const { status, wait_count } = await world.record(runId);
    // Approved: it happened at most once, and what had not been sent when the cancel came was not sent.
    expect([round, effects <= (granted ? 1 : 0), wait_count]).toEqual([round, true, 0]);
    expect([round, status === "succeeded" ? effects : 0, ["succeeded", "cancelled"].includes(status)]).toEqual([
      round,
      status === "succeeded" ? 1 : 0,
      true,
    ]);
    const key = `${status}, ${granted ? "approved" : "not approved"}, ${effects} effects`;
    outcomes.set(key, (outcomes.get(key) ?? 0) + 1);
  }
  // Both sides do win: the race is one.
  console.log(JSON.stringify(Object.fromEntries(outcomes)));
  const won = (side: string): number => [...outcomes].reduce((sum, [key, n]) => sum + (key.includes(side) ? n : 0), 0);
  expect(won(", approved")).toBeGreaterThan(100);
  expect(won("not approved")).toBeGreaterThan(100);
  expect(world.violations).toEqual([]);
  await world.close();
});

for (const [name, about] of [
  ["Charge", CHARGE],
  ["Transfer", LOOKED_UP],
  ["Put", PUT],
] as const)
  test(`C36 killed at each write between the decision and the end of ${name}: the decision stands, the effect happens once`, async () => {
    let killedAfterDecision = 0;
    for (let write = 1; write <= 14; write++) {
      for (const when of ["before", "after"] as const) {
        const world = await createWorld({
          seed,
          definitions: [{ steps: [tool("do", name)], plan: leaf("do") }],
          tools: [about],
          policy: ASK,
        });
        const first = await world.process({
          faults: { write: (n) => (n === write ? { kind: "stop", when } : undefined) },
        });
        void world.start(first).catch(() => undefined);
        await world.clock.settle();
        const [run] = await world.store.listRuns({ limit: 1 });
        if (run !== undefined) {
          await follow(world, first, run.run_id, { person });
          if (!first.alive && (await world.kinds(run.run_id)).includes("grant_issued")) killedAfterDecision++;
          const second = await world.process();
          expect([write, when, await follow(world, second, run.run_id, { person })]).toEqual([write, when, "ended"]);
          const kinds = await world.kinds(run.run_id);
          // One grant serves one dispatch: the one that a person gave up after the crash asks anew.
          const retried = kinds.filter((kind) => kind === "repaired").length;
          const grants = kinds.filter((kind) => kind === "grant_issued").length;
          expect([write, when, grants === 1 || grants === 1 + retried]).toEqual([write, when, true]);
          expect([write, when, world.effects.countOf(name)]).toEqual([write, when, 1]);
          expect(await world.check(run.run_id)).toEqual([]);
        }
        await world.close();
      }
    }
    expect(killedAfterDecision).toBeGreaterThan(0);
  });

test("C07 of ten runs that want work the third cannot be loaded, and the store throws between two claims: nine end, none stays claimed", async () => {
  const world = await createWorld({
    seed,
    definitions: [{ steps: [tool("put", "Put")], plan: leaf("put") }],
    tools: [PUT],
  });
  const starter = await world.process({ drives: false });
  const ids: string[] = [];
  for (let n = 0; n < 10; n++) {
    void world.start(starter, { queue: true }).then((id) => ids.push(id));
    await world.clock.settle();
  }
  starter.kill();
  const bad = ids[2] as string;
  const { store } = world;
  // The journal of the third cannot be read, by whomever.
  const readSegments: (RunStore & SessionStore)["readSegments"] = store.readSegments.bind(store);
  let broken = true;
  store.readSegments = (runId, ...rest) =>
    broken && runId === bad ? Promise.reject(new Error("the segment is damaged")) : readSegments(runId, ...rest);
  const worker = await world.process({ faults: { call: (n) => (n === 4 || n === 9 ? "busy" : undefined) } });
  await world.clock.advance(10_000);
  await worker.driver.wake();
  await world.clock.advance(10_000);
  for (const id of ids) {
    const { status } = await world.record(id);
    expect([ids.indexOf(id), status]).toEqual([ids.indexOf(id), id === bad ? "queued" : "succeeded"]);
    expect((await world.tree(id)).owner).toBe(undefined);
  }
  expect(world.log.some(({ details }) => details.root_run_id === bad)).toBe(true);
  // Set aside, not given up: once it can be read again it goes on by itself.
  broken = false;
  await world.clock.advance(600_000);
  expect((await world.record(bad)).status).toBe("succeeded");
  await world.close();
});
