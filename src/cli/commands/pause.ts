/** `holdfast pause`: stops dispatching and keeps everything. */
import { type Context, commandLine, decider, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { statusText } from "../render/run.ts";
import { showPending } from "./moving.ts";

const NOT_YET = "the process that holds the run has not answered yet, or gives what is at work time to settle";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, {}, async (holdfast) => {
    const reason = context.flags.text("reason");
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const { run: paused, pending } = await holdfast.runs.pause(runId, {
      decided_by: decider(),
      ...(reason === undefined ? {} : { reason }),
    });
    if (pending) return showPending(context, paused, NOT_YET);
    if (context.out.json) context.out.document(paused);
    else context.out.print(`${statusText(paused.status, context.out.style)}  run ${runId}`);
    context.out.note(`  ${commandLine(context, "resume", runId)}`);
    return EXIT.succeeded;
  });
}
