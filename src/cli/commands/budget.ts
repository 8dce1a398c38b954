/** `holdfast budget`: raises limits of a run, never below what is spent. */
import { HoldfastError } from "../../domain/errors.ts";
import type { Budgets } from "../../domain/run.ts";
import { type Context, decider, type Flags, withWorkspace } from "../context.ts";
import { parseDuration } from "../duration.ts";
import { EXIT } from "../output.ts";
import { showLeft } from "../starting.ts";
import { oneLine } from "../text.ts";
import { showPending } from "./moving.ts";

/** Each limit and its flag. */
const FLAGS: readonly (readonly [flag: string, field: keyof Budgets])[] = [
  ["max-steps", "max_steps"],
  ["max-retries", "max_retries"],
  ["max-agents", "max_agents"],
  ["max-concurrency", "max_concurrency"],
  ["max-nesting-depth", "max_nesting_depth"],
  ["max-tokens", "max_tokens"],
  ["max-cost-micros", "max_cost_micros"],
  ["wall-time-ms", "wall_time_ms"],
];

export async function run(context: Context): Promise<number> {
  const budget = readLimits(context.flags);
  // It only writes the limit down: whoever drives runs goes on with this one, or `resume` does.
  return await withWorkspace(context, { leaves: true }, async (holdfast) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const { run: raised, pending } = await holdfast.runs.raiseBudget(runId, budget, { decided_by: decider() });
    if (pending) return showPending(context, raised);
    showLeft(context, raised);
    return EXIT.succeeded;
  });
}

/** @throws HoldfastError `usage` that names the flag */
function readLimits(flags: Flags): Partial<Budgets> {
  const limits = FLAGS.flatMap(([flag, field]) => {
    const text = flags.text(flag.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase()));
    return text === undefined ? [] : [[field, readLimit(flag, text)] as const];
  });
  return Object.fromEntries(limits);
}

function readLimit(flag: string, text: string): number {
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  if (flag === "wall-time-ms") return parseDuration(text, `--${flag}`);
  throw new HoldfastError(
    "usage",
    `Cannot read --${flag}: ${JSON.stringify(oneLine(text))} is not a whole number from 0; give one`,
  );
}
