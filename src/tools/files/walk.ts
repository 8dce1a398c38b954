/**
 * Listing one folder and walking below it: sorted, so that the same tree gives the same answer on every machine;
 * bounded; and never through a link, so that a walk neither leaves the workspace nor goes in circles.
 */
import type { Dirent } from "node:fs";
import { lstat, opendir } from "node:fs/promises";
import { join } from "node:path";
import { folderName, isState, type Opened, openPlace, type Place, stayed } from "./confine.ts";
import { MAX_DEPTH, MAX_NAMES, MAX_WALK_MS, MAX_WALKED, SKIPPED_FOLDERS } from "./limits.ts";

export type EntryType = "file" | "directory" | "link" | "other";

export interface Entry {
  readonly name: string;
  readonly type: EntryType;
}

export interface Listing {
  /** Folders sort as if their name ended in a slash: walking in this order yields sorted paths. */
  readonly entries: readonly Entry[];
  /** Some names are missing: there were too many, or one is no text. */
  readonly incomplete: boolean;
}

/** Reads the names of an open folder. `undefined` when it was another one before the reading ended. */
export async function listFolder(root: string, opened: Opened): Promise<Listing | undefined> {
  const found: Dirent[] = [];
  let incomplete = false;
  for await (const entry of await opendir(folderName(opened), { bufferSize: 256 })) {
    // A name that is not UTF-8 was decoded with U+FFFD: nothing could be opened by it.
    if (entry.name.includes("\ufffd") || !entry.name.isWellFormed()) incomplete = true;
    else if (found.length < MAX_NAMES) found.push(entry);
    else {
      incomplete = true;
      break;
    }
  }
  if (!(await stayed(root, opened))) return undefined;
  const entries: Entry[] = [];
  for (const entry of found) {
    if (isState([...opened.place.segments, entry.name])) continue;
    entries.push({ name: entry.name, type: await typeOf(entry, opened) });
  }
  return { entries: sortEntries(entries), incomplete };
}

function sortEntries(entries: Entry[]): Entry[] {
  const key = (entry: Entry) => (entry.type === "directory" ? `${entry.name}/` : entry.name);
  return entries
    .map((entry) => ({ entry, key: key(entry) }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ entry }) => entry);
}

async function typeOf(entry: Dirent, opened: Opened): Promise<EntryType> {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "directory";
  if (entry.isSymbolicLink()) return "link";
  if (entry.isFIFO() || entry.isSocket() || entry.isBlockDevice() || entry.isCharacterDevice()) return "other";
  // Some file systems do not say with the name what it is.
  const stat = await lstat(join(folderName(opened), entry.name)).catch(() => undefined);
  if (stat?.isFile()) return "file";
  if (stat?.isDirectory()) return "directory";
  return stat?.isSymbolicLink() ? "link" : "other";
}

export interface WalkOptions {
  readonly root: string;
  /** The folder where the walk begins, and its path as it is shown. */
  readonly start: Place;
  /** Most names of a path below the start; undefined: any. */
  readonly depth?: number | undefined;
  readonly signal: AbortSignal;
  /** Milliseconds that never run backwards; tests own them. */
  readonly now?: () => number;
}

export interface WalkedFile {
  /** Relative to the start. */
  readonly path: string;
  /** Its place by name; nothing was opened or followed. */
  readonly place: Omit<Place, "stat">;
}

/** A walk under way: it can be asked whether anything was left out. */
export interface Walk {
  files(): AsyncGenerator<WalkedFile, void, void>;
  /** Time, count or depth ran out, or something could not be read: the answer may lack files. */
  readonly incomplete: boolean;
  /** True once the time is up: whoever reads the files stops too. */
  readonly late: boolean;
}

export function walk(options: WalkOptions): Walk {
  const now = options.now ?? (() => performance.now());
  const end = now() + MAX_WALK_MS;
  // A walk that begins inside a skipped folder was asked to look there.
  const state = { walked: 0, incomplete: false };
  const late = () => now() >= end;

  async function* below(place: Place, prefix: string, depth: number): AsyncGenerator<WalkedFile, void, void> {
    options.signal.throwIfAborted();
    const listing = await listPlace(options.root, place);
    if (listing === undefined || listing.incomplete) state.incomplete = true;
    for (const entry of listing?.entries ?? []) {
      if (++state.walked > MAX_WALKED || late()) {
        state.incomplete = true;
        return;
      }
      const path = `${prefix}${entry.name}`;
      const segments = [...place.segments, entry.name];
      const child = { segments, real: join(place.real, entry.name) };
      if (entry.type === "file") yield { path, place: child };
      else if (entry.type === "directory" && !SKIPPED_FOLDERS.has(entry.name)) {
        if (options.depth !== undefined && depth >= options.depth) continue;
        if (depth < MAX_DEPTH) yield* below({ ...child, stat: place.stat }, `${path}/`, depth + 1);
        else state.incomplete = true;
      }
    }
  }

  return {
    files: () => below(options.start, "", 1),
    get incomplete() {
      return state.incomplete;
    },
    get late() {
      return late();
    },
  };
}

/** A folder that has gone, or may not be read, is passed over; the answer says that it may be incomplete. */
async function listPlace(root: string, place: Place): Promise<Listing | undefined> {
  const opened = await openPlace(root, place, "folder", place.real).catch(() => undefined);
  if (opened === undefined) return undefined;
  try {
    return await listFolder(root, opened);
  } catch {
    return undefined;
  } finally {
    await opened.handle.close();
  }
}
