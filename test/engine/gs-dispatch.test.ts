/** GS-3 … GS-6, GS-21 … GS-29: one attempt from plan to settlement, with a crash at each boundary (GD-13 … GD-41). */
import { expect, test } from "vitest";
import { canonicalJson } from "../../src/domain/json.ts";
import type { RunState } from "../../src/domain/state.ts";
import { type FakeTool, type Fixture, ok, TestClock, turn } from "../../src/engine/fixture.ts";
import { unpackText } from "../../src/engine/index.ts";
import type { TreeCommit } from "../../src/ports/index.ts";
import {
  carrier,
  eventually,
  file,
  gate,
  NEVER,
  open,
  plain,
  processOn,
  stepOf,
  stopsAfter,
  TurnOwner,
} from "./gs-world.ts";

const text = (group: readonly TreeCommit[]): string =>
  group.flatMap((commit) => commit.runs.map((run) => unpackText(run.segment))).join("");
const hasReceipt = (state: RunState): boolean => state.steps.get("turn")?.receipt !== undefined;
const dies = (type: string) => stopsAfter(type, text);

/** A run whose process has died once the owner's receipt was stored. */
async function leftWithReceipt(store: Awaited<ReturnType<typeof open>>, owner: TurnOwner): Promise<string> {
  const dying = await processOn(store, { tools: { turn: owner.tool() } });
  const runId = await dying.start(carrier());
  await dying.until(runId, hasReceipt);
  await dying.kill();
  return runId;
}

test("GS-21 a fault after each dispatch boundary leaves (owner calls, receipt) = (0, none), (0, none), (1, none), (1, stored)", async () => {
  for (const [boundary, calls, handedOff, receipt] of [
    ["step_started", 0, undefined, false],
    ["handed_off", 0, true, false],
    ["accepted", 1, true, false],
    ["receipt", 1, true, true],
  ] as const) {
    const store = await open();
    const owner = new TurnOwner();
    owner.prompt = false;
    const f = await processOn(store, {
      tools: { turn: owner.tool() },
      faults: boundary === "accepted" ? {} : dies(boundary),
    });
    if (boundary === "accepted")
      owner.onAccepted = () => {
        f.faulty.stop();
        return NEVER;
      };
    const runId = await f.start(carrier());
    await eventually(() => f.faulty.stopped);
    const again = await processOn(store, { tools: { turn: owner.tool() } });
    const step = stepOf(await again.state(runId));
    expect([boundary, owner.calls, step.status, step.handed_off, step.receipt !== undefined, step.attempts]).toEqual([
      boundary,
      calls,
      "running",
      handedOff,
      receipt,
      1,
    ]);
  }
});

test("GS-22 during the owner's call another connection sees it prepared, afterwards admitted", async () => {
  const path = file();
  const store = await open(path);
  const second = await processOn(await open(path));
  const owner = new TurnOwner();
  owner.prompt = false;
  const [inside, goOn] = [gate(), gate()];
  owner.onAccepted = async () => {
    inside.open();
    await goOn.promise;
  };
  const f = await processOn(store, { tools: { turn: owner.tool() } });
  const runId = await f.start(carrier());
  await inside.promise;
  expect(stepOf(await second.state(runId))).toMatchObject({ status: "running", handed_off: true });
  expect(stepOf(await second.state(runId)).receipt).toBeUndefined();
  goOn.open();
  await eventually(async () => stepOf(await second.state(runId)).receipt !== undefined);
  owner.end();
  await f.engine.idle(runId);
  expect(await second.state(runId)).toMatchObject({ status: "succeeded", output: 1 });
});

test("GS-23 two handles prepare one activation: one winner, one attempt", async () => {
  const path = file();
  const store = await open(path);
  const owner = new TurnOwner();
  const tools = { turn: owner.tool() };
  const dying = await processOn(store, { tools, faults: dies("run_started") });
  void dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  await dying.kill();
  const [run] = await store.listRuns({ limit: 1 });
  const runId = run?.run_id ?? "";
  const racers = [await processOn(await open(path), { tools }), await processOn(await open(path), { tools })];
  const trees = await Promise.all(racers.map((racer) => racer.engine.attach(runId)));
  expect(trees.filter((tree) => tree !== undefined)).toHaveLength(1);
  for (const [i, tree] of trees.entries()) if (tree !== undefined) await racers[i]?.engine.go(tree, "auto");
  for (const racer of racers) await racer.engine.idle(runId);
  const kinds = (await racers[0]?.kinds(runId)) ?? [];
  expect(kinds.filter((kind) => kind === "step_started")).toHaveLength(1);
  expect([owner.accepted.length, kinds.at(-1)]).toEqual([1, "run_succeeded"]);
});

test("GS-24 an owner that throws and knows of nothing leaves it to repair; looking again makes no second call", async () => {
  const store = await open();
  const owner = new TurnOwner();
  const turn: FakeTool = {
    ...owner.tool(),
    run: () => {
      owner.calls++;
      throw new Error("the transport broke");
    },
  };
  const f = await processOn(store, { tools: { turn } });
  const state = await f.run(carrier());
  expect(state.waits).toMatchObject([{ type: "repair", evidence: { attempt: 1, lookup: "unknown" } }]);
  for (let i = 0; i < 2; i++) await f.resume(state.header.run_id, "auto");
  expect([owner.calls, owner.lookups, (await f.state(state.header.run_id)).status]).toEqual([1, 1, "suspended"]);
});

test("GS-24 what an owner had accepted before it threw is found by its key and observed to its end, with one call", async () => {
  const store = await open();
  const owner = new TurnOwner();
  owner.onAccepted = () => {
    throw new Error("the transport broke");
  };
  const f = await processOn(store, { tools: { turn: owner.tool() } });
  const runId = await f.start(carrier());
  await f.until(runId, (state) => [...state.steps.values()].some((step) => step.receipt !== undefined));
  owner.end();
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: 1 });
  expect([owner.calls, owner.accepted.length]).toEqual([1, 1]);
});

test("GS-25 a read-only attempt is sent again under the same identity with a byte-equal intent, once", async () => {
  const store = await open();
  const owner = new TurnOwner();
  const dying = await processOn(store, { tools: { turn: owner.tool("read_only") }, faults: dies("step_started") });
  const runId = await dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  await dying.kill();
  const prepared = stepOf(await (await processOn(store)).state(runId)).intent;
  const f = await processOn(store, { tools: { turn: owner.tool("read_only") } });
  expect(await f.resume(runId, "auto")).toMatchObject({ status: "succeeded", output: 1 });
  const starts = (await f.events(runId)).filter((event) => event.type === "step_started");
  expect(starts.map((event) => event.type === "step_started" && [event.attempt, event.redispatch])).toEqual([
    [1, undefined],
    [1, 1],
  ]);
  expect(owner.intents.map(canonicalJson)).toEqual([canonicalJson(prepared ?? null)]);
  expect(owner.accepted).toHaveLength(1);
  expect(await f.engine.attach(runId)).toBeUndefined();
});

test("GS-26 authority goes from one daemon to the next once, only after proof; the old one is refused and the new one not", async () => {
  const path = file();
  const [a, b, c] = [await open(path), await open(path), await open(path)];
  const owner = new TurnOwner();
  owner.prompt = false;
  const old = await processOn(a, { tools: { turn: owner.tool() } });
  const runId = await old.start(carrier());
  await old.until(runId, hasReceipt);
  const by = { leaseMs: 30_000, graceMs: 0 };
  expect(await b.claim(runId, { owner: "daemon-b", ...by })).toBeUndefined();
  await a.renew(old.engine.owner, -1);
  expect(await b.claim(runId, { owner: "daemon-b", ...by })).toMatchObject({ fence: 2, taken_over: true });
  expect(await c.claim(runId, { owner: "daemon-c", ...by })).toBeUndefined();
  const before = await b.readSegments(runId, 0, 1 << 20);
  owner.end();
  await old.engine.idle(runId);
  expect(await b.readSegments(runId, 0, 1 << 20)).toEqual(before);
  const fine = { root_run_id: runId, runs: [], artifacts: [], signals_done: [], tree: { wake_at_ms: 1 } };
  expect(await b.commit([{ ...fine, fence: 1 }])).toEqual([{ ok: false, refusal: "fenced" }]);
  expect(await b.commit([{ ...fine, fence: 2 }])).toEqual([{ ok: true }]);
});

test("GS-27 a mutation with a receipt: deferred leaves it as it is, unknown is repair", async () => {
  const store = await open();
  const owner = new TurnOwner();
  owner.prompt = false;
  const runId = await leftWithReceipt(store, owner);
  const clock = new TestClock();
  const f = await processOn(store, { tools: { turn: owner.tool() }, clock });
  let asked = 0;
  const seen: string[] = [];
  Object.defineProperty(owner, "says", {
    get: () => {
      asked++;
      return asked < 4
        ? { type: "deferred", reason: "its host is busy" }
        : { type: "unknown", reason: "its history is gone" };
    },
  });
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  await f.engine.go(tree, "auto");
  for (let i = 0; i < 3; i++) {
    await eventually(() => asked === i + 1);
    seen.push(stepOf(tree.state(runId)).status);
    await clock.advance(50 * 2 ** i);
  }
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect(seen).toEqual(["running", "running", "running"]);
  expect(state.waits).toMatchObject([
    { type: "repair", reason: "its history is gone", evidence: { lookup: "unknown" } },
  ]);
  expect([owner.calls, stepOf(state).attempts]).toEqual([1, 1]);
});

/** An owner that is at work until `end`, also once it is told to stop, and then has done what it was asked. */
function stubborn() {
  const owner = { told: 0, ended: false, hears: gate(), end: gate() };
  const run: FakeTool["run"] = async (call) => {
    call.signal.addEventListener("abort", () => {
      owner.told++;
      owner.hears.open();
    });
    await call.receipt({ turn_id: "t1" });
    await owner.end.promise;
    owner.ended = true;
    return ok(1);
  };
  return { owner, run };
}

test("GS-28 cancelled at 20 and again at 21 while it is stopping: the owner is told once, its late success is kept, and the first cancel ends the run without output", async () => {
  const store = await open();
  const { owner, run } = stubborn();
  const clock = new TestClock();
  const f = await processOn(store, { clock, tools: { turn: plain(run) } });
  const zero = clock.now();
  const runId = await f.start(carrier());
  await f.until(runId, hasReceipt);
  await clock.advance(20);
  const answers: [string, boolean, boolean][] = [];
  const cancel = (reason: string, decided_by: string): Promise<unknown> =>
    f.signal(runId, "cancel", { reason, decided_by }).then((taken) => answers.push([reason, taken, owner.ended]));
  const first = cancel("first", "os:a");
  await owner.hears.promise;
  await clock.advance(1);
  const second = cancel("second", "os:b");
  const asked = () => store.signals({ root_run_id: runId });
  await eventually(async () => (await asked()).length === 2);
  for (let i = 0; i < 20; i++) await turn();
  // Intent is not termination (GD-40): neither is answered, nothing is called cancelled.
  expect((await asked()).map(({ created_at_ms, payload }) => [created_at_ms - zero, payload])).toEqual([
    [20, { reason: "first", decided_by: "os:a" }],
    [21, { reason: "second", decided_by: "os:b" }],
  ]);
  expect([answers, owner.told, (await f.state(runId)).status]).toEqual([[], 1, "running"]);
  owner.end.open();
  await Promise.all([first, second]);
  expect(answers.sort()).toEqual([
    ["first", true, true],
    ["second", true, true],
  ]);
  await expectCancelledOnce(f, runId, { reason: "first", decided_by: "os:a", requested_at_ms: zero + 20 });
  expect([owner.told, await asked()]).toEqual([1, []]);
  await expect(f.signal(runId, "cancel", { reason: "third" })).rejects.toMatchObject({ code: "terminal" });
});

/** GD-40: one end, that of the first cancel; no output; what the owner said too late is evidence. */
async function expectCancelledOnce(f: Fixture, runId: string, by: object): Promise<void> {
  const events = await f.events(runId);
  const state = await f.state(runId);
  expect(events.filter(({ type }) => type === "run_cancelled")).toMatchObject([by]);
  expect(events.filter(({ type }) => type === "late_result")).toMatchObject([
    { step_id: "turn", attempt: 1, result: { type: "succeeded", output: 1 } },
  ]);
  expect(events.some(({ type }) => type === "step_completed" || type === "run_succeeded")).toBe(false);
  const step = stepOf(state);
  expect([state.status, state.output, step.status, step.output]).toEqual([
    "cancelled",
    undefined,
    "cancelled",
    undefined,
  ]);
}

test("GS-28 the process dies between the two: the first cancel is kept, and its word ends the run once the lost attempt is answered", async () => {
  const store = await open();
  const { owner, run } = stubborn();
  const tools = { turn: plain(run) };
  const dying = await processOn(store, { tools });
  const runId = await dying.start(carrier());
  await dying.until(runId, hasReceipt);
  void dying.signal(runId, "cancel", { reason: "first", decided_by: "os:a" });
  await owner.hears.promise;
  await dying.kill();
  const f = await processOn(store, { tools });
  expect(await f.signal(runId, "cancel", { reason: "second", decided_by: "os:b" })).toBe(true);
  const state = await f.state(runId);
  expect([state.status, state.output, state.stopping]).toEqual([
    "suspended",
    undefined,
    { reason: "cancelled", text: "first", decided_by: "os:a", requested_at_ms: expect.any(Number) },
  ]);
  const repair = { resolution: "succeeded", output: 1, decided_by: "os:c" };
  await f.signal(runId, "repair", { wait_id: state.waits.at(-1)?.wait_id ?? "", ...repair });
  await f.engine.idle(runId);
  const ended = await f.state(runId);
  expect([ended.status, ended.output, stepOf(ended).status]).toEqual(["cancelled", undefined, "succeeded"]);
  expect((await f.events(runId)).filter(({ type }) => type === "run_cancelled")).toMatchObject([
    { reason: "first", decided_by: "os:a" },
  ]);
  expect([owner.told, await store.signals({ root_run_id: runId })]).toEqual([1, []]);
});

test.each([
  ["its process has taken it up again", true],
  ["nobody holds it, after a crash", false],
])(
  "GS-28 an attempt that is only observed, while %s: its owner is told once by two cancels, and its success is too late",
  async (_, taken) => {
    const store = await open();
    const owner = new TurnOwner();
    owner.prompt = false;
    const runId = await leftWithReceipt(store, owner);
    const f = await processOn(store, { tools: { turn: owner.tool() } });
    const tree = taken ? await f.engine.attach(runId) : undefined;
    if (tree !== undefined) await f.engine.go(tree, "auto");
    const first = f.signal(runId, "cancel", { reason: "first" });
    if (taken) await eventually(() => owner.cancelled.length > 0);
    const second = f.signal(runId, "cancel", { reason: "second" });
    await eventually(() => owner.cancelled.length > 0);
    // Still at work: it is asked on, not told again, and nothing is called cancelled (GD-40).
    const before = owner.observations;
    await eventually(() => owner.observations > before + 1);
    expect((await f.state(runId)).status).not.toBe("cancelled");
    owner.end();
    await Promise.all([first, second]);
    await expectCancelledOnce(f, runId, { reason: "first" });
    expect([owner.cancelled.length, owner.calls]).toEqual([1, 1]);
  },
);

test("R-12 an owner that goes on past the grace of a stop leaves a repair, which ends the run as the stop would have", async () => {
  const store = await open();
  const owner = new TurnOwner();
  owner.prompt = false;
  const runId = await leftWithReceipt(store, owner);
  const f = await processOn(store, { tools: { turn: owner.tool() }, limits: { stop_grace_ms: 30 } });
  await f.signal(runId, "cancel", { decided_by: "os:a" });
  const { waits } = await f.state(runId);
  const repair = waits.find(({ type }) => type === "repair");
  expect([owner.cancelled.length, repair?.stop_reason]).toEqual([1, "cancelled"]);
  const answer = { resolution: "cancelled", message: "it was stopped there", decided_by: "os:b" };
  await f.signal(runId, "repair", { wait_id: repair?.wait_id ?? "", ...answer });
  await f.engine.idle(runId);
  expect((await f.events(runId)).at(-1)).toMatchObject({ type: "run_cancelled", decided_by: "os:a" });
});

test("GS-29 cancelled with its owner gone: read-only and never handed off is cancelled, a handed-off mutation is repair", async () => {
  for (const [effect, boundary, status] of [
    ["read_only", "handed_off", "cancelled"],
    ["read_only", "receipt", "cancelled"],
    ["mutating", "step_started", "cancelled"],
    ["mutating", "handed_off", "suspended"],
    ["mutating", "receipt", "suspended"],
  ] as const) {
    const store = await open();
    const owner = new TurnOwner();
    owner.prompt = false;
    const dying = await processOn(store, { tools: { turn: owner.tool(effect) }, faults: dies(boundary) });
    const runId = await dying.start(carrier());
    await eventually(() => dying.faulty.stopped);
    await dying.kill();
    const f = await processOn(store);
    await f.signal(runId, "cancel");
    const state = await f.state(runId);
    expect([effect, boundary, state.status, state.waits.map((wait) => wait.type)]).toEqual([
      effect,
      boundary,
      status,
      status === "cancelled" ? [] : ["repair"],
    ]);
  }
});

test("GS-3 a mutation that was prepared and never handed over is repair after a crash: no turn, one attempt", async () => {
  const store = await open();
  const owner = new TurnOwner();
  const dying = await processOn(store, { tools: { turn: owner.tool() }, faults: dies("step_started") });
  const runId = await dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  await dying.kill();
  const f = await processOn(store, { tools: { turn: owner.tool() } });
  const state = await f.resume(runId, "auto");
  expect(state.waits.map((wait) => wait.type)).toEqual(["repair"]);
  expect([owner.turns.size, stepOf(state).attempts]).toEqual([0, 1]);
});

test("GS-4 a fault after the owner accepted: recovery finds the turn by its key; one acceptance, one attempt, its receipt stored", async () => {
  const store = await open();
  const owner = new TurnOwner();
  const dying = await processOn(store, { tools: { turn: owner.tool() } });
  owner.onAccepted = async () => {
    await dying.kill();
    return NEVER;
  };
  const runId = await dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  const f = await processOn(store, { tools: { turn: owner.tool() } });
  owner.onAccepted = () => undefined;
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  await f.engine.go(tree, "auto");
  await f.until(runId, hasReceipt);
  owner.end();
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect([state.status, owner.accepted.length, owner.calls, stepOf(state).attempts]).toEqual(["succeeded", 1, 1, 1]);
});

test("GS-5 prepared, cancelled, recovered: it is never dispatched", async () => {
  const store = await open();
  const owner = new TurnOwner();
  const dying = await processOn(store, { tools: { turn: owner.tool() }, faults: dies("step_started") });
  const runId = await dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  await dying.kill();
  await store.putSignal(
    { signal_id: "c", root_run_id: runId, run_id: runId, kind: "cancel", payload: {}, created_at_ms: 3 },
    true,
  );
  const f = await processOn(store, { tools: { turn: owner.tool() } });
  f.drive();
  await eventually(async () => (await f.state(runId)).status === "cancelled");
  expect([owner.calls, owner.accepted.length]).toEqual([0, 0]);
  expect(await f.kinds(runId)).not.toContain("receipt");
});

test("GS-6 a foreign daemon without proof that the first has ended changes nothing", async () => {
  const path = file();
  const owner = new TurnOwner();
  const dying = await processOn(await open(path), { tools: { turn: owner.tool() }, faults: dies("step_started") });
  const runId = await dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  const f = await processOn(await open(path), { tools: { turn: owner.tool() } });
  expect(await f.engine.attach(runId)).toBeUndefined();
  const step = stepOf(await f.state(runId));
  expect([step.status, step.receipt, step.handed_off, owner.calls]).toEqual(["running", undefined, undefined, 0]);
});

test("GD-17 the same receipt again is nothing, another one is evidence and refused, and none is taken after the end", async () => {
  const store = await open();
  const owner = new TurnOwner();
  const refused: unknown[] = [];
  let late: (() => Promise<void>) | undefined;
  const f = await processOn(store, {
    tools: {
      turn: {
        ...owner.tool(),
        run: async (call) => {
          await call.receipt({ turn_id: "t1" });
          await call.receipt({ turn_id: "t1" });
          await call.receipt({ turn_id: "t2" }).catch((error: unknown) => refused.push(error));
          late = () => call.receipt({ turn_id: "t1" });
          return { type: "succeeded", output: 1 };
        },
      },
    },
  });
  const state = await f.run(carrier());
  const kinds = await f.kinds(state.header.run_id);
  expect(kinds.filter((kind) => kind === "receipt" || kind === "late_result")).toEqual(["receipt", "late_result"]);
  expect(refused).toMatchObject([{ code: "conflict" }]);
  await expect(late?.()).rejects.toMatchObject({ code: "conflict" });
});
