/**
 * Which workspaces the user trusts (DESIGN §11). The list is `trust.json` in the user's own folder, by real path
 * and never in a workspace, so that nothing that is cloned can trust itself. Format, mode 0600:
 *
 *     {"version": 1, "trusted": [{"path": "/real/path", "trusted_at_ms": 1767225600000}]}
 *
 * A list that cannot be relied on (unreadable, writable by others, inside the workspace) trusts nothing.
 */
import {
  chmodSync,
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { HoldfastError } from "../domain/errors.ts";
import { type Environment, holdfastHome, isWithin } from "./workspace.ts";

const MAX_LIST_BYTES = 1_048_576;

export interface TrustedWorkspace {
  readonly path: string;
  readonly trusted_at_ms: number;
}

export interface TrustList {
  /** The file, whether or not it exists. */
  readonly path: string;
  /** True when the list names this folder's real path, or `HOLDFAST_TRUST=1` does for this process. */
  isTrusted(workspace: string): boolean;
  /** Why the list trusts nothing though it may name workspaces; absent when it can be relied on. */
  problem(): string | undefined;
  list(): readonly TrustedWorkspace[];
  /** @throws HoldfastError `usage` for the home folder, and for a list that lies in the workspace or cannot be kept */
  trust(workspace: string, nowMs: number): TrustedWorkspace;
  /** False when it was not trusted. */
  revoke(workspace: string): boolean;
}

/** `HOLDFAST_TRUST=1`: trust for this one command. */
export function trustedOnce(env: Environment): boolean {
  return env.HOLDFAST_TRUST === "1" || env.HOLDFAST_TRUST === "true";
}

export function openTrust(env: Environment): TrustList {
  const home = holdfastHome(env);
  const path = join(home, "trust.json");
  return {
    path,
    isTrusted: (workspace) => {
      if (trustedOnce(env)) return true;
      const real = realOf(workspace);
      if (liesIn(path, real)) return false;
      const read = readList(path);
      return read.problem === undefined && read.list.some((each) => each.path === real);
    },
    problem: () => readList(path).problem,
    list: () => readList(path).list,
    trust: (workspace, nowMs) => trust(env, path, workspace, nowMs),
    revoke: (workspace) => {
      const { list, problem } = readList(path);
      if (problem !== undefined) throw cannot("revoke trust", problem, `correct or delete ${path}`);
      // A folder that is gone is revoked by the path that was kept.
      const real = realOf(workspace);
      const kept = list.filter((each) => each.path !== real && each.path !== workspace);
      if (kept.length !== list.length) writeList(path, kept);
      return kept.length !== list.length;
    },
  };
}

function trust(env: Environment, path: string, workspace: string, nowMs: number): TrustedWorkspace {
  const real = realOf(workspace);
  const act = `trust "${workspace}"`;
  if (!isFolder(real)) throw cannot(act, "there is no such folder", "name the folder of a workspace");
  if (env.HOME !== undefined && real === realOf(env.HOME))
    throw cannot(act, "it is the home folder, which is never a workspace", "trust the project's own folder");
  if (liesIn(path, real))
    throw cannot(act, "the trust list itself lies in it", "set HOLDFAST_HOME to a folder outside the workspace");
  const { list, problem } = readList(path);
  if (problem !== undefined) throw cannot(act, problem, `correct or delete ${path}`);
  const found = list.find((each) => each.path === real);
  if (found !== undefined) return found;
  const added = { path: real, trusted_at_ms: nowMs };
  writeList(path, [...list, added]);
  return added;
}

function cannot(act: string, state: string, action: string): HoldfastError {
  return new HoldfastError("usage", `Cannot ${act}: ${state}; ${action}`);
}

function liesIn(file: string, workspace: string): boolean {
  return isWithin(join(realOf(dirname(file)), "trust.json"), workspace);
}

interface ListRead {
  readonly list: readonly TrustedWorkspace[];
  readonly problem?: string;
}

function readList(path: string): ListRead {
  let text: string;
  try {
    const stat = statSync(path);
    const problem = distrust(stat);
    if (problem !== undefined) return { list: [], problem: `${path} ${problem}` };
    text = readFileSync(path, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    return code === "ENOENT"
      ? { list: [] }
      : { list: [], problem: `${path} cannot be read (${code ?? "unknown error"})` };
  }
  const list = parseList(text);
  return list === undefined ? { list: [], problem: `${path} is not a trust list` } : { list };
}

function distrust(stat: { mode: number; uid: number; size: number; isFile(): boolean }): string | undefined {
  if (!stat.isFile()) return "is not a file";
  if (stat.size > MAX_LIST_BYTES) return `is larger than ${MAX_LIST_BYTES} bytes`;
  if (process.platform === "win32" || process.getuid === undefined) return undefined;
  if ((stat.mode & 0o022) !== 0) return "can be written by others";
  const me = process.getuid();
  if (stat.uid !== me && stat.uid !== 0) return "belongs to another user";
  return undefined;
}

function parseList(text: string): TrustedWorkspace[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { version, trusted } = Object(value) as { version?: unknown; trusted?: unknown };
  if (version !== 1 || !Array.isArray(trusted)) return undefined;
  const list: TrustedWorkspace[] = [];
  for (const each of trusted) {
    const { path, trusted_at_ms } = Object(each) as { path?: unknown; trusted_at_ms?: unknown };
    if (typeof path !== "string" || typeof trusted_at_ms !== "number") return undefined;
    list.push({ path, trusted_at_ms });
  }
  return list;
}

/** Whole or not at all: a temporary file in the same folder, flushed, then renamed over the list. */
function writeList(path: string, trusted: readonly TrustedWorkspace[]): void {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    rmSync(temporary, { force: true });
    const handle = openSync(temporary, "wx", 0o600);
    try {
      writeSync(handle, `${JSON.stringify({ version: 1, trusted }, null, 2)}\n`);
      fsyncSync(handle);
    } finally {
      closeSync(handle);
    }
    chmodSync(temporary, 0o600);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw cannot("keep the trust list", `${path} cannot be written (${code})`, "make its folder writable");
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function realOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
