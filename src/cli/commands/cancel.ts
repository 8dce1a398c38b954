/** `holdfast cancel`: ends runs for good, and waits until what ran has stopped. */
import type { Holdfast, Run } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { isTerminal } from "../../domain/run.ts";
import { type Context, decider, withWorkspace } from "../context.ts";
import { EXIT, showError } from "../output.ts";
import { statusText } from "../render/run.ts";
import { heldBy, waitCommands } from "../render/wait.ts";

/** How long `cancel` waits for what was running to stop (interfaces §2). */
const WAIT_MS = 30_000;

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, {}, async (holdfast) => {
    // All are found before any is cancelled: a mistyped id refuses the whole command.
    const ids: string[] = [];
    for (const ref of context.args) ids.push(await holdfast.runs.find(ref));
    const [only, ...others] = ids;
    if (only !== undefined && others.length === 0) return await cancelOne(context, holdfast, only, true);
    return await cancelAll(context, holdfast, [...new Set(ids)]);
  });
}

async function cancelOne(context: Context, holdfast: Holdfast, runId: string, document: boolean): Promise<number> {
  const cancelled = await request(context, holdfast, runId);
  if (context.out.json && document) context.out.document(cancelled);
  return report(context, cancelled);
}

async function request(context: Context, holdfast: Holdfast, runId: string): Promise<Run> {
  const reason = context.flags.text("reason");
  const { run } = await holdfast.runs.cancel(runId, {
    decided_by: decider(),
    wait_ms: context.flags.on("detach") ? 0 : WAIT_MS,
    ...(reason === undefined ? {} : { reason }),
  });
  return run;
}

function report(context: Context, run: Run): number {
  if (!context.out.json) context.out.print(`${statusText(run.status, context.out.style)}  run ${run.run_id}`);
  if (run.status === "cancelled") return EXIT.succeeded;
  if (isTerminal(run.status)) {
    context.out.note("It had ended before the cancel arrived.");
    return EXIT.failed;
  }
  const repairs = heldBy(run.waits).filter(({ type }) => type === "repair" || type === "tool_running");
  if (repairs.length === 0) context.out.note("Asked for, and kept: what was running has not stopped yet.");
  else
    context.out.tell(
      "Asked for, and kept: whether a step took effect is unknown. The run ends as cancelled once that is said:",
      ...repairs.flatMap((wait) => waitCommands(wait, context)).map((command) => `  ${command}`),
    );
  return EXIT.suspended;
}

/** One refusal does not keep the others from being cancelled; the worst status is answered. */
async function cancelAll(context: Context, holdfast: Holdfast, ids: readonly string[]): Promise<number> {
  const runs: Run[] = [];
  let worst: number = EXIT.succeeded;
  for (const runId of ids) {
    try {
      const run = await request(context, holdfast, runId);
      runs.push(run);
      worst = Math.max(worst, report(context, run));
    } catch (error) {
      if (!HoldfastError.is(error)) throw error;
      worst = Math.max(worst, showError({ ...context.out, json: false }, error, ["cancel"]));
      runs.push(await holdfast.runs.inspect(runId));
    }
  }
  if (context.out.json) context.out.document({ runs });
  return worst;
}
