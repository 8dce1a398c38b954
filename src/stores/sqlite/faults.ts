/** What SQLite's result codes mean to a caller: which error leaves the store and what its reader can do. */
import { HoldfastError } from "../../domain/errors.ts";

/** Whether anything of a failed write may be on the disk. */
export type Outcome = "none" | "unknown";

const BUSY = 5;
const LOCKED = 6;
const READONLY = 8;
const IOERR = 10;
const CORRUPT = 11;
const FULL = 13;
const CANTOPEN = 14;
const PROTOCOL = 15;
const NOTADB = 26;

const STATES = new Map<number, string>([
  [READONLY, "the store cannot be written; check the permissions of its file and folder"],
  [IOERR, "the disk reported an error; check the disk, then try again"],
  [CORRUPT, "the store is damaged; restore a backup"],
  [FULL, "the disk is full; free space and try again"],
  [CANTOPEN, "the store cannot be opened; check that its folder exists and can be written"],
  [NOTADB, "the file is no SQLite database; restore a backup or choose another path"],
]);

/** SQLite's primary result code, or undefined when the error is not SQLite's. */
function resultCode(error: unknown): number | undefined {
  if (typeof error !== "object" || error === null || !("errcode" in error)) return undefined;
  return typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

/** Someone else holds a lock: waiting helps. */
export function isBusy(error: unknown): boolean {
  const code = resultCode(error);
  return code === BUSY || code === LOCKED || code === PROTOCOL;
}

export function isFull(error: unknown): boolean {
  return resultCode(error) === FULL;
}

/** The disk or the file failed, so the handle itself is no longer trusted. */
export function isBroken(error: unknown): boolean {
  const code = resultCode(error);
  return code === IOERR || code === CORRUPT || code === CANTOPEN || code === NOTADB;
}

/** @param act what was attempted, as in "commit 3 run trees" */
export function storageFault(act: string, error: unknown, outcome: Outcome): Error {
  if (HoldfastError.is(error)) return error;
  const code = resultCode(error);
  if (code === undefined) return error instanceof Error ? error : new Error(String(error));
  if (isBusy(error)) return unavailable(act, "another process holds the store", outcome, error);
  const state = STATES.get(code);
  if (state === undefined)
    return new HoldfastError("internal", `Bug in Holdfast: cannot ${act}: ${describe(error)}`, {
      cause: error,
      details: { outcome, sqlite: describe(error) },
    });
  return new HoldfastError("storage", `Cannot ${act}: ${state}`, {
    cause: error,
    details: { outcome, sqlite: describe(error) },
  });
}

export function unavailable(act: string, state: string, outcome: Outcome, cause?: unknown): HoldfastError {
  return new HoldfastError("storage_unavailable", `Cannot ${act}: ${state}; wait and try again`, {
    cause,
    details: { outcome },
  });
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
