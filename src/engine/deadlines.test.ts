/** Waits and runs that end by time: timers, deadlines and warnings of any length (R-14, R-28, C18, GD-51). */
import { expect, test } from "vitest";
import type { PolicyPort } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { aborted, fixture, gate, leaf, ok, TestClock } from "./fixture.ts";
import { approval, decide, LONG, tools, wake } from "./waits.fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const DAY_MS = 86_400_000;

test("C18 a timer of 30 days fires when it is due and not before, also in a process that was not there when it began", async () => {
  const clock = new TestClock();
  const store = await open();
  const f = await fixture({ store, clock, limits: LONG, tools });
  const days = 30 * DAY_MS;
  const waiting = await f.run({
    steps: [{ id: "sleep", type: "wait", for_ms: days }, tool("after")],
    plan: { type: "sequence", nodes: [leaf("sleep"), leaf("after")] },
  });
  const runId = waiting.header.run_id;
  expect(waiting).toMatchObject({ status: "suspended", waits: [{ type: "timer" }] });
  expect((await store.getTree(runId))?.wake_at_ms).toBe(waiting.waits[0]?.due_at_ms);
  await clock.advance(days - 1);
  const g = await fixture({ store, clock, limits: LONG, tools });
  await g.resume(runId, "woken");
  expect((await g.state(runId)).status).toBe("suspended");
  await clock.advance(1);
  await wake(g, runId, clock);
  expect(await g.state(runId)).toMatchObject({ status: "succeeded", output: "read" });
});

test("C18 an approval that expires after 60 days is open to the last millisecond, also in a process that was not there when it began", async () => {
  for (const [early, end] of [
    [1, { status: "succeeded", output: { approved: true, decided_by: "me" } }],
    [0, { status: "succeeded", output: { approved: false, decision: "expired" } }],
  ] as const) {
    const clock = new TestClock();
    const store = await open();
    const f = await fixture({ store, clock, limits: LONG });
    const waiting = await f.run(approval({ deadline_ms: 60 * DAY_MS, outcome: "value" }));
    const runId = waiting.header.run_id;
    const { wait_id = "", since_ms = 0, deadline_at_ms } = waiting.waits[0] ?? {};
    expect([deadline_at_ms, (await store.getTree(runId))?.wake_at_ms]).toEqual([
      since_ms + 60 * DAY_MS,
      since_ms + 60 * DAY_MS,
    ]);
    await clock.advance(60 * DAY_MS - early);
    const g = await fixture({ store, clock, limits: LONG });
    if (early === 1) await g.resume(runId, "woken");
    expect([early, (await g.state(runId)).status]).toEqual([early, "suspended"]);
    await g.signal(runId, "approve", { wait_id, decided_by: "me" });
    await clock.advance(0);
    await g.engine.idle(runId);
    expect(await g.state(runId)).toMatchObject(end);
  }
});

test("C18 the same in a process that has it in memory for all of the 60 days", async () => {
  const clock = new TestClock();
  const leave = gate();
  const busy = { run: async () => ok(await leave.promise.then(() => 1)) };
  const f = await fixture({ store: await open(), clock, limits: LONG, tools: { Read: busy } });
  const runId = await f.start({
    steps: [tool("read"), ...approval({ deadline_ms: 60 * DAY_MS, outcome: "value" }).steps],
    plan: { type: "parallel", nodes: [leaf("read"), leaf("gate")] },
    budgets: { wall_time_ms: 61 * DAY_MS },
  });
  await f.until(runId, (state) => state.waits.length === 1);
  await clock.advance(60 * DAY_MS - 1);
  expect((await f.state(runId)).waits).toHaveLength(1);
  await clock.advance(1);
  leave.open();
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: [1, { decision: "expired" }] });
});

test("C18 a wall time of 40 days ends a run that is at work when it is over, and not a millisecond before", async () => {
  const clock = new TestClock();
  const inside = gate();
  const f = await fixture({
    store: await open(),
    clock,
    limits: LONG,
    tools: {
      Read: {
        run: async (call) => {
          inside.open();
          await aborted(call);
          return ok("too late");
        },
      },
    },
  });
  const runId = await f.start({ steps: [tool("a")], plan: leaf("a"), budgets: { wall_time_ms: 40 * DAY_MS } });
  await inside.promise;
  await clock.advance(40 * DAY_MS - 1);
  expect((await f.state(runId)).status).toBe("running");
  await clock.advance(1);
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "failed", failure: { code: "budget_exceeded" } });
});

test("C18 what is further away than any date can name is due at the end of time, and can be cancelled", async () => {
  const f = await fixture({ store: await open() });
  for (const wait of [{ for_ms: Number.MAX_SAFE_INTEGER }, { until: Number.MAX_SAFE_INTEGER }]) {
    const waiting = await f.run({ steps: [{ id: "sleep", type: "wait", ...wait }], plan: leaf("sleep") });
    expect(waiting.waits).toMatchObject([{ type: "timer", due_at_ms: 8.64e15 }]);
    await f.signal(waiting.header.run_id, "cancel");
    expect((await f.state(waiting.header.run_id)).status).toBe("cancelled");
  }
});

test("GD-51 GS-37 an approval that a permission asks for expires: warned before, no grant, nothing sent, also by the next process; granted in time it is sent later", async () => {
  const ask: PolicyPort = { fingerprint: "ask", decide: () => ({ decision: "ask", reason: "asks" }) };
  const approvals = { deadline_ms: 60_000, warn_ms: 20_000 };
  for (const inTime of [false, true]) {
    const clock = new TestClock();
    const store = await open();
    const calls: string[] = [];
    const options = {
      store,
      clock,
      limits: LONG,
      policy: ask,
      approvals,
      tools: {
        Read: {
          run: (call: { step_id: string }) => {
            calls.push(call.step_id);
            return ok("read");
          },
        },
      },
    };
    const f = await fixture(options);
    const waiting = await f.run({ steps: [tool("act")], plan: leaf("act") });
    const runId = waiting.header.run_id;
    const since = waiting.waits[0]?.since_ms ?? 0;
    expect(waiting.waits).toMatchObject([
      { type: "tool_approval", deadline_at_ms: since + 60_000, warn_at_ms: since + 40_000 },
    ]);
    await f.engine.close();
    const g = await fixture(options);
    await clock.advance(40_000);
    await wake(g, runId, clock);
    expect(await g.state(runId)).toMatchObject({ status: "suspended", waits: [{ warned: true }] });
    if (inTime) {
      // Paused, so that what is granted cannot be sent before the deadline has passed.
      await g.signal(runId, "pause", { decided_by: "me" });
      await g.engine.idle(runId);
      await decide(g, runId, "approve");
      await clock.advance(60_000);
      expect(await g.resume(runId)).toMatchObject({ status: "succeeded" });
    } else {
      await clock.advance(20_000);
      await wake(g, runId, clock);
      expect(await g.state(runId)).toMatchObject({ status: "failed", failure: { code: "permission_denied" } });
    }
    const kinds = await g.kinds(runId);
    expect([calls, kinds.includes("grant_issued")]).toEqual(inTime ? [["act"], true] : [[], false]);
  }
});
