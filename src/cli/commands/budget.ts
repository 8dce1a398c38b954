/** `holdfast budget`: raises limits of a run, never below what is spent. */
import type { Budgets } from "../../domain/run.ts";
import { type Context, decider, withWorkspace } from "../context.ts";
import { readBudget } from "../inputs.ts";
import { EXIT } from "../output.ts";
import { showLeft } from "../starting.ts";
import { showPending } from "./moving.ts";

/** Flag of each limit, as commander names it. */
const FLAGS: readonly (readonly [flag: string, field: keyof Budgets])[] = [
  ["maxSteps", "max_steps"],
  ["maxRetries", "max_retries"],
  ["maxAgents", "max_agents"],
  ["maxConcurrency", "max_concurrency"],
  ["maxNestingDepth", "max_nesting_depth"],
  ["maxTokens", "max_tokens"],
  ["maxCostMicros", "max_cost_micros"],
  ["wallTimeMs", "wall_time_ms"],
];

export async function run(context: Context): Promise<number> {
  const given = FLAGS.flatMap(([flag, field]) => {
    const text = context.flags.text(flag);
    return text === undefined ? [] : [`${field}=${text}`];
  });
  const budget = readBudget(given) ?? {};
  // It only writes the limit down: whoever drives runs goes on with this one, or `resume` does.
  return await withWorkspace(context, { leaves: true }, async (holdfast) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const { run: raised, pending } = await holdfast.runs.raiseBudget(runId, budget, { decided_by: decider() });
    if (pending) return showPending(context, raised);
    showLeft(context, raised);
    return EXIT.succeeded;
  });
}
