// Owns what the simulated world itself promises, and cases that need its clock: long waits, drift, shuffled fan-outs,
// timeouts, torn exports.
import { expect, test } from "vitest";
import { decideRestart } from "../../src/domain/projections/index.ts";
import { exportLines, importJournal } from "../../src/engine/index.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import {
  carefulPerson,
  createWorld,
  eventsOf,
  faultyStore,
  follow,
  type MockTool,
  ok,
  SESSION_ID,
  sessionRecord,
  startCommit,
  TestJournal,
  treeCommit,
} from "../../src/testing/index.ts";
import { LOOKED_UP, leaf, PUT, READ, sequence, tool } from "./scenarios.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
const person = carefulPerson();
const DAY_MS = 86_400_000;

async function started(
  world: Awaited<ReturnType<typeof createWorld>>,
  process: Awaited<ReturnType<typeof world.process>>,
  options = {},
): Promise<string> {
  void world.start(process, options).catch(() => undefined);
  await world.clock.settle();
  const [run] = await world.store.listRuns({ limit: 1 });
  if (run === undefined) throw new Error("nothing was started");
  return run.run_id;
}

test("C18 a wait of 30 days passes in under a second, and not a millisecond early", async () => {
  const began = performance.now();
  const world = await createWorld({
    seed,
    definitions: [
      {
        steps: [{ id: "month", type: "wait", for_ms: 30 * DAY_MS }, tool("after", "Look")],
        plan: sequence("month", "after"),
      },
    ],
    tools: [READ],
  });
  const process = await world.process();
  const at = world.clock.now();
  const runId = await started(world, process);
  expect(await follow(world, process, runId, { person })).toBe("ended");
  const closed = (await world.events(runId)).find((event) => event.type === "wait_closed");
  expect((closed?.at_ms ?? 0) - at).toBe(30 * DAY_MS);
  expect(await world.check(runId)).toEqual([]);
  expect(performance.now() - began).toBeLessThan(1_000);
  await world.close();
});

test("the same seed makes the same world, another one another", async () => {
  const once = async (of: number): Promise<string> => {
    const plan = { type: "parallel", nodes: ["a", "b", "c", "d"].map(leaf) };
    const world = await createWorld({
      seed: of,
      definitions: [{ steps: ["a", "b", "c", "d"].map((id) => tool(id, "Put")), plan }],
      tools: [PUT],
    });
    const process = await world.process();
    const runId = await started(world, process);
    await follow(world, process, runId, { person });
    const journal = JSON.stringify(await world.events(runId));
    await world.close();
    return journal;
  };
  expect(await once(seed)).toBe(await once(seed));
  expect(await once(seed)).not.toBe(await once(seed + 1));
});

test("R-5 processes whose clocks differ by seconds hand a run over, and nothing happens twice", async () => {
  const world = await createWorld({
    seed,
    definitions: [
      { steps: [tool("a", "Put"), tool("b", "Transfer"), tool("c", "Put")], plan: sequence("a", "b", "c") },
    ],
    tools: [PUT, LOOKED_UP],
  });
  const fast = await world.process({
    driftMs: 4_000,
    faults: { write: (n) => (n === 4 ? { kind: "stop", when: "before" } : undefined) },
  });
  const runId = await started(world, fast);
  expect(await follow(world, fast, runId, { person })).toBe("gone");
  const slow = await world.process({ driftMs: -4_000 });
  expect(await follow(world, slow, runId, { person })).toBe("ended");
  expect([(await world.record(runId)).status, await world.check(runId)]).toEqual(["succeeded", []]);
  await world.close();
});

test("R-2 a map of 100 that ended in any order, killed half way: exactly what has no durable settlement runs after", async () => {
  const items = Array.from({ length: 100 }, (_, i) => i);
  const each = {
    id: "each",
    type: "tool",
    tool: "Put",
    capabilities: [],
    args: { item: { from: "item", name: "it" } },
  };
  const slow: MockTool = { ...PUT, takes_ms: [1, 1_000], effect: "end" };
  const definition = {
    budgets: { max_concurrency: 64 },
    steps: [each],
    plan: { type: "map", source: { from: "literal", value: items }, item: "it", body: leaf("each") },
  };
  const world = await createWorld({ seed, definitions: [definition], tools: [slow] });
  const first = await world.process();
  const runId = await started(world, first);
  await world.until(() => world.effects.effects.length >= 50);
  first.kill();
  const settled = new Set(
    (await world.events(runId)).flatMap((event) => (event.type === "step_completed" ? [event.step_id] : [])),
  );
  expect(settled.size).toBeGreaterThan(30);
  expect([...settled]).not.toEqual([...settled].sort());
  const before = world.effects.calls.length;
  const second = await world.process();
  expect(await follow(world, second, runId, { person })).toBe("ended");
  const again = world.effects.calls.slice(before).map((call) => call.step_id ?? "");
  expect([...again].sort()).toEqual(
    items
      .map((i) => `each@root[${i}]`)
      .filter((id) => !settled.has(id))
      .sort(),
  );
  expect((await world.state(runId)).output).toEqual(items.map((item) => ({ item })));
  expect(await world.check(runId)).toEqual([]);
  await world.close();
});

test("C06 a timed-out attempt is over before its retry begins, and what follows happens once", async () => {
  const spans: { attempt: number; from: number; to: number }[] = [];
  let clock = (): number => 0;
  const hang: MockTool = {
    name: "Hang",
    sideEffect: "idempotent",
    takes_ms: [0, 0],
    answer: (call) =>
      new Promise((resolve, reject) => {
        const span = { attempt: call.attempt, from: clock(), to: Number.POSITIVE_INFINITY };
        spans.push(span);
        const end = (): void => {
          span.to = clock();
        };
        if (call.attempt === 3) {
          end();
          resolve(ok("third time"));
        } else
          call.signal.addEventListener("abort", () => {
            end();
            reject(call.signal.reason);
          });
      }),
    effect: "start",
  };
  const definition = {
    steps: [tool("hang", "Hang", { timeout_ms: 2_000 }), tool("b", "Put")],
    plan: { type: "sequence", nodes: [{ type: "retry", max_attempts: 3, delay_ms: 0, node: leaf("hang") }, leaf("b")] },
  };
  const world = await createWorld({ seed, definitions: [definition], tools: [hang, PUT] });
  clock = () => world.clock.now();
  const process = await world.process();
  const runId = await started(world, process);
  expect(await follow(world, process, runId, { person })).toBe("ended");
  expect(spans.map((span) => span.attempt)).toEqual([1, 2, 3]);
  for (const [i, span] of spans.entries())
    if (i > 0) expect(span.from).toBeGreaterThanOrEqual(spans[i - 1]?.to ?? Number.POSITIVE_INFINITY);
  expect([(await world.record(runId)).status, world.effects.countOf("Put")]).toEqual(["succeeded", 1]);
  await world.close();
});

test("C06 what a timed-out mutation answers too late is kept as evidence, and is no settlement", async () => {
  const late: MockTool = { name: "Late", deaf: true, takes_ms: [60_000, 60_000], effect: "end" };
  const world = await createWorld({
    seed,
    definitions: [{ steps: [tool("late", "Late", { timeout_ms: 2_000 })], plan: leaf("late") }],
    tools: [late],
  });
  const process = await world.process();
  const runId = await started(world, process);
  await world.clock.advance(120_000);
  const state = await world.state(runId);
  expect([state.status, state.waits.map((wait) => wait.type)]).toEqual(["suspended", ["repair"]]);
  expect((await world.kinds(runId)).filter((kind) => kind === "late_result")).toHaveLength(1);
  expect(state.waits[0]?.evidence?.late_results).toHaveLength(1);
  expect(await follow(world, process, runId, { person })).toBe("ended");
  expect([(await world.record(runId)).status, world.effects.countOf("Late"), await world.check(runId)]).toEqual([
    "succeeded",
    1,
    [],
  ]);
  await world.close();
});

test("SC-39 a run that waits for an approval is suspended with what was asked, survives a crash, and is sent once", async () => {
  const policy = { fingerprint: "ask", decide: () => ({ decision: "ask" as const, reason: "it costs money" }) };
  const world = await createWorld({
    seed,
    definitions: [{ steps: [tool("put", "Put")], plan: leaf("put") }],
    tools: [PUT],
    policy,
  });
  const first = await world.process();
  const runId = await started(world, first);
  await world.until(async () => (await world.record(runId)).status === "suspended");
  const asked = (await world.state(runId)).waits;
  expect(asked).toMatchObject([
    {
      type: "tool_approval",
      step_id: "put",
      tool: "Put",
      input: { n: "put" },
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
    },
  ]);
  first.kill();
  const second = await world.process();
  await world.clock.settle();
  expect((await world.state(runId)).waits).toEqual(asked);
  expect(await follow(world, second, runId, { person })).toBe("ended");
  expect([(await world.record(runId)).status, world.effects.calls.length, await world.check(runId)]).toEqual([
    "succeeded",
    1,
    [],
  ]);
  await world.close();
});

test("SC-39 a tool that runs on by itself is killed first, then shown; only an interrupted run is restarted", async () => {
  let kills = 0;
  const detached: MockTool = {
    name: "Detached",
    takes_ms: [0, 0],
    answer: () => ({ type: "running", kill: async () => ++kills === 1 }),
  };
  const world = await createWorld({
    seed,
    definitions: [{ steps: [tool("far", "Detached")], plan: leaf("far") }],
    tools: [detached],
  });
  const process = await world.process();
  const runId = await started(world, process);
  await world.until(async () => (await world.record(runId)).status === "suspended");
  const state = await world.state(runId);
  expect([kills, state.waits]).toMatchObject([
    1,
    [{ type: "tool_running", step_id: "far", tool: "Detached", killed: true }],
  ]);
  expect(decideRestart({ state, root: state, tree: [], now_ms: world.clock.now() })).toMatchObject({ ok: false });
  await world.close();
});

test("SC-23 an export with a torn last line is imported up to its last whole segment, and says so", async () => {
  const world = await createWorld({
    seed,
    definitions: [{ steps: [tool("a", "Put"), tool("b", "Put")], plan: sequence("a", "b") }],
    tools: [PUT],
  });
  const process = await world.process();
  const runId = await started(world, process);
  await follow(world, process, runId, { person });
  const record = await world.record(runId);
  let text = "";
  for await (const part of exportLines(world.store, record, world.bundle as never)) text += part;
  const whole = (await world.store.readSegments(runId, 0, 1e9)).length;
  expect(whole).toBeGreaterThan(2);
  const lines = async function* (of: string): AsyncGenerator<string> {
    for (const line of of.split("\n")) if (line !== "") yield line;
  };
  for (const [cut, torn] of [
    [0, false],
    [20, true],
    [400, true],
  ] as const) {
    const store = await openSqliteStore({ path: ":memory:" });
    await store.createSession(sessionRecord());
    const imported = await importJournal(store, lines(text.slice(0, text.length - cut)), SESSION_ID);
    expect([cut, imported.truncated_tail]).toEqual([cut, torn]);
    const got = await store.getRun(runId);
    const events = got === undefined ? [] : await eventsOf(store, got);
    expect(JSON.stringify(await world.events(runId)).startsWith(JSON.stringify(events).slice(0, -1))).toBe(true);
    expect(torn ? events.length < record.last_sequence : events.length === record.last_sequence).toBe(true);
    await store.close();
  }
  await world.close();
});

test("SC-23 of two commits that race for one sequence one wins, and the loser has written nothing", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  await store.createSession(sessionRecord());
  const journal = new TestJournal();
  await store.commit([startCommit(journal, { owner: "a" })]);
  const rival = journal.fork();
  const [mine, other] = [treeCommit([journal.next()]), treeCommit([rival.next({ bytes: Buffer.from("{}\n") })])];
  const results = await Promise.all([store.commit([mine]), store.commit([other])]);
  expect(results.flat().map((result) => result.ok)).toEqual([true, false]);
  const segments = await store.readSegments(journal.run_id, 0, 1e9);
  expect(segments.map((segment) => segment.hash)).toEqual([expect.anything(), mine.runs[0]?.segment.hash]);
  await store.close();
});

test("a process that is gone is never answered, and what its plan cut is what the store has", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  await store.createSession(sessionRecord());
  const kept = new TestJournal();
  const after = faultyStore(store, { write: () => ({ kind: "stop", when: "after" }) });
  const lost = new TestJournal();
  const before = faultyStore(store, { write: () => ({ kind: "stop", when: "before" }) });
  const answers: string[] = [];
  void after.store.commit([startCommit(kept)]).then(() => answers.push("after"));
  void before.store.commit([startCommit(lost)]).then(() => answers.push("before"));
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
  void after.store.getRun(kept.run_id).then(() => answers.push("read"));
  await new Promise((resolve) => setImmediate(resolve));
  expect([answers, after.stopped, before.stopped]).toEqual([[], true, true]);
  expect([(await store.getRun(kept.run_id))?.run_id, await store.getRun(lost.run_id)]).toEqual([
    kept.run_id,
    undefined,
  ]);
  await store.close();
});
