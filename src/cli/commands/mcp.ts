/** `holdfast mcp`: this workspace's workflows for an MCP client, on standard input and output. */
import { HoldfastError } from "../../domain/errors.ts";
import { MCP_SESSION, serveMcpStdio } from "../../mcp/index.ts";
import { type Context, openRequest } from "../context.ts";
import { diagnosticLines, EXIT } from "../output.ts";
import { VERSION } from "../version.ts";

export async function run(context: Context): Promise<number> {
  const { process } = context;
  const readOnly = context.flags.on("readOnly");
  const session = context.globals.session ?? MCP_SESSION;
  const log = logTo(process.streams.stderr, context.globals.verbose, process.now);
  const root = await process.load();
  // A client starts runs and goes away; whatever they wait for has to be driven while this process lasts.
  const opened = await root.openWorkspace({ ...openRequest(context), session, worker: !readOnly, log });
  const stop = new AbortController();
  const unlisten = (["SIGINT", "SIGTERM"] as const).map((signal) => process.onSignal(signal, () => stop.abort()));
  try {
    for (const line of diagnosticLines(opened.diagnostics, context.out.style))
      process.streams.stderr.write(`${line}\n`);
    const approvals = opened.config?.approvals?.mcp;
    await serveMcpStdio(opened.holdfast, {
      session,
      readOnly,
      version: VERSION,
      log,
      signal: stop.signal,
      input: process.streams.stdin,
      output: process.streams.stdout,
      ...(approvals === undefined ? {} : { approvals }),
    });
    return EXIT.succeeded;
  } finally {
    for (const end of unlisten) end();
    await opened.holdfast.close();
  }
}

type Log = (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;

/** One JSON line each, on standard error only: standard output is the protocol's. */
function logTo(stderr: { write(text: string): unknown }, verbose: boolean, now: () => number): Log {
  return (level, message, details) => {
    if (level === "info" && !verbose) return;
    const shown = Object.fromEntries(Object.entries(details).map(([key, value]) => [key, loggable(value)]));
    stderr.write(`${JSON.stringify({ time: new Date(now()).toISOString(), level, message, ...shown })}\n`);
  };
}

function loggable(value: unknown): unknown {
  if (HoldfastError.is(value)) return { code: value.code, message: value.message };
  if (value instanceof Error) return { message: value.message, stack: value.stack };
  return value;
}
