/** `holdfast watch`: follows a run that others move; leaving it changes nothing. */
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, withWorkspace } from "../context.ts";
import { exitOf } from "../output.ts";
import { endLines } from "../render/run.ts";
import { showEvent } from "./events.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, { readOnly: true }, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const stop = new AbortController();
    const unlisten = context.process.onSignal("SIGINT", () => stop.abort());
    try {
      for await (const event of holdfast.runs.follow(runId, { signal: stop.signal })) {
        showEvent(context, event);
        if (!context.out.open) break;
      }
    } catch (error) {
      if (!stop.signal.aborted || HoldfastError.is(error)) throw error;
    } finally {
      unlisten();
    }
    const ended = await holdfast.runs.inspect(runId);
    if (!context.out.json) context.out.note(...endLines(ended, context, workspace));
    return exitOf(ended.status);
  });
}
