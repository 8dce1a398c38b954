/**
 * Reads definition files without being led astray: folders are listed within bounds, links are resolved and
 * must end inside the root's boundary, and what is read is the file that was checked (C39). Synchronous: a start
 * pins from what is on the disk now (RP-9), and unchanged files cost one `stat` each.
 */
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  realpathSync,
  statSync,
} from "node:fs";
import { join, sep } from "node:path";
import { MAX_FILE_BYTES } from "./document.ts";

/** Most definition files of one root; a folder with more is not a folder of workflows. */
export const MAX_FILES = 10_000;
/** Most entries looked at in one root, whatever they are. */
const MAX_ENTRIES = 50_000;
/** Deepest folder below a root. */
export const MAX_FOLDER_DEPTH = 8;

/** Identity of a file's content as the file system sees it; equal stamps mean the bytes need not be read again. */
export interface Stamp {
  readonly key: string;
  /** False when the file changed so recently that a further change could leave the stamp as it is. */
  readonly settled: boolean;
}

export type FileRead = { readonly ok: true; readonly text: string; readonly stamp: Stamp } | FileRefusal;

export interface FileRefusal {
  readonly ok: false;
  readonly code: string;
  /** A clause about the file: "cannot be read (EACCES)". */
  readonly message: string;
  /** The file system failed (not: the file is wrong), so what was read before may still hold (RP-9). */
  readonly failed: boolean;
}

const OUTSIDE: FileRefusal = {
  ok: false,
  code: "link_outside",
  // C39: the same words whether or not the other end exists.
  message: "is a link that does not end at a file inside the folder that it belongs to; copy the file here",
  failed: false,
};

/** True for the folder itself and everything in it; both are real paths. */
export function isInside(path: string, folder: string): boolean {
  const prefix = folder.endsWith(sep) ? folder : folder + sep;
  return path === folder || path.startsWith(prefix);
}

/** The real path, or `undefined` when there is none. */
export function realPath(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}

/** The stamp of the file that `path` ends at. */
export function stampOf(path: string, nowMs: number): Stamp | undefined {
  try {
    return makeStamp(statSync(path, { bigint: true }), nowMs);
  } catch {
    return undefined;
  }
}

/** Time stamps of file systems are coarse (some: 2 s); within that, equal stamps prove nothing. */
const SETTLE_MS = 2_500n;

interface BigStat {
  readonly dev: bigint;
  readonly ino: bigint;
  readonly size: bigint;
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
}

function makeStamp(stat: BigStat, nowMs: number): Stamp {
  const newest = stat.ctimeNs > stat.mtimeNs ? stat.ctimeNs : stat.mtimeNs;
  return {
    key: `${stat.dev}:${stat.ino}:${stat.size}:${stat.mtimeNs}:${stat.ctimeNs}`,
    settled: BigInt(Math.floor(nowMs)) - newest / 1_000_000n > SETTLE_MS,
  };
}

/**
 * Reads a text file of at most `MAX_FILE_BYTES`.
 * @param boundary real path of the folder that links must stay in; without one any regular file is read
 */
export function readTextFile(path: string, nowMs: number, boundary?: string): FileRead {
  let real: string;
  try {
    real = realpathSync(path);
  } catch (error) {
    return isLink(path) && boundary !== undefined ? OUTSIDE : ioRefusal(error);
  }
  if (boundary !== undefined && !isInside(real, boundary)) return OUTSIDE;
  let handle: number;
  try {
    // Not blocking, so that a pipe under this name cannot hang the process.
    handle = openSync(real, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ELOOP" ? OUTSIDE : ioRefusal(error);
  }
  try {
    return readHandle(handle, nowMs, boundary);
  } catch (error) {
    return ioRefusal(error);
  } finally {
    closeSync(handle);
  }
}

function readHandle(handle: number, nowMs: number, boundary: string | undefined): FileRead {
  const stat = fstatSync(handle, { bigint: true });
  if (!stat.isFile()) return { ok: false, code: "not_a_file", message: "is not a regular file", failed: false };
  // A folder on the way may have been swapped for a link between the check and the opening.
  const opened = boundary === undefined ? undefined : pathOfHandle(handle);
  if (opened !== undefined && boundary !== undefined && !isInside(opened, boundary)) return OUTSIDE;
  const bytes = Buffer.allocUnsafe(Math.min(Number(stat.size), MAX_FILE_BYTES) + 1);
  let length = 0;
  while (length < bytes.length) {
    const read = readSync(handle, bytes, length, bytes.length - length, null);
    if (read === 0) break;
    length += read;
  }
  if (stat.size > BigInt(MAX_FILE_BYTES) || length > MAX_FILE_BYTES)
    return { ok: false, code: "too_large", message: `is larger than ${MAX_FILE_BYTES} bytes; split it`, failed: false };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, length));
    return { ok: true, text, stamp: makeStamp(stat, nowMs) };
  } catch {
    return { ok: false, code: "not_utf8", message: "is not UTF-8 text; save it as UTF-8", failed: false };
  }
}

/** Linux tells where an open file is; elsewhere the check before opening has to do. */
function pathOfHandle(handle: number): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${handle}`);
  } catch {
    return undefined;
  }
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path).isSymbolicLink();
  } catch {
    return false;
  }
}

function ioRefusal(error: unknown): FileRefusal {
  const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
  const gone = code === "ENOENT" || code === "ENOTDIR";
  return {
    ok: false,
    code: "unreadable",
    message: gone ? "does not exist" : `cannot be read (${code})`,
    failed: !gone,
  };
}

export interface FolderFault {
  readonly path: string;
  readonly code: string;
  readonly message: string;
  readonly failed: boolean;
}

export interface Listing {
  /** Paths of the files wanted, in a stable order. */
  readonly files: readonly string[];
  readonly faults: readonly FolderFault[];
}

/**
 * Files below a folder for which `wanted` says so, sorted by path, folders starting with a dot left out.
 * A folder that does not exist has none.
 * @param boundary real path that linked folders must stay in
 */
export function listFiles(
  folder: string,
  boundary: string,
  wanted: (name: string) => boolean,
  maxDepth = MAX_FOLDER_DEPTH,
): Listing {
  const walk: Walk = { boundary, wanted, maxDepth, files: [], faults: [], seen: new Set(), entries: 0 };
  walkFolder(walk, folder, 0);
  return { files: walk.files.sort(), faults: walk.faults };
}

interface Walk {
  readonly boundary: string;
  readonly wanted: (name: string) => boolean;
  readonly maxDepth: number;
  readonly files: string[];
  readonly faults: FolderFault[];
  /** Real paths of the folders seen, so that a link upwards ends. */
  readonly seen: Set<string>;
  entries: number;
}

/** False also where that cannot be told: what follows says why. */
function isMissing(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false;
  }
}

function walkFolder(walk: Walk, folder: string, depth: number): void {
  // Most folders that are looked for at every start are not there: one call says so, without an exception.
  if (isMissing(folder)) return;
  const real = realPath(folder);
  if (real === undefined) {
    if (isLink(folder)) fault(walk, folder, "link_outside", OUTSIDE.message);
    return;
  }
  if (!isInside(real, walk.boundary)) return fault(walk, folder, "link_outside", OUTSIDE.message);
  if (walk.seen.has(real)) return;
  walk.seen.add(real);
  if (depth > walk.maxDepth)
    return fault(walk, folder, "too_deep", `is more than ${walk.maxDepth} folders deep; it is not looked into`);
  let names: string[];
  try {
    names = readdirSync(real).sort();
  } catch (error) {
    const refusal = ioRefusal(error);
    if (refusal.failed) fault(walk, folder, refusal.code, refusal.message, true);
    return;
  }
  for (const name of names) {
    if (name.startsWith(".") || name === "node_modules") continue;
    if (++walk.entries > MAX_ENTRIES || walk.files.length >= MAX_FILES)
      return fault(walk, folder, "too_many_files", `holds more than ${MAX_FILES} files; the rest is not looked at`);
    const path = join(folder, name);
    if (isFolder(path)) walkFolder(walk, path, depth + 1);
    else if (walk.wanted(name)) walk.files.push(path);
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function fault(walk: Walk, path: string, code: string, message: string, failed = false): void {
  if (walk.faults.length < 100) walk.faults.push({ path, code, message, failed });
}
