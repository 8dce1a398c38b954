/** `on_exhausted: suspend` (DESIGN §6): a used-up limit suspends, a raised one goes on from there. */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { fixture, ok } from "./fixture.ts";

const tool = (id: string) => ({ id, type: "tool", tool: "work", args: { id } });
const seq = (...ids: string[]) => ({ type: "sequence", nodes: ids.map((step) => ({ type: "step", step })) });

test("a used-up step budget suspends the run; raised, it goes on without repeating anything", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const calls: string[] = [];
  const f = await fixture({
    store,
    tools: {
      work: {
        side_effect: "mutating",
        run: ({ step_id }) => {
          calls.push(step_id);
          return ok(step_id);
        },
      },
    },
  });
  const stopped = await f.run({
    steps: ["a", "b", "c"].map(tool),
    plan: seq("a", "b", "c"),
    budgets: { max_steps: 2, on_exhausted: "suspend" },
  });
  const run = stopped.header.run_id;
  expect(stopped).toMatchObject({ status: "suspended", waits: [{ type: "budget" }] });
  expect(calls).toEqual(["a", "b"]);
  expect(
    await f.engine.signal({ root_run_id: run, run_id: run }, "budget", {
      budget: { max_steps: 3 },
      decided_by: "test",
    }),
  ).toBe(true);
  await f.engine.idle(run);
  expect(await f.state(run)).toMatchObject({ status: "succeeded", output: "c", budget: { max_steps: 3 } });
  expect(calls).toEqual(["a", "b", "c"]);
});

test("a map and a retry that find no room wait too, and another branch goes on meanwhile", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  let failures = 1;
  const f = await fixture({
    store,
    tools: {
      work: {
        run: ({ step_id }) =>
          step_id === "r" && failures-- > 0
            ? { type: "failed", kind: "execution", retryable: true, message: "" }
            : ok(step_id),
      },
    },
  });
  const stopped = await f.run({
    steps: ["a", "m", "r"].map(tool),
    plan: {
      type: "parallel",
      nodes: [
        { type: "map", item: "x", source: { from: "literal", value: [1, 2, 3] }, body: { type: "step", step: "m" } },
        { type: "retry", max_attempts: 2, node: { type: "step", step: "r" } },
        { type: "step", step: "a" },
      ],
    },
    budgets: { max_steps: 2, max_retries: 1, on_exhausted: "suspend" },
  });
  const run = stopped.header.run_id;
  expect(stopped.status).toBe("suspended");
  expect(stopped.steps.get("a")?.status).toBe("succeeded");
  await f.engine.signal({ root_run_id: run, run_id: run }, "budget", { budget: { max_steps: 9 }, decided_by: "test" });
  await f.engine.idle(run);
  expect(await f.state(run)).toMatchObject({
    status: "succeeded",
    output: [["m@root[0]", "m@root[1]", "m@root[2]"], "r", "a"],
  });
});

test("agents without room are suspended with the run and asked once when tokens are raised", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  let calls = 0;
  const f = await fixture({
    store,
    agents: {
      resolve: async (name) => ({ name, capabilities: [], priced: true }),
      estimate: async () => ({ tokens: 10 }),
      call: async () => {
        calls++;
        return { type: "succeeded", output: calls, usage: { tokens: 10, cost_micros: 0 } };
      },
    },
  });
  const agent = (id: string) => ({ id, type: "agent", agent: "worker", prompt: { id } });
  const stopped = await f.run({
    steps: [agent("a"), agent("b")],
    plan: {
      type: "parallel",
      nodes: [
        { type: "step", step: "a" },
        { type: "step", step: "b" },
      ],
    },
    budgets: { max_tokens: 15, on_exhausted: "suspend" },
  });
  const run = stopped.header.run_id;
  expect(stopped).toMatchObject({ status: "suspended", waits: [{ type: "budget" }] });
  expect(calls).toBe(1);
  await f.engine.signal({ root_run_id: run, run_id: run }, "budget", {
    budget: { max_tokens: 20 },
    decided_by: "test",
  });
  await f.engine.idle(run);
  expect(await f.state(run)).toMatchObject({ status: "succeeded", usage: { tokens: 20, agents: 2, steps: 2 } });
  expect(calls).toBe(2);
});
