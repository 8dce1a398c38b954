/** `holdfast answer`: gives a run the input that it waits for. */
import { HoldfastError } from "../../domain/errors.ts";
import type { JsonObject } from "../../domain/json.ts";
import { type Context, decider, withWorkspace } from "../context.ts";
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
    const open = before.waits.filter((wait) => wait.type === "input" && (wanted === undefined || wait.wait_id === wanted));
    const schema = open.length === 1 ? (open[0]?.schema as JsonObject | undefined) : undefined;
    const value = document ?? readInputs({ pairs }, schema, ["answer", ref, ...(wanted === undefined ? [] : [wanted])]);
    const verb = await holdfast.waits.answer(runId, wanted, { value, decided_by: decider() });
    return await goOn(context, holdfast, verb, before.last_sequence, workspace);
  });
}
