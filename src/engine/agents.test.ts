/** Agent steps and their books (SC-36, RP-26, RP-27, RP-44, R-16), with a scripted port. */
import { expect, test } from "vitest";
import type { RunEvent } from "../domain/events.ts";
import type { Budgets } from "../domain/run.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { aborted, agentPort, cutStore, fixture, gate, leaf, NEVER, ok, turn } from "./fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const agent = (id: string, more: object = {}) => ({ id, type: "agent", agent: "writer", prompt: id, ...more });
const ask = (budgets: Partial<Budgets> = {}, more: object = {}) => ({
  steps: [agent("ask", more)],
  plan: leaf("ask"),
  budgets,
});
const integer = { output_schema: { type: "integer" } };

/** Folds the books event by event: at every instant spent + reserved is within the limit, but for a reported overshoot. */
function mostHeld(events: readonly RunEvent[]): number {
  let spent = 0;
  let most = 0;
  const reserved = new Map<string, number>();
  for (const event of events) {
    if (event.type !== "phase") continue;
    if (event.name === "agent_reserved") reserved.set(event.instance, event.tokens ?? 0);
    if (event.name === "agent_usage_recorded") {
      reserved.delete(event.instance);
      spent += event.tokens;
    }
    most = Math.max(most, spent + [...reserved.values()].reduce((sum, tokens) => sum + tokens, 0));
  }
  return most;
}

test("SC-36 a schema that is never met: two attempts, two agents, both booked", async () => {
  const f = await fixture({
    store: await open(),
    agents: agentPort(() => ({ type: "succeeded", output: "text", usage: { tokens: 1, cost_micros: 1 } })),
  });
  const state = await f.run(ask({}, integer));
  expect(state.failure?.code).toBe("invalid_output");
  expect(state.usage).toMatchObject({ agents: 2, tokens: 2, cost_micros: 2, steps: 1 });
  expect(state.reservations.size).toBe(0);
});

test("SC-36 max_agents 1 refuses the second attempt", async () => {
  let calls = 0;
  const f = await fixture({
    store: await open(),
    agents: agentPort(() => {
      calls++;
      return { type: "succeeded", output: "text", usage: { tokens: 1, cost_micros: 0 } };
    }),
  });
  const state = await f.run(ask({ max_agents: 1 }, integer));
  expect(state.failure).toMatchObject({ code: "budget_exceeded", retryable: false });
  expect([calls, state.usage.agents]).toEqual([1, 1]);
});

test("SC-36 an overshoot is kept and fails the step, also past an inherited ceiling", async () => {
  const cases = [
    [{ max_tokens: 5 }, { tokens: 10, cost_micros: 0 }],
    [{ max_cost_micros: 1 }, { tokens: 0, cost_micros: 2 }],
    [
      { max_tokens: 5, max_cost_micros: 1 },
      { tokens: 10, cost_micros: 2 },
    ],
  ] as const;
  for (const [limits, used] of cases)
    for (const nested of [false, true]) {
      const f = await fixture({
        store: await open(),
        agents: agentPort(
          () => ({ type: "succeeded", output: 1, usage: used }),
          () => ({ tokens: 1, cost_micros: 1 }),
        ),
      });
      const child = { id: "child", ...ask() };
      const parent = {
        steps: [{ id: "call", type: "workflow", workflow_id: "child", revision: 1, args: {} }],
        plan: leaf("call"),
        budgets: limits,
      };
      const state = nested ? await f.run(parent, {}, { nested: [child] }) : await f.run(ask(limits));
      expect(state.failure?.code).toBe("budget_exceeded");
      const runs = await f.store.treeRuns(state.header.run_id);
      expect(runs[0]?.usage).toMatchObject(used);
    }
});

test("SC-36 a zero token or cost budget dispatches nothing", async () => {
  for (const budgets of [{ max_tokens: 0 }, { max_cost_micros: 0 }, { max_agents: 0 }]) {
    let calls = 0;
    const f = await fixture({
      store: await open(),
      agents: agentPort(() => {
        calls++;
        return { type: "succeeded", output: 1, usage: { tokens: 0, cost_micros: 0 } };
      }),
    });
    const state = await f.run(ask(budgets));
    expect(state.failure?.code).toBe("budget_exceeded");
    expect([calls, state.usage.agents]).toEqual([0, 0]);
  }
});

test("SC-36 cancel waits for the agent to stop and books its 17 tokens once", async () => {
  const entered = gate();
  const ended = gate();
  const f = await fixture({
    store: await open(),
    limits: { stop_grace_ms: 5 },
    agents: agentPort(async (call) => {
      entered.open();
      await aborted(call);
      await ended.promise;
      return { type: "stopped", usage: { tokens: 17, cost_micros: 3 } };
    }),
  });
  const runId = await f.start(ask());
  await entered.promise;
  const cancelled = f.signal(runId, "cancel");
  for (let i = 0; i < 20; i++) await turn();
  expect((await f.state(runId)).status).toBe("running");
  ended.open();
  await cancelled;
  await f.engine.idle(runId);
  const kinds = await f.kinds(runId);
  expect(kinds.slice(-3)).toEqual(["phase agent_usage_recorded", "step_cancelled", "run_cancelled"]);
  expect(kinds.filter((kind) => kind === "phase agent_usage_recorded")).toHaveLength(1);
  expect((await f.state(runId)).usage).toMatchObject({ tokens: 17, cost_micros: 3, agents: 1 });
});

test("SC-36 a result that races a cancel is booked exactly once, in either order", async () => {
  for (let round = 0; round < 20; round++) {
    const entered = gate();
    const answer = gate();
    const f = await fixture({
      store: await open(),
      agents: agentPort(async (call) => {
        entered.open();
        await Promise.race([answer.promise, aborted(call)]);
        return { type: "succeeded", output: 1, usage: { tokens: 17, cost_micros: 1 } };
      }),
    });
    const runId = await f.start(ask());
    await entered.promise;
    const cancel = (): Promise<boolean> => f.signal(runId, "cancel");
    const first = round % 2 === 0 ? cancel() : undefined;
    for (let i = 0; i < round % 5; i++) await turn();
    answer.open();
    await (first ?? cancel());
    await f.engine.idle(runId);
    const state = await f.state(runId);
    expect(["cancelled", "succeeded"]).toContain(state.status);
    expect(state.usage.tokens).toBe(17);
    const kinds = await f.kinds(runId);
    expect(kinds.filter((kind) => kind === "phase agent_usage_recorded")).toHaveLength(1);
    expect(kinds.filter((kind) => kind === "run_cancelled" || kind === "run_succeeded")).toHaveLength(1);
  }
});

test("RP-44 an agent that was stopped and cannot say what it used fails the run, its cost not measured", async () => {
  const entered = gate();
  const f = await fixture({
    store: await open(),
    agents: agentPort(async (call) => {
      entered.open();
      await aborted(call);
      return { type: "stopped" };
    }),
  });
  const runId = await f.start(ask());
  await entered.promise;
  await f.signal(runId, "cancel");
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect(state).toMatchObject({
    status: "failed",
    failure: { code: "execution_failed" },
    usage: { cost_micros: null },
  });
});

test("RP-43 a port error is execution_failed and not retryable; what it used is booked", async () => {
  const f = await fixture({
    store: await open(),
    agents: agentPort(() => ({ type: "failed", message: "private", usage: { tokens: 4, cost_micros: 1 } })),
  });
  const state = await f.run(ask());
  expect(state).toMatchObject({ failure: { code: "execution_failed", retryable: false }, usage: { tokens: 4 } });
  expect(JSON.stringify(state.failure)).not.toContain("private");
});

test("RP-20 policy is asked again at the dispatch of an agent; R-9 an agent that it asks about goes on after the grant", async () => {
  let calls = 0;
  const agents = agentPort(() => {
    calls++;
    return { type: "succeeded", output: 1, usage: { tokens: 1, cost_micros: 0 } };
  });
  const denied = await fixture({
    store: await open(),
    agents,
    policy: { fingerprint: "no", decide: () => ({ decision: "deny", reason: "revoked", cause: "policy" }) },
  });
  expect((await denied.run(ask())).failure?.code).toBe("permission_denied");
  expect(calls).toBe(0);
  const asks = await fixture({
    store: await open(),
    agents,
    policy: { fingerprint: "ask", decide: () => ({ decision: "ask", reason: "agents" }) },
  });
  const state = await asks.run(ask());
  const runId = state.header.run_id;
  expect([state.status, calls, state.waits[0]?.type]).toEqual(["suspended", 0, "tool_approval"]);
  await asks.signal(runId, "approve", { wait_id: state.waits[0]?.wait_id ?? "", decided_by: "me" });
  await asks.engine.idle(runId);
  expect((await asks.state(runId)).status).toBe("succeeded");
  expect([calls, (await asks.state(runId)).usage.agents]).toEqual([1, 1]);
});

test("SC-36 three agents in parallel with token room for one: one starts, the others wait and are refused when it settles at the limit", async () => {
  const starts: string[] = [];
  const first = gate();
  const settle = gate();
  const f = await fixture({
    store: await open(),
    agents: agentPort(
      async (call) => {
        starts.push(call.step_id);
        first.open();
        await settle.promise;
        return { type: "succeeded", output: 1, usage: { tokens: 100, cost_micros: 0 } };
      },
      () => ({ tokens: 80 }),
    ),
  });
  const ids = ["a", "b", "c"];
  const runId = await f.start({
    steps: ids.map((id) => agent(id, { failure: "continue_with_error" })),
    plan: { type: "parallel", nodes: ids.map(leaf) },
    budgets: { max_tokens: 100 },
  });
  await first.promise;
  for (let i = 0; i < 20; i++) await turn();
  expect(starts).toEqual(["a"]);
  const waiting = f.engine.holds(runId)?.state(runId);
  expect(["b", "c"].map((id) => waiting?.steps.get(id)?.status)).toEqual(["queued", "queued"]);
  settle.open();
  await f.engine.idle(runId);
  const state = await f.state(runId);
  expect(starts).toEqual(["a"]);
  expect(state.output).toMatchObject([
    1,
    { error: { code: "budget_exceeded" } },
    { error: { code: "budget_exceeded" } },
  ]);
  expect(state.usage).toMatchObject({ tokens: 100, agents: 1 });
  expect(mostHeld(await f.events(runId))).toBeLessThanOrEqual(100);
});

test("R-16 what waited for room goes on as soon as a cheap call has settled, in order, and never past the limit", async () => {
  const starts: string[] = [];
  let running = 0;
  let most = 0;
  const f = await fixture({
    store: await open(),
    agents: agentPort(
      async (call) => {
        starts.push(call.step_id);
        most = Math.max(most, ++running);
        await turn();
        running--;
        return { type: "succeeded", output: call.step_id, usage: { tokens: 5, cost_micros: 1 } };
      },
      () => ({ tokens: 40, cost_micros: 2 }),
    ),
  });
  const ids = ["a", "b", "c", "d", "e"];
  const state = await f.run({
    steps: ids.map((id) => agent(id)),
    plan: { type: "parallel", nodes: ids.map(leaf) },
    budgets: { max_tokens: 100, max_concurrency: 8 },
  });
  expect(state).toMatchObject({ status: "succeeded", output: ids, usage: { tokens: 25, cost_micros: 5, agents: 5 } });
  expect([starts, most]).toEqual([ids, 2]);
  expect(mostHeld(await f.events(state.header.run_id))).toBeLessThanOrEqual(100);
});

test("R-16 a port without an estimate reserves all that is left, so calls go one at a time", async () => {
  let running = 0;
  let most = 0;
  const f = await fixture({
    store: await open(),
    agents: agentPort(async () => {
      most = Math.max(most, ++running);
      await turn();
      running--;
      return { type: "succeeded", output: 1, usage: { tokens: 10, cost_micros: 0 } };
    }),
  });
  const state = await f.run({
    steps: ["a", "b"].map((id) => agent(id)),
    plan: { type: "parallel", nodes: [leaf("a"), leaf("b")] },
    budgets: { max_tokens: 100 },
  });
  expect([state.status, state.usage.tokens, most]).toEqual(["succeeded", 20, 1]);
});

test("R-16 a raised budget lets in who waits for room", async () => {
  const inside = gate();
  const both = gate();
  let running = 0;
  const f = await fixture({
    store: await open(),
    agents: agentPort(
      async () => {
        if (++running === 2) both.open();
        inside.open();
        await both.promise;
        return { type: "succeeded", output: 1, usage: { tokens: 60, cost_micros: 0 } };
      },
      () => ({ tokens: 60 }),
    ),
  });
  const runId = await f.start({
    steps: ["a", "b"].map((id) => agent(id)),
    plan: { type: "parallel", nodes: [leaf("a"), leaf("b")] },
    budgets: { max_tokens: 100 },
  });
  await inside.promise;
  await f.signal(runId, "budget", { budget: { max_tokens: 200 }, decided_by: "me" });
  await both.promise;
  await f.engine.idle(runId);
  expect((await f.state(runId)).status).toBe("succeeded");
});

test("RP-32 an agent that is cancelled while it waits for a permit gives its room back, and a stop does not wait for it", async () => {
  const held = gate();
  const release = gate();
  const f = await fixture({
    store: await open(),
    limits: { stop_grace_ms: 20 },
    tools: {
      Read: {
        run: async () => {
          held.open();
          await release.promise;
          return ok(1);
        },
      },
      Bad: { run: () => NEVER },
    },
    agents: agentPort(
      () => ({ type: "succeeded", output: 1, usage: { tokens: 1, cost_micros: 0 } }),
      () => ({ tokens: 90 }),
    ),
  });
  const runId = await f.start({
    steps: [{ id: "hold", type: "tool", tool: "Read" }, agent("wait"), agent("after")],
    plan: { type: "parallel", nodes: [leaf("hold"), leaf("wait"), leaf("after")] },
    budgets: { max_concurrency: 1, max_tokens: 100 },
  });
  await held.promise;
  for (let i = 0; i < 5; i++) await turn();
  expect(f.engine.holds(runId)?.ledger).toMatchObject({ open: 1, reserved: { tokens: 90 } });
  const cancel = f.signal(runId, "cancel");
  await cancel;
  await f.engine.idle(runId);
  release.open();
  expect((await f.state(runId)).status).toBe("cancelled");
});

test("RP-44 an agent that waits for a permit for its second try does not hold up a stop", async () => {
  const asked = gate();
  const queued = gate();
  const held = gate();
  let tries = 0;
  const f = await fixture({
    store: await open(),
    limits: { stop_grace_ms: 5 },
    tools: {
      Read: {
        run: () => {
          held.open();
          return NEVER;
        },
      },
    },
    agents: agentPort(async () => {
      tries++;
      asked.open();
      await queued.promise;
      return { type: "succeeded", output: "no integer", usage: { tokens: 1, cost_micros: 0 } };
    }),
  });
  // The tool asks for the only permit while the agent has it.
  const runId = await f.start({
    steps: [
      agent("ask", integer),
      { id: "gate", type: "approval", prompt: "?" },
      { id: "hold", type: "tool", tool: "Read" },
    ],
    plan: { type: "parallel", nodes: [leaf("ask"), { type: "sequence", nodes: [leaf("gate"), leaf("hold")] }] },
    budgets: { max_concurrency: 1 },
  });
  await asked.promise;
  const waiting = await f.until(runId, (state) => state.waits.length === 1);
  await f.signal(runId, "approve", { wait_id: waiting.waits[0]?.wait_id ?? "", decided_by: "me" });
  for (let i = 0; i < 5; i++) await turn();
  queued.open();
  await held.promise;
  for (let i = 0; i < 5; i++) await turn();
  await f.signal(runId, "cancel");
  await f.engine.idle(runId);
  expect([(await f.state(runId)).status, tries]).toEqual(["cancelled", 1]);
  expect((await f.state(runId)).usage.tokens).toBe(1);
});

test("R-11 a call that was lost with its process is booked at all that was reserved, then asked again", async () => {
  const store = await open();
  const entered = gate();
  const usage = { tokens: 7, cost_micros: 2 };
  const estimate = () => ({ tokens: 50, cost_micros: 9 });
  // The first commit creates the run, the second holds the intent and the reservation.
  const dying = await fixture({
    store: cutStore(store, 2),
    agents: agentPort(async (call) => {
      entered.open();
      await aborted(call);
      return { type: "stopped", usage };
    }, estimate),
  });
  const runId = await dying.start(ask({ max_tokens: 100 }));
  await entered.promise;
  const tree = dying.engine.holds(runId);
  tree?.append(runId, [{ type: "decision", key: "last words", value: 1 }]);
  await dying.engine.idle(runId).catch(() => undefined);
  let calls = 0;
  const f = await fixture({
    store,
    agents: agentPort(() => {
      calls++;
      return { type: "succeeded", output: 1, usage };
    }, estimate),
  });
  const state = await f.resume(runId);
  expect([state.status, calls]).toEqual(["succeeded", 1]);
  expect(state.usage).toMatchObject({ tokens: 57, cost_micros: 11, agents: 2, steps: 1 });
  const booked = (await f.events(runId)).filter(
    (event) => event.type === "phase" && event.name === "agent_usage_recorded",
  );
  expect(booked).toMatchObject([{ tokens: 50, estimated: true }, { tokens: 7 }]);
});

test("R-11 a run that is cancelled after its process died books what its agent had reserved", async () => {
  const store = await open();
  const entered = gate();
  const agents = agentPort(
    async (call) => {
      entered.open();
      await aborted(call);
      return { type: "stopped", usage: { tokens: 1, cost_micros: 0 } };
    },
    () => ({ tokens: 50 }),
  );
  const dying = await fixture({ store: cutStore(store, 2), agents });
  const runId = await dying.start(ask({ max_tokens: 100 }));
  await entered.promise;
  dying.engine.holds(runId)?.append(runId, [{ type: "decision", key: "last words", value: 1 }]);
  await dying.engine.idle(runId).catch(() => undefined);
  const f = await fixture({ store, agents });
  expect(await f.signal(runId, "cancel")).toBe(true);
  const state = await f.state(runId);
  expect(state).toMatchObject({ status: "cancelled", usage: { tokens: 50 } });
  expect(state.reservations.size).toBe(0);
});
