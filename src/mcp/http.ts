/** MCP over streamable HTTP: a handler that the HTTP room mounts behind its own token, Host and Origin checks. */
import { createMcpHandler, InMemoryServerEventBus } from "@modelcontextprotocol/server";
import type { Caller, Holdfast } from "../access/index.ts";
import { watchPublications } from "./publications.ts";
import { createServer } from "./server.ts";
import { createService, type McpOptions, type McpService } from "./service.ts";

/** Largest request body, in bytes (interfaces §3). */
const MAX_BODY_BYTES = 1024 * 1024;
const MAX_SUBSCRIPTIONS = 256;

export interface HttpOptions extends Omit<McpOptions, "readOnly"> {
  /** What a request without a caller of its own may do. Default `observer`: reading only. */
  readonly role?: Caller["role"];
}

export interface McpHttpHandler {
  (request: Request, caller?: Caller): Promise<Response>;
  /** Ends what is being served; the runs go on. */
  close(): Promise<void>;
}

/**
 * Answers MCP requests. An operator may start runs: who puts an operator's token into a client has opted in, as who
 * configures `holdfast mcp` has. An observer only reads.
 */
export function createMcpHttpHandler(holdfast: Holdfast, options: HttpOptions = {}): McpHttpHandler {
  const { role = "observer", ...shared } = options;
  const roles = new Map<Caller["role"], Served>();
  const served = (wanted: Caller["role"]): Served => {
    let one = roles.get(wanted);
    if (one === undefined) {
      one = serve(createService(holdfast, { ...shared, readOnly: wanted !== "operator" }));
      roles.set(wanted, one);
    }
    return one;
  };
  const handle = (request: Request, caller?: Caller): Promise<Response> => served(caller?.role ?? role).fetch(request);
  return Object.assign(handle, {
    close: async () => {
      for (const one of roles.values()) await one.close();
    },
  });
}

interface Served {
  fetch(request: Request): Promise<Response>;
  close(): Promise<void>;
}

function serve(service: McpService): Served {
  const bus = new ListenedBus(service);
  const handler = createMcpHandler(() => createServer(service), {
    bus,
    maxRequestBodySize: MAX_BODY_BYTES,
    maxSubscriptions: MAX_SUBSCRIPTIONS,
    onerror: (error) => service.log?.("info", "an MCP request was refused", { error }),
  });
  return {
    fetch: (request) => handler.fetch(request),
    close: async () => {
      bus.stop();
      await handler.close();
    },
  };
}

/** Looks at the catalog only while somebody listens for changes. */
class ListenedBus extends InMemoryServerEventBus {
  readonly #service: McpService;
  #unwatch: (() => void) | undefined;

  constructor(service: McpService) {
    super((error) => service.log?.("warn", "an MCP listener failed", { error }));
    this.#service = service;
  }

  override subscribe(listener: Parameters<InMemoryServerEventBus["subscribe"]>[0]): () => void {
    const unsubscribe = super.subscribe(listener);
    this.#unwatch ??= watchPublications(this.#service, () => {
      this.publish({ kind: "tools_list_changed" });
      this.publish({ kind: "resources_list_changed" });
    });
    return () => {
      unsubscribe();
      if (this.listenerCount === 0) this.stop();
    };
  }

  stop(): void {
    this.#unwatch?.();
    this.#unwatch = undefined;
  }
}
