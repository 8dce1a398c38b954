/** Ending early: cancel, wall time, fail-fast, races (SC-24, SC-38, RP-65 … RP-67, R-12, C10, C13). */
import { expect, test } from "vitest";
import type { RunStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import {
  aborted,
  type Fixture,
  failed,
  fixture,
  gate,
  leaf,
  NEVER,
  ok,
  TestClock,
  turn,
  wrapStore,
} from "./fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
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
