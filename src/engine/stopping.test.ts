/** Ending early: cancel, wall time, fail-fast, pause, races (SC-24, SC-38, RP-65 … RP-67, R-12, C10, C13). */
import { expect, test } from "vitest";
import type { RunStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import {
  aborted,
  type FakeTool,
  type Fixture,
  failed,
  fixture,
  gate,
  NEVER,
  ok,
  TestClock,
  turn,
  wrapStore,
} from "./fixture.ts";
import { stopRun } from "./tree/stopping.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const leaf = (step: string) => ({ type: "step", step });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const one = { steps: [tool("inspect")], plan: leaf("inspect") };
const TERMINAL = ["run_succeeded", "run_failed", "run_cancelled"];
const writes = { side_effect: "mutating", capabilities: ["write"] } as const;

/** SC-38: contiguous, one end, nothing of it left in memory. */
async function expectWhole(f: Fixture, runId: string): Promise<void> {
  const events = await f.events(runId);
  expect(events.map((event) => event.sequence)).toEqual(events.map((_, i) => i + 1));
  expect(events.filter((event) => TERMINAL.includes(event.type))).toHaveLength(1);
  expect(f.engine.holds(runId)).toBeUndefined();
}

test("SC-24 100 rounds of two signals racing from two engines: one end, one decision", async () => {
  const store = await open();
  const asks = { steps: [{ id: "gate", type: "approval", prompt: "?", outcome: "value" }], plan: leaf("gate") };
  const f = await fixture({ store });
  const g = await fixture({ store });
  for (let round = 0; round < 100; round++) {
    const waiting = await f.run(asks);
    const runId = waiting.header.run_id;
    const wait_id = waiting.waits[0]?.wait_id ?? "";
    const sides = [
      () => f.signal(runId, "approve", { wait_id, decided_by: "f" }),
      () => g.signal(runId, "deny", { wait_id, decided_by: "g" }),
    ];
    if (round % 2 === 1) sides.reverse();
    await Promise.all(sides.map((send) => send()));
    await Promise.all([f.engine.idle(runId), g.engine.idle(runId)]);
    const closed = (await f.events(runId)).filter((event) => event.type === "wait_closed");
    expect(closed).toHaveLength(1);
    await expectWhole(f, runId);
  }
});

test("SC-24 two engines that hold the same tree: the later fence writes, the earlier is refused and lets go", async () => {
  const store = await open();
  const inside = gate();
  const f = await fixture({
    store,
    quiet: true,
    tools: {
      Read: {
        run: async (call) => {
          inside.open();
          await aborted(call);
          return ok("stale");
        },
      },
    },
  });
  const runId = await f.start(one);
  await inside.promise;
  const fence = f.engine.holds(runId)?.journal.fence ?? 0;
  // Its lease is lost without its knowledge (C05).
  await store.release(runId, fence);
  const g = await fixture({ store, tools: { Read: { run: () => ok("fresh") } } });
  const state = await g.resume(runId);
  f.engine.holds(runId)?.append(runId, [{ type: "decision", key: "stale", value: 1 }]);
  await f.engine.idle(runId);
  expect(state).toMatchObject({ status: "succeeded", output: "fresh" });
  await expectWhole(g, runId);
  expect((await g.events(runId)).some((event) => event.type === "decision")).toBe(false);
  expect(f.engine.holds(runId)).toBeUndefined();
});

test("SC-38 the step fails before the run when 50 ms are over", async () => {
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async (call) => {
          await aborted(call);
          return ok(1);
        },
      },
    },
  });
  const state = await f.run({ ...one, budgets: { wall_time_ms: 50 } });
  expect((await f.kinds(state.header.run_id)).slice(-2)).toEqual(["step_failed", "run_failed"]);
});

test("SC-38 100 rounds of a 1 ms wall time", async () => {
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async (call) => {
          await aborted(call);
          return ok(1);
        },
      },
    },
  });
  for (let round = 0; round < 100; round++) {
    const state = await f.run({ ...one, budgets: { wall_time_ms: 1 } });
    expect(state).toMatchObject({ status: "failed", failure: { code: "budget_exceeded" } });
    await expectWhole(f, state.header.run_id);
  }
});

test("SC-38 100 rounds of an immediate cancel", async () => {
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async (call) => {
          await aborted(call);
          return ok(1);
        },
      },
    },
  });
  for (let round = 0; round < 100; round++) {
    const runId = await f.start(one);
    await f.signal(runId, "cancel");
    await f.engine.idle(runId);
    expect((await f.state(runId)).status).toBe("cancelled");
    await expectWhole(f, runId);
  }
});

test("C10 a cancel beside each of the last writes of a run: one end, the first committed, and it never changes", async () => {
  const plan = { steps: [tool("a"), tool("b")], plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] } };
  const writing = { Read: { side_effect: "idempotent", run: () => ok(1) } } as const;
  const ends = new Set<string>();
  for (let at = 1; at <= 8; at++) {
    for (const when of ["before", "after"] as const) {
      const store = await open();
      let commits = 0;
      let cancel: Promise<unknown> | undefined;
      // Whoever cancels hears whether it is over.
      const send = (runId: string): Promise<unknown> =>
        f.signal(runId, "cancel").catch((error: unknown) => expect(error).toMatchObject({ code: "terminal" }));
      const hook: RunStore["commit"] = async (group) => {
        const runId = group[0]?.root_run_id ?? "";
        commits++;
        if (commits === at && when === "before" && at > 1) cancel = send(runId);
        for (let i = 0; i < 3; i++) await turn();
        const results = await store.commit(group);
        if (commits === at && when === "after") cancel = send(runId);
        return results;
      };
      const f: Fixture = await fixture({ store: wrapStore(store, { commit: hook }), tools: writing });
      const state = await f.run(plan);
      const runId = state.header.run_id;
      await cancel;
      await f.engine.idle(runId);
      ends.add(state.status);
      await expectWhole(f, runId);
      expect((await f.state(runId)).last_sequence).toBe(state.last_sequence);
      expect(await store.signals({ root_run_id: runId })).toEqual([]);
    }
  }
  expect([...ends].sort()).toEqual(["cancelled", "succeeded"]);
});

test("RP-65 two cancels of a blocked run: both are answered when it has ended, with one end", async () => {
  const inside = gate();
  const leave = gate();
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async () => {
          inside.open();
          await leave.promise;
          return ok(1);
        },
      },
    },
  });
  const runId = await f.start(one);
  await inside.promise;
  const ended: string[] = [];
  const cancels = ["first", "second"].map((name) =>
    f.signal(runId, "cancel").then(async () => ended.push(`${name} ${(await f.state(runId)).status}`)),
  );
  for (let i = 0; i < 20; i++) await turn();
  expect(ended).toEqual([]);
  leave.open();
  await Promise.all(cancels);
  expect(ended.sort()).toEqual(["first cancelled", "second cancelled"]);
  await expectWhole(f, runId);
});

test("C13 a cancel during a retry delay: no further attempt, no timer left", async () => {
  const clock = new TestClock();
  let calls = 0;
  const f = await fixture({
    store: await open(),
    clock,
    limits: { lease_ms: 1e9 },
    tools: {
      Read: {
        run: () => {
          calls++;
          return failed();
        },
      },
    },
  });
  const runId = await f.start({
    ...one,
    plan: { type: "retry", max_attempts: 3, delay_ms: 30_000, node: leaf("inspect") },
  });
  await f.until(runId, (state) => state.usage.retries === 1);
  await f.signal(runId, "cancel");
  await f.engine.idle(runId);
  expect(clock.pending).toBe(0);
  await clock.advance(120_000);
  expect([calls, (await f.state(runId)).status]).toEqual([1, "cancelled"]);
});

test("RP-66 a suspended run that nobody holds is cancelled by whoever asks", async () => {
  const store = await open();
  const asks = { steps: [{ id: "gate", type: "approval", prompt: "?" }], plan: leaf("gate") };
  const f = await fixture({ store });
  const runId = (await f.run(asks)).header.run_id;
  const g = await fixture({ store });
  expect(await g.signal(runId, "cancel", { reason: "no longer wanted", decided_by: "me" })).toBe(true);
  expect(await g.state(runId)).toMatchObject({ status: "cancelled", waits: [] });
  expect((await g.events(runId)).at(-1)).toMatchObject({
    type: "run_cancelled",
    reason: "no longer wanted",
    decided_by: "me",
  });
  expect((await store.getTree(runId))?.ended).toBe(true);
});

test("R-12 a mutation that does not end within the grace: repair with its stop reason; the answer ends the run as the stop would have", async () => {
  for (const [budgets, reason, status] of [
    [{}, "cancelled", "cancelled"],
    [{ wall_time_ms: 30 }, "timeout", "failed"],
  ] as const) {
    const inside = gate();
    const f = await fixture({
      store: await open(),
      limits: { stop_grace_ms: 5 },
      tools: {
        Read: {
          ...writes,
          run: () => {
            inside.open();
            return NEVER;
          },
        },
      },
    });
    const runId = await f.start({ ...one, budgets });
    await inside.promise;
    if (reason === "cancelled") await f.signal(runId, "cancel");
    await f.engine.idle(runId);
    const waiting = await f.state(runId);
    expect(waiting).toMatchObject({
      status: "suspended",
      stopping: { reason },
      waits: [{ type: "repair", stop_reason: reason }],
    });
    await f.signal(runId, "repair", {
      wait_id: waiting.waits[0]?.wait_id ?? "",
      resolution: "failed",
      message: "x",
      decided_by: "me",
    });
    await f.engine.idle(runId);
    expect((await f.state(runId)).status).toBe(status);
    await expectWhole(f, runId);
  }
});

test("R-12 a mutation that reports while it is told to stop is cancelled, and its word is kept", async () => {
  const inside = gate();
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        ...writes,
        run: async (call) => {
          inside.open();
          await aborted(call);
          return ok("it was done");
        },
      },
    },
  });
  const runId = await f.start(one);
  await inside.promise;
  await f.signal(runId, "cancel");
  await f.engine.idle(runId);
  expect((await f.kinds(runId)).slice(-3)).toEqual(["late_result", "step_cancelled", "run_cancelled"]);
});

test("R-12 a mutating sibling of a failure that does not end waits for repair; then the parallel fails as it would have", async () => {
  const document = {
    steps: [tool("bad"), tool("write", { tool: "Write" })],
    plan: { type: "parallel", nodes: [leaf("bad"), leaf("write")] },
  };
  for (const elsewhere of [false, true]) {
    const inside = gate();
    const tools = {
      Read: {
        run: async () => {
          await inside.promise;
          return failed(false);
        },
      },
      Write: {
        ...writes,
        run: () => {
          inside.open();
          return NEVER;
        },
      },
    };
    const store = await open();
    const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools });
    const waiting = await f.run(document);
    const runId = waiting.header.run_id;
    expect(waiting.waits).toMatchObject([{ type: "repair", stop_reason: "sibling_failed" }]);
    const g = elsewhere ? await fixture({ store, tools }) : f;
    await g.signal(runId, "repair", {
      wait_id: waiting.waits[0]?.wait_id ?? "",
      resolution: "cancelled",
      decided_by: "me",
    });
    await g.engine.idle(runId);
    expect(await g.state(runId)).toMatchObject({ status: "failed", failure: { code: "execution_failed" } });
    expect((await g.state(runId)).failure?.message).toMatch(/^parallel branch\[0\] failed: /);
    await expectWhole(g, runId);
  }
});

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

test("R-36 pause, then resume: the same result, what ran within the grace is kept, nothing runs twice", async () => {
  const store = await open();
  const calls: string[] = [];
  const inside = gate();
  const leave = gate();
  const tools = {
    Read: {
      run: async (call: { step_id: string }) => {
        calls.push(call.step_id);
        if (call.step_id === "b") {
          inside.open();
          await leave.promise;
        }
        return ok(call.step_id);
      },
    },
  };
  const ids = ["a", "b", "c"];
  const f = await fixture({ store, tools });
  const runId = await f.start({ steps: ids.map((id) => tool(id)), plan: { type: "sequence", nodes: ids.map(leaf) } });
  await inside.promise;
  const paused = f.signal(runId, "pause", { decided_by: "me", reason: "lunch" });
  for (let i = 0; i < 10; i++) await turn();
  leave.open();
  await paused;
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "suspended", waits: [{ type: "paused", reason: "lunch" }] });
  expect((await f.state(runId)).steps.get("b")?.status).toBe("succeeded");
  const g = await fixture({ store, tools });
  expect(await g.resume(runId)).toMatchObject({ status: "succeeded", output: "c" });
  expect(calls).toEqual(ids);
});

test("R-36 what does not end within the grace of a pause: read-only goes again, a mutation waits for repair, then both go on", async () => {
  const store = await open();
  const inside = gate();
  let round = 0;
  const run = async () => {
    if (++round === 2) inside.open();
    return NEVER;
  };
  const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools: { Read: { run }, Write: { ...writes, run } } });
  const runId = await f.start({
    steps: [tool("read"), tool("write", { tool: "Write" })],
    plan: { type: "parallel", nodes: [leaf("read"), leaf("write")] },
  });
  await inside.promise;
  await f.signal(runId, "pause", { decided_by: "me" });
  await f.engine.idle(runId);
  const paused = await f.state(runId);
  expect(paused.waits.map((wait) => wait.type).sort()).toEqual(["paused", "repair"]);
  const g = await fixture({
    store,
    tools: { Read: { run: () => ok("read") }, Write: { ...writes, run: () => ok("write") } },
  });
  const repair = paused.waits.find((wait) => wait.type === "repair");
  await g.signal(runId, "repair", {
    wait_id: repair?.wait_id ?? "",
    resolution: "succeeded",
    output: "by hand",
    decided_by: "me",
  });
  await g.engine.idle(runId);
  expect(await g.state(runId)).toMatchObject({ status: "succeeded", output: ["read", "by hand"] });
});

test("RP-61 R-17 interrupted beside a mutation of unknown outcome: after the repair the read-only sibling goes again", async () => {
  const store = await open();
  const inside = gate();
  let round = 0;
  const run = async () => {
    if (++round === 2) inside.open();
    return NEVER;
  };
  const f = await fixture({ store, tools: { Read: { run }, Write: { ...writes, run } } });
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
      Read: {
        run: async () => {
          inside.open();
          return NEVER;
        },
      },
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
      Read: {
        run: async () => {
          inside.open();
          return NEVER;
        },
      },
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
      Read: {
        run: async () => {
          inside.open();
          return NEVER;
        },
      },
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
