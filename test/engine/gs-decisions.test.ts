/** GS-36, GS-37: what people answer and approve, and what of it is sent (GD-49 … GD-51, R-9). */
import { expect, test } from "vitest";
import type { Json } from "../../src/domain/json.ts";
import type { RunState } from "../../src/domain/state.ts";
import { type FakeTool, ok, TestClock } from "../../src/engine/fixture.ts";
import type { Program } from "../../src/engine/program.ts";
import type { PolicyPort } from "../../src/ports/index.ts";
import {
  carrier,
  eventually,
  file,
  gate,
  open,
  type Process,
  plain,
  processOn,
  type Store,
  turnSpec,
} from "./gs-world.ts";

const U32 = { type: "integer", minimum: 0 } as const;

/** A tool that notes what it was called with. */
function noting(): { readonly calls: Json[]; readonly tool: FakeTool } {
  const calls: Json[] = [];
  const run: FakeTool["run"] = (call) => {
    calls.push(call.input);
    return ok(call.input);
  };
  return { calls, tool: plain(run) };
}

const waitOf = (state: RunState) => {
  const [wait] = state.waits;
  if (wait === undefined) throw new Error("it waits for nothing");
  return wait;
};

/** Ended for good: no wait, no open step, no signal, no timer, and nobody has it in memory. */
async function expectNothingPending(f: Process, store: Store, runId: string): Promise<void> {
  const state = await f.state(runId);
  const open = [...state.steps.values()].filter(({ status }) => ["queued", "running", "suspended"].includes(status));
  expect([state.waits, open, await store.listWaits({ root_run_id: runId, limit: 10 })]).toEqual([[], [], []]);
  expect(await store.signals({ root_run_id: runId })).toEqual([]);
  expect(await store.getTree(runId)).toMatchObject({ ended: true });
  expect((await store.getTree(runId))?.wake_at_ms).toBeUndefined();
  expect([f.engine.holds(runId), f.engine.load]).toEqual([undefined, 0]);
}

test("GS-36 an input: -1 is rejected and it still waits; 7 is accepted and its successor gets 7", async () => {
  const store = await open();
  const { calls, tool } = noting();
  const program: Program = async (ctx) => {
    const n = await ctx.wait("ask", { type: "input", prompt: "How many?", schema: U32 });
    return ctx.step("turn", turnSpec(), n);
  };
  const f = await processOn(store, { program: () => program, tools: { turn: tool } });
  const waiting = await f.run(carrier());
  const runId = waiting.header.run_id;
  const { wait_id } = waitOf(waiting);
  for (const value of [-1, "7", 7.5, null]) {
    await f.signal(runId, "answer", { wait_id, value, decided_by: "os:a" });
    await f.engine.idle(runId);
    const still = await f.state(runId);
    expect([value, still.status, still.waits, still.last_sequence]).toEqual([
      value,
      "suspended",
      waiting.waits,
      waiting.last_sequence,
    ]);
  }
  expect([calls, (await f.state(runId)).steps.has("turn")]).toEqual([[], false]);
  await f.signal(runId, "answer", { wait_id, value: 7, decided_by: "os:a" });
  await f.engine.idle(runId);
  const done = await f.state(runId);
  expect([done.status, done.output, calls]).toEqual(["succeeded", 7, [7]]);
  await expectNothingPending(f, store, runId);
});

test("GS-36 a denied approval fails the run: no successor, and nothing pending", async () => {
  const store = await open();
  const { calls, tool } = noting();
  const clock = new TestClock();
  const f = await processOn(store, { program: () => gated, tools: { turn: tool }, clock });
  const waiting = await f.run(carrier());
  const runId = waiting.header.run_id;
  await f.signal(runId, "deny", { wait_id: waitOf(waiting).wait_id, decided_by: "os:a" });
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect([state.status, state.failure?.code, state.steps.has("turn")]).toEqual(["failed", "permission_denied", false]);
  await expectNothingPending(f, store, runId);
  await clock.advance(86_400_000);
  expect([calls, clock.pending]).toEqual([[], 0]);
});

/** An approval that is open for a minute, then the mutation that it is about. */
const gated: Program = async (ctx) => {
  await ctx.wait("gate", { type: "approval", prompt: "go on?", deadline_ms: 60_000 });
  return ctx.step("turn", turnSpec(), 1);
};

const asks: PolicyPort = {
  fingerprint: "asks",
  decide: ({ target }) => (target === "turn" ? { decision: "ask", reason: "it mutates" } : { decision: "allow" }),
};
const claim = { resources: [{ resource: "repository", access: "write" }] } as const;
/** Either holds the repository, or wants it for a mutation that policy asks about. */
const wants: Program = (ctx) => ctx.step("turn", turnSpec({ ...claim, tool: String(ctx.args) }), 1);

/** What the journal has of the mutation: grants, and dispatches that consumed one. */
async function sent(f: Process, runId: string): Promise<{ grants: number; dispatches: (string | undefined)[] }> {
  const events = (await f.events(runId)).filter((event) => !("step_id" in event) || event.step_id === "turn");
  const grants = events.filter(({ type }) => type === "grant_issued").length;
  const starts = events.flatMap((event, i) =>
    // a start that is followed by a suspension is the asking, and no dispatch.
    event.type === "step_started" && !events.slice(i, i + 3).some(({ type }) => type === "step_suspended")
      ? [event.grant]
      : [],
  );
  return { grants, dispatches: starts };
}

test("GS-37 approved while its resource is taken: one grant and no dispatch; both survive a restart, and it is dispatched once", async () => {
  const path = file();
  const [inside, leave] = [gate(), gate()];
  const { calls, tool } = noting();
  const holds = plain(async () => {
    inside.open();
    await leave.promise;
    return ok(1);
  });
  const options = { program: () => wants, policy: asks, tools: { holds, turn: tool } };
  const holder = await processOn(await open(path), options);
  const holding = await holder.start(carrier(), "holds");
  await inside.promise;
  const first = await processOn(await open(path), options);
  const waiting = await first.run(carrier(), "turn");
  const runId = waiting.header.run_id;
  const { wait_id } = waitOf(waiting);
  for (let n = 0; n < 2; n++) await first.signal(runId, "approve", { wait_id, decided_by: "os:a" });
  await eventually(() => first.engine.holds(runId)?.dispatch.admission.waiting.length === 1);
  expect([await sent(first, runId), calls]).toEqual([{ grants: 1, dispatches: [] }, []]);
  await first.kill();
  const second = await processOn(await open(path), options);
  second.drive();
  await eventually(() => second.engine.holds(runId)?.dispatch.admission.waiting.length === 1);
  expect([await sent(second, runId), calls]).toEqual([{ grants: 1, dispatches: [] }, []]);
  leave.open();
  await holder.engine.idle(holding);
  await second.until(runId, ({ status }) => status === "succeeded");
  expect([await sent(second, runId), calls]).toEqual([{ grants: 1, dispatches: [wait_id] }, [1]]);
});

test("GS-37 approved while the run's only permit is taken: the same, and the grant serves no second dispatch", async () => {
  const store = await open();
  const { calls, tool } = noting();
  const [inside, leave] = [gate(), gate()];
  const holds = plain(
    async () => {
      inside.open();
      await leave.promise;
      return ok(2);
    },
    { side_effect: "read_only", capabilities: ["read"] },
  );
  const both: Program = (ctx) =>
    Promise.all([ctx.step("turn", turnSpec(), 1), ctx.step("held", turnSpec({ tool: "holds" }), 2)]);
  const options = { program: () => both, policy: asks, tools: { holds, turn: tool } };
  const first = await processOn(store, options);
  const runId = await first.start(carrier({ max_concurrency: 1 }));
  await inside.promise;
  const { wait_id } = waitOf(await first.until(runId, ({ waits }) => waits.length === 1));
  await first.signal(runId, "approve", { wait_id, decided_by: "os:a" });
  const mutation = async (f: Process) => ({ ...(await sent(f, runId)), calls: calls.length });
  expect(await mutation(first)).toEqual({ grants: 1, dispatches: [], calls: 0 });
  await first.kill();
  const second = await processOn(store, options);
  expect(await mutation(second)).toEqual({ grants: 1, dispatches: [], calls: 0 });
  leave.open();
  second.drive();
  const done = await second.until(runId, ({ status }) => status === "succeeded");
  expect([done.output, await mutation(second)]).toEqual([[1, 2], { grants: 1, dispatches: [wait_id], calls: 1 }]);
});

test("GS-37 denied, or not decided in time: the run fails, and nothing was granted or dispatched, after a restart neither", async () => {
  for (const [program, how] of [
    [wants, "deny"],
    [gated, "deny"],
    [gated, "expiry"],
  ] as const) {
    const store = await open();
    const { calls, tool } = noting();
    const clock = new TestClock();
    const options = {
      program: () => program,
      clock,
      tools: { turn: tool },
      limits: { lease_ms: 1e9 },
      ...(program === wants ? { policy: asks } : {}),
    };
    const f = await processOn(store, options);
    const waiting = await f.run(carrier(), "turn");
    const runId = waiting.header.run_id;
    const { wait_id } = waitOf(waiting);
    if (how === "expiry") await clock.advance(60_000);
    // At its expiry a yes comes too late (GD-51).
    await f.signal(runId, how === "deny" ? "deny" : "approve", { wait_id, decided_by: "os:a" });
    await clock.advance(0);
    await f.engine.idle(runId);
    const g = await processOn(store, options);
    expect([how, await g.engine.attach(runId)]).toEqual([how, undefined]);
    const state = await g.state(runId);
    expect([how, state.status, state.failure?.code]).toEqual([how, "failed", "permission_denied"]);
    expect([how, await sent(g, runId), calls]).toEqual([how, { grants: 0, dispatches: [] }, []]);
    await expectNothingPending(g, store, runId);
  }
});
