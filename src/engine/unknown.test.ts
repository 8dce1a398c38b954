/** A mutation that did not say what became of it, while its process lives (R-8, table of DESIGN §6). */
import { expect, test } from "vitest";
import type { Clock, OwnerAnswer } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { aborted, type FakeTool, fixture, gate, leaf, NEVER, ok } from "./fixture.ts";
import { systemClock } from "./system.ts";

const plan = (more: object = {}) => ({
  steps: [{ id: "pay", type: "tool", tool: "Pay", capabilities: ["write"], ...more }],
  plan: leaf("pay"),
});

async function paid(answers: readonly OwnerAnswer[], run: FakeTool["run"], more: object = {}) {
  const asked: string[] = [];
  let calls = 0;
  const pay: FakeTool = {
    side_effect: "mutating",
    capabilities: ["write"],
    run: (call) => {
      calls++;
      return run(call);
    },
    lookup: async (_, { dispatch_id, signal }) => {
      expect(signal.aborted).toBe(false);
      return answers[asked.push(dispatch_id) - 1] ?? { type: "unknown" };
    },
  };
  const f = await fixture({
    store: await openSqliteStore({ path: ":memory:" }),
    tools: { Pay: pay },
    limits: { stop_grace_ms: 5 },
  });
  const state = await f.run(plan(more));
  return { state, calls, asked };
}

const breaksOff = () => {
  throw new Error("the line broke");
};
/** Does not stop when it is told to. */
const deaf = () => NEVER;
const SUCCEEDED: OwnerAnswer = { type: "succeeded", output: "paid" };
const FAILED: OwnerAnswer = { type: "failed", message: "no funds", retryable: false };

test.each([
  ["broke off", breaksOff, {}],
  ["did not answer in time", deaf, { timeout_ms: 10 }],
] as const)("R-8 a mutation that %s is looked up once, and its owner's word settles it", async (_, run, more) => {
  expect(await paid([SUCCEEDED], run, more)).toMatchObject({
    state: { status: "succeeded", output: "paid" },
    calls: 1,
    asked: [expect.any(String)],
  });
  expect(await paid([FAILED], run, more)).toMatchObject({
    state: { status: "failed", failure: { code: "execution_failed" } },
    calls: 1,
  });
  for (const word of [{ type: "unknown", reason: "we keep no books" }, { type: "running" }] as const) {
    const { state, calls, asked } = await paid([word], run, more);
    expect([calls, asked.length]).toEqual([1, 1]);
    expect(state.waits).toMatchObject([{ type: "repair", evidence: { lookup: word.type } }]);
    if (word.type === "unknown") expect(state.waits[0]?.reason).toContain("we keep no books");
  }
});

test("R-8 R-10 what its owner has never heard of is sent once more under the same id; after its time is over a person says", async () => {
  let broken = true;
  const second = await paid([{ type: "absent" }], (call) => {
    if (!broken) return ok(call.redispatch);
    broken = false;
    return breaksOff();
  });
  expect(second).toMatchObject({ state: { status: "succeeded", output: 1 }, calls: 2 });
  const never = await paid([{ type: "absent" }, { type: "absent" }], breaksOff);
  expect([never.calls, new Set(never.asked).size]).toEqual([2, 1]);
  expect(never.state.waits).toMatchObject([{ type: "repair", evidence: { attempt: 1, lookup: "absent" } }]);
  const late = await paid([{ type: "absent" }], deaf, { timeout_ms: 10 });
  expect([late.calls, late.state.waits[0]?.type]).toEqual([1, "repair"]);
});

test("R-8 a lookup that never answers holds nobody up for ever: after a minute a person says", async () => {
  const lookup = () => NEVER as Promise<OwnerAnswer>;
  const pay: FakeTool = { side_effect: "mutating", capabilities: ["write"], run: breaksOff, lookup };
  const waited: number[] = [];
  const clock: Clock = {
    ...systemClock,
    at: (ms, act) => {
      const wait = ms - systemClock.now();
      if (wait > 50_000 && wait <= 60_000) {
        waited.push(wait);
        setImmediate(act);
      }
      return systemClock.at(ms, act);
    },
  };
  const f = await fixture({ store: await openSqliteStore({ path: ":memory:" }), tools: { Pay: pay }, clock });
  const state = await f.run(plan());
  expect([state.status, state.waits[0]?.type, waited.length]).toEqual(["suspended", "repair", 1]);
  expect(state.waits[0]?.reason).toContain("within 60 s");
});

test("GD-74 what a person said about one attempt is not taken for another: each has its own digest", async () => {
  const pay: FakeTool = { side_effect: "mutating", capabilities: ["write"], run: breaksOff };
  const f = await fixture({ store: await openSqliteStore({ path: ":memory:" }), tools: { Pay: pay } });
  const runId = await f.start(plan());
  await f.engine.idle(runId);
  const [first] = (await f.state(runId)).waits;
  const repair = (wait_id: string) =>
    f.signal(runId, "repair", { wait_id, digest: first?.digest ?? "", resolution: "retry", decided_by: "me" });
  await repair(first?.wait_id ?? "");
  const again = await f.until(runId, ({ waits }) => waits[0] !== undefined && waits[0].wait_id !== first?.wait_id);
  expect(again.waits[0]).toMatchObject({ type: "repair", evidence: { attempt: 2 } });
  expect(again.waits[0]?.digest).not.toBe(first?.digest);
  await f.engine.idle(runId);
  await repair(again.waits[0]?.wait_id ?? "");
  expect((await f.state(runId)).waits[0]?.wait_id).toBe(again.waits[0]?.wait_id);
});

test("R-12 a run that is cancelled while the owner is being asked waits for its word, and is never called cancelled before", async () => {
  const asking = gate();
  const word = gate<OwnerAnswer>();
  const pay: FakeTool = {
    side_effect: "mutating",
    capabilities: ["write"],
    run: breaksOff,
    lookup: () => {
      asking.open();
      return word.promise;
    },
  };
  const f = await fixture({ store: await openSqliteStore({ path: ":memory:" }), tools: { Pay: pay } });
  const runId = await f.start(plan());
  await asking.promise;
  const cancelled = f.signal(runId, "cancel", { decided_by: "me" });
  await f.until(runId, () => true);
  word.open(SUCCEEDED);
  await cancelled;
  await f.engine.idle(runId);
  const kinds = await f.kinds(runId);
  expect(kinds.slice(-3)).toEqual(["late_result", "step_cancelled", "run_cancelled"]);
});

test("DESIGN §6 what a mutation answers after a pause has given it up is kept as evidence for its repair", async () => {
  const inside = gate();
  const leave = gate();
  const pay: FakeTool = {
    side_effect: "mutating",
    capabilities: ["write"],
    run: async (call) => {
      inside.open();
      await aborted(call);
      await leave.promise;
      return ok("paid after all");
    },
  };
  const f = await fixture({
    store: await openSqliteStore({ path: ":memory:" }),
    tools: { Pay: pay },
    limits: { stop_grace_ms: 5 },
  });
  const runId = await f.start(plan());
  await inside.promise;
  await f.signal(runId, "pause", { decided_by: "me" });
  await f.engine.idle(runId);
  leave.open();
  const kept = (await f.until(runId, (state) => (state.waits[0]?.evidence?.late_results.length ?? 0) > 0)).waits;
  expect(kept.map(({ type }) => type).sort()).toEqual(["paused", "repair"]);
  expect(kept[0]?.evidence?.late_results).toEqual([{ type: "succeeded", output: "paid after all" }]);
});
