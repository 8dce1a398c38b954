/** `holdfast resume`: goes on from wherever a run stands. */
import { isTerminal } from "../../domain/run.ts";
import { type Context, decider, withWorkspace } from "../context.ts";
import { follow } from "../follow.ts";
import { heldBy } from "../render/wait.ts";
import { goOn } from "./moving.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const before = await holdfast.runs.inspect(runId);
    const resumable = before.actions.some(({ name, allowed }) => name === "resume" && allowed);
    // A run that is queued, left by its process, or waiting for time needs no permission to go on, only someone to
    // drive it; and one that waits for a person is shown, so that `resume` is always the way back to a run.
    // Where the outcome of a step is not known there is no way on but `repair`, and the refusal says so.
    const lost = heldBy(before.waits).some(({ type }) => type === "repair" || type === "tool_running");
    if (!resumable && !lost && !isTerminal(before.status) && !context.flags.on("detach"))
      return await follow(context, holdfast, runId, { workspace, since: before.last_sequence });
    const verb = await holdfast.runs.resume(runId, { decided_by: decider() });
    return await goOn(context, holdfast, verb, before.last_sequence, workspace);
  });
}
