/** Tools of the simulated world: how long they take and when their effect happens is drawn from the seed. */
import type { Json, JsonObject } from "../domain/json.ts";
import type { SideEffect } from "../domain/run.ts";
import type { OwnerAnswer, ToolCall, ToolDescriptor, ToolOutcome, ToolPort } from "../ports/index.ts";
import { type AnyTool, createToolRegistry, isTool } from "../tools/index.ts";
import type { ProcessClock } from "./clock.ts";
import type { EffectLedger } from "./effects.ts";
import { seededRandom } from "./random.ts";

export interface MockTool {
  readonly name: string;
  /** Default `mutating`. */
  readonly sideEffect?: SideEffect;
  readonly capabilities?: readonly string[];
  readonly output_schema?: JsonObject;
  /** Milliseconds of simulated time from call to answer, `[least, most]`; Infinity: it ends only by its signal. */
  readonly takes_ms?: readonly [number, number];
  /** When the effect happens: as soon as it is called, just before it answers, or as the seed says. */
  readonly effect?: "start" | "end" | "seed";
  /** What it answers; default: its input. A failure has no effect. */
  readonly answer?: (call: ToolCall) => ToolOutcome | Promise<ToolOutcome>;
  /** Its owner can be asked by dispatch id, and from then on sends nothing twice. */
  readonly lookup?: boolean;
  /** It hands out a receipt as soon as it is called, and can be observed by it. */
  readonly observe?: boolean;
  /** It does not hear the abort signal. */
  readonly deaf?: boolean;
}

export type WorldTool = MockTool | AnyTool;

export const ok = (output: Json): ToolOutcome => ({ type: "succeeded", output });
export const failed = (retryable: boolean): ToolOutcome => ({
  type: "failed",
  kind: "execution",
  retryable,
  message: "the mock says that it failed",
});

/** What a process's tools need of its world. */
export interface ToolSurroundings {
  readonly seed: number;
  readonly process: string;
  readonly clock: ProcessClock;
  readonly effects: EffectLedger;
  readonly alive: () => boolean;
  /** Time stands still until the answer is called: real work is going on. */
  readonly hold: () => () => void;
  /** Looks at the journal before anything happens outside. */
  readonly onCall: (call: ToolCall, sideEffect: SideEffect) => void;
}

const NEVER: Promise<never> = new Promise(() => undefined);
const DEFAULT_TAKES: readonly [number, number] = [0, 20];

/** The tools as one process has them: a process that is gone calls nothing and hears nothing. */
export function mockToolPort(tools: readonly WorldTool[], world: ToolSurroundings): ToolPort {
  // As if all were built in: a world may have the file tools among its own.
  const real = createToolRegistry([{ source: "builtin", origin: "the simulated world", tools: tools.filter(isTool) }]);
  const mocks = new Map(tools.filter((tool): tool is MockTool => !isTool(tool)).map((tool) => [tool.name, tool]));
  const describe = (name: string): ToolDescriptor | undefined => {
    const mock = mocks.get(name);
    return mock === undefined ? real.describe(name) : descriptorOf(mock);
  };
  const sideEffectOf = (name: string): SideEffect => describe(name)?.side_effect ?? "mutating";
  const asked = async (
    kind: "lookup" | "observe",
    tool: string,
    dispatch_id: string,
    answer: () => Promise<OwnerAnswer>,
  ): Promise<OwnerAnswer> => {
    if (!world.alive()) return NEVER;
    const release = world.hold();
    const given = await answer().finally(release);
    world.effects.record({
      kind,
      tool,
      side_effect: sideEffectOf(tool),
      dispatch_id,
      at_ms: world.clock.now(),
      process: world.process,
      answer: given.type,
    });
    return world.alive() ? given : NEVER;
  };
  return {
    describe,
    list: () => tools.map((tool) => describe(tool.name) as ToolDescriptor),
    async call(call) {
      if (!world.alive()) return NEVER;
      const { tool, dispatch_id, run_id, step_id, attempt, redispatch } = call;
      const side_effect = sideEffectOf(tool);
      world.onCall(call, side_effect);
      world.effects.record({
        ...{ kind: "call", tool, side_effect, dispatch_id, run_id, step_id, attempt, redispatch },
        at_ms: world.clock.now(),
        process: world.process,
      });
      const mock = mocks.get(tool);
      const outcome = mock === undefined ? await callReal(real, call, world) : await callMock(mock, call, world);
      return world.alive() ? outcome : NEVER;
    },
    lookup: (tool, query) =>
      asked("lookup", tool, query.dispatch_id, async () =>
        mocks.has(tool) ? ownerAnswer(world.effects, query.dispatch_id) : real.lookup(tool, query),
      ),
    observe: (tool, query) =>
      asked("observe", tool, query.dispatch_id, async () =>
        mocks.has(tool) ? observed(world.effects, query.dispatch_id) : real.observe(tool, query),
      ),
    // Only real ones plan and are told to stop.
    async plan(tool, query) {
      if (!world.alive()) return NEVER;
      const release = world.hold();
      const plan = (await real.plan?.(tool, query).finally(release)) ?? { type: "ready", intent: null };
      return world.alive() ? plan : NEVER;
    },
    cancel: async (tool, query) => (world.alive() ? real.cancel?.(tool, query) : NEVER),
  };
}

function descriptorOf(mock: MockTool): ToolDescriptor {
  const side_effect = mock.sideEffect ?? "mutating";
  return {
    name: mock.name,
    description: mock.name,
    input_schema: {},
    ...(mock.output_schema === undefined ? {} : { output_schema: mock.output_schema }),
    side_effect,
    capabilities: mock.capabilities ?? [side_effect === "read_only" ? "read" : "write"],
    source: "code",
    can_lookup: mock.lookup === true,
    can_observe: mock.observe === true,
  };
}

function ownerAnswer(effects: EffectLedger, dispatchId: string): OwnerAnswer {
  const known = effects.outcomeOf(dispatchId);
  return known === undefined ? { type: "absent" } : { type: "succeeded", output: known.output };
}

/** What it has taken and not done when its process went away, it cannot say anything about any more. */
function observed(effects: EffectLedger, dispatchId: string): OwnerAnswer {
  const answer = ownerAnswer(effects, dispatchId);
  return answer.type === "absent" ? { type: "unknown", reason: "it has lost the work" } : answer;
}

async function callMock(mock: MockTool, call: ToolCall, world: ToolSurroundings): Promise<ToolOutcome> {
  const side_effect = mock.sideEffect ?? "mutating";
  const random = seededRandom(world.seed, "tool", call.dispatch_id, call.redispatch);
  const early = mock.effect === "start" || (mock.effect !== "end" && random.chance(0.5));
  const [least, most] = mock.takes_ms ?? DEFAULT_TAKES;
  const takes = Number.isFinite(most) ? random.between(least, most) : most;
  // an owner that can be asked answers `absent`, so from then on it deduplicates.
  const deduplicates = side_effect === "idempotent" || mock.lookup === true || mock.observe === true;
  const act = async (): Promise<ToolOutcome> => {
    // Who deduplicates answers as before and does nothing more.
    const before = deduplicates ? world.effects.outcomeOf(call.dispatch_id) : undefined;
    if (before !== undefined) return ok(before.output);
    const outcome = mock.answer === undefined ? ok(call.input) : await mock.answer(call);
    if (outcome.type === "succeeded" && world.alive())
      world.effects.happened(call, {
        side_effect,
        output: outcome.output,
        at_ms: world.clock.now(),
        process: world.process,
      });
    return outcome;
  };
  if (mock.observe === true) await call.receipt({ ticket: call.dispatch_id.slice(0, 12) });
  if (!world.alive()) return NEVER;
  const outcome = early ? await act() : undefined;
  const heard = await sleep(world.clock, takes, mock.deaf === true ? undefined : call.signal);
  if (!world.alive()) return NEVER;
  if (heard === "aborted") throw call.signal.reason;
  return outcome ?? act();
}

async function callReal(port: ToolPort, call: ToolCall, world: ToolSurroundings): Promise<ToolOutcome> {
  const side_effect = port.describe(call.tool)?.side_effect ?? "mutating";
  let release = world.hold();
  // Storing a receipt is the store's time, not the tool's; in a process that dies there it never ends.
  const receipt: ToolCall["receipt"] = async (given) => {
    release();
    await call.receipt(given);
    release = world.hold();
  };
  const { signal } = call;
  const outcome = await port.call({ ...call, signal, receipt }).finally(() => release());
  if (!world.alive()) return NEVER;
  if (outcome.type === "succeeded") {
    const known = side_effect === "idempotent" && world.effects.outcomeOf(call.dispatch_id) !== undefined;
    if (!known)
      world.effects.happened(call, {
        side_effect,
        output: outcome.output,
        at_ms: world.clock.now(),
        process: world.process,
      });
  }
  const random = seededRandom(world.seed, "tool", call.dispatch_id, call.redispatch);
  await sleep(world.clock, random.between(...DEFAULT_TAKES), undefined);
  return outcome;
}

function sleep(clock: ProcessClock, ms: number, signal: AbortSignal | undefined): Promise<"over" | "aborted"> {
  return new Promise((resolve) => {
    const stop = (): void => {
      timer?.cancel();
      resolve("aborted");
    };
    const timer = Number.isFinite(ms)
      ? clock.at(clock.now() + ms, () => {
          signal?.removeEventListener("abort", stop);
          resolve("over");
        })
      : undefined;
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted === true) stop();
  });
}
