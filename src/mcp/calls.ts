/** `tools/list` and `tools/call`: our own, so that RP-81's and RP-83's texts reach the model as they are (R-41). */
import {
  type CallToolResult,
  type InputRequiredResult,
  isInputRequiredResult,
  ProtocolError,
  ProtocolErrorCode,
  type Server,
  type ServerContext,
  type Tool,
} from "@modelcontextprotocol/server";
import {
  MAX_WAIT_MS,
  type PublicEvent,
  parseWorkflowWait,
  ToolCallError,
  WORKFLOW_RUN,
  WORKFLOW_WAIT,
  type WorkflowTool,
} from "../access/index.ts";
import { peerOf } from "./peer.ts";
import { errorResult, outcomeResult, result, runResult } from "./results.ts";
import { type Call, firstRound, inRounds, nextRound } from "./rounds.ts";
import type { McpService } from "./service.ts";
import { newTask } from "./tasks.ts";

/** Progress is told at most this often, ms: a run of thousands of steps must not drown its client. */
const PROGRESS_EVERY_MS = 100;

export function registerTools(server: Server, service: McpService): void {
  server.setRequestHandler("tools/list", async (_, context) => ({
    tools: service.tools(peerOf(server, context).name).list().map(toMcpTool),
  }));
  server.setRequestHandler("tools/call", async (request, context) => {
    const peer = peerOf(server, context);
    const { name, arguments: args } = request.params;
    try {
      await ready(service);
      const tools = service.tools(peer.name);
      const tool = tools.find(name);
      const options = { signal: context.mcpReq.signal, ...progress(context) };
      const call = { service, tools, peer, context, waits: true, options };
      if (tool?.workflow !== undefined) return await callTyped(server, call, tool, args);
      if (name === WORKFLOW_WAIT) return await callWait(call, args);
      // An unknown tool is refused by the same door.
      const value = tool === undefined ? await tools.call(name, args) : await tool.execute(args, options);
      if (name !== WORKFLOW_RUN) return result(value);
      return runResult(value, Object(args).action);
    } catch (error) {
      if (ToolCallError.is(error)) return refused(error, name);
      throw error;
    }
  });
}

async function ready(service: McpService): Promise<void> {
  try {
    await service.ready();
  } catch (error) {
    service.log?.("error", "the session of MCP clients cannot be opened", { session: service.session, error });
    throw new ToolCallError("Execution", "storage", "workflow storage unavailable");
  }
}

/** A tool that there is none of is an error of the protocol; everything else is the tool's answer. */
function refused(error: ToolCallError, name: string): CallToolResult {
  if (error.code === "usage" && !name.startsWith("workflow_"))
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${name.slice(0, 128)}`);
  return errorResult(error);
}

function toMcpTool({ name, title, description, inputSchema, outputSchema, annotations }: WorkflowTool): Tool {
  return {
    name,
    ...(title === undefined ? {} : { title }),
    description,
    // Typed tools are only made of schemas whose root is an object.
    inputSchema: inputSchema as Tool["inputSchema"],
    ...(outputSchema === undefined ? {} : { outputSchema: outputSchema as NonNullable<Tool["outputSchema"]> }),
    annotations,
  };
}

/**
 * Starts the run; a client that takes tasks gets one at once, the others wait for a bounded time. A call that goes on
 * after its questions starts nothing, whatever its arguments are.
 */
async function callTyped(
  server: Server,
  call: Call,
  tool: WorkflowTool,
  args: unknown,
): Promise<CallToolResult | InputRequiredResult> {
  const { service, tools, peer } = call;
  let options = call.options;
  const bound = service.maxWaitMs ?? MAX_WAIT_MS;
  let round = await nextRound(call, bound, ({ run }) => run.workflow_id === tool.workflow?.workflow_id);
  if (round === undefined) {
    const runId = await tools.begin(tool, args);
    if (peer.tasks) {
      const task = { ...newTask(await tools.outcome(runId)), resultType: "task", content: [] };
      return task as unknown as CallToolResult;
    }
    round = firstRound(runId, bound);
    options = { ...options, since: 0 };
  }
  const answer = await inRounds({ ...call, options }, round);
  if (isInputRequiredResult(answer)) return answer;
  return server.projectCallToolResult(outcomeResult(answer), tool.outputSchema);
}

/** `workflow_wait`: with a time of 0 it only looks, so nobody is asked. */
async function callWait(call: Call, args: unknown): Promise<CallToolResult | InputRequiredResult> {
  const { run_id, timeout_ms } = parseWorkflowWait(args);
  const round = await nextRound(call, timeout_ms, ({ run }) => run.run_id === run_id);
  const answer = await inRounds({ ...call, waits: timeout_ms > 0 }, round ?? firstRound(run_id, timeout_ms));
  if (isInputRequiredResult(answer)) return answer;
  const { run, sentence, output } = answer;
  return result({ run, sentence, ...(output === undefined ? {} : { output }) });
}

/** Tells a client that asked for it how far the run is; the number is the journal's sequence, so it only rises. */
function progress(context: ServerContext): { readonly onEvent?: (event: PublicEvent) => void } {
  const progressToken = context.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return {};
  let last = Number.NEGATIVE_INFINITY;
  const onEvent = (event: PublicEvent): void => {
    const now = performance.now();
    if (now - last < PROGRESS_EVERY_MS && !event.type.startsWith("run_")) return;
    last = now;
    const what = event.type === "phase" ? (event.name ?? event.type) : event.type;
    const message = `${what.replaceAll("_", " ")}${event.step_id === undefined ? "" : ` ${event.step_id}`}`;
    const params = { progressToken, progress: event.sequence, message };
    // A client that has gone hears nothing more; the run goes on.
    context.mcpReq.notify({ method: "notifications/progress", params }).catch(() => undefined);
  };
  return { onEvent };
}
