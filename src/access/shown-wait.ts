/** A wait as an operator sees it: with who asks, and where it would be done. */
import type { RunHeader, Wait } from "../domain/run.ts";

type Asker = Pick<RunHeader, "started_by" | "origin">;

/** Those that a person decides about. */
const DECIDED: ReadonlySet<Wait["type"]> = new Set<Wait["type"]>([
  "approval",
  "tool_approval",
  "input",
  "repair",
  "tool_running",
]);

export function shownWait(wait: Wait, asker: Asker, workspace: string): Wait {
  if (!DECIDED.has(wait.type)) return wait;
  return {
    ...wait,
    ...(asker.started_by === undefined ? {} : { started_by: asker.started_by }),
    origin: asker.origin,
    workspace,
  };
}
