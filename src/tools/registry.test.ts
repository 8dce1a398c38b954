import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type AnyTool, defineTool, type ToolContext } from "./define.ts";
import { fileTools } from "./files/index.ts";
import { toolCall } from "./fixture.ts";
import { createToolRegistry, type ToolGroup } from "./registry.ts";
import { ToolError } from "./tool-error.ts";

const any = z.looseObject({});
const group = (...tools: AnyTool[]): ToolGroup => ({ source: "config", origin: "holdfast.config.ts", tools });
const tool = (name: string, run: (ctx: ToolContext) => unknown, sideEffect?: "read_only") =>
  defineTool({ name, description: "T.", input: any, ...(sideEffect && { sideEffect }), run: (_, ctx) => run(ctx) });
const base = { name: "t", description: "T.", input: any, run: () => 1 };
const callOf = (made: AnyTool) => createToolRegistry([group(made)]).call(toolCall(made.name, {}));

describe("registry", () => {
  test("describes each tool by its exact name, file tools under both names of reading", () => {
    const registry = createToolRegistry([fileTools(), group(tool("deploy", () => 1))]);
    expect(registry.list().map((item) => item.name)).toEqual([
      "Read",
      "read_file",
      "GetFileInfo",
      "Glob",
      "list_directory",
      "Grep",
      "deploy",
    ]);
    expect(registry.list().some((item) => item.can_handoff === true)).toBe(false);
    expect(registry.describe("read_file")?.input_schema).toEqual(registry.describe("Read")?.input_schema);
    expect(registry.describe("READ")).toBeUndefined();
    expect(registry.describe("deploy")).toMatchObject({
      source: "config",
      side_effect: "mutating",
      capabilities: ["write"],
      can_lookup: false,
      can_observe: false,
    });
    for (const item of registry.list().slice(0, 6))
      expect(item).toMatchObject({ source: "builtin", side_effect: "read_only", capabilities: ["read"] });
  });

  test("C24 names that objects inherit are no tools", async () => {
    const registry = createToolRegistry([]);
    for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
      expect(registry.describe(name)).toBeUndefined();
      expect(await registry.call(toolCall(name, {}))).toMatchObject({ type: "failed", kind: "not_found" });
    }
  });

  test("two tools of one name are refused, and both places are named", () => {
    const code: ToolGroup = { source: "code", origin: "createHoldfast({tools})", tools: [tool("a", () => 1)] };
    expect(() => createToolRegistry([group(tool("a", () => 1)), code])).toThrow(
      /the tool "a" of createHoldfast\(\{tools\}\): holdfast\.config\.ts has one/,
    );
  });

  test("RP-19 no other tool can take a name that untrusted workspaces may use", () => {
    expect(() => createToolRegistry([group(tool("READ", () => 1))])).toThrow(/built-in file tool's/);
    expect(() => createToolRegistry([fileTools(), group(tool("grep", () => 1))])).toThrow(/built-in file tool's/);
  });

  test("what defineTool did not make is refused", () => {
    expect(() => createToolRegistry([group({ name: "x" } as AnyTool)])).toThrow(/item 1 of the tools in holdfast/);
  });
});

describe("call", () => {
  test("passes identity, posture and receipts on", async () => {
    const receipts: unknown[] = [];
    const registry = createToolRegistry([
      group(
        tool("t", async (ctx) => {
          await ctx.receipt({ b: 1, a: -0 });
          return [ctx.dispatch_id, ctx.posture, ctx.redispatch, ctx.attempt];
        }),
      ),
    ]);
    const call = { ...toolCall("t", {}), posture: "read_only" as const, redispatch: 2 };
    const outcome = await registry.call({ ...call, receipt: async (receipt) => void receipts.push(receipt) });
    expect(outcome).toEqual({ type: "succeeded", output: [call.dispatch_id, "read_only", 2, 1] });
    expect(receipts).toEqual([{ a: 0, b: 1 }]);
  });

  test("input that does not fit never reaches the tool", async () => {
    let calls = 0;
    const made = defineTool({
      name: "t",
      description: "T.",
      input: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
      run: () => ++calls,
    });
    const outcome = await createToolRegistry([group(made)]).call(toolCall("t", { n: "1" }));
    expect(outcome).toMatchObject({ type: "failed", kind: "bad_arguments", retryable: false });
    expect(calls).toBe(0);
  });

  test("R-8 a mutating tool fails only by ToolError, and is retried only if that says so", async () => {
    const fail = (error: Error, sideEffect?: "read_only") => callOf(tool("t", () => Promise.reject(error), sideEffect));
    expect(await fail(new ToolError("no"))).toMatchObject({ type: "failed", kind: "execution", retryable: false });
    expect(await fail(new ToolError("no", { retryable: true }))).toMatchObject({ retryable: true });
    expect(await fail(new ToolError("no"), "read_only")).toMatchObject({ retryable: true });
    expect(await fail(new ToolError("no", { kind: "bad_arguments" }), "read_only")).toMatchObject({
      kind: "bad_arguments",
      retryable: false,
    });
    await expect(fail(new Error("connection lost"))).rejects.toThrow("connection lost");
    await expect(fail(new Error("connection lost"), "read_only")).rejects.toThrow("connection lost");
  });

  test("the ToolError of another copy of the package counts, a lookalike does not", async () => {
    const foreign = Object.assign(new Error("theirs"), {
      kind: "execution",
      [Symbol.for("holdfast.tool_error")]: true,
    });
    expect(await callOf(tool("t", () => Promise.reject(foreign)))).toMatchObject({ type: "failed", message: "theirs" });
    const lookalike = Object.assign(new Error("fake"), { name: "ToolError", kind: "execution" });
    await expect(callOf(tool("t", () => Promise.reject(lookalike)))).rejects.toThrow("fake");
  });

  test("an output over the limit is refused and says how large it was", async () => {
    const registry = createToolRegistry([group(tool("t", () => "é".repeat(50)))], { maxOutputBytes: 101 });
    expect(await registry.call(toolCall("t", {}))).toMatchObject({
      kind: "bad_output",
      retryable: false,
      message: expect.stringContaining("102 bytes, at most 101"),
    });
    const larger = createToolRegistry([group(tool("t", () => "é".repeat(50)))], { maxOutputBytes: 102 });
    expect(await larger.call(toolCall("t", {}))).toMatchObject({ type: "succeeded" });
  });

  test("C25 an output nested too deep is refused, and the process lives", async () => {
    let deep: unknown = 1;
    for (let i = 0; i < 100_000; i++) deep = [deep];
    expect(await callOf(tool("t", () => deep))).toMatchObject({ kind: "bad_output" });
    const cycle: unknown[] = [];
    cycle.push(cycle);
    expect(await callOf(tool("t", () => cycle))).toMatchObject({ kind: "bad_output" });
  });
});

describe("plan and cancel", () => {
  const query = { dispatch_id: "d", input: {}, signal: new AbortController().signal };
  const planned = (plan: () => unknown, sideEffect?: "read_only") => {
    const made = defineTool({
      ...{ name: "t", description: "T.", input: any, run: (_: object, ctx: ToolContext) => ctx.intent },
      ...(sideEffect && { sideEffect }),
      plan: plan as () => never,
    });
    return createToolRegistry([group(made)], { maxOutputBytes: 100 });
  };
  const ask = (plan: () => unknown) => planned(plan).plan?.("t", query);

  test("GD-13 a tool that plans is handed over to, with its intent in normal form", async () => {
    const registry = planned(() => ({ type: "ready", intent: { b: -0, a: [1] } }));
    expect(registry.describe("t")).toMatchObject({ can_handoff: true });
    expect(await registry.plan?.("t", query)).toEqual({ type: "ready", intent: { a: [1], b: 0 } });
    expect(await registry.call({ ...toolCall("t", {}), intent: { a: 1 } })).toMatchObject({ output: { a: 1 } });
    expect(await ask(() => ({ type: "ready" }))).toEqual({ type: "ready", intent: null });
    expect(await createToolRegistry([group(tool("t", () => 1))]).plan?.("t", query)).toEqual({
      type: "ready",
      intent: null,
    });
  });

  test("GD-14 an owner that is busy says until when; free again at once, it holds up nobody else", async () => {
    expect(await ask(() => ({ type: "busy", waits_for: "a machine" }))).toEqual({
      type: "busy",
      waits_for: "a machine",
    });
    let turned = false;
    setImmediate(() => {
      turned = true;
    });
    const plan = await ask(() => ({ type: "busy", free: Promise.resolve() }));
    if (plan?.type !== "busy" || plan.free === undefined) throw new Error("not busy");
    await plan.free;
    expect(turned).toBe(true);
    const broken = await ask(() => ({ type: "busy", free: Promise.reject(new Error("gone")) }));
    expect(broken).toMatchObject({ type: "busy" });
  });

  test("what is no plan, no JSON or too large fails the step; a refusal is the tool's word, all else is thrown", async () => {
    for (const answer of [undefined, null, {}, { type: "later" }, { type: "ready", intent: 1n }])
      expect(await ask(() => answer)).toMatchObject({ type: "failed", kind: "bad_output", retryable: false });
    expect(await ask(() => ({ type: "ready", intent: "x".repeat(99) }))).toMatchObject({
      kind: "bad_output",
      message: expect.stringContaining("101 bytes, at most 100"),
    });
    const refuse = (error: Error) => ask(() => Promise.reject(error));
    expect(await refuse(new ToolError("no", { kind: "bad_arguments" }))).toMatchObject({ kind: "bad_arguments" });
    // Nothing was accepted, so that trying again is safe also for a mutation.
    expect(await refuse(new ToolError("no", { kind: "unavailable" }))).toMatchObject({
      kind: "unavailable",
      retryable: true,
    });
    await expect(refuse(new Error("bug"))).rejects.toThrow("bug");
  });

  test("GD-39 cancel reaches the tool with what is known; one without it hears nothing", async () => {
    const told: unknown[] = [];
    const made = defineTool({ ...base, cancel: (query) => void told.push(query) });
    const registry = createToolRegistry([
      group(
        made,
        tool("other", () => 1),
      ),
    ]);
    await registry.cancel?.("t", { dispatch_id: "d" });
    await registry.cancel?.("t", { dispatch_id: "d", receipt: { id: 1 } });
    await registry.cancel?.("other", { dispatch_id: "d" });
    await registry.cancel?.("none", { dispatch_id: "d" });
    expect(told).toEqual([{ dispatch_id: "d" }, { dispatch_id: "d", receipt: { id: 1 } }]);
  });
});

describe("lookup and observe", () => {
  const query = { dispatch_id: "d", input: {}, signal: new AbortController().signal };
  const ask = (lookup: () => unknown) =>
    createToolRegistry([
      group(defineTool({ name: "t", description: "T.", input: any, run: () => 1, lookup: lookup as () => never })),
    ]).lookup("t", query);

  test("R-10 answers pass; what is no answer is never absent", async () => {
    expect(await ask(() => ({ type: "absent" }))).toEqual({ type: "absent" });
    expect(await ask(() => ({ type: "succeeded", output: { b: -0 } }))).toEqual({
      type: "succeeded",
      output: { b: 0 },
    });
    expect(await ask(() => ({ type: "failed", message: "no" }))).toEqual({
      type: "failed",
      message: "no",
      retryable: false,
    });
    // GD-35: it will know later; GD-18: a lookup may find the receipt.
    expect(await ask(() => ({ type: "deferred", reason: "the queue restarts" }))).toEqual({
      type: "deferred",
      reason: "the queue restarts",
    });
    for (const type of ["running", "cancelled", "succeeded", "failed"] as const)
      expect(await ask(() => ({ type, output: 1, message: "", receipt: { id: -0 } }))).toMatchObject({
        type,
        receipt: { id: 0 },
      });
    expect(await ask(() => ({ type: "running", receipt: 1n }))).toMatchObject({ type: "unknown" });
    expect(await ask(() => Promise.reject(new Error("owner is down")))).toEqual({
      type: "unknown",
      reason: "owner is down",
    });
    for (const answer of [undefined, null, {}, { type: "gone" }, "absent"])
      expect(await ask(() => answer)).toEqual({
        type: "unknown",
        reason: "the owner's answer is of no known type",
      });
    expect(await ask(() => ({ type: "succeeded", output: 1n }))).toMatchObject({ type: "unknown" });
    expect(
      await ask(() => {
        throw new Error("at once");
      }),
    ).toEqual({ type: "unknown", reason: "at once" });
  });

  test("a tool that cannot be asked is unknown", async () => {
    const registry = createToolRegistry([group(tool("t", () => 1))]);
    expect(await registry.lookup("t", query)).toMatchObject({ type: "unknown" });
    expect(await registry.observe("t", { ...query, receipt: 1 })).toMatchObject({ type: "unknown" });
    expect(await registry.lookup("none", query)).toMatchObject({ type: "unknown" });
  });

  test("observe gets its receipt back", async () => {
    const observed = defineTool({
      name: "t",
      description: "T.",
      input: any,
      run: () => 1,
      observe: ({ receipt }) => ({ type: "succeeded", output: receipt }),
    });
    const registry = createToolRegistry([group(observed)]);
    expect(registry.describe("t")).toMatchObject({ can_observe: true, can_lookup: false });
    expect(await registry.observe("t", { ...query, receipt: { id: 7 } })).toEqual({
      type: "succeeded",
      output: { id: 7 },
    });
  });
});
