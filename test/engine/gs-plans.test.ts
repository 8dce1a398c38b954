/** GS-33, GS-34, C13 as an author of a plan meets them: claims and retries written on its steps (GD-53, GD-59). */
import { expect, test } from "vitest";
import type { Json } from "../../src/domain/json.ts";
import { failed, gate, leaf, ok, TestClock } from "../../src/engine/fixture.ts";
import { planProgram } from "../../src/engine/programs/plan/index.ts";
import { createHoldfast, defineTool, ToolError } from "../../src/index.ts";
import type { ToolCall, ToolOutcome } from "../../src/ports/index.ts";
import { eventually, file, open, plain, processOn, stepOf } from "./gs-world.ts";

const program = planProgram;
const turn = (more: object = {}, id = "turn") => ({ id, type: "tool", tool: "turn", args: {}, ...more });
const input_schema = { type: "object", properties: { env: { type: "string" }, access: {} } };
const env = { from: "args", pointer: "/env" };

/** A tool that stays inside until it is let out, and says which of its callers were inside at the same time. */
function room() {
  const inside = new Set<string>();
  const together: string[][] = [];
  const out = gate();
  const tool = plain(async (call) => {
    inside.add(call.run_id);
    together.push([...inside]);
    await out.promise;
    inside.delete(call.run_id);
    return ok(1);
  });
  return { tool, together, inside, out };
}

const waits = (f: Awaited<ReturnType<typeof processOn>>, runId: string): number =>
  f.engine.holds(runId)?.dispatch.admission.waiting.length ?? 0;

test("GS-33 runs of two processes that claim the same resource never overlap; one that claims another is not held up", async () => {
  const path = file();
  const { tool, together, inside, out } = room();
  const options = { program, tools: { turn: tool } };
  const [f, g] = [await processOn(await open(path), options), await processOn(await open(path), options)];
  const document = { input_schema, steps: [turn({ resources: [{ resource: env }] })], plan: leaf("turn") };
  const first = await f.start(document, { env: "prod" });
  await eventually(() => inside.has(first));
  const second = await g.start(document, { env: "prod" });
  await eventually(() => waits(g, second) === 1);
  const other = await g.start(document, { env: "staging" });
  await eventually(() => inside.has(other));
  expect([...inside]).toEqual([first, other]);
  expect(stepOf(await g.state(second)).status).toBe("queued");
  out.open();
  for (const [process, runId] of [
    [f, first],
    [g, second],
    [g, other],
  ] as const) {
    await process.engine.idle(runId);
    expect((await process.state(runId)).status).toBe("succeeded");
  }
  expect(together.some((ids) => ids.includes(first) && ids.includes(second))).toBe(false);
});

test("GS-33 readers share a resource, a writer waits for all of them; a resource named twice is written", async () => {
  const { tool, inside, out } = room();
  const f = await processOn(await open(), { program, tools: { turn: tool } });
  const claims = (...resources: object[]) => ({ input_schema, steps: [turn({ resources })], plan: leaf("turn") });
  const reader = claims({ resource: "db", access: "read" });
  const readers = [await f.start(reader), await f.start(reader)];
  await eventually(() => inside.size === 2);
  const writer = await f.start(claims({ resource: "db", access: "read" }, { resource: env }), { env: "db" });
  await eventually(() => waits(f, writer) === 1);
  expect([...inside]).toEqual(readers);
  out.open();
  for (const runId of [...readers, writer]) await f.engine.idle(runId);
  expect((await f.state(writer)).status).toBe("succeeded");
});

test("GD-53 a map claims by its member; a claim that is no text fails the step before anything is reserved", async () => {
  let at = 0;
  let most = 0;
  const run = async (): Promise<ToolOutcome> => {
    most = Math.max(most, ++at);
    await new Promise((resolve) => setImmediate(resolve));
    at--;
    return ok(1);
  };
  const f = await processOn(await open(), { program, tools: { turn: plain(run) } });
  const map = (members: Json) => ({
    steps: [turn({ resources: [{ resource: { from: "item", name: "env" } }], failure: "continue_with_error" })],
    plan: { type: "map", item: "env", source: { from: "literal", value: members }, body: leaf("turn") },
  });
  expect(await f.run(map(["a", "a", "a"]))).toMatchObject({ status: "succeeded", output: [1, 1, 1] });
  expect(most).toBe(1);
  const state = await f.run(map(["a", 7]));
  expect(state).toMatchObject({ status: "failed", failure: { code: "invalid_input" }, usage: { steps: 1 } });
  expect([...state.steps.keys()]).toEqual(["turn@root[0]"]);
});

const tried = (more: object = {}, step: object = {}) => ({
  steps: [turn({ retry: { max_attempts: 3, initial_backoff_ms: 100, ...more }, ...step })],
  plan: leaf("turn"),
});
const reads = (run: (call: ToolCall) => ToolOutcome) => ({ turn: plain(run, { side_effect: "read_only" }) });

test("GS-34 a plan's step is tried again after 100 and 200 ms; a crash in the middle of a wait keeps the due time", async () => {
  const store = await open();
  const clock = new TestClock();
  let calls = 0;
  const tools = reads(() => (++calls < 3 ? failed(true) : ok("third")));
  const first = await processOn(store, { program, tools, clock });
  const runId = await first.start(tried());
  const delays = () => first.engine.holds(runId)?.runs.get(runId)?.delays.size ?? 0;
  await eventually(() => delays() === 1);
  await clock.advance(99);
  expect(calls).toBe(1);
  await clock.advance(1);
  await eventually(() => calls === 2 && delays() === 1);
  await first.engine.holds(runId)?.journal.barrier();
  await clock.advance(150);
  await first.kill();
  // The clock is shared: a process that is gone has no timers.
  first.engine.holds(runId)?.drop();
  const f = await processOn(store, { program, tools, clock });
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  await f.engine.go(tree, "auto");
  await clock.advance(49);
  expect(calls).toBe(2);
  await clock.advance(1);
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ output: "third", usage: { retries: 2, steps: 3 } });
  expect(calls).toBe(3);
});

test("GD-59 the last failure is the step's, to which its policy of failure and a retry node apply; its kind is no value", async () => {
  let calls = 0;
  const f = await processOn(await open(), {
    program,
    tools: reads(() => failed(++calls > 0)),
  });
  const policy = { initial_backoff_ms: 0, max_attempts: 2 };
  const step = await f.run(tried(policy));
  expect([step.failure?.code, calls, step.usage.retries]).toEqual(["execution_failed", 2, 1]);
  const value = await f.run(tried(policy, { failure: "continue_with_error" }));
  expect([value.output, calls]).toEqual([
    { error: { code: "execution_failed", message: 'the tool "turn" reported a failure', retryable: true } },
    4,
  ]);
  const node = { ...tried(policy), plan: { type: "retry", max_attempts: 2, node: leaf("turn") } };
  const twice = await f.run(node);
  expect([twice.failure?.code, calls, twice.usage.retries]).toEqual(["retry_exhausted", 8, 3]);
  // One member of the map uses the run's only retry up: the other's next attempt is refused.
  const map = { type: "map", item: "i", source: { from: "literal", value: [1, 2] }, body: leaf("turn") };
  const capped = await f.run({ ...tried(policy), plan: map, budgets: { max_retries: 1 } });
  expect([capped.status, calls, capped.usage.retries]).toEqual(["failed", 11, 1]);
  expect(capped.failure?.message).toContain("retry");
});

test("C13 a run cancelled, and a branch whose sibling failed, between two attempts make no further one and leave no timer", async () => {
  const clock = new TestClock();
  let calls = 0;
  const tools = { ...reads(() => failed(++calls > 0)), bad: plain(() => failed(false)) };
  const f = await processOn(await open(), { program, tools, clock });
  const waiting = (runId: string) => f.engine.holds(runId)?.runs.get(runId)?.delays.size === 1;
  const cancelled = await f.start(tried({ initial_backoff_ms: 1_000 }));
  await eventually(() => waiting(cancelled));
  await f.signal(cancelled, "cancel");
  const nap = { id: "nap", type: "wait", for_ms: 500 };
  const sibling = await f.start({
    steps: [...tried({ initial_backoff_ms: 1_000 }).steps, nap, { ...turn({}, "b"), tool: "bad" }],
    plan: { type: "parallel", nodes: [leaf("turn"), { type: "sequence", nodes: [leaf("nap"), leaf("b")] }] },
  });
  await eventually(() => waiting(sibling));
  await clock.advance(5_000);
  await f.engine.idle(sibling);
  expect([(await f.state(cancelled)).status, (await f.state(sibling)).status, calls]).toEqual([
    "cancelled",
    "failed",
    2,
  ]);
  expect(clock.pending).toBe(0);
});

test("why a plan's step stands: it waits for a resource, for a retry that is not due, for its tool's owner", async () => {
  const [inside, out] = [gate(), gate()];
  const hold = defineTool({
    name: "hold",
    description: "Stays until it is let go.",
    input: { type: "object" },
    run: async () => {
      inside.open();
      await out.promise;
    },
  });
  const shaky = defineTool({
    name: "shaky",
    description: "Is never there.",
    input: { type: "object" },
    run: () => {
      throw new ToolError("nobody answers", { kind: "unavailable" });
    },
  });
  const full = defineTool({
    name: "full",
    description: "Takes nothing now.",
    input: { type: "object" },
    plan: () => ({ type: "busy", waits_for: "a free machine" }),
    run: () => 1,
  });
  const one = (id: string, tool: string, more: object = {}) => ({
    ...{ workflow_schema: 1, id, revision: 1, plan: leaf("do") },
    steps: [{ id: "do", type: "tool", tool, args: {}, ...more }],
  });
  await using holdfast = await createHoldfast({
    ...{ store: "sqlite::memory:", trust: true, tools: [hold, shaky, full], permissions: { write: "allow" } },
    workflows: [
      one("hold", "hold", { resources: [{ resource: "printer" }] }),
      one("shaky", "shaky", { retry: { max_attempts: 2, initial_backoff_ms: 60_000 } }),
      one("full", "full"),
    ],
  });
  const first = await holdfast.start({ workflow: "hold" });
  await inside.promise;
  const causeOf = async (workflow: string): Promise<string> => {
    const { run_id } = await holdfast.start({ workflow });
    for (;;) {
      const { causes } = await holdfast.runs.why(run_id);
      const [, second] = causes;
      if (second !== undefined) return `${second.cause}: ${second.sentence}`;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  expect(await causeOf("hold")).toMatch(/^lease: Step "do" waits for a resource of the workspace/);
  expect(await causeOf("shaky")).toMatch(/^retry_delay: What failed is tried again at /);
  expect(await causeOf("full")).toMatch(/^lease: Step "do" waits until what does the work takes more of it/);
  out.open();
  expect((await first.result()).status).toBe("succeeded");
});
