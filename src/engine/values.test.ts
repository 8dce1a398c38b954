/** Values as tools give them and journals keep them (C21 … C25, R-25, DESIGN §4). */
import { expect, test } from "vitest";
import type { Json } from "../domain/json.ts";
import type { ToolOutcome } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { cutStore, type FakeTool, failed, fixture, gate, leaf, NEVER, ok } from "./fixture.ts";
import { unpackText } from "./index.ts";
import { clip, INLINE_LIMIT } from "./values.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({
  id,
  type: "tool",
  tool: "Do",
  args: {},
  output_schema: {},
  ...more,
});
const one = { steps: [tool("a")], plan: leaf("a") };
/** What a port may hand over although its type forbids it. */
const raw = (output: unknown): ToolOutcome => ({ type: "succeeded", output: output as Json });

test("C21 NUL in outputs, keys, failure messages and reasons comes back as it was", async () => {
  const store = await open();
  const value = { "a\u0000b": "c\u0000d" };
  const f = await fixture({
    store,
    tools: {
      Do: { run: () => ok(value) },
      Bad: { run: () => ({ type: "failed", kind: "execution", retryable: false, message: "x\u0000y" }) },
    },
  });
  const state = await f.run(one);
  expect(state.output).toEqual(value);
  const bad = await f.run({ steps: [tool("a", { tool: "Bad" })], plan: leaf("a") });
  expect((await f.events(bad.header.run_id)).find((event) => event.type === "step_failed")).toMatchObject({
    detail: "x\u0000y",
  });
  const waiting = await f.run({
    steps: [{ id: "gate", type: "approval", prompt: "?", outcome: "value" }],
    plan: leaf("gate"),
  });
  await f.signal(waiting.header.run_id, "approve", {
    wait_id: waiting.waits[0]?.wait_id ?? "",
    decided_by: "me",
    reason: "n\u0000",
  });
  await f.engine.idle(waiting.header.run_id);
  expect((await f.state(waiting.header.run_id)).output).toMatchObject({ reason: "n\u0000" });
});

test("C22 what is no JSON fails the step that made it, names the path, and the process lives", async () => {
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  for (const [value, path] of [
    [{ d: new Date(0) }, "$.d"],
    [{ m: new Map([[1, 2]]) }, "$.m"],
    [{ u: undefined }, "$.u"],
    [{ b: 1n }, "$.b"],
    [{ n: Number.NaN }, "$.n"],
    [{ i: [Number.POSITIVE_INFINITY] }, "$.i[0]"],
    [cyclic, "$.self"],
  ] as const) {
    const f = await fixture({ store: await open(), tools: { Do: { run: () => raw(value) } } });
    const state = await f.run(one);
    expect(state.failure?.code).toBe("invalid_output");
    expect(state.failure?.message).toContain(path);
  }
});

test("C22 a minus zero is the same zero live, after a pause and after a crash", async () => {
  const store = await open();
  const inside = gate();
  const seen: Json[] = [];
  const document = {
    steps: [tool("a"), tool("b", { args: { from: "step", step: "a" } })],
    plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
  };
  const f = await fixture({
    store,
    tools: {
      Do: {
        run: async (call) => {
          if (call.step_id === "a") return ok({ z: -0 });
          seen.push(call.input);
          inside.open();
          return NEVER;
        },
      },
    },
  });
  const runId = await f.start(document);
  await inside.promise;
  await f.engine.close();
  const g = await fixture({
    store,
    tools: {
      Do: {
        run: (call) => {
          seen.push(call.input);
          return ok(1);
        },
      },
    },
  });
  await g.resume(runId);
  expect(seen.map((input) => Object.is((input as { z: number }).z, 0))).toEqual([true, true]);
});

test("C23 half of a surrogate pair fails its step only; a hundred runs beside it end, and its own words are kept whole", async () => {
  const f = await fixture({
    store: await open(),
    tools: {
      Do: { run: (call) => ((call.input as { odd?: true }).odd === true ? raw("\ud800") : ok(1)) },
      Bad: { run: () => ({ type: "failed", kind: "execution", retryable: false, message: "cut \ud83d" }) },
    },
  });
  const document = { ...one, steps: [tool("a", { args: { from: "args" } })] };
  const states = await Promise.all(
    Array.from({ length: 100 }, (_, i) => f.run(document, i === 50 ? { odd: true } : {})),
  );
  expect(states.filter((state) => state.status === "succeeded")).toHaveLength(99);
  expect(states[50]?.failure?.code).toBe("invalid_output");
  const bad = await f.run({ steps: [tool("a", { tool: "Bad" })], plan: leaf("a") });
  expect((await f.events(bad.header.run_id)).find((event) => event.type === "step_failed")).toMatchObject({
    detail: "cut \ufffd",
  });
});

test("C23 a long text of a tool is cut between characters", () => {
  const text = `${"x".repeat(16 * 1024 - 1)}😀 and more`;
  expect(clip(text).isWellFormed()).toBe(true);
  expect(clip(text)).toMatch(/^x+… \(\d+ characters\)$/);
  expect(clip("short")).toBe("short");
});

test("C24 names of Object.prototype are names like any other: step ids, keys of inputs and outputs, tools", async () => {
  const names = ["constructor", "toString", "hasOwnProperty", "valueOf", "__proto__"];
  const polluted = JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}') as Json;
  const named: [string, FakeTool][] = [["constructor", { run: (call) => ok(call.input) }]];
  const f = await fixture({ store: await open(), tools: Object.fromEntries(named) });
  const document = (ids: readonly string[]) => ({
    steps: ids.map((id) => tool(id, { tool: "constructor", args: { from: "args" } })),
    plan: { type: "sequence", nodes: ids.map(leaf) },
  });
  const state = await f.run(document(names), polluted);
  expect(state.status).toBe("succeeded");
  expect(JSON.stringify(state.output)).toBe(JSON.stringify(polluted));
  expect([...state.steps.keys()].sort()).toEqual([...names].sort());
  expect(({} as { polluted?: number }).polluted).toBeUndefined();
  for (const name of ["toString", "__proto__"]) {
    const missing = await f.run({ steps: [tool("a", { tool: name })], plan: leaf("a") });
    expect(missing.failure?.code).toBe("unknown_reference");
  }
});

test("C25 128 levels are a value, 129 and 100,000 fail the step as invalid_output", async () => {
  const nested = (levels: number): unknown => {
    let value: unknown = 1;
    for (let i = 0; i < levels; i++) value = [value];
    return value;
  };
  for (const [levels, status] of [
    [128, "succeeded"],
    [129, "failed"],
    [100_000, "failed"],
  ] as const) {
    const f = await fixture({ store: await open(), tools: { Do: { run: () => raw(nested(levels)) } } });
    const state = await f.run(one);
    expect([levels, state.status]).toEqual([levels, status]);
    if (status === "failed") expect(state.failure?.code).toBe("invalid_output");
  }
});

test("DESIGN 4 a value over 256 KiB is stored once, by hash, and comes back on replay; so are arguments", async () => {
  const store = await open();
  const big = "x".repeat(300 * 1024);
  const inside = gate();
  const seen: number[] = [];
  const document = {
    steps: [tool("a", { args: { from: "args" } }), tool("b", { args: { from: "step", step: "a" } })],
    plan: { type: "sequence", nodes: [leaf("a"), leaf("b")] },
  };
  const f = await fixture({
    store,
    tools: {
      Do: {
        run: async (call) => {
          if (call.step_id === "a") return ok(call.input);
          inside.open();
          return NEVER;
        },
      },
    },
  });
  const runId = await f.start(document, { big });
  await inside.promise;
  await f.until(runId, (state) => state.steps.get("b")?.status === "running");
  await f.engine.close();
  const segments = await store.readSegments(runId, 0, 1 << 30);
  for (const segment of segments)
    for (const line of unpackText(segment).split("\n")) expect(line.length).toBeLessThan(INLINE_LIMIT);
  expect((await store.getRun(runId))?.args).toBeUndefined();
  const g = await fixture({
    store,
    tools: {
      Do: {
        run: (call) => {
          seen.push((call.input as { big: string }).big.length);
          return ok(call.input);
        },
      },
    },
  });
  const state = await g.resume(runId);
  expect([state.status, seen]).toEqual(["succeeded", [big.length]]);
  expect(state.output).toEqual({ big });
  const refs = (await store.readSegments(runId, 0, 1 << 30)).flatMap(
    (segment) => unpackText(segment).match(/"sha256":"[0-9a-f]{64}"/g) ?? [],
  );
  expect(new Set(refs).size).toBe(1);
});

test("DESIGN 4 a large value that is stored nowhere but in the lost commit is not there after it, and the step goes again", async () => {
  const store = await open();
  const big = "y".repeat(300 * 1024);
  const f = await fixture({ store: cutStore(store, 2), tools: { Do: { run: () => ok(big) } } });
  const runId = await f.start(one);
  await f.engine.idle(runId).catch(() => undefined);
  let calls = 0;
  const g = await fixture({
    store,
    tools: {
      Do: {
        run: () => {
          calls++;
          return ok(big);
        },
      },
    },
  });
  const state = await f.state(runId);
  if (state.status !== "succeeded") expect(await g.resume(runId)).toMatchObject({ status: "succeeded", output: big });
  expect(calls).toBeLessThanOrEqual(1);
});

test("C21 a failure with a long message of its own is bounded in the journal", async () => {
  const f = await fixture({
    store: await open(),
    tools: { Do: { run: () => ({ ...failed(false), message: "z".repeat(2_000_000) }) as ToolOutcome } },
  });
  const state = await f.run(one);
  const event = (await f.events(state.header.run_id)).find((e) => e.type === "step_failed");
  expect(event?.type === "step_failed" ? event.detail?.length : undefined).toBeLessThan(17_000);
});
