/** The server's log: JSON lines on standard error, with names and numbers and never a payload (issue C point 5). */
import { pino } from "pino";
import { HoldfastError } from "../domain/errors.ts";

export type LogFields = { readonly [name: string]: string | number | boolean | undefined };

export interface ServerLog {
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export const SILENT: ServerLog = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** @param write where lines go; default standard error, since standard output belongs to the command's result */
export function createLog(
  options: { readonly level?: "info" | "warn" | "error"; readonly write?: (line: string) => void } = {},
): ServerLog {
  const { write } = options;
  const log = pino(
    {
      level: options.level ?? "info",
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
    },
    write === undefined ? pino.destination({ fd: 2, sync: true }) : { write },
  );
  return {
    info: (message, fields = {}) => log.info(fields, message),
    warn: (message, fields = {}) => log.warn(fields, message),
    error: (message, fields = {}) => log.error(fields, message),
  };
}

/**
 * What of an error may stand in a log. Only the words of the store are written out, because nobody else sees
 * them (RP-83); other messages may quote what a run was given.
 */
export function errorFields(error: unknown): LogFields {
  if (!HoldfastError.is(error))
    return { code: "internal", error: error instanceof Error ? error.name : "thrown", at: placeOf(error) };
  const own = error.code === "storage" || error.code === "storage_unavailable";
  const cause = error.cause;
  return {
    code: error.code,
    ...(own ? { error: error.message } : {}),
    ...(error.code === "internal"
      ? { cause: cause instanceof Error ? cause.name : undefined, at: placeOf(cause ?? error) }
      : {}),
  };
}

/** Where in the code, without the message: stack frames name functions and files only. */
function placeOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || error.stack === undefined) return undefined;
  const frames = error.stack.split("\n").filter((line) => /^\s+at /.test(line));
  return frames
    .slice(0, 6)
    .map((line) => line.trim())
    .join(" < ");
}

/** Ids that Holdfast gave or would accept; anything else of a caller never enters a log. */
export function safeId(text: string | undefined): string | undefined {
  return text !== undefined && /^[A-Za-z0-9_-]{1,128}$/.test(text) ? text : undefined;
}
