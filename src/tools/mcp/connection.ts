/**
 * One MCP server: connected when it is first needed, connected again with growing pauses when it died, never waited
 * for without a limit. It tells apart what failed before the server had the call and what may have happened since.
 */
import { resolve } from "node:path";
import type { CallToolResult, Client, Tool, Transport } from "@modelcontextprotocol/client";
import type { JsonObject } from "../../domain/json.ts";
import type { SecretPort } from "../../ports/index.ts";
import { boundedFetch } from "./bounded-fetch.ts";
import type { McpServerConfig, McpText } from "./config.ts";

export type McpLog = (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;

export interface ConnectionOptions {
  readonly secrets: SecretPort;
  /** Real path; commands run in it unless they say otherwise. */
  readonly workspace: string;
  /** What is told to servers as the client's version. */
  readonly version?: string;
  readonly log?: McpLog;
  /** Ms since anything fixed. */
  readonly now?: () => number;
  /** Longest wait for a server to start and to list its tools, ms. */
  readonly connectMs?: number;
  /** Largest message of a server, in bytes; default 16 MiB. */
  readonly maxMessageBytes?: number;
}

const CONNECT_MS = 15_000;
const CALL_MS = 60_000;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
const MAX_TOOLS = 1_000;
/** What is kept of a server's error output, for the log when it dies. */
const KEPT_STDERR = 2_048;
/** JSON-RPC code of a server that speaks only the newer revision. */
const UNSUPPORTED_PROTOCOL_VERSION = -32022;

/** The call never reached the server, so nothing happened: it may be tried again. */
export class McpUnavailable extends Error {
  override readonly name = "McpUnavailable";
}

/** The server offers no tool of that name, or no more. */
export class McpNoSuchTool extends Error {
  override readonly name = "McpNoSuchTool";
}

interface Live {
  readonly client: Client;
  readonly stderr: () => string;
  /** Undefined: to be listed again. */
  tools: ReadonlyMap<string, Tool> | undefined;
  noise: number;
}

export interface McpCall {
  readonly tool: string;
  readonly args: JsonObject;
  readonly dispatch_id: string;
  readonly signal: AbortSignal;
}

export class McpConnection {
  readonly name: string;
  readonly #config: McpServerConfig;
  readonly #options: ConnectionOptions;
  readonly #now: () => number;
  #live: Live | undefined;
  #connecting: Promise<Live> | undefined;
  #failures = 0;
  #nextTryAt = 0;
  #lastFault = "";
  #inFlight = 0;
  #closed = false;

  constructor(name: string, config: McpServerConfig, options: ConnectionOptions) {
    this.name = name;
    this.#config = config;
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** Names that the server offered when it was last asked; empty while it is not connected. */
  get offered(): readonly string[] {
    return [...(this.#live?.tools?.keys() ?? [])];
  }

  /** @throws McpUnavailable */
  async listTools(): Promise<readonly Tool[]> {
    return [...(await this.#tools(await this.#connect(), true)).values()];
  }

  /**
   * @throws McpUnavailable, McpNoSuchTool: nothing happened; the SDK's errors and whatever else: the server had it
   */
  async call(call: McpCall): Promise<CallToolResult> {
    const live = await this.#connect();
    const known = await this.#tools(live, false);
    if (!known.has(call.tool) && !(await this.#tools(live, true)).has(call.tool))
      throw new McpNoSuchTool(`the MCP server "${this.name}" offers no tool "${call.tool}"`);
    call.signal.throwIfAborted();
    this.#inFlight++;
    try {
      return await live.client.request(
        {
          method: "tools/call",
          params: { name: call.tool, arguments: call.args, _meta: { "holdfast/dispatch_id": call.dispatch_id } },
        },
        { timeout: this.#config.timeout_ms ?? CALL_MS, signal: call.signal },
      );
    } catch (error) {
      if (await this.#isTimeout(error)) {
        // A server that hangs would hang the next call too; it is started anew unless others still wait for it.
        if (this.#inFlight === 1) void this.#drop(live);
        throw new Error(
          `the MCP server "${this.name}" has not answered within ${this.#config.timeout_ms ?? CALL_MS} ms`,
          { cause: error },
        );
      }
      throw error;
    } finally {
      this.#inFlight--;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const live = this.#live ?? (await this.#connecting?.catch(() => undefined));
    if (live !== undefined) await this.#drop(live);
  }

  // ── connecting ──────────────────────────────────────────────────────────────────────────────────────────────

  async #connect(): Promise<Live> {
    if (this.#closed) throw new McpUnavailable(`the MCP server "${this.name}" is closed`);
    if (this.#live !== undefined) return this.#live;
    if (this.#connecting === undefined) {
      const wait = this.#nextTryAt - this.#now();
      if (wait > 0)
        throw new McpUnavailable(
          `the MCP server "${this.name}" failed ${this.#failures} times (${this.#lastFault}); it is tried again in ${Math.ceil(wait / 1000)} s`,
        );
      this.#connecting = this.#open().finally(() => {
        this.#connecting = undefined;
      });
    }
    return this.#connecting;
  }

  async #open(): Promise<Live> {
    try {
      const live = await this.#handshake("legacy").catch(async (error: unknown) => {
        if (Object(error).code !== UNSUPPORTED_PROTOCOL_VERSION) throw error;
        return this.#handshake("auto");
      });
      if (this.#closed) {
        await live.client.close();
        throw new Error("it was closed meanwhile");
      }
      this.#live = live;
      this.#failures = 0;
      return live;
    } catch (error) {
      this.#failed(error);
      throw new McpUnavailable(`the MCP server "${this.name}" cannot be reached: ${this.#lastFault}`, { cause: error });
    }
  }

  async #handshake(mode: "legacy" | "auto"): Promise<Live> {
    const { Client } = await import("@modelcontextprotocol/client");
    const { transport, stderr } = await this.#transport();
    const client = new Client(
      { name: "holdfast", version: this.#options.version ?? "1" },
      { capabilities: {}, versionNegotiation: { mode } },
    );
    const live: Live = { client, stderr, tools: undefined, noise: 0 };
    client.onclose = () => this.#gone(live);
    client.onerror = (error) => this.#noise(live, error);
    client.setNotificationHandler("notifications/tools/list_changed", () => {
      live.tools = undefined;
    });
    const timeout = this.#options.connectMs ?? CONNECT_MS;
    const deadline = AbortSignal.timeout(timeout);
    try {
      await Promise.race([client.connect(transport, { timeout, signal: deadline }), aborted(deadline, timeout)]);
      return live;
    } catch (error) {
      void client.close().catch(() => undefined);
      void transport.close().catch(() => undefined);
      const said = stderr().trim();
      throw said === ""
        ? error
        : Object.assign(new Error(`${messageOf(error)}; it said: ${said}`, { cause: error }), {
            code: Object(error).code,
          });
    }
  }

  async #transport(): Promise<{ readonly transport: Transport; readonly stderr: () => string }> {
    const config = this.#config;
    if ("url" in config) {
      const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
      const headers = await this.#resolve(config.headers ?? {});
      const transport = new StreamableHTTPClientTransport(new URL(config.url), {
        requestInit: { headers },
        fetch: boundedFetch(this.#options.maxMessageBytes ?? MAX_MESSAGE_BYTES),
      });
      return { transport, stderr: () => "" };
    }
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    const transport = new StdioClientTransport({
      command: config.command,
      args: [...(config.args ?? [])],
      env: await this.#resolve(config.env ?? {}),
      cwd: resolve(this.#options.workspace, config.cwd ?? "."),
      stderr: "pipe",
      maxBufferSize: this.#options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
    });
    let kept = "";
    transport.stderr?.on("data", (chunk: Buffer) => {
      kept = `${kept}${chunk.toString("utf8")}`.slice(-KEPT_STDERR);
    });
    return { transport, stderr: () => kept };
  }

  /** Secrets live in the child's environment or the request only; they come from the configuration alone. */
  async #resolve(values: { readonly [name: string]: McpText }): Promise<Record<string, string>> {
    const resolved: [string, string][] = [];
    for (const [name, value] of Object.entries(values)) {
      if (typeof value === "string") resolved.push([name, value]);
      else {
        const secret = await this.#options.secrets.resolve(value.$secret);
        if (!secret.ok) throw new Error(`${name}: ${secret.reason}`);
        resolved.push([name, secret.value]);
      }
    }
    return Object.fromEntries(resolved);
  }

  // ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────

  async #tools(live: Live, again: boolean): Promise<ReadonlyMap<string, Tool>> {
    if (live.tools !== undefined && !again) return live.tools;
    const timeout = this.#options.connectMs ?? CONNECT_MS;
    try {
      const { tools } = await live.client.listTools(undefined, { timeout, cacheMode: "refresh" });
      if (tools.length > MAX_TOOLS) throw new Error(`it offers more than ${MAX_TOOLS} tools`);
      live.tools = new Map(tools.map((tool) => [tool.name, tool]));
      return live.tools;
    } catch (error) {
      this.#failed(error);
      void this.#drop(live);
      throw new McpUnavailable(`the MCP server "${this.name}" does not list its tools: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  // ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────

  #failed(error: unknown): void {
    this.#failures++;
    this.#lastFault = messageOf(error).slice(0, 512);
    this.#nextTryAt = this.#now() + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures - 1, 16));
    this.#options.log?.("warn", "an MCP server failed", {
      server: this.name,
      failures: this.#failures,
      fault: this.#lastFault,
    });
  }

  /** It died by itself: the next call starts it again, after a pause, so that one that dies at once does not spin. */
  #gone(live: Live): void {
    if (this.#live !== live) return;
    this.#live = undefined;
    if (this.#closed) return;
    this.#failed(new Error(`it ended${live.stderr().trim() === "" ? "" : `; it said: ${live.stderr().trim()}`}`));
  }

  async #drop(live: Live): Promise<void> {
    if (this.#live === live) this.#live = undefined;
    await live.client
      .close()
      .catch((error: unknown) =>
        this.#options.log?.("info", "an MCP server did not close cleanly", { server: this.name, error }),
      );
  }

  /** What is no protocol on its output is passed over; said once, then at every thousandth line. */
  #noise(live: Live, error: Error): void {
    if (live.noise++ % 1_000 !== 0) return;
    this.#options.log?.("warn", "an MCP server sends what is no message", {
      server: this.name,
      times: live.noise,
      fault: error.message.slice(0, 512),
    });
  }

  async #isTimeout(error: unknown): Promise<boolean> {
    const { SdkError, SdkErrorCode } = await import("@modelcontextprotocol/client");
    return error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout;
  }
}

function aborted(signal: AbortSignal, ms: number): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new Error(`it has not answered within ${ms} ms`)), { once: true });
  });
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
