/**
 * The wall around the workspace (DESIGN §11, C39). A path is followed link by link without ever looking at anything
 * outside, so the answer cannot tell whether something is there; then it is opened and the open handle is asked
 * where it really is, so that a link put in place between check and use is found out.
 */
import { constants, existsSync, readlinkSync, type Stats } from "node:fs";
import { type FileHandle, lstat, open, readlink, realpath } from "node:fs/promises";
import { isAbsolute, join, sep } from "node:path";
import { ToolError } from "../tool-error.ts";
import { MAX_PATH } from "./limits.ts";

/** A workspace path as asked for: segments without `.` and `..`; links are not followed yet. */
export interface AskedPath {
  readonly segments: readonly string[];
  /** It ended in a slash. */
  readonly folder: boolean;
}

/** What an asked path leads to. */
export interface Place {
  /** Below the workspace's real path, with every link followed. */
  readonly segments: readonly string[];
  /** Absolute. */
  readonly real: string;
  /** Not followed: the place is no link. */
  readonly stat: Stats;
}

export interface Opened {
  readonly handle: FileHandle;
  readonly place: Place;
  readonly stat: Stats;
}

/** Test points: what happens between check and use, and whether the system's handle names are used. */
export interface OpenOptions {
  readonly beforeOpen?: () => Promise<void>;
  readonly handleNames?: boolean;
}

const MAX_LINKS = 40;
const MAX_TRIES = 3;
const WINDOWS = process.platform === "win32";
const HANDLE_NAMES = process.platform === "linux" && existsSync("/proc/self/fd");

/**
 * Reads a path from a tool's input: relative to the workspace, `/` between names.
 * @throws ToolError `bad_arguments` when it is absolute, leads out, or is no path
 */
export function parsePath(path: string): AskedPath {
  const text = WINDOWS ? path.replaceAll("\\", "/") : path;
  if (path.length > MAX_PATH) throw badPath(`${path.slice(0, 80)}…`, `is longer than ${MAX_PATH} characters`);
  if (path === "" || path.includes("\0")) throw badPath(path, "is empty or holds a NUL");
  if (isAbsolute(text) || (WINDOWS && text.includes(":")))
    throw badPath(path, "is not relative; give it from the workspace, as in src/index.ts");
  const segments: string[] = [];
  for (const name of text.split("/")) {
    if (name === "" || name === ".") continue;
    if (name !== "..") segments.push(name);
    else if (segments.pop() === undefined) throw outside(path);
  }
  return { segments, folder: /(^|\/)\.{0,2}$/.test(text) };
}

/** The path as the tools answer it. */
export function showPath(segments: readonly string[]): string {
  return segments.length === 0 ? "." : segments.join("/");
}

/** The real path of a workspace. */
export async function workspaceRoot(workspace: string): Promise<string> {
  return realpath(workspace);
}

/**
 * Follows a path inside the workspace, looking at nothing outside of it.
 * @throws ToolError `bad_arguments` when it leads out, `execution` when nothing is there
 */
export async function locate(root: string, asked: AskedPath): Promise<Place> {
  const shown = showPath(asked.segments);
  const rootNames = root.split(sep).filter((name) => name !== "");
  const queue = [...asked.segments];
  const at: string[] = [];
  let stat = await lstat(root);
  // How far above the workspace a link has led: only on its own ancestors, which are no links and may lead back.
  let above = 0;
  let links = 0;
  for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
    if (name === "" || name === ".") continue;
    if (name === "..") {
      if (at.pop() === undefined) above = Math.min(above + 1, rootNames.length);
      continue;
    }
    if (above > 0) {
      if (name !== rootNames[rootNames.length - above]) throw outside(shown);
      above -= 1;
      continue;
    }
    at.push(name);
    if (isState(at)) throw outside(shown);
    stat = await look(join(root, ...at), shown);
    if (stat.isSymbolicLink()) {
      if (++links > MAX_LINKS) throw failed(shown, `more than ${MAX_LINKS} links lead on from each other`);
      const target = await readlink(join(root, ...at));
      at.pop();
      if (isAbsolute(target)) {
        at.length = 0;
        above = rootNames.length;
      }
      queue.unshift(...(WINDOWS ? target.replace(/^(\\\\\?\\)?/, "").split(/[\\/]/) : target.split("/")));
    } else if (queue.length > 0 && !stat.isDirectory()) throw failed(shown, "nothing is there");
  }
  if (above > 0) throw outside(shown);
  const real = join(root, ...at);
  stat = await look(real, shown);
  if (asked.folder && !stat.isDirectory()) throw failed(shown, "it is not a folder");
  return { segments: at, real, stat };
}

/**
 * Opens a file or folder for reading and proves that the handle is inside the workspace.
 * @returns a handle that the caller closes
 */
export async function openInside(
  root: string,
  asked: AskedPath,
  kind: "file" | "folder",
  options: OpenOptions = {},
): Promise<Opened> {
  const shown = showPath(asked.segments);
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const place = await locate(root, asked);
    // Nothing but files and folders is ever opened: opening a device or a pipe can already do something.
    if (kind === "file" && place.stat.isDirectory()) throw failed(shown, "it is a folder, not a file");
    if (kind === "file" && !place.stat.isFile()) throw failed(shown, "it is not a regular file");
    if (kind === "folder" && !place.stat.isDirectory()) throw failed(shown, "it is a file, not a folder");
    await options.beforeOpen?.();
    const opened = await openPlace(root, place, kind, shown, options.handleNames);
    if (opened !== undefined) return opened;
  }
  throw failed(shown, "it kept changing while it was opened; try again");
}

/**
 * Opens a place that was found without links: `undefined` when it is no longer what it was. Used alone by the
 * walk, which finds its places itself.
 */
export async function openPlace(
  root: string,
  place: Place,
  kind: "file" | "folder",
  shown: string,
  handleNames: boolean = HANDLE_NAMES,
): Promise<Opened | undefined> {
  const folderFlag = kind === "folder" ? (constants.O_DIRECTORY ?? 0) : 0;
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0) | folderFlag;
  let handle: FileHandle;
  try {
    handle = await open(place.real, flags);
  } catch (error) {
    if (["ENOENT", "ELOOP", "ENOTDIR", "ENXIO", "EMLINK"].includes(codeOf(error))) return undefined;
    throw readFailure(error, shown);
  }
  try {
    const stat = await handle.stat();
    const right = kind === "file" ? stat.isFile() : stat.isDirectory();
    if (right && (await isStill(root, place, handle, handleNames))) return { handle, place, stat };
  } catch (error) {
    await handle.close();
    throw error;
  }
  await handle.close();
  return undefined;
}

/** Is the open handle the place that was checked? A handle elsewhere is never read. */
async function isStill(root: string, place: Place, handle: FileHandle, handleNames: boolean): Promise<boolean> {
  if (handleNames) {
    try {
      return readlinkSync(handleName(handle)) === place.real;
    } catch {
      // No /proc here: ask as other systems do.
    }
  }
  try {
    const again = await locate(root, { segments: place.segments, folder: false });
    if (again.real !== place.real) return false;
    const [a, b] = [await handle.stat({ bigint: true }), await lstat(place.real, { bigint: true })];
    return a.ino === b.ino && a.dev === b.dev;
  } catch (error) {
    if (ToolError.is(error)) return false;
    throw error;
  }
}

/** A name that leads to what the handle has open, whatever has become of its path. */
function handleName(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

/** The name under which an open folder is listed: by handle where the system can. */
export function folderName(opened: Opened): string {
  return HANDLE_NAMES ? handleName(opened.handle) : opened.place.real;
}

/** After a folder was listed by its path: was it the checked one to the end? By handle it cannot be another. */
export async function stayed(root: string, opened: Opened): Promise<boolean> {
  return HANDLE_NAMES || isStill(root, opened.place, opened.handle, false);
}

/** `.holdfast/state` holds the journals of all sessions and the server's token: no file tool sees it, in any case. */
export function isState(segments: readonly string[]): boolean {
  return segments.length >= 2 && segments[0]?.toLowerCase() === ".holdfast" && segments[1]?.toLowerCase() === "state";
}

async function look(real: string, shown: string): Promise<Stats> {
  try {
    return await lstat(real);
  } catch (error) {
    throw readFailure(error, shown);
  }
}

/** What the system said about something inside the workspace; unknown faults pass as they are. */
export function readFailure(error: unknown, shown: string): unknown {
  switch (codeOf(error)) {
    case "ENOENT":
    case "ENOTDIR":
      return failed(shown, "nothing is there");
    case "EACCES":
    case "EPERM":
      return failed(shown, "this user may not read it");
    case "ENAMETOOLONG":
      return badPath(shown, "has a name that is too long");
    default:
      return error;
  }
}

export function codeOf(error: unknown): string {
  return typeof error === "object" && error !== null && "code" in error ? String(error.code) : "";
}

export function failed(path: string, why: string): ToolError {
  return new ToolError(`Cannot read ${JSON.stringify(path)}: ${why}`);
}

function badPath(path: string, why: string): ToolError {
  return new ToolError(`Cannot use the path ${JSON.stringify(path)}: it ${why}`, { kind: "bad_arguments" });
}

/** One answer for everything beyond the wall, there or not. */
function outside(path: string): ToolError {
  return badPath(path, "leads out of the workspace; give a path inside it");
}
