/** `holdfast why`: in plain words, where a run stands, why, and what can be done. */
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { actionLines } from "../render/run.ts";
import { waitCommands } from "../render/wait.ts";
import { elapsed, oneLine, printable } from "../text.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, { readOnly: true, live: true }, async (holdfast) => {
    const { out } = context;
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const why = await holdfast.runs.why(runId);
    if (out.json) {
      out.document(why);
      return EXIT.succeeded;
    }
    out.print(printable(why.sentence));
    const now = context.process.now();
    for (const cause of why.causes) {
      if (cause.sentence === why.sentence) continue;
      const until = cause.until_ms === undefined ? "" : out.style.dim(` (${elapsed(cause.until_ms - now)} left)`);
      out.print(`  ${out.style.dot} ${oneLine(cause.sentence)}${until}`);
    }
    const inspected = await holdfast.runs.inspect(runId);
    const commands = [
      ...inspected.waits.flatMap((wait) =>
        waitCommands(wait, context, inspected.actions).map((command) => `  ${command}`),
      ),
      ...actionLines(inspected.actions, inspected, context),
    ].filter((line) => !line.includes(" why "));
    if (commands.length > 0) out.print("", out.style.dim("What can be done:"), ...new Set(commands));
    return EXIT.succeeded;
  });
}
