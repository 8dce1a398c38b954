#!/usr/bin/env node
// The start of the `holdfast` command: binds one call to this process and ends it with its status.
import path from "node:path";
import { fileURLToPath } from "node:url";
import { runCli } from "./cli.ts";
import { shellQuote } from "./text.ts";

/**
 * How the user would call this program again: `holdfast` when it was found by name, else the checkout's
 * `bin/holdfast`, relative where that is the shorter way to say it.
 */
function programName(started: string | undefined): string {
  if (started === undefined || !/[\\/]bin[\\/]holdfast$/.test(started) || /[\\/]node_modules[\\/]/.test(started))
    return "holdfast";
  const onPath = (process.env.PATH ?? "").split(path.delimiter).includes(path.dirname(started));
  if (onPath) return "holdfast";
  const relative = path.relative(process.cwd(), started);
  return shellQuote(relative.startsWith("..") ? started : relative);
}

const status = await runCli(process.argv.slice(2), {
  streams: process,
  env: process.env,
  cwd: process.cwd(),
  program: programName(process.argv[1]),
  entry: fileURLToPath(import.meta.url),
  load: async () => await import("../index.ts"),
  onSignal: (signal, listener) => {
    process.on(signal, listener);
    return () => process.off(signal, listener);
  },
  exit: (code) => process.exit(code),
  now: Date.now,
});
process.exit(status);
