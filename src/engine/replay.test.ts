/** a run that is stopped at any durable prefix and taken up by another process ends as if it had not been. */
import { expect, test } from "vitest";
import type { RunEvent } from "../domain/events.ts";
import { childRunId } from "../domain/journal.ts";
import type { Json } from "../domain/json.ts";
import type { Durability } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import type { RunStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { cutStore, type FakeTool, failed, fixture, gate, leaf, NEVER, ok, turn, wrapStore } from "./fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({
  id,
  type: "tool",
  tool: "Do",
  args: {},
  output_schema: {},
  ...more,
});
const step = (id: string, pointer = "") => ({ from: "step", step: id, pointer });
const item = { from: "item", name: "n" };

interface Case {
  readonly name: string;
  readonly document: object;
  readonly nested?: readonly object[];
  readonly args?: Json;
  /** Decides by the call alone, so that a call that is repeated answers the same. */
  readonly answer?: (call: {
    step_id: string;
    attempt: number;
    input: Json;
  }) => Promise<ReturnType<typeof ok>> | ReturnType<typeof ok>;
}

const echo = (call: { step_id: string; input: Json }) => ok({ id: call.step_id, input: call.input });

const CASES: readonly Case[] = [
  {
    name: "sequence",
    document: {
      steps: [tool("a"), tool("b", { args: { a: step("a") } }), tool("c", { args: { b: step("b") } })],
      plan: { type: "sequence", nodes: ["a", "b", "c"].map(leaf) },
    },
  },
  {
    name: "map of parallel, out of order",
    document: {
      steps: [tool("l", { args: item }), tool("r", { args: item }), tool("end", { args: { all: step("each") } })],
      plan: {
        type: "sequence",
        nodes: [
          {
            type: "map",
            id: "each",
            source: { from: "literal", value: [0, 1, 2] },
            item: "n",
            body: { type: "parallel", nodes: [leaf("l"), leaf("r")] },
          },
          leaf("end"),
        ],
      },
      budgets: { max_concurrency: 8 },
    },
    // Later items end first; every instance ends in a turn of its own.
    answer: async (call) => {
      const n = typeof call.input === "number" ? call.input : 0;
      for (let i = 0; i < (3 - n) * 2 + (call.step_id.startsWith("l") ? 1 : 0); i++) await turn();
      return echo(call);
    },
  },
  {
    name: "retry with a delay, over a parallel, counting visits",
    document: {
      steps: [tool("bad"), tool("good"), tool("after")],
      plan: {
        type: "sequence",
        nodes: [
          {
            type: "retry",
            max_attempts: 4,
            delay_ms: 2,
            node: { type: "parallel", nodes: [leaf("good"), leaf("bad")] },
          },
          leaf("after"),
        ],
      },
    },
    answer: (call) => (call.step_id === "bad" && call.attempt < 3 ? failed(true) : echo(call)),
  },
  {
    name: "retry without a delay",
    document: { steps: [tool("bad")], plan: { type: "retry", max_attempts: 3, node: leaf("bad") } },
    answer: (call) => (call.attempt < 3 ? failed(true) : echo(call)),
  },
  {
    name: "choices, one of them retried onto its other side",
    document: {
      steps: [
        tool("decide", { output_schema: { type: "boolean" } }),
        tool("yes"),
        tool("no"),
        tool("left"),
        tool("right"),
      ],
      plan: {
        type: "sequence",
        nodes: [
          {
            type: "choice",
            condition: { from: "literal", value: false },
            then_branch: leaf("left"),
            else_branch: leaf("right"),
          },
          {
            type: "retry",
            max_attempts: 2,
            node: {
              type: "sequence",
              nodes: [
                leaf("decide"),
                { type: "choice", condition: step("decide"), then_branch: leaf("yes"), else_branch: leaf("no") },
              ],
            },
          },
        ],
      },
    },
    answer: (call) => {
      if (call.step_id === "decide") return ok(call.attempt > 1);
      return call.step_id === "no" ? failed(true) : echo(call);
    },
  },
  {
    name: "fail-fast siblings under a map that lets the others go on",
    document: {
      steps: [tool("bad", { args: item }), tool("slow", { args: item }), tool("late", { args: item }), tool("end")],
      plan: {
        type: "sequence",
        nodes: [
          {
            type: "retry",
            max_attempts: 2,
            node: {
              type: "map",
              source: { from: "literal", value: [0, 1] },
              item: "n",
              body: {
                type: "parallel",
                nodes: [leaf("bad"), { type: "sequence", nodes: [leaf("slow"), leaf("late")] }],
              },
            },
          },
          leaf("end"),
        ],
      },
      budgets: { max_concurrency: 8 },
    },
    answer: async (call) => {
      if (call.step_id === "bad@root[0]" && call.attempt === 1) return failed(true);
      for (let i = 0; i < 4; i++) await turn();
      return echo(call);
    },
  },
  {
    name: "nested runs, one of them failing once",
    document: {
      steps: [
        { id: "one", type: "workflow", workflow_id: "child", revision: 1, args: { v: 1 }, output_schema: {} },
        { id: "two", type: "workflow", workflow_id: "child", revision: 1, args: { v: 2 }, output_schema: {} },
        tool("end", { args: [step("one"), step("two")] }),
      ],
      plan: {
        type: "sequence",
        nodes: [
          {
            type: "parallel",
            nodes: [leaf("one"), { type: "retry", max_attempts: 2, delay_ms: 1, node: leaf("two") }],
          },
          leaf("end"),
        ],
      },
    },
    nested: [
      {
        id: "child",
        steps: [tool("in", { args: { from: "args" } }), tool("out", { args: step("in") })],
        plan: { type: "sequence", nodes: [leaf("in"), leaf("out")] },
      },
    ],
  },
  {
    name: "budget refusals and map admission",
    document: {
      steps: [tool("a"), tool("m", { args: item })],
      plan: {
        type: "sequence",
        nodes: [leaf("a"), { type: "map", source: { from: "literal", value: [1, 2, 3] }, item: "n", body: leaf("m") }],
      },
      budgets: { max_steps: 3 },
    },
  },
  {
    name: "timers",
    document: {
      steps: [{ id: "z", type: "wait", for_ms: 1 }, tool("a")],
      plan: { type: "sequence", nodes: [leaf("z"), leaf("a")] },
    },
  },
];

function tools(one: Case, calls: string[], store: RunStore): Record<string, FakeTool> {
  return {
    Do: {
      run: async (call) => {
        calls.push(`${call.run_id} ${call.step_id} ${call.attempt}`);
        return (await isFirstTry(store, call)) ? failed(true) : (one.answer ?? echo)(call);
      },
    },
  };
}

/** The child of the first attempt at `two`, whose first step fails: known by its id. */
async function isFirstTry(store: RunStore, call: { run_id: string; step_id: string }): Promise<boolean> {
  const record = call.step_id === "in" ? await store.getRun(call.run_id) : undefined;
  if (record?.parent_run_id === undefined) return false;
  return call.run_id === childRunId(record.root_run_id, record.parent_run_id, "two", 1);
}

/** What a run comes to, without times and ids of runs. */
function result(state: RunState): Json {
  const steps = [...state.steps.values()].map(({ id, status, attempts, visit, output, failure }) => ({
    id,
    status,
    attempts,
    visit,
    output,
    failure,
  }));
  const told = {
    status: state.status,
    output: state.output,
    failure: state.failure,
    steps: steps.sort((a, b) => (a.id < b.id ? -1 : 1)),
  };
  return JSON.parse(JSON.stringify(told)) as Json;
}

/** Every visit of every place starts once in a lifetime of its process, and settles once. */
function expectNoDoubles(events: readonly RunEvent[]): void {
  const settled = new Map<string, number>();
  const queued = new Map<string, number>();
  for (const event of events) {
    if (event.type === "step_queued")
      queued.set(`${event.step_id}#${event.visit}`, (queued.get(`${event.step_id}#${event.visit}`) ?? 0) + 1);
    if (event.type === "step_completed" || event.type === "step_failed")
      settled.set(event.step_id, (settled.get(event.step_id) ?? 0) + 1);
  }
  for (const [place, times] of queued) expect([place, times]).toEqual([place, 1]);
  for (const [id, times] of settled) {
    const visits = [...queued.keys()].filter((place) => place.startsWith(`${id}#`)).length;
    expect([id, times <= visits]).toEqual([id, true]);
  }
}

async function finish(f: Awaited<ReturnType<typeof fixture>>, runId: string): Promise<RunState> {
  let state = await f.resume(runId);
  // A timer lets the tree go to sleep: whoever drives it wakes it when it is due.
  for (let i = 0; i < 5 && state.status === "suspended"; i++) state = await f.resume(runId, "woken");
  return state;
}

for (const durability of ["strict", "standard"] as const satisfies readonly Durability[])
  for (const one of CASES)
    test(`R-2 stopped at every durable prefix (${durability}): ${one.name}`, async () => {
      const args = one.args ?? {};
      const options = { durability, ...(one.nested === undefined ? {} : { nested: one.nested }) };
      const first = await open();
      const whole = await fixture({ store: first, tools: tools(one, [], first) });
      const runId = await whole.start(one.document, args, options);
      await whole.engine.idle(runId);
      const wanted = await finishOr(whole, runId);
      expect(["succeeded", "failed"]).toContain(wanted.status);
      let cut = 1;
      for (; cut < 60; cut++) {
        const store = await open();
        const dying = cutStore(store, cut);
        const f = await fixture({ store: dying, tools: tools(one, [], store) });
        const stopped = await f.start(one.document, args, options);
        await f.engine.idle(stopped).catch(() => undefined);
        const before = await f.state(stopped);
        if (before.status === "succeeded" || before.status === "failed") break;
        const settledBefore = settledPlaces(await f.events(stopped));
        const calls: string[] = [];
        const g = await fixture({ store, tools: tools(one, calls, store) });
        const after = await finish(g, stopped);
        expect({ cut, ...(result(after) as object) }).toEqual({ cut, ...(result(wanted) as object) });
        // What had settled is not done again.
        for (const place of settledBefore) expect(calls).not.toContain(`${stopped} ${place}`);
        for (const record of await store.treeRuns(stopped)) expectNoDoubles(await g.events(record.run_id));
        expect(after.usage).toEqual(wanted.usage);
      }
      expect(cut).toBeGreaterThan(durability === "strict" ? 3 : 1);
    });

async function finishOr(f: Awaited<ReturnType<typeof fixture>>, runId: string): Promise<RunState> {
  const state = await f.state(runId);
  return state.status === "suspended" ? finish(f, runId) : state;
}

function settledPlaces(events: readonly RunEvent[]): string[] {
  const attempts = new Map<string, number>();
  const places: string[] = [];
  for (const event of events) {
    if (event.type === "step_started") attempts.set(event.step_id, event.attempt);
    if (event.type === "step_completed" || event.type === "step_failed")
      places.push(`${event.step_id} ${attempts.get(event.step_id) ?? 0}`);
  }
  return places;
}

test("R-2 out of order members: only the missing ones of a fan-out are sent again", async () => {
  const store = await open();
  const inside = gate();
  const hang = (): Promise<never> => {
    inside.open();
    return NEVER;
  };
  const document = {
    steps: [tool("m", { args: item })],
    plan: { type: "map", source: { from: "literal", value: [0, 1, 2, 3, 4] }, item: "n", body: leaf("m") },
    budgets: { max_concurrency: 8 },
  };
  const f = await fixture({
    store,
    tools: {
      Do: { run: async (call) => ([1, 3, 4].includes(call.input as number) ? ok(call.input) : hang()) },
    },
  });
  const runId = await f.start(document);
  await inside.promise;
  await f.until(runId, (state) => [...state.steps.values()].filter((one) => one.status === "succeeded").length === 3);
  await f.engine.close();
  const sent: Json[] = [];
  const g = await fixture({
    store,
    tools: {
      Do: {
        run: (call) => {
          sent.push(call.input);
          return ok(call.input);
        },
      },
    },
  });
  expect((await g.resume(runId)).output).toEqual([0, 1, 2, 3, 4]);
  expect(sent).toEqual([0, 2]);
});

test("R-2 a definition that was changed under its run: a clear refusal, and nothing is written by it", async () => {
  const store = await open();
  const inside = gate();
  const hang = (): Promise<never> => {
    inside.open();
    return NEVER;
  };
  const first = {
    steps: [tool("a", { args: { v: 1 } }), tool("b")],
    plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
  };
  const f = await fixture({
    store,
    tools: { Do: { run: async (call) => (call.step_id === "b" ? hang() : ok(1)) } },
  });
  const runId = await f.start(first);
  await inside.promise;
  await f.engine.close();
  const getBundle: typeof store.getBundle = async (hash) => {
    const bytes = await store.getBundle(hash);
    return bytes === undefined ? undefined : Buffer.from(Buffer.from(bytes).toString("utf8").replace('"v":1', '"v":2'));
  };
  let calls = 0;
  const g = await fixture({
    store: wrapStore(store, { getBundle }),
    quiet: true,
    tools: { Do: { run: () => ok(++calls) } },
  });
  const tree = await g.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  const marked = tree.state(runId).last_sequence;
  await expect(g.engine.go(tree, "explicit")).rejects.toMatchObject({
    code: "nondeterminism",
    message: expect.stringContaining('"a"'),
  });
  await g.engine.idle(runId);
  expect([calls, (await g.state(runId)).last_sequence]).toEqual([0, marked]);
  // The program that started it is back: it goes on.
  const h = await fixture({ store, tools: { Do: { run: () => ok(++calls) } } });
  expect((await h.resume(runId)).status).toBe("succeeded");
});

test("R-24 a dispatch keeps its id when it is sent again, and a retry has another", async () => {
  const store = await open();
  const ids: string[] = [];
  const inside = gate();
  const document = { steps: [tool("a")], plan: { type: "retry", max_attempts: 2, node: leaf("a") } };
  const f = await fixture({
    store,
    limits: { stop_grace_ms: 1 },
    tools: {
      Do: {
        side_effect: "idempotent",
        capabilities: ["write"],
        run: async (call) => {
          ids.push(call.dispatch_id);
          inside.open();
          return NEVER;
        },
      },
    },
  });
  const runId = await f.start(document);
  await inside.promise;
  await f.engine.close();
  const sent: number[] = [];
  const g = await fixture({
    store,
    tools: {
      Do: {
        side_effect: "idempotent",
        capabilities: ["write"],
        run: (call) => {
          ids.push(call.dispatch_id);
          sent.push(call.redispatch);
          return ids.length === 2 ? failed(true) : ok(1);
        },
      },
    },
  });
  const state = await g.resume(runId);
  expect([state.status, state.steps.get("a")?.attempts, state.usage]).toMatchObject([
    "succeeded",
    2,
    { steps: 2, retries: 1 },
  ]);
  expect([ids[0] === ids[1], ids[1] === ids[2], sent]).toEqual([true, false, [1, 0]]);
});
