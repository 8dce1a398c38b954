/** `holdfast serve`: the HTTP API of this workspace, and a worker process for its runs, until it is told to stop. */
import { spawn } from "node:child_process";
import { prepareState } from "../../config/index.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { createMcpHttpHandler } from "../../mcp/index.ts";
import {
  createLog,
  errorFields,
  Metrics,
  type RunningServer,
  type ServerLog,
  startServer,
  startTelemetry,
} from "../../server/index.ts";
import { type Context, openRequest } from "../context.ts";
import { diagnosticLines, EXIT } from "../output.ts";
import type { CompositionRoot, Opened } from "../root.ts";
import { VERSION } from "../version.ts";

export async function run(context: Context): Promise<number> {
  const { flags, globals, process } = context;
  const works = !flags.off("worker");
  const log = createLog({
    level: globals.quiet ? "warn" : "info",
    write: (line) => process.streams.stderr.write(line),
  });
  const metrics = new Metrics();
  const stopped = stopSignal(context);
  const root = await process.load();
  let listening = (): void => undefined;
  const tellAfter = new Promise<void>((resolve) => {
    listening = resolve;
  });
  const opened = await root.openWorkspace({
    ...openRequest(context),
    worker: works,
    tellAfter,
    onCommit: (ms) => metrics.commit(ms / 1_000),
    log: (level, message, details) => log[level](message, engineFields(details)),
  });
  try {
    context.out.note(...diagnosticLines(opened.diagnostics, context.out.style));
    const telemetry = await startTelemetry(opened.holdfast, opened.config?.telemetry, VERSION);
    try {
      return await serve(context, root, opened, { works, log, metrics, stopped, listening });
    } finally {
      await telemetry?.stop();
    }
  } finally {
    await opened.holdfast.close();
  }
}

interface Serving {
  readonly works: boolean;
  readonly log: ServerLog;
  readonly metrics: Metrics;
  readonly stopped: Promise<void>;
  /** To be called once the server can be reached. */
  readonly listening: () => void;
}

async function serve(
  context: Context,
  root: CompositionRoot,
  opened: Opened,
  { works, log, metrics, stopped, listening }: Serving,
): Promise<number> {
  const { flags } = context;
  const config = serverConfig(opened.config?.server);
  const host = flags.text("host") ?? config.host;
  const port = flags.whole("port", 0, 65_535) ?? config.port;
  const approvals = opened.config?.approvals?.mcp;
  const mcp = createMcpHttpHandler(opened.holdfast, {
    version: VERSION,
    drives: works,
    log: (level, message, details) => log[level](message, engineFields(details)),
    ...(approvals === undefined ? {} : { approvals }),
  });
  const server = await startServer({
    holdfast: opened.holdfast,
    stateDir: prepareState({ ...root.openWorkspaceFolder(opened.workspace), origin: "given" }),
    drives: works,
    log,
    metrics,
    mcp,
    allowHosts: [...config.allow_hosts, ...flags.list("allowHost")],
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port }),
  });
  try {
    listening();
    announce(context, server);
    await stopped;
    return EXIT.succeeded;
  } finally {
    await server.stop();
    await mcp.close();
  }
}

/** The one line that programs wait for, then nothing more on standard output. */
function announce(context: Context, { url, pid, token_file, token }: RunningServer): void {
  const { out, flags } = context;
  const shown = flags.on("printToken") ? { token } : {};
  if (out.json) out.jsonLine({ url, pid, token_file, ...shown });
  else
    out.print(`Serving ${url} (process ${pid}); the token is in ${token_file}`, ...("token" in shown ? [token] : []));
  if (flags.on("open")) openPage(url);
}

/** Opening a browser is a courtesy: where there is none, the address has been printed. */
function openPage(url: string): void {
  const [program, ...args] =
    globalThis.process.platform === "darwin"
      ? ["open", url]
      : globalThis.process.platform === "win32"
        ? ["cmd", "/c", "start", "", url]
        : ["xdg-open", url];
  const child = spawn(program as string, args, { stdio: "ignore", detached: true });
  child.once("error", () => undefined);
  child.unref();
}

/** The first SIGTERM or Ctrl-C stops in good order; the second leaves at once. */
function stopSignal({ process }: Context): Promise<void> {
  return new Promise((resolve) => {
    let asked = false;
    const listener = (): void => {
      if (asked) process.exit(EXIT.interrupted);
      asked = true;
      resolve();
    };
    process.onSignal("SIGTERM", listener);
    process.onSignal("SIGINT", listener);
  });
}

/** What the engine and the MCP room log, without texts that a run may have given. */
function engineFields(details: Record<string, unknown>): { [name: string]: string | number | boolean | undefined } {
  const { error, ...rest } = details;
  const plain = Object.entries(rest).filter(
    ([, value]) =>
      typeof value === "number" ||
      typeof value === "boolean" ||
      (typeof value === "string" && /^[\w.@:-]{1,128}$/.test(value)),
  );
  return {
    ...(Object.fromEntries(plain) as { [name: string]: string | number | boolean }),
    ...(error === undefined ? {} : errorFields(error)),
  };
}

interface ServerConfig {
  readonly host?: string;
  readonly port?: number;
  readonly allow_hosts: readonly string[];
}

/** `server: {host, port, allow_hosts}` of the configuration; a flag beats it. @throws HoldfastError `usage` */
function serverConfig(given: { readonly [key: string]: unknown } = {}): ServerConfig {
  const { host, port, allow_hosts = [], ...unknown } = given;
  const wrong = (what: string): HoldfastError =>
    new HoldfastError("usage", `Cannot use the configuration: \`server${what}`);
  const [first] = Object.keys(unknown);
  if (first !== undefined) throw wrong(`.${first}\` is no key of it; known: host, port, allow_hosts`);
  if (host !== undefined && typeof host !== "string") throw wrong(".host` must be a text, such as 127.0.0.1");
  if (port !== undefined && !(Number.isInteger(port) && Number(port) >= 0 && Number(port) <= 65_535))
    throw wrong(".port` must be a whole number from 0 to 65535");
  if (!Array.isArray(allow_hosts) || !allow_hosts.every((name) => typeof name === "string"))
    throw wrong(".allow_hosts` must be a list of host names");
  return {
    allow_hosts: allow_hosts as string[],
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port: Number(port) }),
  };
}
