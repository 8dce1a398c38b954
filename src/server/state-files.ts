/**
 * What a server leaves in the state folder: who serves it, and the secret that signs its cursors.
 *
 *   server.json    {"url", "pid", "token", "instance", "store", "drives"}  mode 0600, removed on a clean stop
 *   server-secret  32 random bytes, mode 0600, kept
 *   server-keys.jsonl  see key-memory.ts
 *
 * A `server.json` whose process is gone is stale. A process id may come back as another program's, so a living one
 * is asked for its `instance` over HTTP; only the right answer is a server.
 */
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "../domain/errors.ts";

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

export function keyMemoryPath(stateDir: string): string {
  return join(stateDir, "server-keys.jsonl");
}

/** Undefined when it is missing or no such file. */
export function readServerFile(file: string): ServerFile | undefined {
  try {
    if (fs.statSync(file).size > MAX_FILE) return undefined;
    const value = JSON.parse(fs.readFileSync(file, "utf8")) as Partial<ServerFile> | null;
    if (typeof value?.url !== "string" || typeof value.token !== "string" || typeof value.instance !== "string") return undefined;
    if (!Number.isSafeInteger(value.pid) || !/^https?:\/\//.test(value.url)) return undefined;
    return { url: value.url, pid: Number(value.pid), token: value.token, instance: value.instance, store: String(value.store ?? ""), drives: value.drives === true };
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

/**
 * Writes `server.json`, whole or not at all.
 * @returns how to remove it, which leaves a file that another server has put there meanwhile
 * @throws HoldfastError `conflict` while another server serves this state
 */
export async function claimServerFile(stateDir: string, server: ServerFile): Promise<() => void> {
  const file = serverFilePath(stateDir);
  const draft = `${file}.${server.instance}`;
  fs.writeFileSync(draft, JSON.stringify(server), { flag: "wx", mode: 0o600 });
  try {
    for (let attempt = 0; attempt < 5; attempt++) {
      if (linked(draft, file)) return () => removeOwn(file, server.instance);
      const other = readServerFile(file);
      if (other !== undefined && (await isLive(other)))
        throw new HoldfastError("conflict", `Cannot serve: process ${other.pid} serves this state at ${other.url}; use that one or stop it`, {
          details: { url: other.url, pid: other.pid },
        });
      // Stale, by the proof above; only the very file that was judged is removed.
      if (other === undefined || readServerFile(file)?.instance === other.instance) fs.rmSync(file, { force: true });
    }
    throw new HoldfastError("conflict", "Cannot serve: several servers start on this state at once; start one");
  } finally {
    fs.rmSync(draft, { force: true });
  }
}

function linked(draft: string, file: string): boolean {
  try {
    fs.linkSync(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

function removeOwn(file: string, instance: string): void {
  if (readServerFile(file)?.instance === instance) fs.rmSync(file, { force: true });
}

/** The secret that signs cursors: made once, so that a pager goes on after a restart. */
export function serverSecret(stateDir: string): Uint8Array {
  const file = join(stateDir, "server-secret");
  try {
    fs.writeFileSync(file, randomBytes(32), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const secret = fs.readFileSync(file);
  if (secret.length >= 32) return secret;
  // A crash cut it short: nothing was signed with it.
  fs.writeFileSync(file, randomBytes(32), { mode: 0o600 });
  return fs.readFileSync(file);
}
