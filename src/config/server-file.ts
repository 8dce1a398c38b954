/**
 * `<state>/server.json`: who serves this state, written by a server and read by the command line and by the next
 * server. Mode 0600, since it holds the server's token; removed on a clean stop.
 *
 *   {"url", "pid", "token", "instance", "store", "drives"}
 *
 * A file whose process is gone is stale. A process id may come back as another program's, so a living one is asked for
 * its `instance` over HTTP; only the right answer is a server.
 */
import * as fs from "node:fs";
import { join } from "node:path";

export interface ServerFile {
  readonly url: string;
  readonly pid: number;
  readonly token: string;
  /** Random; the header `Holdfast-Instance` of every answer repeats it. */
  readonly instance: string;
  /** The store that it serves. */
  readonly store: string;
  /** Whether it drives runs. */
  readonly drives: boolean;
}

export const INSTANCE_HEADER = "Holdfast-Instance";
const PROBE_MS = 2_000;
const MAX_FILE = 16_384;

export function serverFilePath(stateDir: string): string {
  return join(stateDir, "server.json");
}

/** Undefined when it is missing or no such file. */
export function readServerFile(file: string): ServerFile | undefined {
  try {
    if (fs.statSync(file).size > MAX_FILE) return undefined;
    const value = JSON.parse(fs.readFileSync(file, "utf8")) as Partial<ServerFile> | null;
    if (typeof value?.url !== "string" || typeof value.token !== "string" || typeof value.instance !== "string")
      return undefined;
    if (!Number.isSafeInteger(value.pid) || !/^https?:\/\//.test(value.url)) return undefined;
    return {
      url: value.url,
      pid: Number(value.pid),
      token: value.token,
      instance: value.instance,
      store: String(value.store ?? ""),
      drives: value.drives === true,
    };
  } catch {
    return undefined;
  }
}

/** Whether the server of this file answers. Never sends the token: another program may listen there by now. */
export async function isLive(server: ServerFile): Promise<boolean> {
  if (!processLives(server.pid)) return false;
  try {
    const answer = await fetch(`${server.url}/healthz`, { signal: AbortSignal.timeout(PROBE_MS), redirect: "error" });
    await answer.body?.cancel();
    return answer.headers.get(INSTANCE_HEADER) === server.instance;
  } catch {
    return false;
  }
}

function processLives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Another user's process lives, too.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
