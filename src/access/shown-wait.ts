/** A wait as an operator sees it: with who asks, where it would be done, and what is waited for below it. */
import type { RunView } from "../domain/projections/index.ts";
import type { RunHeader, Wait } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";

type Asker = Pick<RunHeader, "started_by" | "origin">;

/** Those that a person decides about. */
const DECIDED: ReadonlySet<Wait["type"]> = new Set<Wait["type"]>([
  "approval",
  "tool_approval",
  "input",
  "repair",
  "tool_running",
]);
/** RP's nesting ceiling is far below; runs below that are not looked for. */
const MAX_DEPTH = 64;

export function shownWait(wait: Wait, asker: Asker, workspace: string): Wait {
  if (!DECIDED.has(wait.type)) return wait;
  return {
    ...wait,
    ...(asker.started_by === undefined ? {} : { started_by: asker.started_by }),
    origin: asker.origin,
    workspace,
  };
}

/** The run's waits, each for a child run with what really holds it: what a person answers there, or a time. */
export function shownWaits({ state, tree }: RunView, workspace: string): Wait[] {
  const runs = new Map(tree.map((run) => [run.header.run_id, run]));
  return state.waits.map((wait) => {
    const shown = shownWait(wait, state.header, workspace);
    const below = childWaits(wait, runs, workspace, 0);
    return below.length === 0 ? shown : { ...shown, child_waits: below.sort((a, b) => a.since_ms - b.since_ms) };
  });
}

function childWaits(wait: Wait, runs: ReadonlyMap<string, RunState>, workspace: string, depth: number): Wait[] {
  const child = wait.child_run_id === undefined ? undefined : runs.get(wait.child_run_id);
  if (child === undefined || depth >= MAX_DEPTH) return [];
  return child.waits.flatMap((open) => {
    if (open.type === "child") return childWaits(open, runs, workspace, depth + 1);
    // Whatever stops a whole tree is answered at its root, and a decision that was made at no place.
    const above = open.type === "paused" || open.type === "recovery" || open.granted !== undefined;
    return above ? [] : [shownWait(open, child.header, workspace)];
  });
}
