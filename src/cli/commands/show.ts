/** `holdfast show`: where a run stands. */
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { runLines, stepDetailLines } from "../render/run.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, { readOnly: true }, async (holdfast, { workspace }) => {
    const { out, flags } = context;
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const stepId = flags.text("step");
    if (stepId !== undefined) {
      const step = await holdfast.runs.step(runId, stepId);
      if (out.json) out.document(step);
      else out.print(...stepDetailLines(step, out.style));
      return EXIT.succeeded;
    }
    const shown = await holdfast.runs.inspect(runId);
    if (out.json) out.document(shown);
    else out.print(...runLines(shown, context, workspace, flags.on("steps")));
    return EXIT.succeeded;
  });
}
