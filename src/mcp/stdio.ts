/** MCP on stdio: one client, for as long as its input lasts. Nothing but the protocol goes to the output. */
import type { Readable, Writable } from "node:stream";
import type { Server } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import type { Holdfast } from "../access/index.ts";
import { watchPublications } from "./publications.ts";
import { createServer } from "./server.ts";
import { createService, type McpOptions } from "./service.ts";

/** Largest message from a client, in bytes: checked before it is parsed. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

export interface StdioOptions extends McpOptions {
  readonly input?: Readable;
  readonly output?: Writable;
  /** Ends the serving; the runs go on. */
  readonly signal?: AbortSignal;
}

/** Serves until the input ends or `signal` aborts. @throws HoldfastError when the session cannot be opened */
export async function serveMcpStdio(holdfast: Holdfast, options: StdioOptions = {}): Promise<void> {
  const service = createService(holdfast, options);
  await service.ready();
  const servers = new Set<Server>();
  let ended: () => void = () => undefined;
  const end = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const transport = new EndingTransport(options.input ?? process.stdin, options.output ?? process.stdout, ended);
  const handle = serveStdio(
    () => {
      const server = createServer(service);
      servers.add(server);
      server.onclose = () => servers.delete(server);
      return server;
    },
    { transport, onerror: (error) => service.log?.("warn", "the MCP connection reports an error", { error }) },
  );
  const unwatch = watchPublications(service, () => {
    for (const server of servers) void announce(server);
  });
  options.signal?.addEventListener("abort", ended, { once: true });
  if (options.signal?.aborted === true) ended();
  try {
    await end;
  } finally {
    options.signal?.removeEventListener("abort", ended);
    unwatch();
    await handle.close();
  }
}

/** A client that is not ready to hear it asks for the lists anyway. */
async function announce(server: Server): Promise<void> {
  await server.sendToolListChanged().catch(() => undefined);
  await server.sendResourceListChanged().catch(() => undefined);
}

/** Tells when the client has gone, which the serving entry keeps to itself. */
class EndingTransport extends StdioServerTransport {
  readonly #ended: () => void;

  constructor(input: Readable, output: Writable, ended: () => void) {
    super(input, output, { maxBufferSize: MAX_MESSAGE_BYTES });
    this.#ended = ended;
  }

  override async close(): Promise<void> {
    await super.close();
    this.#ended();
  }
}
