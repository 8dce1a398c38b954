/** The exact journals that the spec gives for simple runs (RP-46 … RP-53). */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { aborted, agentPort, failed, fixture, gate, leaf, NEVER, ok } from "./fixture.ts";

const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const one = { steps: [tool("inspect")], plan: leaf("inspect") };
const R = ["run_queued", "run_started"];
const S = ["phase step_reserved", "step_queued", "step_started"];
const open = () => openSqliteStore({ path: ":memory:" });

test("RP-46 one step that succeeds, and one that fails", async () => {
  const f = await fixture({ store: await open(), tools: { Read: { run: () => ok({ ok: true }) } } });
  const state = await f.run(one);
  expect(state.status).toBe("succeeded");
  expect(await f.kinds(state.header.run_id)).toEqual([...R, ...S, "step_completed", "run_succeeded"]);
  expect((await f.events(state.header.run_id)).map((event) => event.sequence)).toEqual([1, 2, 3, 4, 5, 6, 7]);
  const g = await fixture({ store: await open(), tools: { Read: { run: () => failed(false) } } });
  const bad = await g.run(one);
  expect(await g.kinds(bad.header.run_id)).toEqual([...R, ...S, "step_failed", "run_failed"]);
  expect(bad.failure).toMatchObject({ code: "execution_failed", retryable: false });
  // RP-41: the tool's own text is no part of a failure.
  expect(JSON.stringify([bad.failure, bad.steps.get("inspect")?.failure])).not.toContain("raw text");
});

test("RP-47 one retry", async () => {
  let n = 0;
  const f = await fixture({ store: await open(), tools: { Read: { run: () => (n++ === 0 ? failed() : ok(1)) } } });
  const state = await f.run({ ...one, plan: { type: "retry", max_attempts: 2, delay_ms: 5, node: one.plan } });
  expect(await f.kinds(state.header.run_id)).toEqual([
    ...R,
    ...S,
    "step_failed",
    "phase retry_reserved",
    ...S,
    "step_completed",
    "run_succeeded",
  ]);
  expect(state.steps.get("inspect")).toMatchObject({ attempts: 2, visit: 2 });
  expect(state.usage).toMatchObject({ steps: 2, retries: 1 });
});

test("RP-48 an agent step; its two phases repeat with every attempt at a fitting output", async () => {
  const agent = { id: "ask", type: "agent", agent: "writer", prompt: "x", output_schema: { type: "integer" } };
  const A = ["phase agent_reserved", "phase agent_usage_recorded"];
  const usage = { tokens: 3, cost_micros: 1 };
  const f = await fixture({ store: await open(), agents: agentPort(() => ({ type: "succeeded", output: 1, usage })) });
  const state = await f.run({ steps: [agent], plan: leaf("ask") });
  expect(await f.kinds(state.header.run_id)).toEqual([...R, ...S, ...A, "step_completed", "run_succeeded"]);
  let n = 0;
  const g = await fixture({
    store: await open(),
    agents: agentPort(() => ({ type: "succeeded", output: n++ === 0 ? "no" : 2, usage })),
  });
  const twice = await g.run({ steps: [agent], plan: leaf("ask") });
  expect(await g.kinds(twice.header.run_id)).toEqual([...R, ...S, ...A, ...A, "step_completed", "run_succeeded"]);
  expect(twice.usage).toEqual({ steps: 1, retries: 0, agents: 2, tokens: 6, cost_micros: 2 });
});

test("RP-49 a tool that asks first, and one that the policy asks about", async () => {
  const asks = [...R, ...S, "phase suspension_context_persisted", "step_suspended", "run_suspended"];
  const f = await fixture({ store: await open(), tools: { Read: { run: () => ({ type: "needs_approval" }) } } });
  const state = await f.run(one);
  expect(await f.kinds(state.header.run_id)).toEqual(asks);
  expect(state.waits).toMatchObject([{ type: "tool_approval", step_id: "inspect", tool: "Read" }]);
  let calls = 0;
  const g = await fixture({
    store: await open(),
    tools: { Read: { run: () => ok(++calls) } },
    policy: { fingerprint: "ask", decide: () => ({ decision: "ask", reason: "policy" }) },
  });
  const asked = await g.run(one);
  expect(await g.kinds(asked.header.run_id)).toEqual(asks);
  expect(calls).toBe(0);
  // after the grant the same attempt starts again, uncharged.
  const wait = asked.waits[0];
  await g.signal(asked.header.run_id, "approve", {
    wait_id: wait?.wait_id ?? "",
    digest: wait?.digest ?? "",
    decided_by: "me",
  });
  await g.engine.idle(asked.header.run_id);
  expect(await g.kinds(asked.header.run_id)).toEqual([
    ...asks,
    "grant_issued",
    "run_started",
    "step_started",
    "step_completed",
    "run_succeeded",
  ]);
  const starts = (await g.events(asked.header.run_id)).filter((event) => event.type === "step_started");
  expect(starts.map((event) => [event.attempt, event.grant])).toEqual([
    [1, undefined],
    [1, wait?.wait_id],
  ]);
  expect((await g.state(asked.header.run_id)).usage.steps).toBe(1);
});

test("RP-50 cancel inside a tool that hears the signal, and inside one that does not", async () => {
  for (const answer of [aborted, () => NEVER]) {
    const entered = gate();
    const f = await fixture({
      store: await open(),
      limits: { stop_grace_ms: 20 },
      tools: {
        Read: {
          run: async (call) => {
            entered.open();
            await answer(call);
            return ok("late");
          },
        },
      },
    });
    const runId = await f.start(one);
    await entered.promise;
    expect(await f.signal(runId, "cancel", { reason: "enough" })).toBe(true);
    await f.engine.idle(runId);
    expect(await f.kinds(runId)).toEqual([...R, ...S, "step_cancelled", "run_cancelled"]);
    expect((await f.state(runId)).failure).toMatchObject({ code: "cancelled" });
  }
});

test("RP-50 the open instances are cancelled in id order", async () => {
  const entered = gate();
  let running = 0;
  const ids = ["zed", "beta", "alpha"];
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async (call) => {
          if (++running === 2) entered.open();
          await aborted(call);
          return ok(1);
        },
      },
    },
  });
  const runId = await f.start({
    steps: ids.map((id) => tool(id)),
    plan: { type: "parallel", nodes: ids.map(leaf) },
    budgets: { max_concurrency: 2 },
  });
  await entered.promise;
  await f.signal(runId, "cancel");
  const cancelled = (await f.events(runId)).filter((event) => event.type === "step_cancelled");
  expect(cancelled.map((event) => event.step_id)).toEqual(["alpha", "beta", "zed"]);
});

test("RP-51 the wall time ends what is open, before the run", async () => {
  const f = await fixture({
    store: await open(),
    limits: { stop_grace_ms: 20 },
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
  expect(await f.kinds(state.header.run_id)).toEqual([...R, ...S, "step_failed", "run_failed"]);
  expect(state.failure?.code).toBe("budget_exceeded");
  expect(state.steps.get("inspect")?.failure?.code).toBe("budget_exceeded");
});

test("RP-51 with nothing open, the never-entered frontier fails", async () => {
  const store = await open();
  const f = await fixture({ store, tools: { Read: { run: () => ok(1) } } });
  // A run whose time was over before anything could be asked for.
  const plan = {
    type: "sequence",
    nodes: [
      {
        type: "parallel",
        nodes: [
          leaf("a"),
          {
            type: "choice",
            condition: { from: "literal", value: true },
            then_branch: leaf("b"),
            else_branch: leaf("c"),
          },
        ],
      },
      leaf("d"),
    ],
  };
  const runId = await f.start(
    { steps: ["a", "b", "c", "d"].map((id) => tool(id)), plan, budgets: { wall_time_ms: 1 } },
    {},
    { created_at_ms: 1 },
  );
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect(state.status).toBe("failed");
  expect(await f.kinds(runId)).toEqual([...R, "step_failed", "step_failed", "step_failed", "run_failed"]);
  expect([...state.steps.values()].map((step) => [step.id, step.attempts]).sort()).toEqual([
    ["a", 0],
    ["b", 0],
    ["c", 0],
  ]);
});

test("RP-52 skip_dependents skips the rest; the unchosen branch is skipped before the chosen one runs", async () => {
  const f = await fixture({
    store: await open(),
    tools: { Read: { run: (call) => (call.step_id === "first" ? failed(false) : ok(1)) } },
  });
  const state = await f.run({
    steps: [tool("first", { failure: "skip_dependents" }), tool("second"), tool("third")],
    plan: { type: "sequence", nodes: [{ type: "sequence", nodes: [leaf("first"), leaf("second")] }, leaf("third")] },
  });
  expect(await f.kinds(state.header.run_id)).toEqual([
    ...R,
    ...S,
    "step_failed",
    "step_skipped",
    "step_skipped",
    "run_failed",
  ]);
  expect(state.failure?.code).toBe("dependency_skipped");
  const choice = await f.run({
    steps: [tool("yes"), tool("no")],
    plan: {
      type: "choice",
      condition: { from: "literal", value: true },
      then_branch: leaf("yes"),
      else_branch: leaf("no"),
    },
  });
  expect(await f.kinds(choice.header.run_id)).toEqual([...R, "step_skipped", ...S, "step_completed", "run_succeeded"]);
  expect(choice.steps.get("no")).toMatchObject({ status: "skipped", attempts: 0, input_hash: "" });
});
