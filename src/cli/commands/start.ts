/** `holdfast start`: leaves a run queued for a worker process. */
import { type Context, withWorkspace } from "../context.ts";
import { readAsked, startQueued } from "../starting.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, {}, async (holdfast) => {
    return await startQueued(context, holdfast, await readAsked(context, holdfast, "start"));
  });
}
