/**
 * A process with runs that have weeks before them, on the system's own timers: started as
 * `node timers-child.mjs '{"folder": …}'`. Once all are armed it waits for a timer that is due before any that
 * overflowed would have come back, says how the runs stand, and leaves with all timers still set.
 */
import { writeSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../src/engine/index.ts";
import { createHoldfast, defineTool } from "../../src/index.ts";

const request = JSON.parse(process.argv[2] ?? "{}") as { readonly folder: string };
const DAY_MS = 86_400_000;
/** A timer that overflows comes back after 1 ms. */
const LONG_ENOUGH_MS = 60;

const leaf = (step: string): object => ({ type: "step", step });
const plan = (id: string, step: object, more: object = {}): object => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps: [{ id: "only", ...step }],
  plan: leaf("only"),
  ...more,
});
let begun: () => void = () => undefined;
const atWork = new Promise<void>((resolve) => {
  begun = resolve;
});
const hangs = defineTool({
  name: "Hang",
  description: "ends when it is told to",
  input: { type: "object" },
  sideEffect: "read_only",
  run: async (value, { signal }) => {
    begun();
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    return value;
  },
});

const holdfast = await createHoldfast({
  store: `sqlite:${join(request.folder, "holdfast.db")}`,
  workspace: request.folder,
  trust: true,
  limits: { run_ms: 100 * DAY_MS },
  tools: [hangs],
  workflows: [
    plan("sleeps", { type: "wait", for_ms: 30 * DAY_MS }),
    plan("asks", { type: "approval", prompt: "?", deadline_ms: 60 * DAY_MS, warn_ms: DAY_MS }),
    plan(
      "hangs",
      { type: "tool", tool: "Hang", capabilities: [], args: {} },
      { budgets: { wall_time_ms: 40 * DAY_MS } },
    ),
  ],
});
let fired = 0;
for (const days of [24.86, 30, 40, 60, 365]) systemClock.at(Date.now() + days * DAY_MS, () => fired++);
const ids = new Map<string, string>();
for (const workflow of ["sleeps", "asks", "hangs"]) ids.set(workflow, (await holdfast.start({ workflow })).run_id);
// Who follows the first waits for its timer too, in this process.
const leaving = new AbortController();
const followed = holdfast.runs.drive(ids.get("sleeps") ?? "", { signal: leaving.signal });
await atWork;
await new Promise<void>((resolve) => void systemClock.at(Date.now() + LONG_ENOUGH_MS, resolve));
leaving.abort();
await followed;
const standing: Record<string, unknown> = { fired };
for (const [workflow, run_id] of ids) {
  const { status, suspension } = await holdfast.runs.inspect(run_id);
  standing[workflow] = suspension?.type ?? status;
}
writeSync(1, `${JSON.stringify(standing)}\n`);
process.exit(0);
