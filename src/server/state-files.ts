/**
 * What a server leaves in the state folder: who serves it, and the secret that signs its cursors.
 *
 *   server.json    who serves this state (see src/config/server-file.ts)
 *   server-secret  32 random bytes, mode 0600, kept
 *   server-keys.jsonl  see key-memory.ts
 */
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { isLive, readServerFile, type ServerFile, serverFilePath } from "../config/index.ts";
import { HoldfastError } from "../domain/errors.ts";

export function keyMemoryPath(stateDir: string): string {
  return join(stateDir, "server-keys.jsonl");
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
        throw new HoldfastError(
          "conflict",
          `Cannot serve: process ${other.pid} serves this state at ${other.url}; use that one or stop it`,
          {
            details: { url: other.url, pid: other.pid },
          },
        );
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
