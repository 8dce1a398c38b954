// The tools at work on real runs: opt-in, ownership, limits, restarts, cancelling, typed tools, and no private word.
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openWorld, optIn, reviewFlow, type World } from "../../test/fixtures/tools-world.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import { wrapStore } from "../engine/fixture.ts";
import type { Holdfast } from "../index.ts";
import type { PublicRun } from "./index.ts";

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const START = { action: "start", workflow_id: "review-flow", revision: 42 };
const BUDGET = {
  max_concurrency: 1,
  max_agents: 0,
  max_steps: 2,
  max_retries: 0,
  max_nesting_depth: 1,
  wall_time_ms: 5000,
  max_tokens: 500,
  max_cost_micros: 500,
};

const run = (holdfast: Holdfast, call: Json, session = "default"): Promise<Json> =>
  holdfast.tools({ session }).call("workflow_run", call);
const runOf = async (holdfast: Holdfast, call: Json): Promise<PublicRun> =>
  (await run(holdfast, call)) as unknown as PublicRun;
const ids = async (holdfast: Holdfast, session?: string): Promise<string[]> =>
  ((await run(holdfast, { action: "list" }, session)) as unknown as { run_id: string }[]).map(({ run_id }) => run_id);
const ended = (holdfast: Holdfast, run_id: string): Promise<Json> =>
  holdfast.tools().call("workflow_wait", { run_id, timeout_ms: 10_000 });

/** Runs that another opening left in the middle of their tool, marked by `recover`. */
async function interrupted(count: number): Promise<Holdfast> {
  world.mode = "block";
  const first = await world.open();
  await optIn(first);
  for (let i = 0; i < count; i++) await run(first, START);
  await world.entered(count);
  await first.close();
  world.mode = "answer";
  const second = await world.open({ recovery: "manual" });
  await second.recover();
  return second;
}

describe("starting", () => {
  test("SC-11 opt-in, tightened budget, the seven events, ownership, a rebuilt opening", async () => {
    const holdfast = await world.open();
    await expect(run(holdfast, START)).rejects.toThrow("opt-in");
    expect(await ids(holdfast)).toEqual([]);
    await optIn(holdfast);
    const { run_id, budget } = await runOf(holdfast, { ...START, budget: BUDGET });
    expect(budget).toEqual(BUDGET);
    expect(await ids(holdfast)).toEqual([run_id]);
    await ended(holdfast, run_id);
    const events = (await run(holdfast, { action: "events", run_id })) as readonly JsonObject[];
    expect(events.map(({ type, name }) => name ?? type)).toEqual([
      "run_queued",
      "run_started",
      "step_reserved",
      "step_queued",
      "step_started",
      "step_completed",
      "run_succeeded",
    ]);
    await expect(run(holdfast, { ...START, budget: { ...BUDGET, max_steps: 0 } })).rejects.toThrow("input is invalid");
    await world.write(".holdfast/workflows/review-flow.yaml", reviewFlow("{explicit: true, automatic: false}"));
    await holdfast.workflows.reload();
    await expect(run(holdfast, { action: "restart", run_id })).rejects.toThrow("workflow run is already terminal");
    await expect(run(holdfast, START)).rejects.toThrow("invocation_policy.automatic");
    await holdfast.sessions.create({ name: "other" });
    expect(await ids(holdfast, "other")).toEqual([]);
    await expect(run(holdfast, { action: "get", run_id }, "other")).rejects.toThrow("workflow run not found");
    await holdfast.close();
    const again = await world.open();
    const tail = (await run(again, { action: "events", run_id, since: 4 })) as readonly JsonObject[];
    expect(tail.map(({ sequence }) => sequence)).toEqual([5, 6, 7]);
    expect(tail.at(-1)?.type).toBe("run_succeeded");
    expect((await runOf(again, { action: "get", run_id })).last_sequence).toBe(7);
    expect(await ids(again)).toEqual([run_id]);
  });

  test("a model names what the catalog has, never a path or a hash", async () => {
    const holdfast = await world.open();
    await optIn(holdfast);
    await world.write("outside.yaml", reviewFlow());
    for (const workflow_id of [
      "./outside.yaml",
      ".holdfast/workflows/review-flow.yaml",
      `hash:${"0".repeat(64)}`,
      "missing",
    ])
      await expect(run(holdfast, { ...START, workflow_id })).rejects.toThrow("workflow run not found");
    await expect(run(holdfast, { ...START, revision: 41 })).rejects.toThrow("workflow run not found");
    expect(await ids(holdfast)).toEqual([]);
  });

  test("SC-12 cancelled twice: the same sequence, one run_cancelled, nothing after it", async () => {
    world.mode = "block";
    const holdfast = await world.open();
    await optIn(holdfast);
    const { run_id } = await runOf(holdfast, START);
    await world.entered(1);
    const first = await runOf(holdfast, { action: "cancel", run_id });
    const second = await runOf(holdfast, { action: "cancel", run_id });
    expect([first.status, second.status]).toEqual(["cancelled", "cancelled"]);
    expect(second.last_sequence).toBe(first.last_sequence);
    const events = (await run(holdfast, { action: "events", run_id })) as readonly JsonObject[];
    expect(events.filter(({ type }) => type === "run_cancelled")).toHaveLength(1);
    expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, i) => i + 1));
    expect(await run(holdfast, { action: "events", run_id, since: first.last_sequence })).toEqual([]);
  });

  test("reading only: no typed tools, and what moves a run is withheld", async () => {
    const holdfast = await world.open();
    await optIn(holdfast);
    const { run_id } = await runOf(holdfast, START);
    await ended(holdfast, run_id);
    const tools = holdfast.tools({ readOnly: true });
    expect(tools.list().map(({ name }) => name)).toEqual(["workflow_run", "workflow_wait"]);
    for (const call of [START, { action: "cancel", run_id }, { action: "restart", run_id }])
      await expect(tools.call("workflow_run", call)).rejects.toThrow("withheld");
    await expect(tools.call("workflow__review-flow", {})).rejects.toThrow("withheld");
    expect(await tools.call("workflow_run", { action: "get", run_id })).toMatchObject({ status: "succeeded" });
    expect(await tools.call("workflow_wait", { run_id })).toMatchObject({ output: { ok: true } });
  });
});

describe("the index of runs", () => {
  test("SC-3 a recovery-suspended run restarts as a new one of the same session", async () => {
    const holdfast = await interrupted(1);
    const [original = ""] = await ids(holdfast);
    const before = await runOf(holdfast, { action: "get", run_id: original });
    expect(before.suspension).toEqual({ type: "recovery" });
    const made = await runOf(holdfast, { action: "restart", run_id: original });
    expect(made.run_id).not.toBe(original);
    expect(made.session_id).toBe(before.session_id);
    await ended(holdfast, made.run_id);
    expect(await runOf(holdfast, { action: "get", run_id: original })).toEqual(before);
    expect(await ids(holdfast)).toEqual([made.run_id, original]);
    await holdfast.sessions.create({ name: "other", orchestration_opt_in: true });
    expect(await ids(holdfast, "other")).toEqual([]);
    for (const action of ["get", "restart", "events"])
      await expect(run(holdfast, { action, run_id: original }, "other")).rejects.toThrow("workflow run not found");
    await holdfast.close();
    const again = await world.open({ recovery: "manual" });
    expect(await ids(again)).toEqual([made.run_id, original]);
    expect((await runOf(again, { action: "get", run_id: made.run_id })).status).toBe("succeeded");
    expect((await runOf(again, { action: "get", run_id: original })).last_sequence).toBe(before.last_sequence);
  });

  test("SC-4 SC-16 256 suspended runs fill the index: a further one is refused and changes nothing", {
    timeout: 30_000,
  }, async () => {
    const holdfast = await interrupted(256);
    const before = await ids(holdfast);
    expect(new Set(before).size).toBe(256);
    const original = await runOf(holdfast, { action: "get", run_id: before[7] as string });
    for (const call of [{ action: "restart", run_id: before[7] as string }, START])
      await expect(run(holdfast, call)).rejects.toThrow(
        "workflow preflight failed: workflow run index is full of active runs",
      );
    expect(await ids(holdfast)).toEqual(before);
    expect(await runOf(holdfast, { action: "get", run_id: before[7] as string })).toEqual(original);
    expect((await holdfast.runs.list({ status: ["running", "queued"] })).runs).toEqual([]);
  });

  test("SC-5 a store that fails: storage, and no new run", async () => {
    const good = await interrupted(1);
    const before = await ids(good);
    await good.close();
    let broken = false;
    const store = wrapStore(world.store, {
      commit: async (group: Parameters<typeof world.store.commit>[0]) => {
        if (broken) throw new HoldfastError("storage", "Cannot write to PRIVATE-disk");
        return world.store.commit(group);
      },
    });
    const holdfast = await world.open({ store, recovery: "manual" });
    broken = true;
    await expect(run(holdfast, { action: "restart", run_id: before[0] as string })).rejects.toThrow(
      /^workflow storage unavailable$/,
    );
    broken = false;
    expect(await ids(holdfast)).toEqual(before);
  });

  test("SC-16 32 starts at once keep 32 distinct ids", async () => {
    const holdfast = await world.open();
    await optIn(holdfast);
    const made = await Promise.all(Array.from({ length: 32 }, () => runOf(holdfast, START)));
    expect(new Set(made.map(({ run_id }) => run_id)).size).toBe(32);
    expect(new Set(await ids(holdfast))).toEqual(new Set(made.map(({ run_id }) => run_id)));
    await Promise.all(made.map(({ run_id }) => ended(holdfast, run_id)));
  });
});

describe("typed tools", () => {
  const greet = `workflow_schema: 1
id: greet
revision: 3
description: Greets.
invocation_policy: {explicit: true, automatic: true}
input_schema: {type: object, required: [who], additionalProperties: false, properties: {who: {type: string, maxLength: 9}}}
output_schema: {type: object, additionalProperties: true}
steps: [{id: ask, type: tool, tool: inspect_it, args: {}, capabilities: [read]}]
plan: {type: step, step: ask}
`;

  test("one for each valid workflow that a model may start, with the effects of its steps", async () => {
    await world.write(".holdfast/workflows/greet.yaml", greet);
    await world.write(
      ".holdfast/workflows/by-hand.yaml",
      greet.replace("id: greet", "id: by-hand").replace("automatic: true", "automatic: false"),
    );
    await world.write(
      ".holdfast/workflows/broken.yaml",
      greet.replace("id: greet", "id: broken").replace("step: ask", "step: nobody"),
    );
    const holdfast = await world.open();
    await optIn(holdfast);
    const tools = holdfast.tools();
    const typed = tools
      .list()
      .filter(({ workflow }) => workflow !== undefined && workflow.workflow_id !== "repo-overview");
    expect(typed.map(({ name }) => name)).toEqual(["workflow__greet", "workflow__review-flow"]);
    expect(typed[0]?.inputSchema).toMatchObject({ type: "object", required: ["who"] });
    expect(typed[0]?.annotations).toEqual({
      readOnlyHint: true,
      destructiveHint: false,
      idempotentHint: true,
      openWorldHint: false,
    });
    expect(await tools.call("workflow__greet", { who: "me" })).toEqual({ ok: true });
    expect(await tools.call("workflow__greet", '{"who": "me"}')).toEqual({ ok: true });
    await expect(tools.call("workflow__greet", { who: "much too long" })).rejects.toThrow(
      /workflow input is invalid: at \/who/,
    );
    await expect(tools.call("workflow__greet", { whom: "me" })).rejects.toThrow("unknown field");
    await expect(tools.call("workflow__by-hand", { who: "me" })).rejects.toThrow("invocation_policy.automatic");
    await expect(tools.call("workflow__broken", { who: "me" })).rejects.toThrow("workflow run not found");
    await world.write(".holdfast/workflows/later.yaml", greet.replace("id: greet", "id: later"));
    expect(tools.find("workflow__later")).toBeDefined();
  });

  test("where a secret is wanted, its handle is published and taken, and nothing else", async () => {
    const secret = greet.replace("{type: string, maxLength: 9}", "{x-holdfast-secret: true}");
    await world.write(".holdfast/workflows/greet.yaml", secret);
    const holdfast = await world.open();
    await optIn(holdfast);
    const tool = holdfast.tools().find("workflow__greet");
    expect(tool?.inputSchema).toMatchObject({ properties: { who: { type: "object", required: ["$secret"] } } });
    expect(JSON.stringify(tool?.inputSchema)).not.toContain("x-holdfast");
    expect(await tool?.execute({ who: { $secret: "key" } })).toEqual({ ok: true });
    await expect(tool?.execute({ who: "me" })).rejects.toThrow("at /who");
  });

  test("a run that does not end in time answers with its id; the call that ends does not end the run", async () => {
    world.mode = "block";
    const holdfast = await world.open();
    await optIn(holdfast);
    const answer = (await holdfast.tools({ maxWaitMs: 50 }).call("workflow__review-flow", {})) as JsonObject;
    expect(Object.keys(answer)).toEqual(["run_id", "status", "sentence"]);
    expect(answer.status).toBe("running");
    const left = new AbortController();
    const waiting = holdfast
      .tools()
      .call("workflow_wait", { run_id: answer.run_id as string }, { signal: left.signal });
    left.abort();
    expect(await waiting).toMatchObject({ run: { status: "running" } });
    expect(await runOf(holdfast, { action: "cancel", run_id: answer.run_id as string })).toMatchObject({
      status: "cancelled",
    });
  });

  test("R-41 workflow_wait gives the output only of runs that a tool of the session started", async () => {
    const holdfast = await world.open();
    await optIn(holdfast);
    const { run_id } = await holdfast.run({ workflow: "review-flow", args: {} });
    expect(await ended(holdfast, run_id)).not.toHaveProperty("output");
    const own = await runOf(holdfast, START);
    expect(await ended(holdfast, own.run_id)).toMatchObject({ output: { ok: true }, run: { status: "succeeded" } });
  });

  test("an OpenAI-style list carries the same schemas", async () => {
    const holdfast = await world.open();
    const [first] = holdfast.tools().functions();
    expect(first).toMatchObject({ type: "function", function: { name: "workflow_run" } });
    expect(holdfast.tools().functions()).toHaveLength(holdfast.tools().list().length);
  });
});

describe("in an agent's loop", () => {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const says = (text: string) => ({
    content: [{ type: "text" as const, text }],
    finishReason: { unified: "stop" as const, raw: undefined },
    usage,
    warnings: [],
  });
  const calls = (toolName: string, input: object) => ({
    content: [{ type: "tool-call" as const, toolCallId: "call-1", toolName, input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls" as const, raw: undefined },
    usage,
    warnings: [],
  });

  test("SC-17 a model starts a run; the session keeps its metadata and the run", async () => {
    const holdfast = await world.open();
    await holdfast.sessions.create({
      name: "agent",
      orchestration_opt_in: true,
      metadata: { "external.metadata": "preserve" },
    });
    const model = new MockLanguageModelV3({ doGenerate: [calls("workflow_run", START), says("done")] });
    const result = await generateText({
      model,
      prompt: "start the review",
      tools: holdfast.tools({ session: "agent" }).aiSdk(),
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    });
    expect(result.text).toBe("done");
    expect(JSON.stringify(result.response.messages)).toContain('"toolName":"workflow_run"');
    const { metadata, active_runs } = await holdfast.sessions.get("agent");
    expect(metadata).toEqual({ "external.metadata": "preserve" });
    const [run_id] = await ids(holdfast, "agent");
    expect(await ids(holdfast, "agent")).toHaveLength(1);
    expect(active_runs).toBeLessThanOrEqual(1);
    await holdfast.tools({ session: "agent" }).call("workflow_wait", { run_id: run_id as string });
  });

  test("a refusal reaches the model as its closed text", async () => {
    const holdfast = await world.open();
    const model = new MockLanguageModelV3({ doGenerate: [calls("workflow_run", START), says("could not")] });
    const result = await generateText({
      model,
      prompt: "start",
      tools: holdfast.tools().aiSdk(),
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    });
    expect(JSON.stringify(result.response.messages)).toContain("opt-in");
  });

  test("SC-18 a loop that saves an old copy of its session cannot lose a run: runs are no field of a session", async () => {
    const holdfast = await world.open();
    await holdfast.sessions.create({ name: "agent", orchestration_opt_in: true, metadata: { turn: 1 } });
    const stale = await holdfast.sessions.get("agent");
    let started = "";
    const model = new MockLanguageModelV3({
      doGenerate: async () => {
        // In the middle of the round somebody else starts a run in the session.
        started = (await holdfast.run({ workflow: "review-flow", args: {}, session: "agent" })).run_id;
        return says("done");
      },
    });
    await generateText({ model, prompt: "go", tools: holdfast.tools({ session: "agent" }).aiSdk(), maxRetries: 0 });
    const { name, posture, orchestration_opt_in, metadata } = stale;
    await holdfast.sessions.update("agent", {
      name,
      posture,
      orchestration_opt_in,
      metadata: { ...metadata, turn: 2 },
    });
    expect(await ids(holdfast, "agent")).toEqual([started]);
    await holdfast.close();
    const again = await world.open();
    expect(await ids(again, "agent")).toEqual([started]);
    expect((await again.sessions.get("agent")).metadata).toEqual({ turn: 2 });
  });
});

describe("what is private", () => {
  const secretive = `workflow_schema: 1
id: secretive
revision: 1
invocation_policy: {explicit: true, automatic: true}
input_schema: {type: object, additionalProperties: true, properties: {a: {type: string, description: PRIVATE-schema}}}
steps:
  - {id: inspect, type: tool, tool: inspect_it, args: {note: PRIVATE-template, a: {from: args, pointer: /a}}, capabilities: [read], failure: continue_with_error}
  - {id: ask, type: approval, prompt: PRIVATE-prompt, details: {d: PRIVATE-details}}
plan: {type: sequence, nodes: [{type: step, step: inspect}, {type: step, step: ask}]}
`;

  test("RP-74 no tool shows a word of the definition, the arguments, outputs or failures", async () => {
    await world.write(".holdfast/workflows/secretive.yaml", secretive);
    world.mode = "fail";
    const holdfast = await world.open();
    const { run_id } = await holdfast.run({ workflow: "secretive", args: { a: "PRIVATE-argument" } });
    const tools = holdfast.tools();
    const seen = [
      await tools.call("workflow_run", { action: "list" }),
      await tools.call("workflow_run", { action: "get", run_id }),
      await tools.call("workflow_run", { action: "events", run_id }),
      await tools.call("workflow_wait", { run_id, timeout_ms: 0 }),
      await tools.call("workflow_run", { action: "cancel", run_id }),
      await tools.call("workflow_wait", { run_id, timeout_ms: 0 }),
    ];
    const text = JSON.stringify(seen);
    expect(text).toContain(run_id);
    for (const word of ["PRIVATE-", "inspect_it", world.workspace, "input_hash"]) expect(text).not.toContain(word);
    // The markers are really there for whoever may see them.
    expect(JSON.stringify(await holdfast.runs.events(run_id))).toContain("PRIVATE-prompt");
  });
});
