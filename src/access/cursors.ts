/** Pages of lists: how long, and cursors, which are opaque to callers and checked when they come back. */
import { HoldfastError } from "../domain/errors.ts";

export interface Place {
  readonly ms: number;
  readonly id: string;
  readonly extra?: string;
}

const MAX_PAGE = 200;

/** @throws usage outside 1..200 */
export function pageLimit(limit: number | undefined, otherwise = 50): number {
  if (limit === undefined) return otherwise;
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_PAGE) return limit;
  throw new HoldfastError(
    "usage",
    `Cannot list: the limit ${String(limit)} is not a whole number from 1 to ${MAX_PAGE}; give one`,
  );
}

export function writeCursor(place: Place): string {
  return Buffer.from(JSON.stringify([place.ms, place.id, place.extra ?? null]), "utf8").toString("base64url");
}

/** @throws usage when it is not one of ours */
export function readCursor(cursor: string | undefined): Place | undefined {
  if (cursor === undefined) return undefined;
  try {
    const parsed: unknown =
      cursor.length > 1024 ? undefined : JSON.parse(Buffer.from(cursor, "base64url").toString("utf8"));
    if (Array.isArray(parsed) && Number.isSafeInteger(parsed[0]) && typeof parsed[1] === "string")
      return { ms: parsed[0] as number, id: parsed[1], ...(typeof parsed[2] === "string" ? { extra: parsed[2] } : {}) };
  } catch {
    // told below
  }
  throw new HoldfastError(
    "usage",
    "Cannot use this cursor: it is not one that a list gave; start the list again without it",
  );
}
