/** `holdfast run`: starts a workflow and follows it. */
import { type Context, withWorkspace } from "../context.ts";
import { parseDuration } from "../duration.ts";
import { follow } from "../follow.ts";
import { readAsked, startQueued, startRequest } from "../starting.ts";

export async function run(context: Context): Promise<number> {
  const timeout = context.flags.text("timeout");
  const timeoutMs = timeout === undefined ? undefined : parseDuration(timeout, "--timeout");
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const asked = await readAsked(context, holdfast, "run");
    if (context.flags.on("detach")) return await startQueued(context, holdfast, asked);
    const handle = await holdfast.start(startRequest(context, asked, false));
    if (handle.replayed && !context.out.json)
      context.out.note(`The key was used before: this is run ${handle.run_id}.`);
    return await follow(context, holdfast, handle.run_id, {
      workspace,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    });
  });
}
