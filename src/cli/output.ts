/**
 * Everything that leaves the command: result documents on stdout, sentences on stderr, and the exit status.
 * The one place for the framing of `--json` (interfaces §2) and for how errors look (DESIGN §13).
 */
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { ERRORS, type ErrorDoc, HoldfastError } from "../domain/errors.ts";
import type { Diagnostic } from "../domain/plan/index.ts";
import type { RunStatus } from "../domain/run.ts";
import { type Streams, type Style, styleOf, type Terminal } from "./terminal.ts";
import { jsonText, oneLine, printable } from "./text.ts";
import { VERSION } from "./version.ts";

export const EXIT = {
  succeeded: 0,
  failed: 1,
  refused: 2,
  suspended: 3,
  cancelled: 4,
  unavailable: 5,
  bug: 70,
  interrupted: 130,
} as const;

/** Status of a verb that moves a run. A run that is still on its way was left by wish (`--detach`, `--timeout`). */
export function exitOf(status: RunStatus): number {
  switch (status) {
    case "succeeded":
      return EXIT.succeeded;
    case "failed":
      return EXIT.failed;
    case "cancelled":
      return EXIT.cancelled;
    default:
      return EXIT.suspended;
  }
}

export interface Output {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly verbose: boolean;
  readonly terminal: Terminal;
  readonly style: Style;
  /** False once the reader of stdout is gone (`| head`): streams stop, runs do not. */
  readonly open: boolean;
  /** The one result document of `--json`, indented on a terminal. */
  document(value: unknown): void;
  /** One line of a `--json` stream. */
  jsonLine(value: unknown): void;
  /** Result lines for people, already harmless. */
  print(...lines: readonly string[]): void;
  /** What goes on, for people: stderr, silent under `--quiet`. */
  note(...lines: readonly string[]): void;
  /** What a person must know whatever the verbosity: stderr. */
  tell(...lines: readonly string[]): void;
  /** Progress that rewrites its own line; only on a live terminal. */
  status(line: string): void;
  /** Waits until what was written has left the process. */
  flush(): Promise<void>;
}

export function createOutput(
  streams: Streams,
  terminal: Terminal,
  wishes: { json: boolean; quiet: boolean; verbose: boolean },
): Output {
  let open = true;
  let statusShown = false;
  const gone = () => {
    open = false;
  };
  // EPIPE: the reader has seen enough. Without a handler Node would end the process in the middle of a run.
  streams.stdout.on("error", gone);
  streams.stderr.on("error", () => {});
  const clearStatus = () => {
    if (statusShown) streams.stderr.write("\r\u001b[2K");
    statusShown = false;
  };
  const write = (stream: Streams["stdout"], lines: readonly string[]) => {
    if (lines.length === 0 || (stream === streams.stdout && !open)) return;
    clearStatus();
    stream.write(`${lines.join("\n")}\n`);
  };
  const out: Output = {
    ...wishes,
    terminal,
    style: styleOf(terminal),
    get open() {
      return open;
    },
    document: (value) => write(streams.stdout, [jsonText(value, streams.stdout.isTTY === true ? 2 : 0)]),
    jsonLine: (value) => write(streams.stdout, [jsonText(value)]),
    print: (...lines) => write(streams.stdout, lines),
    note: (...lines) => {
      if (!wishes.quiet) write(streams.stderr, lines);
    },
    tell: (...lines) => write(streams.stderr, lines),
    status: (line) => {
      // Nothing to take away: whatever stands on the line now is not ours, such as a question.
      if (!terminal.live || wishes.quiet || (line === "" && !statusShown)) return;
      streams.stderr.write(`\r\u001b[2K${line}`);
      statusShown = line !== "";
    },
    flush: async () => {
      clearStatus();
      await Promise.all([drained(streams.stdout), drained(streams.stderr)]);
    },
  };
  return out;
}

function drained(stream: Streams["stdout"]): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed || !stream.writable) return resolve();
    stream.write("", () => resolve());
  });
}

/**
 * Shows an error: the document on stdout under `--json`, the sentence on stderr, and answers the exit status.
 * Whatever is not a HoldfastError is a bug of ours: a report file is written and named.
 */
export function showError(out: Output, error: unknown, command: readonly string[]): number {
  const known = HoldfastError.is(error) ? error : bug(error, command);
  const doc: ErrorDoc = {
    code: known.code,
    message: known.message,
    ...(known.details === undefined ? {} : { details: known.details }),
  };
  if (out.json) out.document({ error: doc });
  out.tell(`${out.style.bad("holdfast:")} ${printable(known.message)}`);
  const diagnostics = diagnosticsOf(known);
  if (!out.json && diagnostics.length > 0) out.tell(...diagnosticLines(diagnostics, out.style));
  if (out.verbose) out.tell(...stackLines(known));
  return ERRORS[known.code].exit;
}

function bug(error: unknown, command: readonly string[]): HoldfastError {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  const file = path.join(tmpdir(), `holdfast-report-${randomBytes(6).toString("hex")}.txt`);
  // Only the names of flags: their values may be secret.
  const words = command.filter((word, i) => i === 0 || /^--?[a-z]/.test(word)).map((word) => word.replace(/=.*/s, ""));
  const report = [
    `holdfast ${VERSION}`,
    `node ${process.version} ${process.platform} ${process.arch}`,
    `command ${words.join(" ")}`,
  ];
  let where = "no report file could be written";
  try {
    writeFileSync(file, `${[...report, "", text].join("\n")}\n`, { flag: "wx", mode: 0o600 });
    where = `send ${file} with your report`;
  } catch {
    where = `${where} to ${tmpdir()}`;
  }
  const first = error instanceof Error ? error.message : String(error);
  return new HoldfastError("internal", `Cannot go on: this is a bug in Holdfast (${oneLine(first)}); ${where}`, {
    cause: error,
  });
}

function stackLines(error: HoldfastError): string[] {
  const lines: string[] = [];
  for (let at: unknown = error, depth = 0; at instanceof Error && depth < 4; at = at.cause, depth++)
    lines.push(printable(at.stack ?? at.message));
  return lines;
}

function diagnosticsOf(error: HoldfastError): Diagnostic[] {
  const details = error.details;
  if (typeof details !== "object" || details === null || Array.isArray(details)) return [];
  const found = (details as { readonly diagnostics?: unknown }).diagnostics;
  return Array.isArray(found) ? found.filter(isDiagnostic) : [];
}

function isDiagnostic(value: unknown): value is Diagnostic {
  if (typeof value !== "object" || value === null) return false;
  const { file, line, message } = value as Partial<Diagnostic>;
  return typeof file === "string" && typeof line === "number" && typeof message === "string";
}

/** `file:line:column: error: message (code)`, as editors and CI read it; a hint on the next line. */
export function diagnosticLines(diagnostics: readonly Diagnostic[], style: Style): string[] {
  return diagnostics.flatMap((d) => {
    const severity = d.severity === "warning" ? style.warn("warning") : style.bad("error");
    const place = `${oneLine(d.file)}:${d.line}:${d.column}`;
    const line = `${place}: ${severity}: ${printable(d.message)} ${style.dim(`(${oneLine(d.code)})`)}`;
    return d.hint === undefined ? [line] : [line, `  hint: ${printable(d.hint)}`];
  });
}
