/** What a process that ended left open, in the process that takes it up (RP-61, R-5, R-12, R-14, C05). */
import { expect, test } from "vitest";
import type { RunStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { type FakeTool, fixture, gate, hangs, leaf, NEVER, ok, TestClock, wrapStore } from "./fixture.ts";
import { stopRun } from "./tree/stopping.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const one = { steps: [tool("inspect")], plan: leaf("inspect") };
const writes = { side_effect: "mutating", capabilities: ["write"] } as const;

test("R-12 a run that is being stopped goes nowhere in the process that takes it up, whatever its program had heard of", async () => {
  const store = await open();
  const both = gate();
  const leave = gate();
  const calls: string[] = [];
  const tools: Record<string, FakeTool> = {
    Read: {
      run: async (call) => {
        calls.push(call.step_id);
        await leave.promise;
        return ok(1);
      },
    },
    Write: {
      ...writes,
      run: () => {
        both.open();
        return NEVER;
      },
    },
  };
  const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools });
  const runId = await f.start(
    {
      steps: [tool("write", { tool: "Write" }), tool("first"), tool("next")],
      plan: { type: "parallel", nodes: [leaf("write"), { type: "sequence", nodes: [leaf("first"), leaf("next")] }] },
    },
    {},
    { durability: "strict" },
  );
  await both.promise;
  // The stop comes between the settlement of `first` and the program's hearing of it.
  f.engine.subscribe(runId, (_, state) => {
    const tree = f.engine.holds(runId);
    if (tree !== undefined && state.steps.get("first")?.status === "succeeded")
      void stopRun(tree, runId, { reason: "cancelled" });
  });
  leave.open();
  await f.engine.idle(runId);
  const waiting = await f.state(runId);
  expect(waiting).toMatchObject({ status: "suspended", waits: [{ type: "repair" }] });
  expect(waiting.steps.get("first")?.status).toBe("succeeded");
  const g = await fixture({ store, tools });
  await g.signal(runId, "repair", { wait_id: waiting.waits[0]?.wait_id ?? "", resolution: "failed", decided_by: "me" });
  await g.engine.idle(runId);
  expect([(await g.state(runId)).status, calls]).toEqual(["cancelled", ["first"]]);
});

test("C05 a process that could not renew its lease in time begins no effect; whoever takes the run up does it once", async () => {
  const clock = new TestClock();
  const store = await open();
  const inside = gate();
  const leave = gate();
  const calls: string[] = [];
  const document = {
    steps: [tool("read"), tool("write", { tool: "Write" })],
    plan: { type: "sequence", nodes: [leaf("read"), leaf("write")] },
  };
  const frozen = await fixture({
    store,
    clock,
    quiet: true,
    tools: {
      Read: {
        run: async () => {
          inside.open();
          await leave.promise;
          return ok(1);
        },
      },
      Write: { ...writes, run: () => ok(calls.push("stale")) },
    },
  });
  const runId = await frozen.start(document);
  await inside.promise;
  // Two thirds of the lease of 30 s have passed since the last renewal was sent.
  await clock.advance(20_001);
  leave.open();
  await expect(frozen.engine.idle(runId)).rejects.toMatchObject({ code: "storage_unavailable" });
  expect(calls).toEqual([]);
  const g = await fixture({
    store,
    tools: {
      Read: { run: () => ok(1) },
      Write: { ...writes, lookup: async () => ({ type: "absent" }), run: () => ok(calls.push("fresh")) },
    },
  });
  expect((await g.resume(runId)).status).toBe("succeeded");
  expect(calls).toEqual(["fresh"]);
});

test("RP-61 R-17 interrupted beside a mutation of unknown outcome: after the repair the read-only sibling goes again", async () => {
  const store = await open();
  const inside = gate();
  let round = 0;
  const run = async () => {
    if (++round === 2) inside.open();
    return NEVER;
  };
  const f = await fixture({ store, limits: { stop_grace_ms: 1 }, tools: { Read: { run }, Write: { ...writes, run } } });
  const runId = await f.start({
    steps: [tool("read"), tool("write", { tool: "Write" })],
    plan: { type: "parallel", nodes: [leaf("read"), leaf("write")] },
  });
  await inside.promise;
  await f.engine.close();
  const g = await fixture({
    store,
    tools: { Read: { run: () => ok("read") }, Write: { ...writes, run: () => ok("write") } },
  });
  const waiting = await g.resume(runId, "auto");
  expect(waiting).toMatchObject({ status: "suspended", waits: [{ type: "repair" }] });
  await g.signal(runId, "repair", { wait_id: waiting.waits[0]?.wait_id ?? "", resolution: "retry", decided_by: "me" });
  await g.engine.idle(runId);
  const state = await g.state(runId);
  expect(state).toMatchObject({ status: "succeeded", output: ["read", "write"] });
  expect([state.steps.get("read")?.attempts, state.steps.get("write")?.attempts]).toEqual([1, 2]);
});

test("R-12 an interrupted run that is cancelled asks only for what is not known, and the answer ends it", async () => {
  const store = await open();
  const inside = gate();
  const tools = { Write: { ...writes, ...hangs(inside), lookup: async () => ({ type: "unknown" }) as const } };
  const f = await fixture({ store, limits: { stop_grace_ms: 1 }, tools });
  const runId = await f.start({ steps: [tool("write", { tool: "Write" })], plan: leaf("write") });
  await inside.promise;
  await f.engine.close();
  const g = await fixture({ store, tools });
  // Whoever takes it marks it as interrupted first, which is a wait of its own.
  await g.signal(runId, "cancel", { decided_by: "me" });
  await g.engine.idle(runId);
  const { waits } = await g.state(runId);
  expect(waits.map(({ type }) => type)).toEqual(["repair"]);
  await g.signal(runId, "repair", { wait_id: waits[0]?.wait_id ?? "", resolution: "failed", decided_by: "me" });
  await g.engine.idle(runId);
  expect((await g.state(runId)).status).toBe("cancelled");
});

test("RP-61 interrupted beside an open approval: going on sends the read-only sibling again while the approval waits", async () => {
  const store = await open();
  const inside = gate();
  const document = {
    steps: [tool("read"), { id: "gate", type: "approval", prompt: "?", outcome: "value" }],
    plan: { type: "parallel", nodes: [leaf("read"), leaf("gate")] },
  };
  const f = await fixture({
    store,
    tools: {
      Read: hangs(inside),
    },
  });
  const runId = await f.start(document);
  await inside.promise;
  await f.until(runId, (state) => state.waits.length === 1);
  await f.engine.close();
  let calls = 0;
  const g = await fixture({ store, tools: { Read: { run: () => ok(++calls) } } });
  const waiting = await g.resume(runId, "auto");
  expect([waiting.status, waiting.waits[0]?.type, waiting.steps.get("read")?.status, calls]).toEqual([
    "suspended",
    "approval",
    "succeeded",
    1,
  ]);
  await g.signal(runId, "approve", { wait_id: waiting.waits[0]?.wait_id ?? "", decided_by: "me" });
  await g.engine.idle(runId);
  expect(await g.state(runId)).toMatchObject({ status: "succeeded", output: [1, { approved: true }] });
});

test("R-14 a run whose time was over when its process came back ends without sending anything", async () => {
  const store = await open();
  const clock = new TestClock();
  const inside = gate();
  const f = await fixture({
    store,
    clock,
    limits: { lease_ms: 1e9 },
    tools: {
      Read: hangs(inside),
    },
  });
  const runId = await f.start({ ...one, budgets: { wall_time_ms: 1_000 } });
  await inside.promise;
  await f.engine.close();
  await clock.advance(5_000);
  let calls = 0;
  const g = await fixture({ store, clock, limits: { lease_ms: 1e9 }, tools: { Read: { run: () => ok(++calls) } } });
  expect(await g.resume(runId, "auto")).toMatchObject({ status: "failed", failure: { code: "budget_exceeded" } });
  expect(calls).toBe(0);
});

test("R-5 recoveries without progress park the run with that reason; a settlement resets the count", async () => {
  const store = await open();
  const inside = gate();
  const document = {
    steps: [tool("first"), tool("second")],
    plan: { type: "sequence", nodes: [leaf("first"), leaf("second")] },
  };
  const dying = await fixture({
    store,
    tools: {
      Read: hangs(inside),
    },
  });
  const runId = await dying.start(document);
  await inside.promise;
  await dying.engine.close();
  // The store counts what it takes from dead owners; here it says that this is the fifth time.
  let recoveries = 5;
  const counted: (number | undefined)[] = [];
  const claim: RunStore["claim"] = async (...args) => {
    const claimed = await store.claim(...args);
    return claimed === undefined ? undefined : { ...claimed, recoveries };
  };
  const commit: RunStore["commit"] = async (group) => {
    for (const tree of group) if (tree.tree?.recoveries !== undefined) counted.push(tree.tree.recoveries);
    return store.commit(group);
  };
  let calls = 0;
  const f = await fixture({ store: wrapStore(store, { claim, commit }), tools: { Read: { run: () => ok(++calls) } } });
  expect(await f.resume(runId, "auto")).toMatchObject({
    status: "suspended",
    waits: [{ type: "recovery", reason: "no_progress" }],
  });
  expect([calls, counted]).toEqual([0, []]);
  recoveries = 4;
  expect(await f.resume(runId, "auto")).toMatchObject({ status: "succeeded" });
  expect(counted).toContain(0);
});
