/** What the nodes of a plan do (SC-27 … SC-33), through the whole engine. */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { aborted, failed, fixture, gate, leaf, ok } from "./fixture.ts";

const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const open = () => openSqliteStore({ path: ":memory:" });
const item = (name: string, pointer = "") => ({ from: "item", name, pointer });

test("SC-27 a choice, then a step after it", async () => {
  const f = await fixture({ store: await open(), tools: { Read: { run: (call) => ok(call.step_id) } } });
  const document = {
    input_schema: {
      type: "object",
      properties: { go: { type: "boolean" } },
      required: ["go"],
      additionalProperties: false,
    },
    steps: [tool("yes"), tool("no"), tool("after")],
    plan: {
      type: "sequence",
      nodes: [
        {
          type: "choice",
          condition: { from: "args", pointer: "/go" },
          then_branch: leaf("yes"),
          else_branch: leaf("no"),
        },
        leaf("after"),
      ],
    },
  };
  const state = await f.run(document, { go: true });
  expect(state).toMatchObject({ status: "succeeded", output: "after" });
  expect(state.usage.steps).toBe(2);
  expect(state.steps.get("no")).toMatchObject({ status: "skipped", attempts: 0, input_hash: "" });
  const skips = (await f.events(state.header.run_id)).filter((event) => event.type === "step_skipped");
  expect(skips).toMatchObject([{ step_id: "no", reason: "conditional branch not selected" }]);
});

test("SC-27 a condition that is missing dispatches neither side", async () => {
  const f = await fixture({
    store: await open(),
    tools: { Read: { run: (call) => ok(call.step_id === "look" ? {} : 1) } },
  });
  const open_schema = { type: "object", properties: { go: { type: "boolean" } }, required: ["go"] };
  const state = await f.run({
    steps: [tool("look", { output_schema: open_schema, failure: "continue_with_error" }), tool("yes"), tool("no")],
    plan: {
      type: "sequence",
      nodes: [
        leaf("look"),
        {
          type: "choice",
          condition: { from: "step", step: "look", pointer: "/go" },
          then_branch: leaf("yes"),
          else_branch: leaf("no"),
        },
      ],
    },
  });
  // RP-37: the failed step has no output, so a reference to it is unknown.
  expect(state.failure?.code).toBe("unknown_reference");
  expect([...state.steps.keys()]).toEqual(["look"]);
});

test("SC-28 a map of choices is admitted by its larger branch", async () => {
  for (const [max_steps, status, usage] of [
    [4, "succeeded", 3],
    [3, "failed", 0],
  ] as const) {
    const f = await fixture({ store: await open(), tools: { Read: { run: () => ok(1) } } });
    const state = await f.run(
      {
        input_schema: {
          type: "object",
          properties: { rows: { type: "array", items: { type: "boolean" } } },
          required: ["rows"],
        },
        steps: [tool("a"), tool("b"), tool("c")],
        plan: {
          type: "map",
          source: { from: "args", pointer: "/rows" },
          item: "row",
          body: {
            type: "choice",
            condition: item("row"),
            then_branch: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
            else_branch: leaf("c"),
          },
        },
        budgets: { max_steps },
      },
      { rows: [true, false] },
    );
    expect([state.status, state.usage.steps]).toEqual([status, usage]);
    if (status === "failed") {
      expect(state.failure?.code).toBe("budget_exceeded");
      expect(state.steps.size).toBe(0);
    }
  }
});

test("SC-29 a retried choice that changes its mind skips what it ran before; other items keep theirs", async () => {
  let asked = 0;
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: (call) => {
          const { v } = call.input as { v: number };
          if (call.step_id.startsWith("decide")) return ok(v === 0 ? ++asked > 1 : true);
          if (call.step_id.startsWith("no@root[0]")) return failed();
          return ok([call.step_id]);
        },
      },
    },
  });
  const args = { v: item("row") };
  const state = await f.run(
    {
      input_schema: {
        type: "object",
        properties: { rows: { type: "array", items: { type: "integer" } } },
        required: ["rows"],
      },
      steps: [
        tool("decide", { args, output_schema: { type: "boolean" } }),
        tool("mapped", { args }),
        tool("no", { args }),
      ],
      plan: {
        type: "map",
        source: { from: "args", pointer: "/rows" },
        item: "row",
        body: {
          type: "retry",
          max_attempts: 2,
          node: {
            type: "sequence",
            nodes: [
              leaf("decide"),
              {
                type: "choice",
                condition: { from: "step", step: "decide" },
                then_branch: leaf("mapped"),
                else_branch: leaf("no"),
              },
            ],
          },
        },
      },
    },
    { rows: [0, 1] },
  );
  expect(state.status).toBe("succeeded");
  expect(state.steps.get("no@root[0]")).toMatchObject({
    status: "skipped",
    attempts: 1,
    failure: { code: "dependency_skipped" },
  });
  expect(state.steps.get("no@root[0]")?.output).toBeUndefined();
  expect(state.steps.get("mapped@root[1]")).toMatchObject({
    status: "succeeded",
    output: ["mapped@root[1]"],
    attempts: 1,
  });
  expect(state.usage.retries).toBe(1);
});

test("SC-30 sequence, parallel and map give the last value; every instance succeeds", async () => {
  const f = await fixture({
    store: await open(),
    tools: { Read: { run: (call) => ok((call.input as { v?: number }).v ?? 0) } },
  });
  const document = (max_steps: number) => ({
    steps: [
      tool("a", { args: {} }),
      tool("b", { args: {} }),
      tool("c", { args: {} }),
      tool("m", { args: { v: item("n") } }),
    ],
    plan: {
      type: "sequence",
      nodes: [
        leaf("a"),
        { type: "parallel", nodes: [leaf("b"), leaf("c")] },
        { type: "map", source: { from: "literal", value: [1, 2, 3] }, item: "n", body: leaf("m") },
      ],
    },
    budgets: { max_steps },
  });
  const state = await f.run(document(6));
  expect(state.output).toEqual([1, 2, 3]);
  expect([...state.steps.values()].map((step) => step.status)).toEqual(Array(6).fill("succeeded"));
  const map = {
    steps: [tool("m")],
    plan: { type: "map", source: { from: "literal", value: [1, 2, 3] }, item: "n", body: leaf("m") },
    budgets: { max_steps: 2 },
  };
  const refused = await f.run(map);
  expect(refused.failure?.code).toBe("budget_exceeded");
  expect(refused.steps.size).toBe(0);
});

test("SC-31 a retried parallel or map runs all of it again; what always fails is exhausted", async () => {
  const failing = new Set<string>();
  const once = { Read: { run: (call: { step_id: string }) => (failing.delete(call.step_id) ? failed() : ok(1)) } };
  const f = await fixture({ store: await open(), tools: once });
  failing.add("b");
  const parallel = await f.run({
    steps: [tool("a"), tool("b")],
    plan: { type: "retry", max_attempts: 2, node: { type: "parallel", nodes: [leaf("a"), leaf("b")] } },
  });
  expect([parallel.status, parallel.usage.retries]).toEqual(["succeeded", 1]);
  expect([...parallel.steps.values()].map((step) => step.attempts)).toEqual([2, 2]);
  failing.add("m@root[1]");
  const map = await f.run({
    steps: [tool("m")],
    plan: {
      type: "retry",
      max_attempts: 2,
      node: { type: "map", source: { from: "literal", value: [1, 2] }, item: "n", body: leaf("m") },
    },
  });
  expect(map.steps.get("m@root[0]")?.attempts).toBe(2);
  expect(map.steps.get("m@root[1]")?.attempts).toBe(2);
  const g = await fixture({ store: await open(), tools: { Read: { run: () => failed() } } });
  const always = await g.run({
    steps: [tool("a")],
    plan: { type: "retry", max_attempts: 10, node: leaf("a") },
    budgets: { max_retries: 2 },
  });
  expect(always.failure).toMatchObject({ code: "retry_exhausted", retryable: false });
  expect([always.usage.retries, always.steps.get("a")?.attempts]).toEqual([2, 3]);
});

test("SC-32 in a map of parallels a failure cancels its own siblings only", async () => {
  const slow = gate();
  const f = await fixture({
    store: await open(),
    tools: {
      Read: {
        run: async (call) => {
          if (call.step_id === "bad@root[0]") {
            await slow.promise;
            return failed(false);
          }
          if (call.step_id === "slow@root[0]") {
            slow.open();
            await aborted(call);
            return ok("too late");
          }
          return ok(1);
        },
      },
    },
  });
  const state = await f.run({
    steps: [tool("bad"), tool("slow")],
    plan: {
      type: "map",
      source: { from: "literal", value: [0, 1] },
      item: "n",
      body: { type: "parallel", nodes: [leaf("bad"), leaf("slow")] },
    },
  });
  expect(state.failure?.message).toContain("item[0]: parallel branch[0] failed: ");
  expect(state.steps.get("slow@root[0]")?.status).toBe("cancelled");
  for (const id of ["bad@root[1]", "slow@root[1]"]) expect(state.steps.get(id)?.status).toBe("succeeded");
  const events = await f.events(state.header.run_id);
  const at = events.findIndex((event) => event.type === "step_cancelled");
  expect(events.slice(at).filter((event) => "step_id" in event && event.step_id === "slow@root[0]")).toHaveLength(1);
});

test("SC-33 skip_dependents; a step budget of one", async () => {
  const f = await fixture({
    store: await open(),
    tools: { Read: { run: (call) => (call.step_id === "bad" ? failed(false) : ok(1)) } },
  });
  const steps = [tool("bad", { failure: "skip_dependents" }), tool("never")];
  const state = await f.run({ steps, plan: { type: "sequence", nodes: [leaf("bad"), leaf("never")] } });
  expect([state.status, state.steps.get("never")?.status]).toEqual(["failed", "skipped"]);
  const tight = await f.run({
    steps: [tool("a"), tool("b")],
    plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
    budgets: { max_steps: 1 },
  });
  expect(tight.failure).toMatchObject({ code: "budget_exceeded", retryable: false });
  expect([tight.usage.steps, tight.steps.size]).toEqual([1, 1]);
});

test("RP-37 continue_with_error gives the failure as the value; a refused reservation has no policy", async () => {
  const f = await fixture({ store: await open(), tools: { Read: { run: () => failed(false) } } });
  const state = await f.run({ steps: [tool("a", { failure: "continue_with_error" })], plan: leaf("a") });
  expect(state).toMatchObject({ status: "succeeded", output: { error: { code: "execution_failed" } } });
  expect(state.steps.get("a")).toMatchObject({ status: "failed" });
  const refused = await f.run({
    steps: [tool("a", { failure: "continue_with_error" }), tool("b", { failure: "continue_with_error" })],
    plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
    budgets: { max_steps: 1 },
  });
  expect(refused).toMatchObject({ status: "failed", failure: { code: "budget_exceeded" } });
});

test("RP-40 an output that does not fit the output schema fails the run", async () => {
  const f = await fixture({ store: await open(), tools: { Read: { run: () => ok("text") } } });
  const state = await f.run({ steps: [tool("a")], plan: leaf("a"), output_schema: { type: "integer" } });
  expect(state.failure?.code).toBe("invalid_output");
});
