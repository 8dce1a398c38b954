/**
 * What is told of a wait: its public fields, whose it is, and how to answer. Never what is asked: no prompt, input,
 * details or schema leave this way (RP-74), so it may go where not everybody is trusted.
 */
import { readFileSync } from "node:fs";
import { type PublicWait, publicWait } from "../../domain/projections/index.ts";
import type { Wait } from "../../domain/run.ts";
import type { RunRecord, SessionRecord } from "../../ports/index.ts";

export interface Notice extends PublicWait {
  readonly version: 1;
  /** Its deadline is near: it was told before, and this is the warning that its author asked for. */
  readonly warning?: true;
  readonly workflow_id: string;
  readonly workflow_revision: number;
  readonly session_id: string;
  /** To be typed in the workspace; the first says what it is about. */
  readonly commands: readonly string[];
  /** Where the wait is read and answered over HTTP, when a server serves the workspace. */
  readonly url?: string;
}

/** Where the server of a workspace says that it listens; undefined when there is none. */
export function serverAddress(file: string): string | undefined {
  try {
    const { url } = JSON.parse(readFileSync(file, "utf8")) as { url?: unknown };
    return typeof url === "string" ? url : undefined;
  } catch {
    return undefined;
  }
}

const DEFAULT_SESSION = "default";

export function noticeOf(
  wait: Wait,
  run: RunRecord,
  session: SessionRecord | undefined,
  address: string | undefined,
): Notice {
  return {
    version: 1,
    ...(wait.warned === true ? { warning: true as const } : {}),
    ...publicWait(wait),
    workflow_id: run.workflow_id,
    workflow_revision: run.workflow_revision,
    session_id: run.session_id,
    commands: commandsFor(wait, session?.name ?? run.session_id),
    ...(address === undefined
      ? {}
      : { url: `${address}/api/v1/sessions/${run.session_id}/workflow-runs/${encodeURIComponent(run.run_id)}/waits` }),
  };
}

function commandsFor(wait: Wait, session: string): readonly string[] {
  const { run_id, wait_id } = wait;
  const words: readonly (readonly string[])[] = [["why", run_id], ...answers(wait, run_id, wait_id)];
  const prefix = session === DEFAULT_SESSION ? ["holdfast"] : ["holdfast", "--session", session];
  return words.map((command) => [...prefix, ...command].map(quoted).join(" "));
}

function answers(wait: Wait, run: string, id: string): readonly (readonly string[])[] {
  switch (wait.type) {
    case "approval":
    case "tool_approval":
      return [
        ["approve", run, id],
        ["deny", run, id],
      ];
    case "input":
      return [
        ["answer", run, id],
        ["deny", run, id],
      ];
    case "repair":
    case "tool_running":
      return wait.step_id === undefined ? [] : [["repair", run, wait.step_id]];
    case "budget":
      return [["budget", run]];
    case "recovery":
    case "paused":
      return [["resume", run]];
    case "timer":
    case "child":
      return [];
  }
}

/** For a POSIX shell: `each@root[3]` would be a pattern. */
function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
