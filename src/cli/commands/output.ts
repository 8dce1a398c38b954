/** `holdfast output`: the output of a run and nothing around it. */
import { HoldfastError } from "../../domain/errors.ts";
import { resolvePointer } from "../../domain/json.ts";
import { type Context, commandLine, withWorkspace } from "../context.ts";
import { exitOf, showError } from "../output.ts";
import { outputText } from "../render/run.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, { readOnly: true }, async (holdfast) => {
    const { out, flags } = context;
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const { status, output } = await holdfast.runs.inspect(runId);
    if (output === undefined) {
      // The status is the run's, not the refusal's: a script waits on 3 and gives up on 1 and 4.
      const missing = new HoldfastError(
        "not_possible",
        `Cannot print the output: the run is ${status} and has none; see ${commandLine(context, "why", runId)}`,
      );
      showError(out, missing, ["output"]);
      return exitOf(status);
    }
    const pointer = flags.text("pointer") ?? "";
    const value = resolvePointer(output, pointer);
    if (value === undefined)
      throw new HoldfastError(
        "usage",
        `Cannot print the output: it has nothing at ${JSON.stringify(pointer)}; give a JSON pointer such as /summary`,
      );
    if (flags.on("raw") && typeof value === "string") out.print(outputText(value, true));
    else if (out.json) out.document(value);
    else out.print(outputText(value));
    return exitOf(status);
  });
}
