/**
 * Tools of MCP servers behind the engine's `ToolPort`: `mcp::SERVER::TOOL`. What a tool may do is what the
 * configuration says; unsaid it is mutating and asked for. Names that begin with `mcp::` come only from here.
 */
import type { CallToolResult } from "@modelcontextprotocol/client";
import { type Json, JsonError, type JsonObject, normalizeJson } from "../../domain/json.ts";
import type { SideEffect } from "../../domain/run.ts";
import type { OwnerAnswer, ToolCall, ToolDescriptor, ToolOutcome, ToolPort } from "../../ports/index.ts";
import { failed } from "../tool-error.ts";
import type { McpServerConfig } from "./config.ts";
import { type ConnectionOptions, McpConnection, McpNoSuchTool, McpUnavailable, messageOf } from "./connection.ts";

const PREFIX = "mcp::";
/** Largest output, in bytes of its JSON text. */
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** What every tool of a server answers: its texts, its other blocks, and its structured content where it has any. */
const OUTPUT_SCHEMA: JsonObject = {
  type: "object",
  required: ["text", "content"],
  properties: { text: { type: "string" }, content: { type: "array" }, structured: {} },
  additionalProperties: false,
};

export interface McpProbe {
  readonly server: string;
  readonly ok: boolean;
  readonly tools: readonly string[];
  /** Why not. */
  readonly fault?: string;
}

export interface McpTools extends ToolPort {
  /** Connects to every server and says what it offers, or why it cannot be reached. */
  probe(): Promise<readonly McpProbe[]>;
  close(): Promise<void>;
}

/** @param servers as `readMcpConfig` read them; nothing is started before the first call */
export function createMcpTools(servers: ReadonlyMap<string, McpServerConfig>, options: ConnectionOptions): McpTools {
  const connections = new Map([...servers].map(([name, config]) => [name, new McpConnection(name, config, options)]));
  const describe = (name: string): ToolDescriptor | undefined => {
    const parts = partsOf(name);
    const config = parts === undefined ? undefined : servers.get(parts.server);
    return parts === undefined || config === undefined
      ? undefined
      : descriptorOf(name, parts.server, parts.tool, config);
  };
  const noOwner: OwnerAnswer = { type: "unknown", reason: "an MCP server cannot be asked what became of a call" };
  return {
    describe,
    list() {
      const names = [...servers].flatMap(([server, config]) => {
        const known = new Set([...Object.keys(config.tools ?? {}), ...(connections.get(server)?.offered ?? [])]);
        return [...known].map((tool) => `${PREFIX}${server}::${tool}`);
      });
      return names.flatMap((name) => describe(name) ?? []);
    },
    async call(call) {
      const descriptor = describe(call.tool);
      const parts = partsOf(call.tool);
      const connection = parts === undefined ? undefined : connections.get(parts.server);
      if (descriptor === undefined || parts === undefined || connection === undefined)
        return failed("not_found", false, `Cannot call "${call.tool}": the configuration has no such MCP server`);
      return callTool(connection, parts.tool, call, descriptor.side_effect);
    },
    lookup: async () => noOwner,
    observe: async () => noOwner,
    probe: () => Promise.all([...connections.values()].map(probeOne)),
    async close() {
      await Promise.all([...connections.values()].map((connection) => connection.close()));
    },
  };
}

/** One port for both: names that begin with `mcp::` go to the servers, all others stay where they are. */
export function withMcpTools(tools: ToolPort, mcp: McpTools): ToolPort {
  const of = (name: string): ToolPort => (name.startsWith(PREFIX) ? mcp : tools);
  return {
    describe: (name) => of(name).describe(name),
    list: () => [...tools.list(), ...mcp.list()],
    call: (call) => of(call.tool).call(call),
    lookup: (tool, query) => of(tool).lookup(tool, query),
    observe: (tool, query) => of(tool).observe(tool, query),
    plan: async (tool, query) => (await of(tool).plan?.(tool, query)) ?? { type: "ready", intent: null },
    cancel: async (tool, query) => of(tool).cancel?.(tool, query),
    async close() {
      await Promise.all([tools.close?.(), mcp.close()]);
    },
  };
}

function partsOf(name: string): { readonly server: string; readonly tool: string } | undefined {
  const found = /^mcp::([A-Za-z0-9][A-Za-z0-9_-]{0,63})::([\x21-\x7e]{1,128})$/.exec(name);
  return found === null ? undefined : { server: found[1] as string, tool: found[2] as string };
}

/**
 * From the configuration alone: a definition that names the tool must compile to the same hash whether or not the
 * server happens to be up.
 */
function descriptorOf(name: string, server: string, tool: string, config: McpServerConfig): ToolDescriptor {
  const said = config.tools !== undefined && Object.hasOwn(config.tools, tool) ? config.tools[tool] : undefined;
  return {
    name,
    description: `The tool "${tool}" of the MCP server "${server}".`,
    input_schema: { type: "object" },
    output_schema: OUTPUT_SCHEMA,
    side_effect: said?.side_effect ?? "mutating",
    capabilities: said?.capabilities ?? [`${PREFIX}${server}`],
    source: "mcp",
    can_lookup: false,
    can_observe: false,
  };
}

async function probeOne(connection: McpConnection): Promise<McpProbe> {
  try {
    return { server: connection.name, ok: true, tools: (await connection.listTools()).map(({ name }) => name) };
  } catch (error) {
    return { server: connection.name, ok: false, tools: [], fault: messageOf(error) };
  }
}

async function callTool(
  connection: McpConnection,
  tool: string,
  call: ToolCall,
  effect: SideEffect,
): Promise<ToolOutcome> {
  const args = call.input;
  if (typeof args !== "object" || args === null || Array.isArray(args))
    return failed("bad_arguments", false, `Cannot call "${call.tool}": its input is no object`);
  try {
    const { dispatch_id, signal } = call;
    const result = await connection.call({ tool, args: args as JsonObject, dispatch_id, signal });
    return readResult(call.tool, result, effect);
  } catch (error) {
    return await readFailure(call.tool, error, effect);
  }
}

function readResult(name: string, result: CallToolResult, effect: SideEffect): ToolOutcome {
  const texts = result.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  // Its own word that it failed; a mutation is tried again only if the report says so, which MCP cannot.
  if (result.isError === true) return failed("execution", effect !== "mutating", texts.join("\n"));
  let output: Json;
  try {
    output = normalizeJson({
      text: texts.join("\n"),
      content: result.content.filter((block) => block.type !== "text"),
      ...(result.structuredContent === undefined ? {} : { structured: result.structuredContent }),
    });
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return failed("bad_output", false, `Cannot use what "${name}" returned: at ${error.path}: ${error.reason}`);
  }
  const bytes = Buffer.byteLength(JSON.stringify(output));
  if (bytes <= MAX_OUTPUT_BYTES) return { type: "succeeded", output };
  return failed(
    "bad_output",
    false,
    `Cannot keep what "${name}" returned: it has ${bytes} bytes, at most ${MAX_OUTPUT_BYTES} are kept`,
  );
}

/** An error answer is the server's word; silence and a lost connection are an unknown outcome, so they are thrown. */
async function readFailure(name: string, error: unknown, effect: SideEffect): Promise<ToolOutcome> {
  if (error instanceof McpNoSuchTool) return failed("not_found", false, `Cannot call "${name}": ${error.message}`);
  if (error instanceof McpUnavailable) return failed("execution", true, `Cannot call "${name}": ${error.message}`);
  const { ProtocolError, ProtocolErrorCode, SdkError, SdkErrorCode } = await import("@modelcontextprotocol/client");
  if (error instanceof ProtocolError) {
    const message = `Cannot call "${name}": the server answered ${error.code}: ${error.message}`;
    if (error.code === ProtocolErrorCode.InvalidParams) return failed("bad_arguments", false, message);
    if (error.code === ProtocolErrorCode.MethodNotFound) return failed("not_found", false, message);
    return failed("execution", effect !== "mutating", message);
  }
  if (
    error instanceof SdkError &&
    (error.code === SdkErrorCode.InvalidResult || error.code === SdkErrorCode.UnsupportedResultType)
  )
    return failed("bad_output", false, `Cannot use what "${name}" returned: ${error.message}`);
  throw error;
}
