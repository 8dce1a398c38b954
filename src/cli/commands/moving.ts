/** What the verbs that move a run share: the answer of a signal, then following unless `--detach`. */
import type { Holdfast, Run, Verb } from "../../access/api.ts";
import { type Context, commandLine } from "../context.ts";
import { follow } from "../follow.ts";
import { EXIT, exitOf } from "../output.ts";
import { showLeft } from "../starting.ts";

/** A signal that nobody took within 5 s is durable and stands; the run will obey when its holder answers. */
export function showPending(
  context: Context,
  run: Run,
  why = "the process that holds the run has not answered yet",
): number {
  if (context.out.json) context.out.document(run);
  context.out.tell(`Asked for, and kept: ${why}. To see what became of it:`);
  context.out.tell(`  ${commandLine(context, "why", run.run_id)}`);
  return EXIT.suspended;
}

export async function goOn(
  context: Context,
  holdfast: Holdfast,
  verb: Verb,
  since: number,
  workspace: string,
): Promise<number> {
  if (verb.pending) return showPending(context, verb.run);
  if (context.flags.on("detach")) return leaveAlone(context, verb.run);
  return await follow(context, holdfast, verb.run.run_id, { workspace, since });
}

/** `--detach`: by the run's status; one that is on its way is a success of what was asked. */
export function leaveAlone(context: Context, run: Run): number {
  showLeft(context, run);
  return run.status === "queued" || run.status === "running" ? EXIT.succeeded : exitOf(run.status);
}
