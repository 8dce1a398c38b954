/** `holdfast preview`: what would run. */
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { previewLines } from "../render/preview.ts";
import { readAsked } from "../starting.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, { needStore: false, readOnly: true }, async (holdfast) => {
    // Without inputs it can still be looked at: what depends on them is shown at its worst.
    const { workflow, ...options } = await readAsked(context, holdfast, "preview", { optional: true });
    const preview = await holdfast.workflows.preview(workflow, options);
    if (context.out.json) context.out.document(preview);
    else context.out.print(...previewLines(preview, context));
    return preview.refusals.length === 0 ? EXIT.succeeded : EXIT.refused;
  });
}
