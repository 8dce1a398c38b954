/**
 * What an owner must do — whatever does the work behind a tool — for a run to do nothing twice (GD-18, R-10): one
 * key is one piece of work, and what it says of a key is the truth. For tools whose work goes out of the process:
 * a queue, a deployment, a payment.
 */

import { HoldfastError } from "../domain/errors.ts";
import { dispatchId } from "../domain/journal.ts";
import { canonicalJson, type Json } from "../domain/json.ts";
import type { OwnerAnswer, ToolCall, ToolOutcome, ToolPort } from "../ports/index.ts";
import { type AnyTool, createToolRegistry } from "../tools/index.ts";
import { attempt, type Point } from "./crash-everywhere.ts";
import type { TestKit } from "./kit.ts";

export interface TestedOwner {
  /** Made by `defineTool`; what it leaves out (`lookup`, `observe`) is not tested. */
  readonly tool: AnyTool;
  readonly input: Json;
  /** How often the work was really done, for whatever key. */
  readonly effects: () => number | Promise<number>;
  readonly close?: () => Promise<void>;
}

export interface OwnerSuite {
  readonly name: string;
  /** A fresh owner that has done nothing yet. */
  readonly open: () => Promise<TestedOwner>;
}

type Scenario = (name: string, body: (owner: TestedOwner, port: ToolPort) => Promise<void>) => void;

/** Registers the suite with the runner's functions. */
export function ownerConformance(kit: TestKit, suite: OwnerSuite): void {
  kit.describe(`owner: ${suite.name}`, () => {
    const test: Scenario = (name, body) =>
      kit.test(name, async () => {
        const owner = await suite.open();
        try {
          await body(owner, createToolRegistry([{ source: "code", origin: "the suite", tools: [owner.tool] }]));
        } finally {
          await owner.close?.();
        }
      });
    keys(kit, test);
    answers(kit, test);
    stopping(kit, test);
    kit.test("a crash at each boundary: done at most once, and exactly once where the run succeeded", () =>
      crashes(kit, suite),
    );
  });
}

interface Sent {
  readonly outcome: ToolOutcome | "threw";
  readonly receipts: readonly Json[];
}

const RUN_ID = "018f0000-0000-7000-8000-0000000000aa";

function keyOf(step: string): string {
  return dispatchId(RUN_ID, step, 1);
}

async function send(owner: TestedOwner, port: ToolPort, step: string, more: Partial<ToolCall> = {}): Promise<Sent> {
  const receipts: Json[] = [];
  const dispatch_id = keyOf(step);
  const signal = new AbortController().signal;
  const planned = await port.plan?.(owner.tool.name, { dispatch_id, input: owner.input, signal });
  const call: ToolCall = {
    tool: owner.tool.name,
    input: owner.input,
    dispatch_id,
    tool_call_id: dispatch_id.slice(0, 16),
    run_id: RUN_ID,
    step_id: step,
    attempt: 1,
    redispatch: 0,
    workspace: "/workspace",
    posture: "ask",
    signal,
    receipt: async (receipt) => void receipts.push(receipt),
    link: async () => undefined,
    ...(owner.tool.plan !== undefined && planned?.type === "ready" ? { intent: planned.intent } : {}),
    ...more,
  };
  const outcome = await port.call(call).catch(() => "threw" as const);
  return { outcome, receipts };
}

const outputOf = (sent: Sent): string | undefined =>
  sent.outcome !== "threw" && sent.outcome.type === "succeeded" ? canonicalJson(sent.outcome.output) : undefined;

/** Who neither deduplicates nor can be asked is sent a key once; then nothing about two sendings has to hold. */
function mayBeSentAgain({ tool }: TestedOwner): boolean {
  return tool.sideEffect !== "mutating" || tool.lookup !== undefined;
}

function keys({ expect }: TestKit, test: Scenario): void {
  test("GD-18 the same key again does nothing more, and answers the same", async (owner, port) => {
    const first = await send(owner, port, "a");
    expect(outputOf(first) === undefined).toBe(false);
    const done = await owner.effects();
    if (!mayBeSentAgain(owner)) return;
    const again = await send(owner, port, "a", { redispatch: 1 });
    expect([outputOf(again), again.receipts]).toEqual([outputOf(first), first.receipts]);
    if (owner.tool.sideEffect !== "read_only") expect(await owner.effects()).toBe(done);
  });

  test("GD-18 the same key twice at once is one piece of work", async (owner, port) => {
    if (!mayBeSentAgain(owner) || owner.tool.sideEffect === "read_only") return;
    const [a, b] = await Promise.all([send(owner, port, "a"), send(owner, port, "a", { redispatch: 1 })]);
    expect(await owner.effects()).toBe(1);
    // The second may be refused while the first is at work; it never says anything else.
    const said = [outputOf(a), outputOf(b)].filter((output) => output !== undefined);
    expect([said.length > 0, new Set(said).size]).toEqual([true, 1]);
  });

  test("another key is another piece of work", async (owner, port) => {
    if (owner.tool.sideEffect === "read_only") return;
    await send(owner, port, "a");
    await send(owner, port, "b");
    expect(await owner.effects()).toBe(2);
  });
}

function answers({ expect }: TestKit, test: Scenario): void {
  const look = (owner: TestedOwner, port: ToolPort, step: string): Promise<OwnerAnswer> =>
    port.lookup(owner.tool.name, {
      dispatch_id: keyOf(step),
      input: owner.input,
      signal: new AbortController().signal,
    });

  test("R-10 looked up: what was never sent is absent or unknown, what was done is its outcome, each time again", async (owner, port) => {
    if (owner.tool.lookup === undefined) return;
    const before = await look(owner, port, "a");
    expect(before.type === "absent" || before.type === "unknown").toBe(true);
    const sent = await send(owner, port, "a");
    for (let i = 0; i < 2; i++) {
      const after = await look(owner, port, "a");
      expect(after.type === "succeeded" ? canonicalJson(after.output) : after.type).toBe(outputOf(sent));
    }
    expect(["absent", "unknown"].includes((await look(owner, port, "b")).type)).toBe(true);
    expect(await owner.effects()).toBe(owner.tool.sideEffect === "read_only" ? await owner.effects() : 1);
  });

  test("R-10 absent means that the key is deduplicated from then on: asked and then sent twice, it is done once", async (owner, port) => {
    if (owner.tool.lookup === undefined || (await look(owner, port, "a")).type !== "absent") return;
    await Promise.all([send(owner, port, "a"), send(owner, port, "a", { redispatch: 1 })]);
    if (owner.tool.sideEffect !== "read_only") expect(await owner.effects()).toBe(1);
  });

  test("GD-17 observed by its receipt, it is what the call answered, each time again; asking does nothing", async (owner, port) => {
    if (owner.tool.observe === undefined) return;
    const sent = await send(owner, port, "a");
    const [receipt, ...more] = sent.receipts;
    expect([receipt === undefined, more.length]).toEqual([false, 0]);
    const done = await owner.effects();
    for (let i = 0; i < 2; i++) {
      const query = { dispatch_id: keyOf("a"), receipt: receipt ?? null, signal: new AbortController().signal };
      const seen = await port.observe(owner.tool.name, query);
      expect(seen.type === "succeeded" ? canonicalJson(seen.output) : seen.type).toBe(outputOf(sent));
    }
    expect(await owner.effects()).toBe(done);
  });
}

function stopping({ expect }: TestKit, test: Scenario): void {
  test("GD-39 told to stop, once and again, it ends; what it says afterwards is what it did", async (owner, port) => {
    const controller = new AbortController();
    const sent = send(owner, port, "a", { signal: controller.signal });
    controller.abort(new Error("the run is being stopped"));
    controller.abort(new Error("and again"));
    const { outcome } = await sent;
    const done = await owner.effects();
    expect(done <= 1 || owner.tool.sideEffect === "read_only").toBe(true);
    // "Succeeded" without the effect, or "failed" with it, would be a lie.
    if (owner.tool.sideEffect === "read_only" || outcome === "threw") return;
    expect(outcome.type === "succeeded").toBe(done === 1);
  });

  test("GD-39 told to stop before it begins, it does nothing", async (owner, port) => {
    const { outcome } = await send(owner, port, "a", { signal: AbortSignal.abort(new Error("stopped before")) });
    const said = outcome !== "threw" && outcome.type === "succeeded";
    if (owner.tool.sideEffect !== "read_only") expect((await owner.effects()) === 1).toBe(said);
  });
}

async function crashes({ expect }: TestKit, suite: OwnerSuite): Promise<void> {
  const seed = 1;
  const run = async (points: readonly Point[]): Promise<number> => {
    const owner = await suite.open();
    try {
      const { outcome, violations, writes } = await attempt(
        { definitions: [planFor(owner)], tools: [owner.tool] },
        seed,
        points,
        undefined,
      );
      expect(violations).toEqual([]);
      const done = await owner.effects();
      const few = owner.tool.sideEffect === "read_only" || (outcome.status === "succeeded" ? done === 1 : done <= 1);
      expect({ points, few, status: outcome.status, done }).toEqual({
        points,
        few: true,
        status: outcome.status,
        done,
      });
      return writes[0] ?? 0;
    } finally {
      await owner.close?.();
    }
  };
  const boundaries = await run([]);
  if (boundaries === 0)
    throw new HoldfastError("internal", "Bug in Holdfast: the run of the owner's tool wrote nothing");
  for (let write = 1; write <= boundaries; write++)
    for (const when of ["before", "after"] as const) await run([{ write, when }]);
}

function planFor({ tool, input }: TestedOwner): object {
  return {
    workflow_schema: 1,
    id: "owner",
    revision: 1,
    budgets: { max_agents: 0, max_steps: 4 },
    steps: [{ id: "work", type: "tool", tool: tool.name, args: input, capabilities: [...tool.capabilities] }],
    plan: { type: "step", step: "work" },
  };
}
