/** Steps that wait for the outside, and who ends them (R-1, R-9, R-19, R-28, C11, C12, C14). */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { faultyStore } from "../testing/index.ts";
import { type FixtureOptions, failed, fixture, gate, leaf, ok, TestClock, turn } from "./fixture.ts";
import { Driver } from "./index.ts";
import { approval, decide, LONG, tools, wake } from "./waits.fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });

const turns = async (count: number): Promise<void> => {
  for (let n = 0; n < count; n++) await turn();
};

test("R-28 an approval: yes goes on, no is permission_denied, to which the step's policy applies; with outcome value both are the Decision", async () => {
  const cases = [
    [
      "approve",
      {},
      { status: "succeeded", output: { approved: true, decision: "approved", decided_by: "me", reason: "fine" } },
    ],
    ["deny", {}, { status: "failed", failure: { code: "permission_denied" } }],
    [
      "deny",
      { failure: "continue_with_error" },
      { status: "succeeded", output: { error: { code: "permission_denied" } } },
    ],
    [
      "deny",
      { outcome: "value" },
      { status: "succeeded", output: { approved: false, decision: "denied", decided_by: "me" } },
    ],
  ] as const;
  for (const [kind, more, end] of cases) {
    const f = await fixture({ store: await open() });
    const waiting = await f.run(approval(more));
    expect(waiting).toMatchObject({
      status: "suspended",
      waits: [{ type: "approval", prompt: "go on?", step_id: "gate" }],
    });
    await decide(f, waiting.header.run_id, kind, { reason: "fine" });
    expect(await f.state(waiting.header.run_id)).toMatchObject(end);
  }
});

test("R-28 silence never consents: past its deadline an approval has expired, and a decision is refused before that is written", async () => {
  for (const [more, end] of [
    [{}, { status: "failed", failure: { code: "permission_denied" } }],
    [{ outcome: "value" }, { status: "succeeded", output: { approved: false, decision: "expired" } }],
  ] as const) {
    const clock = new TestClock();
    const store = await open();
    const f = await fixture({ store, clock, limits: LONG });
    const waiting = await f.run(approval({ deadline_ms: 60_000, warn_ms: 20_000, ...more }));
    const runId = waiting.header.run_id;
    const since = waiting.waits[0]?.since_ms ?? 0;
    expect(waiting.waits[0]).toMatchObject({ deadline_at_ms: since + 60_000, warn_at_ms: since + 40_000 });
    expect((await store.getTree(runId))?.wake_at_ms).toBe(since + 40_000);
    // A process that is woken for the warning writes it, and goes to sleep again until the deadline.
    await clock.advance(40_000);
    await wake(f, runId, clock);
    expect(await f.state(runId)).toMatchObject({ status: "suspended", waits: [{ warned: true }] });
    expect((await store.getTree(runId))?.wake_at_ms).toBe(since + 60_000);
    await clock.advance(20_000);
    await f.signal(runId, "approve", { wait_id: waiting.waits[0]?.wait_id ?? "", decided_by: "late" });
    await clock.advance(0);
    await f.engine.idle(runId);
    expect(await f.state(runId)).toMatchObject(end);
    expect((await f.events(runId)).filter((event) => event.type === "wait_closed")).toMatchObject([
      { by: "expiry", decision: { decided_by: "deadline" } },
    ]);
  }
});

test("R-28 an input: a value that does not fit leaves the wait as it is, one that fits is the step's value", async () => {
  const f = await fixture({ store: await open() });
  const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
  const waiting = await f.run({ steps: [{ id: "ask", type: "input", prompt: "n?", schema }], plan: leaf("ask") });
  const runId = waiting.header.run_id;
  await decide(f, runId, "answer", { value: { n: "one" } });
  expect(await f.state(runId)).toMatchObject({ status: "suspended", last_sequence: waiting.last_sequence });
  await decide(f, runId, "answer", { value: { n: 1 } });
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: { n: 1 } });
});

test("C12 three approvals in parallel, answered in each order, with a restart between: the block ends after the third", async () => {
  for (const order of [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
  ]) {
    const store = await open();
    const ids = ["a", "b", "c"];
    const f = await fixture({ store });
    const waiting = await f.run({
      steps: ids.map((id) => ({ id, type: "approval", prompt: id, outcome: "value" })),
      plan: { type: "parallel", nodes: ids.map(leaf) },
    });
    const runId = waiting.header.run_id;
    const waits = new Map(waiting.waits.map((wait) => [wait.step_id, wait.wait_id]));
    for (const [n, at] of order.entries()) {
      const g = await fixture({ store });
      await g.signal(runId, "approve", { wait_id: waits.get(ids[at] ?? "") ?? "", decided_by: ids[at] ?? "" });
      await g.engine.idle(runId);
      const state = await g.state(runId);
      expect(state.status).toBe(n === 2 ? "succeeded" : "suspended");
      for (const done of order.slice(0, n + 1)) expect(state.steps.get(ids[done] ?? "")?.status).toBe("succeeded");
    }
    expect((await f.state(runId)).output).toMatchObject(ids.map((decided_by) => ({ decided_by })));
  }
});

test("C11 an approval in a child, given through its own id by another process while the parent's is dead, and that one dies too: the parent is started, goes on and ends", async () => {
  const child = { id: "child", ...approval({ outcome: "value" }) };
  const top = {
    id: "top",
    steps: [{ id: "each", type: "workflow", workflow_id: "child", revision: 1, args: {} }, tool("after")],
    plan: {
      type: "sequence",
      nodes: [{ type: "map", source: { from: "literal", value: [1] }, item: "n", body: leaf("each") }, leaf("after")],
    },
  };
  // The process that is sent the approval dies as soon as so many of its commits are on the disk.
  for (const commits of [0, 1, 2, 3, Number.POSITIVE_INFINITY]) {
    const store = await open();
    const parent = faultyStore(store);
    const f = await fixture({ store: parent.store, tools });
    const waiting = await f.run(top, {}, { nested: [child] });
    const runId = waiting.header.run_id;
    expect(waiting.waits).toMatchObject([{ type: "child", reason: "approval" }]);
    const childId = (await store.treeRuns(runId))[1]?.run_id ?? "";
    const wait_id = (await f.state(childId)).waits[0]?.wait_id ?? "";
    parent.stop();
    let made = 0;
    const other = faultyStore(store, {
      write: (_, method) => {
        if (commits === 0) return method === "putSignal" ? { kind: "stop", when: "after" } : undefined;
        return method === "commit" && ++made === commits ? { kind: "stop", when: "after" } : undefined;
      },
    });
    const g = await fixture({ store: other.store, tools });
    const sent = g.signal(runId, "approve", { wait_id, decided_by: "me" }, childId);
    while (!other.stopped && !(await Promise.race([sent, turn()]))) await turn();
    await store.renew(g.engine.owner, -86_400_000);
    const h = await fixture({ store, tools });
    const driver = new Driver(h.engine, { pollMs: 20 });
    await driver.start();
    const done = await h.until(runId, ({ status }) => status === "succeeded");
    await driver.stop();
    expect([commits, done.output, done.waits]).toEqual([commits, "read", []]);
    expect([commits, (await h.state(childId)).output]).toMatchObject([commits, { approved: true, decided_by: "me" }]);
  }
});

test("C14 an approval and a cancel at the same time: either the effect happened once and then the cancel, or it did not happen", async () => {
  const store = await open();
  let calls = 0;
  const options: FixtureOptions = {
    store,
    tools: { Read: { side_effect: "mutating", capabilities: ["write"], run: () => ok(++calls) } },
    policy: { fingerprint: "ask", decide: () => ({ decision: "ask", reason: "x" }) },
  };
  const f = await fixture(options);
  const g = await fixture(options);
  const ends = new Set<number>();
  for (let round = 0; round < 40; round++) {
    calls = 0;
    const waiting = await f.run({ steps: [tool("do")], plan: leaf("do") });
    const runId = waiting.header.run_id;
    const wait_id = waiting.waits[0]?.wait_id ?? "";
    const sides = [
      () => f.signal(runId, "approve", { wait_id, decided_by: "me" }).catch(() => false),
      () => g.signal(runId, "cancel").catch(() => false),
    ];
    if (round % 2 === 1) sides.reverse();
    const [first, second] = sides.map((send, i) => {
      const after = i === 0 ? Promise.resolve() : turns(round % 20);
      return after.then(send);
    });
    await Promise.all([first, second]);
    await Promise.all([f.engine.idle(runId), g.engine.idle(runId)]);
    const state = await f.state(runId);
    ends.add(calls);
    const granted = (await f.events(runId)).some((event) => event.type === "step_started" && event.grant !== undefined);
    expect([state.status, calls]).toEqual(calls === 1 ? [state.status, 1] : ["cancelled", 0]);
    if (calls === 1) expect(granted).toBe(true);
  }
  // Both do happen, or it is no race.
  expect([...ends].sort()).toEqual([0, 1]);
});

test("R-1 the first decision stands: a second one, and one with another digest, change nothing", async () => {
  const f = await fixture({ store: await open() });
  const waiting = await f.run(approval());
  const runId = waiting.header.run_id;
  const wait_id = waiting.waits[0]?.wait_id ?? "";
  await f.signal(runId, "approve", { wait_id, digest: "0".repeat(64), decided_by: "me" });
  await f.engine.idle(runId);
  expect((await f.state(runId)).last_sequence).toBe(waiting.last_sequence);
  await decide(f, runId, "approve");
  const ended = await f.state(runId);
  await expect(f.signal(runId, "deny", { wait_id, decided_by: "other" })).rejects.toMatchObject({ code: "terminal" });
  expect((await f.state(runId)).last_sequence).toBe(ended.last_sequence);
});

test("R-1 a signal from a second engine reaches the one that holds the tree", async () => {
  const store = await open();
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  let entered: () => void = () => undefined;
  const inside = new Promise<void>((resolve) => (entered = resolve));
  const f = await fixture({
    store,
    tools: {
      Read: {
        run: async () => {
          entered();
          await held;
          return ok(1);
        },
      },
    },
  });
  const runId = await f.start({
    steps: [tool("read"), { id: "gate", type: "approval", prompt: "?", outcome: "value" }],
    plan: { type: "parallel", nodes: [leaf("read"), leaf("gate")] },
  });
  await inside;
  const waiting = await f.until(runId, (state) => state.waits.length === 1);
  const g = await fixture({ store });
  expect(await g.signal(runId, "approve", { wait_id: waiting.waits[0]?.wait_id ?? "", decided_by: "other" })).toBe(
    true,
  );
  expect((await f.state(runId)).steps.get("gate")?.status).toBe("succeeded");
  release();
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: [1, { decided_by: "other" }] });
});

test("R-19 a run is running while anything is, suspended when only waits are open, and its oldest wait is shown", async () => {
  const store = await open();
  const f = await fixture({ store, tools });
  const waiting = await f.run({
    steps: [
      { id: "one", type: "approval", prompt: "1" },
      { id: "two", type: "input", prompt: "2", schema: { type: "string" } },
      tool("read"),
    ],
    plan: { type: "parallel", nodes: ["one", "two", "read"].map(leaf) },
  });
  expect(waiting.waits.map((wait) => wait.type)).toEqual(["approval", "input"]);
  expect(await store.getRun(waiting.header.run_id)).toMatchObject({
    status: "suspended",
    suspension: "approval",
    wait_count: 2,
  });
  expect((await f.kinds(waiting.header.run_id)).filter((kind) => kind === "run_suspended")).toHaveLength(1);
});

test("R-28 a denied tool approval is permission_denied for the step's policy, and costs no second reservation", async () => {
  let calls = 0;
  const f = await fixture({
    store: await open(),
    tools: { Read: { run: () => (++calls === 1 ? failed(true) : ok(calls)) } },
    policy: { fingerprint: "ask", decide: () => ({ decision: "ask", reason: "x" }) },
  });
  const waiting = await f.run({ steps: [tool("do", { failure: "continue_with_error" })], plan: leaf("do") });
  await decide(f, waiting.header.run_id, "deny");
  expect(await f.state(waiting.header.run_id)).toMatchObject({
    status: "succeeded",
    output: { error: { code: "permission_denied", retryable: false } },
    usage: { steps: 1 },
  });
  expect(calls).toBe(0);
});

test("R-1 a pause, a raised budget and a cancel from a second engine reach the one that holds the tree", async () => {
  const store = await open();
  const inside = gate();
  const leave = gate();
  const f = await fixture({
    store,
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
  const g = await fixture({ store, tools });
  const document = {
    steps: [tool("a"), tool("b")],
    plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
    budgets: { max_steps: 1 },
  };
  const runId = await f.start(document);
  await inside.promise;
  expect(await g.signal(runId, "budget", { budget: { max_steps: 2 }, decided_by: "g" })).toBe(true);
  expect((await g.events(runId)).at(-1)).toMatchObject({
    type: "budget_raised",
    budget: { max_steps: 2 },
    decided_by: "g",
  });
  const paused = g.signal(runId, "pause", { decided_by: "g" });
  leave.open();
  expect(await paused).toBe(true);
  expect(await g.state(runId)).toMatchObject({ status: "suspended", waits: [{ type: "paused" }] });
  // The raised limit still counts for whoever goes on.
  expect(await g.resume(runId)).toMatchObject({ status: "succeeded", usage: { steps: 2 } });
  const other = await f.start({ ...document, budgets: {} });
  expect(await g.signal(other, "cancel", { decided_by: "g" })).toBe(true);
  expect((await g.events(other)).at(-1)).toMatchObject({ type: "run_cancelled", decided_by: "g" });
});
