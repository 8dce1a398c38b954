/** What `run`, `start` and `preview` share: a workflow, its inputs and limits, from words to a request. */
import type { Holdfast, Run, StartRequest } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import type { Budgets } from "../domain/run.ts";
import { type Context, commandLine } from "./context.ts";
import { readBudget, readInputs } from "./inputs.ts";
import { readText } from "./reading.ts";

export interface Asked {
  readonly workflow: string;
  /** Absent when nothing was given and nothing is needed to look. */
  readonly args?: Json;
  readonly budget?: Partial<Budgets>;
}

/** @throws HoldfastError `usage`, `input`, `not_found`, `definition`: nothing has been started */
export async function readAsked(
  context: Context,
  holdfast: Holdfast,
  verb: string,
  how: { optional?: true } = {},
): Promise<Asked> {
  const workflow = context.args[0] ?? "";
  const { flags } = context;
  const budget = readBudget(flags.list("budget"));
  const fileName = flags.text("inputFile");
  const pairs = flags.list("input");
  const rest = budget === undefined ? {} : { budget };
  if (how.optional && pairs.length === 0 && fileName === undefined) return { workflow, ...rest };
  // Read before anything is asked of the catalog, so that a pipe is never left hanging by a refusal.
  const file = fileName === undefined ? undefined : await readText(context, fileName, "--input-file");
  const entry = await holdfast.workflows.get(workflow);
  if (entry.state === "broken")
    throw new HoldfastError("definition", `Cannot ${verb} ${workflow}: its file has mistakes; correct them`, {
      details: { diagnostics: entry.diagnostics.map((d) => ({ ...d })) },
    });
  const command = [context.process.program, ...context.globals.repeated, verb, workflow];
  const args = readInputs({ pairs, ...(file === undefined ? {} : { file }) }, entry.input_schema, command);
  return { workflow, args, ...rest };
}

export function startRequest(context: Context, asked: Asked, queue: boolean): StartRequest {
  const key = context.flags.text("key");
  return { ...asked, ...(key === undefined ? {} : { key }), ...(queue ? { queue } : {}) };
}

/** Leaves the run queued and says what that means. */
export async function startQueued(context: Context, holdfast: Holdfast, asked: Asked): Promise<number> {
  const handle = await holdfast.start(startRequest(context, asked, true));
  const run = await holdfast.runs.inspect(handle.run_id);
  const lines = handle.replayed ? [`The key was used before, for this run; it is ${run.status}.`] : [];
  if (run.status === "queued")
    lines.push("Queued. It begins when a worker process takes it; no worker process is started here. To run it now:");
  showLeft(context, run, lines);
  return 0;
}

/** A run that is not followed: its id on stdout (the run under `--json`), the rest on stderr. */
export function showLeft(context: Context, run: Run, lines: readonly string[] = []): void {
  if (context.out.json) context.out.document(run);
  else context.out.print(run.run_id);
  const ended = run.status === "succeeded" || run.status === "failed" || run.status === "cancelled";
  context.out.note(...lines, ...(ended ? [] : [`  ${commandLine(context, "resume", run.run_id)}`]));
}
