/**
 * All tools of one composition behind the engine's `ToolPort`: names and where they come from, the hand-over of a
 * call, and the reading of what came back (R-8, RP-41). It never retries and never decides who may call what.
 */
import { setImmediate } from "node:timers/promises";
import { HoldfastError } from "../domain/errors.ts";
import { type Json, JsonError, normalizeJson } from "../domain/json.ts";
import type { SideEffect } from "../domain/run.ts";
import type { OwnerAnswer, OwnerPlan, ToolCall, ToolDescriptor, ToolOutcome, ToolPort } from "../ports/index.ts";
import { type AnyTool, isTool, type ToolContext } from "./define.ts";
import { UNTRUSTED_TOOLS } from "./policy.ts";
import { type Failed, failed, ToolError } from "./tool-error.ts";

/** Tools from one place. */
export interface ToolGroup {
  readonly source: ToolDescriptor["source"];
  /** Where they were written, for error messages: `"holdfast.config.ts"`, `"createHoldfast({tools})"`. */
  readonly origin: string;
  readonly tools: readonly AnyTool[];
}

export interface RegistryOptions {
  /** Largest output, in bytes of its JSON text. Default 16 MiB. */
  readonly maxOutputBytes?: number;
}

const DEFAULT_MAX_OUTPUT_BYTES = 16 * 1024 * 1024;
const MAX_TOOLS = 10_000;

interface Entry {
  readonly tool: AnyTool;
  readonly descriptor: ToolDescriptor;
  readonly origin: string;
}

/**
 * Merges groups of tools; earlier groups come first in `list()`.
 * @throws HoldfastError `usage` when two tools have one name (both origins are named), when one takes a name that
 *   untrusted workspaces may use without being built in, or when something is not a tool
 */
export function createToolRegistry(groups: readonly ToolGroup[], options: RegistryOptions = {}): ToolPort {
  const entries = collect(groups);
  const descriptors = [...entries.values()].map((entry) => entry.descriptor);
  const maxOutputBytes = options.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const tool = (name: string): AnyTool | undefined => entries.get(name)?.tool;
  return {
    describe: (name) => entries.get(name)?.descriptor,
    list: () => descriptors,
    async call(call) {
      const called = tool(call.tool);
      if (called === undefined)
        return failed("not_found", false, `Cannot call the tool "${call.tool}": there is none of that name`);
      return callTool(called, call, maxOutputBytes);
    },
    async lookup(name, query) {
      const asked = tool(name);
      if (asked?.lookup === undefined)
        return { type: "unknown", reason: `the tool "${name}" cannot look up a dispatch` };
      return readAnswer(asked.lookup(query));
    },
    async observe(name, query) {
      const asked = tool(name);
      if (asked?.observe === undefined)
        return { type: "unknown", reason: `the tool "${name}" cannot observe a receipt` };
      return readAnswer(asked.observe(query));
    },
    async plan(name, query) {
      const planning = tool(name);
      if (planning?.plan === undefined) return { type: "ready", intent: null };
      return planTool(planning, planning.plan(query), maxOutputBytes);
    },
    async cancel(name, query) {
      await tool(name)?.cancel?.(query);
    },
  };
}

function collect(groups: readonly ToolGroup[]): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  for (const group of groups) {
    for (const [index, tool] of group.tools.entries()) {
      if (!isTool(tool))
        refuse(
          `item ${index + 1} of the tools in ${group.origin}`,
          "defineTool did not make it; wrap it in defineTool({…})",
        );
      const other = entries.get(tool.name);
      if (other !== undefined)
        refuse(
          `the tool "${tool.name}" of ${group.origin}`,
          `${other.origin} has one of that name; rename one of them`,
        );
      // RP-19 lets these names through, whatever their case, in a workspace that nobody trusts.
      if (group.source !== "builtin" && UNTRUSTED_TOOLS.has(tool.name.toLowerCase()))
        refuse(`the tool "${tool.name}" of ${group.origin}`, "the name is a built-in file tool's; rename it");
      entries.set(tool.name, { tool, origin: group.origin, descriptor: describe(tool, group.source) });
      if (entries.size > MAX_TOOLS) refuse(group.origin, `there are more than ${MAX_TOOLS} tools; register fewer`);
    }
  }
  return entries;
}

function describe(tool: AnyTool, source: ToolDescriptor["source"]): ToolDescriptor {
  return Object.freeze({
    name: tool.name,
    description: tool.description,
    input_schema: tool.inputSchema,
    ...(tool.outputSchema === undefined ? {} : { output_schema: tool.outputSchema }),
    side_effect: tool.sideEffect,
    capabilities: tool.capabilities,
    source,
    can_lookup: tool.lookup !== undefined,
    can_observe: tool.observe !== undefined,
    ...(tool.plan === undefined ? {} : { can_handoff: true }),
  });
}

async function callTool(tool: AnyTool, call: ToolCall, maxOutputBytes: number): Promise<ToolOutcome> {
  try {
    const output = (await tool.run(call.input, contextOf(call))) as Json;
    return tooLarge(tool, "returned", output, maxOutputBytes) ?? { type: "succeeded", output };
  } catch (error) {
    return reported(tool, error);
  }
}

/** What a tool said of its failure. @throws any other: the engine decides what it means for this side effect */
function reported(tool: AnyTool, error: unknown): Failed {
  if (!ToolError.is(error)) throw error;
  return failed(error.kind, mayRetry(error, tool.sideEffect), error.message);
}

function tooLarge(tool: AnyTool, did: "returned" | "planned", value: Json, maxBytes: number): Failed | undefined {
  const bytes = Buffer.byteLength(JSON.stringify(value));
  if (bytes <= maxBytes) return undefined;
  const state = `it has ${bytes} bytes, at most ${maxBytes} are kept`;
  return failed("bad_output", false, `Cannot keep what the tool "${tool.name}" ${did}: ${state}; return less`);
}

/** An owner's plan in the form in which it is stored; one that is none is the tool's failure, with nothing accepted. */
async function planTool(tool: AnyTool, asked: Promise<OwnerPlan>, maxBytes: number): Promise<OwnerPlan | Failed> {
  const cannot = `Cannot use what the tool "${tool.name}" planned: `;
  try {
    const plan: OwnerPlan | null | undefined = await asked;
    if (plan?.type === "busy") return busy(plan);
    if (plan?.type !== "ready") return failed("bad_output", false, `${cannot}it is neither ready nor busy`);
    const intent = normalizeJson(plan.intent === undefined ? null : plan.intent);
    return tooLarge(tool, "planned", intent, maxBytes) ?? { type: "ready", intent };
  } catch (error) {
    if (!(error instanceof JsonError)) return reported(tool, error);
    return failed("bad_output", false, `${cannot}at ${error.path} of its intent, ${error.reason}`);
  }
}

/** With a turn of the loop after `free`: an owner that is busy again at once holds up nobody but its own steps. */
function busy({ waits_for, free }: Extract<OwnerPlan, { type: "busy" }>): OwnerPlan {
  const later = free === undefined ? undefined : Promise.resolve(free).then(() => setImmediate());
  // Nobody may be left to wait for it.
  later?.catch(() => undefined);
  return {
    type: "busy",
    ...(waits_for === undefined ? {} : { waits_for: String(waits_for) }),
    ...(later === undefined ? {} : { free: later }),
  };
}

/** RP-41: a reported failure may be tried again; but one of a mutating tool only if it says so. */
function mayRetry(error: ToolError, sideEffect: SideEffect): boolean {
  const may = error.kind === "unavailable" || (error.kind === "execution" && sideEffect !== "mutating");
  return error.retryable ?? may;
}

function contextOf(call: ToolCall): ToolContext {
  return {
    // Made when a tool asks for them: most do not.
    get dispatch_id() {
      return call.dispatch_id;
    },
    get signal() {
      return call.signal;
    },
    workspace: call.workspace,
    run_id: call.run_id,
    step_id: call.step_id,
    attempt: call.attempt,
    redispatch: call.redispatch,
    posture: call.posture,
    receipt: async (receipt) => call.receipt(normalizeJson(receipt)),
    link: (session) => call.link(session),
    ...(call.intent === undefined ? {} : { intent: call.intent }),
  };
}

/** An owner that throws, or answers what is no answer, has not answered: never `absent` by accident. */
async function readAnswer(asked: Promise<OwnerAnswer>): Promise<OwnerAnswer> {
  try {
    const answer = (await asked) as OwnerAnswer | null | undefined;
    switch (answer?.type) {
      case "succeeded": {
        const output = normalizeJson(answer.output === undefined ? null : answer.output);
        return { type: "succeeded", output, ...receiptOf(answer) };
      }
      case "failed": {
        const { message, retryable } = answer;
        return { type: "failed", message: String(message), retryable: retryable === true, ...receiptOf(answer) };
      }
      case "cancelled":
      case "running":
        return { type: answer.type, ...receiptOf(answer) };
      case "absent":
        return { type: "absent" };
      case "deferred":
        return { type: "deferred", reason: String(answer.reason) };
      case "unknown":
        return answer.reason === undefined ? { type: "unknown" } : { type: "unknown", reason: String(answer.reason) };
      default:
        return { type: "unknown", reason: "the owner's answer is of no known type" };
    }
  } catch (error) {
    if (error instanceof JsonError)
      return { type: "unknown", reason: `the owner's answer is not JSON: ${error.message}` };
    return { type: "unknown", reason: error instanceof Error ? error.message : "the owner could not be asked" };
  }
}

function receiptOf({ receipt }: { readonly receipt?: Json }): { readonly receipt?: Json } {
  return receipt === undefined ? {} : { receipt: normalizeJson(receipt) };
}

function refuse(what: string, why: string): never {
  throw new HoldfastError("usage", `Cannot register ${what}: ${why}`);
}
