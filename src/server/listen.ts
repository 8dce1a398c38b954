/**
 * The HTTP interface on a socket: what Node's server must bound before a request exists (header size and time, slow
 * clients, connections), what only the raw request shows (repeated headers, odd addresses), and a stop that ends.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { HoldfastError } from "../domain/errors.ts";
import type { App } from "./app.ts";
import { isPlainTarget } from "./gate.ts";
import { problemResponse, refusal } from "./problem.ts";

export interface ListenOptions {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  /** Longest wait at a stop for answers and streams to end, ms. */
  readonly stop_ms?: number;
}

export interface Listening {
  readonly port: number;
  /** Takes no more, lets answers end and streams say goodbye, then cuts what is left. */
  stop(): Promise<void>;
}

const HEADER_BYTES = 16 * 1024;
const HEADERS_MS = 10_000;
/** Whole request, body included. */
const REQUEST_MS = 30_000;
/** A connection on which nothing moves, not even a heartbeat, is a dead or stuck reader. */
const STUCK_MS = 120_000;
const CONNECTIONS = 2_048;
const STOP_MS = 10_000;

/** Headers of which two would let two readers see two requests. */
const SINGLE = new Set([
  "host",
  "authorization",
  "content-type",
  "content-length",
  "content-encoding",
  "transfer-encoding",
  "origin",
  "sec-fetch-site",
  "idempotency-key",
  "last-event-id",
  "range",
]);

/** @throws HoldfastError `usage` when the address cannot be listened on */
export async function listen(app: App, options: ListenOptions): Promise<Listening> {
  const answer = getRequestListener((request) => app.fetch(request), { overrideGlobalObjects: false });
  const connections = new Connections();
  const server = createServer(
    {
      maxHeaderSize: HEADER_BYTES,
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: 5_000,
      connectionsCheckingInterval: 5_000,
      insecureHTTPParser: false,
    },
    (incoming, outgoing) => {
      connections.asks(incoming.socket, outgoing);
      const problem = rawProblem(incoming);
      if (problem === undefined) void answer(incoming, outgoing);
      else refuse(outgoing, problem);
    },
  );
  server.on("connection", (socket) => connections.add(socket));
  server.maxConnections = CONNECTIONS;
  server.timeout = STUCK_MS;
  // Node hands an upgrade over instead of answering it; here nothing is ever upgraded.
  server.on("upgrade", (_, socket) =>
    socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
  );
  server.on("connect", (_, socket) =>
    socket.end("HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
  );
  await bind(server, options);
  const { port } = server.address() as AddressInfo;
  let stopping: Promise<void> | undefined;
  return {
    port,
    stop: () => {
      stopping ??= stop(app, server, connections, options.stop_ms ?? STOP_MS);
      return stopping;
    },
  };
}

function rawProblem({ rawHeaders, url }: IncomingMessage): HoldfastError | undefined {
  if (!isPlainTarget(url ?? ""))
    return refusal(
      "usage",
      "Cannot read the address: it is not a plain path; percent-encode each part once and use no dot segments",
    );
  const seen = new Set<string>();
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] as string).toLowerCase();
    if (!SINGLE.has(name)) continue;
    if (seen.has(name))
      return refusal("usage", `Cannot read the request: the header ${name} stands twice; send it once`);
    seen.add(name);
  }
  if (seen.has("content-length") && seen.has("transfer-encoding"))
    return refusal("usage", "Cannot read the request: it gives two lengths; send one");
  return undefined;
}

function refuse(outgoing: ServerResponse, error: HoldfastError): void {
  const response = problemResponse(error, { operator: false, request_id: "none" });
  outgoing.writeHead(response.status, {
    ...Object.fromEntries(response.headers),
    Connection: "close",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
  });
  void response.text().then((text) => outgoing.end(text));
}

function bind(server: Server, { host, port }: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException): void => {
      const state =
        error.code === "EADDRINUSE"
          ? "the port is taken"
          : error.code === "EACCES"
            ? "the port may not be used"
            : `the system says ${error.code ?? "no"}`;
      reject(
        new HoldfastError(
          "usage",
          `Cannot listen on ${host}:${port}: ${state}; choose another with --port, or 0 for any`,
          { cause: error },
        ),
      );
    };
    server.once("error", failed);
    server.listen({ host, port }, () => {
      server.off("error", failed);
      resolve();
    });
  });
}

/**
 * Which connections have a request under way. Node's own count of idle ones leaves out those that have not asked for
 * anything yet, which clients open ahead of need; a stop would wait for them.
 */
class Connections {
  readonly #busy = new Map<Socket, number>();

  add(socket: Socket): void {
    this.#busy.set(socket, 0);
    socket.once("close", () => this.#busy.delete(socket));
  }

  asks(socket: Socket, outgoing: ServerResponse): void {
    this.#busy.set(socket, (this.#busy.get(socket) ?? 0) + 1);
    outgoing.once("close", () => {
      const left = this.#busy.get(socket);
      if (left !== undefined) this.#busy.set(socket, left - 1);
    });
  }

  endIdle(): void {
    for (const [socket, requests] of this.#busy) if (requests === 0) socket.destroySoon();
  }
}

function stop(app: App, server: Server, connections: Connections, graceMs: number): Promise<void> {
  app.stop();
  return new Promise((resolve) => {
    const idle = setInterval(() => connections.endIdle(), 25);
    const cut = setTimeout(() => server.closeAllConnections(), graceMs);
    server.close(() => {
      clearInterval(idle);
      clearTimeout(cut);
      resolve();
    });
    connections.endIdle();
  });
}
