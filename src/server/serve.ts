/** A whole local server: tokens, state files, the HTTP interface on a socket, and their end in the right order. */
import { randomUUID } from "node:crypto";
import type { Holdfast } from "../access/api.ts";
import { INSTANCE_HEADER, osUser, serverFilePath } from "../config/index.ts";
import { createApp } from "./app.ts";
import { CursorSigner } from "./cursors.ts";
import { hostNames, isLoopback } from "./gate.ts";
import { KeyMemory } from "./key-memory.ts";
import { type Listening, listen } from "./listen.ts";
import { type ServerLog, SILENT } from "./log.ts";
import { Metrics } from "./metrics.ts";
import type { McpHandler, ServerBounds } from "./options.ts";
import { claimServerFile, keyMemoryPath, serverSecret } from "./state-files.ts";
import { newSecret, TokenFolder, tokenAuthenticator } from "./tokens.ts";
import { serverVersion } from "./version.ts";

export interface ServeOptions {
  readonly holdfast: Holdfast;
  /** The workspace's state folder; it exists. */
  readonly stateDir: string;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 4777; 0: any. */
  readonly port?: number;
  readonly allowHosts?: readonly string[];
  /** Whether runs that are started here are driven here. */
  readonly drives?: boolean;
  readonly log?: ServerLog;
  readonly metrics?: Metrics;
  readonly mcp?: McpHandler;
  readonly bounds?: Partial<ServerBounds>;
  readonly stop_ms?: number;
}

export interface RunningServer {
  readonly url: string;
  readonly pid: number;
  /** The operator's token of this server alone; new at every start. */
  readonly token: string;
  readonly token_file: string;
  /** Within `stop_ms`; the caller closes Holdfast afterwards, which leaves its runs claimable. */
  stop(): Promise<void>;
}

export const DEFAULT_PORT = 4777;

/** @throws HoldfastError `conflict` while another server serves this state, `usage` when the address cannot be used */
export async function startServer(options: ServeOptions): Promise<RunningServer> {
  const { holdfast, stateDir } = options;
  const log = options.log ?? SILENT;
  const host = options.host ?? "127.0.0.1";
  const metrics = options.metrics ?? new Metrics();
  const token = newSecret();
  const instance = randomUUID();
  let hosts: ReadonlySet<string> = new Set();
  const app = createApp({
    holdfast,
    version: serverVersion,
    authenticate: tokenAuthenticator({ secret: token, principal: osUser() }, new TokenFolder(stateDir)),
    hosts: () => hosts,
    cursors: new CursorSigner(serverSecret(stateDir)),
    keys: new KeyMemory(keyMemoryPath(stateDir)),
    log,
    metrics,
    ...(options.drives === undefined ? {} : { drives: options.drives }),
    ...(options.bounds === undefined ? {} : { bounds: options.bounds }),
    ...(options.mcp === undefined ? {} : { mcp: options.mcp }),
  });
  const named = {
    ...app,
    fetch: async (request: Request): Promise<Response> => {
      const response = await app.fetch(request);
      response.headers.set(INSTANCE_HEADER, instance);
      return response;
    },
  };
  // A GET changes nothing, so the session that requests take for granted is made before the first one.
  await holdfast.sessions.get("default");
  const store = (await holdfast.storeInfo()).url;
  const listening = await listen(named, {
    host,
    port: options.port ?? DEFAULT_PORT,
    ...(options.stop_ms === undefined ? {} : { stop_ms: options.stop_ms }),
  });
  hosts = hostNames(host, listening.port, options.allowHosts ?? []);
  const url = `http://${urlHost(host)}:${listening.port}`;
  const release = await claimOrStop(listening, () =>
    claimServerFile(stateDir, { url, pid: process.pid, token, instance, store, drives: options.drives ?? true }),
  );
  const detach = metrics.attach(holdfast);
  if (!isLoopback(host))
    log.warn("listening beyond this machine without TLS: put a proxy with TLS before it", { host });
  log.info("serving", { url, pid: process.pid });
  return {
    url,
    pid: process.pid,
    token,
    token_file: serverFilePath(stateDir),
    stop: () => stopAll(listening, [detach, release], log),
  };
}

async function claimOrStop<T>(listening: Listening, claim: () => Promise<T>): Promise<T> {
  try {
    return await claim();
  } catch (error) {
    await listening.stop();
    throw error;
  }
}

async function stopAll(listening: Listening, then: readonly (() => void)[], log: ServerLog): Promise<void> {
  log.info("stopping");
  await listening.stop();
  for (const act of then) act();
  log.info("stopped");
}

/** Where a client on this machine reaches a server that listens on `host`. */
function urlHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}
