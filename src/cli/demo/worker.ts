/**
 * The process that does the demonstration's work. It is started twice: the first is killed in the middle, and the
 * second goes on where the first one stopped.
 */
import type { Holdfast, Run } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { isTerminal } from "../../domain/run.ts";
import { type Context, decider } from "../context.ts";
import { EXIT, exitOf } from "../output.ts";
import type { DemoMessage } from "./messages.ts";
import { demoTools } from "./tools.ts";
import { DEMO_ID, DEMO_PLAN } from "./workflow.ts";

/** Files are measured at about this speed when somebody watches, whatever their number. */
const WATCHED_MS = 6_000;

export async function demoWorker(context: Context, store: string): Promise<number> {
  // Nobody watches any more: a demonstration does not go on by itself.
  process.once("disconnect", () => process.exit(EXIT.failed));
  const second = context.flags.on("again");
  const fast = context.flags.on("fast");
  const holdfast = await openDemo(context, store, { hold: !second, pauseMs: fast ? 0 : pauseFor });
  try {
    const run = await moved(holdfast, second);
    await send({ type: "ended", run });
    return exitOf(run.status);
  } catch (error) {
    if (!HoldfastError.is(error)) throw error;
    await send({ type: "error", error: error.toJSON() });
    return EXIT.failed;
  } finally {
    await holdfast.close();
  }
}

function pauseFor(files: number): number {
  return Math.min(120, Math.ceil((WATCHED_MS * DEMO_PLAN.budgets.max_concurrency) / Math.max(1, files)));
}

/** Trusts its own three tools for reading, and nothing else: no configuration is read, no trust is kept. */
async function openDemo(
  context: Context,
  store: string,
  pace: { hold: boolean; pauseMs: number | ((files: number) => number) },
): Promise<Holdfast> {
  const tools = demoTools({
    pauseMs: pace.pauseMs,
    beforeMeasure: async (before, of) => {
      if (!pace.hold || before < Math.floor(of / 2)) return;
      if (before === Math.floor(of / 2)) await send({ type: "halfway" });
      // Until the kill: what is in flight then is what has to be done again.
      await new Promise(() => {});
    },
  });
  const { createHoldfast } = await context.process.load();
  return await createHoldfast({
    store,
    workspace: context.process.cwd,
    tools,
    workflows: [DEMO_PLAN],
    trust: true,
    permissions: { read: "allow", write: "deny", shell: "deny", network: "deny", agent: "deny" },
  });
}

async function moved(holdfast: Holdfast, second: boolean): Promise<Run> {
  const runId = second ? await recovered(holdfast) : (await holdfast.start({ workflow: DEMO_ID })).run_id;
  const { last_sequence, status } = await holdfast.runs.inspect(runId);
  await send({ type: "started", run_id: runId, last_sequence: second ? last_sequence : 0 });
  const told = tell(holdfast, runId, second ? last_sequence : 0);
  // What is safe to go on by itself does so; a run that waits to be told is told.
  if (second && status === "suspended") await holdfast.runs.resume(runId, { decided_by: decider() });
  const run = await holdfast.runs.drive(runId);
  if (isTerminal(run.status)) await told;
  return run;
}

/** Finds the run that the killed process left, and marks it interrupted. */
async function recovered(holdfast: Holdfast): Promise<string> {
  await holdfast.recover();
  return await holdfast.runs.find("last");
}

async function tell(holdfast: Holdfast, runId: string, since: number): Promise<void> {
  for await (const event of holdfast.runs.follow(runId, { since })) await send({ type: "event", event });
}

/** Resolves when the message has left this process. */
function send(message: DemoMessage): Promise<void> {
  return new Promise((resolve, reject) => {
    if (process.send === undefined)
      reject(new HoldfastError("usage", "Cannot be the demonstration's worker: nobody listens; run demo"));
    else process.send(message, undefined, {}, (error) => (error === null ? resolve() : reject(error)));
  });
}
