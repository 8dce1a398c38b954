/** One call of the command from its words to its exit status. */
import { HoldfastError } from "../domain/errors.ts";
import type { Context, Process } from "./context.ts";
import { createOutput, EXIT, type Output, showError } from "./output.ts";
import { type Parsed, parseCommandLine } from "./program.ts";
import { detectTerminal } from "./terminal.ts";

/** Never throws: whatever goes wrong is shown and has its status (interfaces §2). */
export async function runCli(words: readonly string[], process: Process): Promise<number> {
  // Before the words are understood, a refusal must already be framed as its reader expects.
  const end = words.indexOf("--");
  const early = end < 0 ? words : words.slice(0, end);
  const wishes = {
    json: early.includes("--json"),
    color: !early.includes("--no-color"),
    prompts: !early.includes("--no-input"),
  };
  const terminal = detectTerminal(process.streams, process.env, wishes);
  const verbose = early.includes("-v") || early.includes("--verbose");
  let out = createOutput(process.streams, terminal, { json: wishes.json, quiet: false, verbose });
  let name = "holdfast";
  try {
    const color = process.streams.stdout.isTTY === true && terminal.color;
    const width = Number.isFinite(terminal.width) ? terminal.width : 100;
    const parsed = parseCommandLine(words, process.env, { program: process.program, width, color });
    if (parsed.type === "help") {
      out.print(parsed.text.trimEnd());
      return EXIT.succeeded;
    }
    name = parsed.spec.name;
    out = outputFor(parsed, process);
    return await dispatch(parsed, process, out);
  } catch (error) {
    return showError(out, error, [name, ...words]);
  } finally {
    await out.flush();
  }
}

function outputFor(parsed: Extract<Parsed, { type: "command" }>, process: Process): Output {
  const { json, quiet, verbose } = parsed.globals;
  return createOutput(process.streams, detectTerminal(process.streams, process.env, parsed.globals), {
    json,
    quiet,
    verbose,
  });
}

async function dispatch(parsed: Extract<Parsed, { type: "command" }>, process: Process, out: Output): Promise<number> {
  const { globals, args, flags, spec } = parsed;
  if (globals.quiet && globals.verbose)
    throw new HoldfastError(
      "usage",
      "Cannot be quiet and verbose at once: --quiet and --verbose are both given; drop one",
    );
  const command = await spec.load();
  const context: Context = { process, out, globals, args, flags };
  return await command.run(context);
}
