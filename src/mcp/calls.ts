/** `tools/list` and `tools/call`: our own, so that RP-81's and RP-83's texts reach the model as they are (R-41). */
import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  type Server,
  type ServerContext,
  type Tool,
} from "@modelcontextprotocol/server";
import {
  MAX_WAIT_MS,
  type PublicEvent,
  ToolCallError,
  WORKFLOW_RUN,
  type WorkflowTool,
  type WorkflowTools,
} from "../access/index.ts";
import { type Peer, peerOf } from "./peer.ts";
import { errorResult, outcomeResult, result, runResult } from "./results.ts";
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
      if (tool?.workflow !== undefined) return await callTyped(server, service, tools, tool, args, peer, context);
      const options = { signal: context.mcpReq.signal, ...progress(context) };
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

/** Starts the run; a client that takes tasks gets one at once, the others wait for a bounded time. */
async function callTyped(
  server: Server,
  service: McpService,
  tools: WorkflowTools,
  tool: WorkflowTool,
  args: unknown,
  peer: Peer,
  context: ServerContext,
): Promise<CallToolResult> {
  const runId = await tools.begin(tool, args);
  if (peer.tasks) {
    const task = { ...newTask(await tools.outcome(runId)), resultType: "task", content: [] };
    return task as unknown as CallToolResult;
  }
  const options = { signal: context.mcpReq.signal, since: 0, ...progress(context) };
  const outcome = await tools.wait(runId, service.maxWaitMs ?? MAX_WAIT_MS, options);
  return server.projectCallToolResult(outcomeResult(outcome), tool.outputSchema);
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
