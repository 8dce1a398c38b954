/** `holdfast answer`: gives a run the input that it waits for; on a terminal it asks for it. */
import type { Holdfast, Verb } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import type { Json, JsonObject } from "../../domain/json.ts";
import type { Wait } from "../../domain/run.ts";
import { answerByAsking } from "../ask-input.ts";
import { type Context, decider, withWorkspace } from "../context.ts";
import { chooseWait, openInputs } from "../decide.ts";
import { readInputs } from "../inputs.ts";
import { EXIT } from "../output.ts";
import { readJsonFile } from "../reading.ts";
import { waitCommands } from "../render/wait.ts";
import { goOn } from "./moving.ts";

interface Given {
  readonly pairs: readonly string[];
  readonly document: Json | undefined;
}

export async function run(context: Context): Promise<number> {
  const [ref = "", wanted] = context.args;
  const given = await readGiven(context);
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(ref);
    const before = await holdfast.runs.inspect(runId);
    const open = await openInputs(holdfast, before);
    // The same answer again has the same answer, though nothing is open for it any more.
    const over = wanted !== undefined && /^w-\d+$/.test(wanted) && !open.some(({ wait_id }) => wait_id === wanted);
    const wait = over ? undefined : chooseWait(open, wanted, runId, "answer", context);
    const target = wait ?? { run_id: runId, wait_id: wanted ?? "" };
    const asks = given.pairs.length === 0 && given.document === undefined && context.out.terminal.canPrompt;
    const verb =
      asks && wait !== undefined
        ? await answerByAsking(context, holdfast, wait, workspace)
        : await send(context, holdfast, target, given);
    if (verb === undefined) return nothingAnswered(context, wait);
    // The input may be a child's; what is followed is the run that was named.
    const named = target.run_id === runId ? verb : { ...verb, run: await holdfast.runs.inspect(runId) };
    return await goOn(context, holdfast, named, before.last_sequence, workspace);
  });
}

/** @throws HoldfastError `usage` for both flags, or as the file is read */
async function readGiven(context: Context): Promise<Given> {
  const pairs = context.flags.list("input");
  const file = context.flags.text("inputFile");
  if (pairs.length > 0 && file !== undefined)
    throw new HoldfastError("usage", "Cannot answer: --input and --input-file are both given; give one of them");
  return { pairs, document: file === undefined ? undefined : await readJsonFile(context, file, "--input-file") };
}

async function send(
  context: Context,
  holdfast: Holdfast,
  wait: Pick<Wait, "run_id" | "wait_id" | "schema">,
  { pairs, document }: Given,
): Promise<Verb> {
  const command = [context.process.program, ...context.globals.repeated, "answer", ...context.args];
  const schema = wait.schema as JsonObject | undefined;
  // A document may be `null`.
  const value = document === undefined ? readInputs({ pairs }, schema, command, "answer") : document;
  return await holdfast.waits.answer(wait.run_id, wait.wait_id, { value, decided_by: decider() });
}

function nothingAnswered(context: Context, wait: Wait | undefined): number {
  context.out.tell("Nothing was answered. To answer later:");
  context.out.tell(...(wait === undefined ? [] : waitCommands(wait, context)).map((command) => `  ${command}`));
  return EXIT.suspended;
}
