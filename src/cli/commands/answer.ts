/** `holdfast answer`: gives a run the input that it waits for. */
import { HoldfastError } from "../../domain/errors.ts";
import type { JsonObject } from "../../domain/json.ts";
import { type Context, decider, withWorkspace } from "../context.ts";
import { chooseWait, openInputs } from "../decide.ts";
import { readInputs } from "../inputs.ts";
import { readJsonFile } from "../reading.ts";
import { goOn } from "./moving.ts";

export async function run(context: Context): Promise<number> {
  const [ref = "", wanted] = context.args;
  const pairs = context.flags.list("input");
  const file = context.flags.text("inputFile");
  if (pairs.length > 0 && file !== undefined)
    throw new HoldfastError("usage", "Cannot answer: --input and --input-file are both given; give one of them");
  const document = file === undefined ? undefined : await readJsonFile(context, file, "--input-file");
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(ref);
    const before = await holdfast.runs.inspect(runId);
    const open = await openInputs(holdfast, before);
    // The same answer again has the same answer, though nothing is open for it any more.
    const over = wanted !== undefined && /^w-\d+$/.test(wanted) && !open.some(({ wait_id }) => wait_id === wanted);
    const wait = over ? { run_id: runId, wait_id: wanted } : chooseWait(open, wanted, runId, "answer", context);
    const schema = "schema" in wait ? (wait.schema as JsonObject | undefined) : undefined;
    const value = document ?? readInputs({ pairs }, schema, ["answer", ref, ...(wanted === undefined ? [] : [wanted])]);
    const verb = await holdfast.waits.answer(wait.run_id, wait.wait_id, { value, decided_by: decider() });
    // The input may be a child's; what is followed is the run that was named.
    const named = wait.run_id === runId ? verb : { ...verb, run: await holdfast.runs.inspect(runId) };
    return await goOn(context, holdfast, named, before.last_sequence, workspace);
  });
}
