/** GS-2, GS-7, GS-8, GS-33, GS-34, GS-44: what may begin, and what waits without holding anybody up (GD-25 … GD-33, GD-53, GD-59, GD-61). */
import { expect, test } from "vitest";
import type { RetryPolicy } from "../../src/domain/backoff.ts";
import type { RunState } from "../../src/domain/state.ts";
import { failed, gate, NEVER, ok, TestClock, turn } from "../../src/engine/fixture.ts";
import { standing } from "../../src/engine/index.ts";
import type { Program } from "../../src/engine/program.ts";
import type { ToolOutcome } from "../../src/ports/index.ts";
import { carrier, eventually, file, open, plain, processOn, stepOf, TurnOwner, turnSpec } from "./gs-world.ts";

const step = (state: RunState, id: string): string | undefined => state.steps.get(id)?.status;

test('GS-2 the session\'s permit is held: the run is let go of as "admission timed out" and completes once it is free, in the same process', async () => {
  const owner = new TurnOwner();
  owner.permit = "somebody else";
  const f = await processOn(await open(), { tools: { turn: owner.tool() }, limits: { admission_timeout_ms: 50 } });
  f.drive();
  const runId = await f.start(carrier());
  const state = await f.until(runId, ({ status }) => status === "suspended");
  expect(state.waits).toMatchObject([{ type: "recovery", reason: "admission timed out" }]);
  expect((await f.store.getTree(runId))?.recoveries).toBe(0);
  await f.until(runId, ({ status }) => status === "running");
  owner.release();
  const done = await f.until(runId, ({ status }) => status === "succeeded");
  // GD-27: it uses up no retry and no attempt, and is no lost worker.
  expect([owner.calls, stepOf(done).attempts, done.usage.retries, done.usage.steps]).toEqual([1, 1, 0, 1]);
});

test("GS-2 with recovery: manual too nobody has to be asked, and a crash meanwhile loses nothing", async () => {
  const store = await open();
  const owner = new TurnOwner();
  owner.permit = "somebody else";
  const tools = { turn: owner.tool() };
  const limits = { admission_timeout_ms: 20 };
  const first = await processOn(store, { tools, limits, recovery: "manual" });
  const runId = await first.start(carrier());
  await first.engine.idle(runId);
  await first.kill();
  owner.release();
  const f = await processOn(store, { tools, limits, recovery: "manual" });
  f.drive();
  expect((await f.until(runId, ({ status }) => status === "succeeded")).output).toBe(1);
});

test("GS-7 a run blocked in admission delays no other; stopped, its tree is anybody's", async () => {
  const path = file();
  const [blocked, free] = [new TurnOwner(), new TurnOwner()];
  blocked.permit = "somebody else";
  const program: Program = (ctx) => ctx.step("turn", { ...turnSpec(), tool: ctx.args === 1 ? "blocked" : "free" }, 1);
  const options = {
    program: () => program,
    tools: { blocked: blocked.tool(), free: free.tool() },
    limits: { admission_timeout_ms: 10_000 },
  };
  const f = await processOn(await open(path), options);
  const driver = f.drive();
  const admission = await f.start(carrier(), 1);
  const other = await f.start(carrier(), 2);
  await f.until(other, ({ status }) => status === "succeeded");
  const tree = f.engine.holds(admission);
  if (tree === undefined) throw new Error("not held");
  expect(standing(tree, admission).waiting_for_owner).toEqual(["turn"]);
  await driver.stop();
  await f.engine.close();
  const next = await processOn(await open(path), options);
  expect(await next.engine.attach(admission)).toBeDefined();
  expect(blocked.accepted).toEqual([]);
});

test("GS-8 while one process has a run another recovers nothing of it: one pending activation; let go of, it and other-run may be taken, each once", async () => {
  const path = file();
  const owner = new TurnOwner();
  owner.permit = "somebody else";
  const tools = { turn: owner.tool() };
  const holder = await processOn(await open(path), { tools });
  const ids = { admission: await holder.start(carrier()), other: await holder.start(carrier()) };
  const waits = (runId: string): number => holder.engine.holds(runId)?.dispatch.admission.waiting.length ?? 0;
  await eventually(() => waits(ids.admission) === 1 && waits(ids.other) === 1);
  for (const runId of Object.values(ids)) await holder.engine.holds(runId)?.journal.barrier();
  const before = await holder.events(ids.admission);
  const other = await processOn(await open(path), { tools });
  const driver = other.drive(60_000);
  await driver.wake();
  expect([other.engine.load, await other.engine.attach(ids.admission)]).toEqual([0, undefined]);
  const state = await other.state(ids.admission);
  expect([...state.steps.values()].map(({ id, status, attempts }) => [id, status, attempts])).toEqual([
    ["turn", "queued", 0],
  ]);
  expect(await other.events(ids.admission)).toEqual(before);
  await driver.stop();
  await holder.engine.close();
  // Both gates are free now, and each is one process's again once it is taken.
  const third = await processOn(await open(path), { tools });
  const trees = [await other.engine.attach(ids.admission), await third.engine.attach(ids.other)];
  expect(trees.map((tree) => tree?.rootRunId)).toEqual([ids.admission, ids.other]);
  expect([await third.engine.attach(ids.admission), await other.engine.attach(ids.other)]).toEqual([
    undefined,
    undefined,
  ]);
  owner.release();
  for (const [i, f] of [other, third].entries()) {
    const tree = trees[i];
    if (tree !== undefined) await f.engine.go(tree, "auto");
  }
  for (const [f, runId] of [
    [other, ids.admission],
    [third, ids.other],
  ] as const) {
    await f.engine.idle(runId);
    const done = await f.state(runId);
    expect([done.status, stepOf(done).attempts]).toEqual(["succeeded", 1]);
  }
  expect(owner.accepted).toHaveLength(2);
});

const write =
  (id: string): Program =>
  (ctx) =>
    ctx.step(id, { ...turnSpec(), resources: [{ resource: "repository", access: "write" }] }, 1);

test("GS-33 two siblings that write the repository: one is at work with one lease, the other raced and goes when it is free", async () => {
  const [inside, end] = [gate(), gate()];
  let at = 0;
  let most = 0;
  const run = async (): Promise<ToolOutcome> => {
    most = Math.max(most, ++at);
    inside.open();
    await end.promise;
    at--;
    return ok(1);
  };
  const both: Program = async (ctx) => Promise.all([write("a")(ctx), write("b")(ctx)]);
  const f = await processOn(await open(), { program: () => both, tools: { turn: plain(run) } });
  const runId = await f.start(carrier());
  await inside.promise;
  const tree = f.engine.holds(runId);
  if (tree === undefined) throw new Error("not held");
  await eventually(() => tree.dispatch.admission.waiting.length === 1);
  const state = tree.state(runId);
  const raced = step(state, "a") === "queued" ? "a" : "b";
  // Raced: no attempt, no partial lease, no permit.
  expect([stepOf(state, raced).attempts, tree.journal.leases.size, standing(tree, runId)]).toMatchObject([
    0,
    1,
    { waiting_for_lease: [raced], waiting_for_permit: [] },
  ]);
  end.open();
  await f.engine.idle(runId);
  expect([(await f.state(runId)).output, most]).toEqual([[1, 1], 1]);
});

test("GS-33 across runs and processes too; one that failed can be made again, and what a crash left is taken up again", async () => {
  const path = file();
  const [inside, end] = [gate(), gate()];
  let calls = 0;
  const options = {
    program: () => write("a"),
    tools: {
      turn: plain(
        async () => {
          if (calls++ === 0) {
            inside.open();
            return NEVER;
          }
          await end.promise;
          return failed(false);
        },
        { side_effect: "idempotent" },
      ),
    },
  };
  const dying = await processOn(await open(path), options);
  const first = await dying.start(carrier());
  await inside.promise;
  const store = await open(path);
  const f = await processOn(store, options);
  const second = await f.start(carrier());
  const waits = (): number => f.engine.holds(second)?.dispatch.admission.waiting.length ?? 0;
  await eventually(() => waits() === 1);
  await dying.kill();
  // It died: no time frees what it claimed, its recovery goes on with it.
  await turn();
  expect(waits()).toBe(1);
  const third = await processOn(await open(path), options);
  const tree = await third.engine.attach(first);
  if (tree === undefined) throw new Error("not claimed");
  expect(tree.journal.leases.size).toBe(1);
  await third.engine.go(tree, "auto");
  end.open();
  await third.engine.idle(first);
  await f.engine.idle(second);
  expect([(await f.state(first)).status, (await f.state(second)).status]).toEqual(["failed", "failed"]);
  expect(await store.acquireLeases(await f.start(carrier()), 1, "x", [])).toBe(true);
});

test("GD-53 a repaired-as-retry attempt claims again; a cancelled run, and one that waits for a person's yes, hold nothing", async () => {
  const store = await open();
  let calls = 0;
  const f = await processOn(store, {
    program: () => write("a"),
    tools: {
      turn: plain(() => {
        if (++calls === 1) throw new Error("gone");
        return ok(calls);
      }),
    },
  });
  const runId = await f.start(carrier());
  await f.engine.idle(runId);
  const waiting = await f.state(runId);
  const second = await f.start(carrier());
  await eventually(() => (f.engine.holds(second)?.dispatch.admission.waiting.length ?? 0) > 0);
  await f.signal(runId, "repair", {
    wait_id: waiting.waits[0]?.wait_id ?? "",
    resolution: "retry",
    decided_by: "os:a",
  });
  await f.engine.idle(runId);
  await f.engine.idle(second);
  const outputs = [(await f.state(runId)).output, (await f.state(second)).output];
  expect([outputs.sort(), calls]).toEqual([[2, 3], 3]);
  let asked = 0;
  const asking = await processOn(store, {
    program: () => write("a"),
    tools: { turn: plain(() => ({ type: "needs_approval" })) },
    policy: {
      fingerprint: "p",
      decide: () => (++asked === 1 ? { decision: "ask", reason: "policy" } : { decision: "allow" }),
    },
  });
  const byPolicy = await asking.run(carrier());
  const byTool = await asking.run(carrier());
  expect([byPolicy, byTool].map((state) => state.waits[0]?.type)).toEqual(["tool_approval", "tool_approval"]);
  expect(await f.run(carrier())).toMatchObject({ status: "succeeded" });
});

const policy: RetryPolicy = {
  version: 1,
  max_attempts: 3,
  eligible_failures: ["owner_reported_retryable", "owner_unavailable_before_acceptance"],
  initial_backoff_ms: 100,
  backoff_multiplier: 2,
  maximum_backoff_ms: 60_000,
};

const retried =
  (more: Partial<RetryPolicy> = {}): Program =>
  (ctx) =>
    ctx.step("turn", turnSpec({ retry: { ...policy, ...more } }), 1);

test("GS-34 three attempts, 100 ms, doubled: nothing a millisecond early, one attempt when it is due, also after a restart", async () => {
  const store = await open();
  const clock = new TestClock();
  let calls = 0;
  const answers = [failed(true), failed(true), ok("third")];
  const tools = { turn: plain(() => answers[calls++] ?? ok("more"), { side_effect: "read_only" }) };
  const first = await processOn(store, { program: () => retried(), tools, clock });
  const runId = await first.start(carrier());
  await eventually(() => calls === 1 && clock.pending > 1);
  await first.engine.holds(runId)?.journal.barrier();
  await clock.advance(99);
  expect(calls).toBe(1);
  await clock.advance(1);
  await eventually(() => calls === 2);
  await eventually(() => (first.engine.holds(runId)?.runs.get(runId)?.delays.size ?? 0) === 1);
  await first.engine.holds(runId)?.journal.barrier();
  await first.kill();
  // The clock is shared: a process that is gone has no timers.
  first.engine.holds(runId)?.drop();
  const f = await processOn(store, { program: () => retried(), tools, clock });
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  await f.engine.go(tree, "auto");
  await clock.advance(199);
  expect(calls).toBe(2);
  await clock.advance(1);
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect([state.output, calls, state.usage.retries, stepOf(state).attempts]).toEqual(["third", 3, 2, 3]);
});

test("C17 a factor of 10 over 1,000 attempts: every failure is recorded, no delay is longer than the cap, and the run fails at last", async () => {
  const clock = new TestClock();
  const zero = clock.now();
  const at: number[] = [];
  const tools = {
    turn: plain(
      () => {
        at.push(clock.now() - zero);
        return failed(true);
      },
      { side_effect: "read_only" },
    ),
  };
  const steep = { max_attempts: 1_000, initial_backoff_ms: 1, backoff_multiplier: 10, maximum_backoff_ms: 60_000 };
  const f = await processOn(await open(), { program: () => retried(steep), tools, clock, limits: { lease_ms: 6e9 } });
  const runId = await f.start(carrier({ max_retries: 2_000, max_steps: 2_000, wall_time_ms: 86_400_000 }));
  for (let n = 1; n < 1_000; n++) {
    await eventually(() => (f.engine.holds(runId)?.runs.get(runId)?.delays.size ?? 0) === 1);
    const [delay] = f.engine.holds(runId)?.runs.get(runId)?.delays.values() ?? [];
    await clock.advance((delay?.dueAtMs ?? 0) - clock.now());
    await eventually(() => at.length === n + 1);
  }
  await f.engine.idle(runId);
  const waited = at.slice(1).map((ms, i) => ms - (at[i] ?? 0));
  expect(waited.slice(0, 6)).toEqual([1, 10, 100, 1_000, 10_000, 60_000]);
  expect(new Set(waited.slice(5))).toEqual(new Set([60_000]));
  const state = await f.state(runId);
  expect([state.status, stepOf(state).attempts, state.usage.retries]).toEqual(["failed", 1_000, 999]);
}, 30_000);

test("GD-59 only what the policy names is made again: never a denial, a timeout, a lost or a misfitting answer, and never past the run's retries", async () => {
  const answer = (outcome: () => ToolOutcome | Promise<ToolOutcome>, more: object = {}) => ({ outcome, more });
  const unavailable: ToolOutcome = { type: "failed", kind: "unavailable", retryable: true, message: "" };
  const cases = [
    // A mutation's owner that reports: only where its attempts can be told apart.
    [answer(() => failed(true)), {}, {}, 1],
    [answer(() => failed(true), { lookup: async () => ({ type: "unknown" }) }), {}, {}, 3],
    [answer(() => failed(true), { side_effect: "read_only" }), {}, {}, 3],
    [answer(() => failed(false), { side_effect: "read_only" }), {}, {}, 1],
    [answer(() => unavailable), {}, {}, 3],
    [answer(() => unavailable), { eligible_failures: ["owner_reported_retryable"] }, {}, 1],
    [
      answer(() => ({ type: "failed", kind: "bad_output", retryable: true, message: "" }), {
        side_effect: "read_only",
      }),
      {},
      {},
      1,
    ],
    [answer(() => Promise.reject(new Error("lost")), { side_effect: "read_only" }), {}, {}, 1],
    // attempts ≤ min(max_attempts, max_retries + 1)
    [answer(() => unavailable), { max_attempts: 9 }, { max_retries: 1 }, 2],
    [answer(() => unavailable), { max_attempts: 1 }, {}, 1],
  ] as const;
  for (const [i, [{ outcome, more }, changes, budgets, attempts]] of cases.entries()) {
    let calls = 0;
    const run = (): ToolOutcome | Promise<ToolOutcome> => {
      calls++;
      return outcome();
    };
    const f = await processOn(await open(), {
      program: () => retried({ initial_backoff_ms: 0, ...changes } as Partial<RetryPolicy>),
      tools: { turn: plain(run, more) },
    });
    const state = await f.run(carrier(budgets));
    expect([i, calls, state.usage.retries, state.status]).toEqual([i, attempts, attempts - 1, "failed"]);
  }
});

test("C13 GD-59 cancelled while it waits for its next attempt: none is made, and no timer is left", async () => {
  const clock = new TestClock();
  let calls = 0;
  const tools = { turn: plain(() => failed(++calls > 0), { side_effect: "read_only" }) };
  const f = await processOn(await open(), { program: () => retried({ initial_backoff_ms: 30_000 }), tools, clock });
  const runId = await f.start(carrier());
  await eventually(() => (f.engine.holds(runId)?.runs.get(runId)?.delays.size ?? 0) === 1);
  await f.signal(runId, "cancel");
  await clock.advance(60_000);
  expect([calls, (await f.state(runId)).status, clock.pending]).toEqual([1, "cancelled", 0]);
});

test("GS-44 concurrency 1 leaves a second attempt queued, a step cap of 1 refuses it, and past the deadline none begins", async () => {
  let at = 0;
  let most = 0;
  const run = async (): Promise<ToolOutcome> => {
    most = Math.max(most, ++at);
    await turn();
    at--;
    return ok(1);
  };
  const both: Program = async (ctx) => Promise.all([ctx.step("a", turnSpec(), 1), ctx.step("b", turnSpec(), 2)]);
  const f = await processOn(await open(), { program: () => both, tools: { turn: plain(run) } });
  expect(await f.run(carrier({ max_concurrency: 1 }))).toMatchObject({ status: "succeeded", output: [1, 1] });
  expect(most).toBe(1);
  const capped = await f.run(carrier({ max_steps: 1 }));
  expect([capped.status, capped.failure?.code, capped.usage.steps]).toEqual(["failed", "budget_exceeded", 1]);
  const clock = new TestClock();
  const store = await open();
  const owner = new TurnOwner();
  owner.permit = "somebody else";
  const late = await processOn(store, { tools: { turn: owner.tool() }, clock });
  const runId = await late.start(carrier({ wall_time_ms: 100 }));
  await eventually(() => (late.engine.holds(runId)?.dispatch.admission.waiting.length ?? 0) > 0);
  await clock.advance(100);
  await late.engine.idle(runId);
  owner.release();
  await turn();
  const kinds = await late.kinds(runId);
  expect([owner.calls, kinds.filter((kind) => kind === "run_failed").length, kinds.includes("step_started")]).toEqual([
    0,
    1,
    false,
  ]);
});
