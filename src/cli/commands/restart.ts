/** `holdfast restart`: a new run with the old bundle and arguments. */
import { type Context, withWorkspace } from "../context.ts";
import { follow } from "../follow.ts";
import { leaveAlone } from "./moving.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const handle = await holdfast.runs.restart(await holdfast.runs.find(context.args[0] ?? ""));
    if (context.flags.on("detach")) return leaveAlone(context, await holdfast.runs.inspect(handle.run_id));
    if (!context.out.json) context.out.note(`New run ${handle.run_id}.`);
    return await follow(context, holdfast, handle.run_id, { workspace });
  });
}
