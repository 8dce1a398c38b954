/** Runs inside runs: one ledger, one set of permits and limits, one clock for the tree (SC-33, SC-34, RP-25, RP-45, R-14, R-20). */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import {
  aborted,
  cutStore,
  type FakeTool,
  failed,
  fixture,
  gate,
  leaf,
  NEVER,
  ok,
  TestClock,
  turn,
} from "./fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const call = (id: string, workflow_id: string, more: object = {}) => ({
  id,
  type: "workflow",
  workflow_id,
  revision: 1,
  args: {},
  ...more,
});
const flow = (id: string, steps: readonly { id: string }[], budgets: object = {}) => ({
  id,
  steps,
  plan: { type: "sequence", nodes: steps.map((step) => leaf(step.id)) },
  budgets,
});

test("SC-34 a nested run has its own journal, its parent's names, and no place of its own in lists", async () => {
  const f = await fixture({ store: await open(), tools: { Read: { run: () => ok("from the child") } } });
  const state = await f.run(flow("top", [call("inner", "child")]), {}, { nested: [flow("child", [tool("work")])] });
  expect(state).toMatchObject({ status: "succeeded", output: "from the child" });
  const [root, child] = await f.store.treeRuns(state.header.run_id);
  expect(child).toMatchObject({
    parent_run_id: root?.run_id,
    parent_step_id: "inner",
    session_id: root?.session_id,
    bundle_hash: root?.bundle_hash,
    depth: 1,
  });
  expect(await f.kinds(child?.run_id ?? "")).toEqual([
    "run_queued",
    "run_started",
    "phase step_reserved",
    "step_queued",
    "step_started",
    "step_completed",
    "run_succeeded",
  ]);
  // The root shows the tree, the child its own.
  expect([root?.usage.steps, child?.usage.steps]).toEqual([2, 1]);
  expect(await f.store.listRuns({ limit: 10 })).toHaveLength(1);
});

test("SC-33 one step budget serves parent and child", async () => {
  const f = await fixture({ store: await open(), tools: { Read: { run: () => ok(1) } } });
  const state = await f.run(
    flow("top", [call("inner", "child")], { max_steps: 1 }),
    {},
    { nested: [flow("child", [tool("work")], { max_steps: 1 })] },
  );
  expect(state.failure).toMatchObject({ code: "budget_exceeded" });
  expect(state.failure?.message).toContain("step budget");
});

test("RP-45 a child's failure passes through with code and retryable flag; retry runs it anew", async () => {
  let n = 0;
  const f = await fixture({ store: await open(), tools: { Read: { run: () => (n++ === 0 ? failed(true) : ok(n)) } } });
  const top = {
    ...flow("top", [call("inner", "child")]),
    plan: { type: "retry", max_attempts: 2, node: leaf("inner") },
  };
  const state = await f.run(top, {}, { nested: [flow("child", [tool("work")])] });
  expect(state).toMatchObject({ status: "succeeded", output: 2 });
  const runs = await f.store.treeRuns(state.header.run_id);
  expect(runs.map((run) => run.status)).toEqual(["succeeded", "failed", "succeeded"]);
});

test("RP-25 concurrency is the tree's: children and branches together never pass it", async () => {
  let running = 0;
  let most = 0;
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async () => {
          most = Math.max(most, ++running);
          await turn();
          running--;
          return ok(1);
        },
      },
    },
  });
  const many = {
    id: "many",
    steps: [tool("m")],
    plan: { type: "map", source: { from: "literal", value: [1, 2, 3, 4, 5] }, item: "n", body: leaf("m") },
  };
  const top = {
    id: "top",
    steps: [call("left", "many"), call("right", "many"), tool("mine")],
    plan: { type: "parallel", nodes: ["left", "right", "mine"].map(leaf) },
    budgets: { max_concurrency: 3 },
  };
  const state = await f.run(top, {}, { nested: [many] });
  expect([state.status, most]).toEqual(["succeeded", 3]);
});

test("R-9 a grant waits for a permit like everything else", async () => {
  let running = 0;
  let most = 0;
  const inside = gate();
  const leave = gate();
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async () => {
          most = Math.max(most, ++running);
          inside.open();
          await leave.promise;
          running--;
          return ok(1);
        },
      },
      Ask: {
        capabilities: ["write"],
        run: async () => {
          most = Math.max(most, ++running);
          await turn();
          running--;
          return ok(2);
        },
      },
    },
    policy: {
      fingerprint: "ask",
      decide: ({ target }) => (target === "Ask" ? { decision: "ask", reason: "write" } : { decision: "allow" }),
    },
  });
  const runId = await f.start({
    steps: [tool("ask", { tool: "Ask" }), tool("read")],
    plan: { type: "parallel", nodes: [leaf("ask"), leaf("read")] },
    budgets: { max_concurrency: 1 },
  });
  await inside.promise;
  const asked = await f.until(runId, (state) => state.waits.length > 0);
  await f.signal(runId, "approve", { wait_id: asked.waits[0]?.wait_id ?? "", decided_by: "me" });
  leave.open();
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect([state.status, most]).toEqual(["succeeded", 1]);
});

test("R-14 time suspended on an approval is no wall time; past the deadline a run ends as RP-51 says", async () => {
  const clock = new TestClock();
  const f = await fixture({
    store: await open(),
    clock,
    limits: { lease_ms: 1e9 },
    tools: {
      Read: { run: () => ok(1) },
      Hang: {
        run: async (c) => {
          await aborted(c);
          return ok(1);
        },
      },
    },
  });
  const document = {
    steps: [{ id: "gate", type: "approval", prompt: "go on?" }, tool("hang", { tool: "Hang" })],
    plan: { type: "sequence", nodes: [leaf("gate"), leaf("hang")] },
    budgets: { wall_time_ms: 1_000 },
  };
  const waiting = await f.run(document);
  const runId = waiting.header.run_id;
  await clock.advance(50_000);
  await f.signal(runId, "approve", { wait_id: waiting.waits[0]?.wait_id ?? "", decided_by: "me" });
  await f.until(runId, (state) => state.steps.get("hang")?.status === "running");
  await clock.advance(900);
  expect(f.engine.holds(runId)?.state(runId).status).toBe("running");
  await clock.advance(200);
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({
    status: "failed",
    failure: { code: "budget_exceeded" },
    suspended_ms: 50_000,
  });
});

test("C09 cancelling a tree ends its children and grandchildren too, whatever they wait for, and none after its parent", async () => {
  const entered = gate();
  let calls = 0;
  const f = await fixture({
    store: await open(),
    limits: { stop_grace_ms: 50 },
    tools: {
      Read: {
        run: async (c) => {
          if (++calls === 2) entered.open();
          await aborted(c);
          return ok(1);
        },
      },
    },
  });
  const grand = flow("grand", [tool("slow")]);
  const child = {
    id: "child",
    steps: [call("one", "grand"), call("two", "grand")],
    plan: { type: "parallel", nodes: [leaf("one"), leaf("two")] },
  };
  const asks = { id: "asks", steps: [{ id: "gate", type: "approval", prompt: "?" }], plan: leaf("gate") };
  const top = {
    id: "top",
    steps: [call("busy", "child"), call("more", "child"), call("asking", "asks")],
    plan: { type: "parallel", nodes: ["busy", "more", "asking"].map(leaf) },
    budgets: { max_concurrency: 2 },
  };
  const runId = await f.start(top, {}, { nested: [grand, child, asks] });
  const heard: string[] = [];
  f.engine.observe((events, { header }) => {
    if (events.some(({ type }) => type === "run_cancelled")) heard.push(header.run_id);
  });
  await entered.promise;
  await f.signal(runId, "cancel");
  await f.engine.idle(runId);
  const runs = await f.store.treeRuns(runId);
  expect(runs).toHaveLength(8);
  expect(new Set(runs.map((run) => run.status))).toEqual(new Set(["cancelled"]));
  expect(runs.every((run) => run.wait_count === 0)).toBe(true);
  const ends = new Map<string, number>();
  for (const { run_id } of runs) {
    const last = (await f.events(run_id)).at(-1);
    expect(last?.type).toBe("run_cancelled");
    ends.set(run_id, last?.at_ms ?? 0);
  }
  for (const { run_id, parent_run_id } of runs)
    if (parent_run_id !== undefined) {
      expect(ends.get(run_id)).toBeLessThanOrEqual(ends.get(parent_run_id) ?? 0);
      // Whoever watches hears of them from below, though they ended in one commit.
      expect(heard.indexOf(run_id)).toBeLessThan(heard.indexOf(parent_run_id));
    }
  expect([calls, heard.length]).toEqual([2, 8]);
});

test("R-20 cancelling only a child fails its parent's step as cancelled, live and where nobody holds the tree", async () => {
  const asks = { id: "asks", steps: [{ id: "gate", type: "approval", prompt: "?" }], plan: leaf("gate") };
  const top = flow("top", [call("inner", "asks", { failure: "continue_with_error" }), tool("after")]);
  const store = await open();
  const tools = { Read: { run: () => ok("after") } };
  const f = await fixture({ store, tools });
  const waiting = await f.run(top, {}, { nested: [asks] });
  const runId = waiting.header.run_id;
  expect([waiting.status, waiting.waits[0]?.type]).toEqual(["suspended", "child"]);
  const child = (await store.treeRuns(runId))[1]?.run_id ?? "";
  // Another engine, with nothing of the tree in memory.
  const g = await fixture({ store, tools });
  expect(await g.signal(runId, "cancel", {}, child)).toBe(true);
  await g.engine.idle(runId);
  const state = await g.state(runId);
  expect(state.steps.get("inner")).toMatchObject({ status: "failed", failure: { code: "cancelled" } });
  expect(state).toMatchObject({ status: "succeeded", output: "after" });
  expect((await g.state(child)).status).toBe("cancelled");
});

test("R-12 a child's open mutation keeps the whole tree from ending; its answer ends it", async () => {
  const entered = gate();
  const store = await open();
  const tools = {
    Write: {
      side_effect: "mutating",
      capabilities: ["write"],
      run: async () => {
        entered.open();
        return NEVER;
      },
    },
  } as const;
  const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools });
  const top = { ...flow("top", [call("inner", "child"), tool("other", { tool: "Write" })]) };
  const runId = await f.start(
    top,
    {},
    {
      nested: [
        flow("child", [tool("write", { tool: "Write", capabilities: ["write"] }), tool("next", { tool: "Write" })]),
      ],
    },
  );
  await entered.promise;
  expect(await f.signal(runId, "cancel", { reason: "stop" })).toBe(true);
  await f.engine.idle(runId);
  const child = (await store.treeRuns(runId))[1]?.run_id ?? "";
  expect(await f.state(child)).toMatchObject({
    status: "suspended",
    stopping: { reason: "cancelled" },
    waits: [{ type: "repair", stop_reason: "cancelled" }],
  });
  expect(await f.state(runId)).toMatchObject({
    status: "suspended",
    stopping: { reason: "cancelled", text: "stop" },
    waits: [{ type: "child" }],
  });
  // The answer comes through another engine: nothing more is dispatched, and both end as the cancel would have.
  const g = await fixture({ store, tools });
  const wait = (await g.state(child)).waits[0];
  await g.signal(
    runId,
    "repair",
    { wait_id: wait?.wait_id ?? "", resolution: "succeeded", output: 1, decided_by: "me" },
    child,
  );
  await g.engine.idle(runId);
  expect(await g.state(child)).toMatchObject({ status: "cancelled" });
  expect((await g.state(child)).steps.get("write")).toMatchObject({ status: "succeeded", output: 1 });
  expect(await g.state(runId)).toMatchObject({ status: "cancelled" });
  expect((await g.events(runId)).at(-1)).toMatchObject({ type: "run_cancelled", reason: "stop" });
});

test("R-11 a child that was queued and not started when its process died begins once, while its parent waits for somebody", async () => {
  const store = await open();
  let calls = 0;
  const tools: Record<string, FakeTool> = { Read: { run: () => ok(++calls) } };
  const top = {
    id: "top",
    steps: [{ id: "gate", type: "approval", prompt: "?", outcome: "value" }, call("inner", "child")],
    plan: { type: "parallel", nodes: [leaf("gate"), leaf("inner")] },
  };
  // Strict: the second commit has the child's step queued; the one that would have started it is lost.
  const dying = await fixture({ store: cutStore(store, 2), tools });
  const runId = await dying.start(top, {}, { nested: [flow("child", [tool("work")])], durability: "strict" });
  await dying.engine.idle(runId).catch(() => undefined);
  expect((await dying.state(runId)).steps.get("inner")?.status).toBe("queued");
  const f = await fixture({ store, tools });
  const waiting = await f.resume(runId, "auto");
  expect([waiting.status, waiting.waits.map((wait) => wait.type), waiting.steps.get("inner")?.status, calls]).toEqual([
    "suspended",
    ["approval"],
    "succeeded",
    1,
  ]);
  await f.signal(runId, "approve", { wait_id: waiting.waits[0]?.wait_id ?? "", decided_by: "me" });
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: [{ approved: true }, 1] });
  expect(await store.treeRuns(runId)).toHaveLength(2);
});
