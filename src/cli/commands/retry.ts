/** `holdfast retry`: a new run that keeps what settled in a failed one and goes on at its failed steps. */
import { type Context, withWorkspace } from "../context.ts";
import { follow } from "../follow.ts";
import { leaveAlone } from "./moving.ts";

export async function run(context: Context): Promise<number> {
  const [ref = "", step] = context.args;
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const handle = await holdfast.runs.retry(await holdfast.runs.find(ref), step);
    if (context.flags.on("detach")) return leaveAlone(context, await holdfast.runs.inspect(handle.run_id));
    if (!context.out.json) context.out.note(`New run ${handle.run_id}.`);
    return await follow(context, holdfast, handle.run_id, { workspace });
  });
}
