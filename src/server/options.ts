/** What a server is made from: the one door, who may ask, and the bounds of everything that comes in. */
import type { Caller, Holdfast } from "../access/api.ts";
import type { CursorSigner } from "./cursors.ts";
import type { KeyMemory } from "./key-memory.ts";
import type { ServerLog } from "./log.ts";
import type { Metrics } from "./metrics.ts";

export interface ServerBounds {
  /** Largest request body, before it is parsed. */
  readonly body_bytes: number;
  /** How long a body may take to arrive, ms. */
  readonly body_ms: number;
  /** Event streams open at once. */
  readonly streams: number;
  /** Silence after which a stream says that it lives, ms (interfaces §3). */
  readonly heartbeat_ms: number;
}

export const DEFAULT_BOUNDS: ServerBounds = {
  body_bytes: 1024 * 1024,
  body_ms: 20_000,
  streams: 512,
  heartbeat_ms: 15_000,
};

/** Answers MCP requests; made by the MCP room, mounted by whoever puts the rooms together. */
export type McpHandler = (request: Request, caller: Caller) => Promise<Response>;

export interface AppOptions {
  readonly holdfast: Holdfast;
  /** Undefined: the request has no valid token. */
  readonly authenticate: (request: Request) => Caller | undefined | Promise<Caller | undefined>;
  readonly version: string;
  /** Exact `Host` values; undefined: whoever mounted this has checked. */
  readonly hosts?: () => ReadonlySet<string>;
  readonly basePath?: string;
  readonly bounds?: Partial<ServerBounds>;
  readonly cursors?: CursorSigner;
  readonly keys?: KeyMemory;
  readonly log?: ServerLog;
  readonly metrics?: Metrics;
  readonly mcp?: McpHandler;
  /** False: runs that are started here are left to worker processes. Default true. */
  readonly drives?: boolean;
}

/** What every resource works with. */
export interface ServerContext {
  readonly holdfast: Holdfast;
  readonly version: string;
  readonly bounds: ServerBounds;
  readonly cursors: CursorSigner;
  readonly keys: KeyMemory;
  readonly log: ServerLog;
  readonly metrics: Metrics;
  readonly drives: boolean;
  readonly basePath: string;
  /** Aborts when the server stops: streams say goodbye. */
  readonly stopping: AbortSignal;
}
