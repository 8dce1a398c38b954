/**
 * Page cursors over HTTP: the place that access gives, bound to its list and signed, so that a cursor is opaque,
 * serves only the list that gave it, and cannot be made up (interfaces §3).
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { refusal } from "./problem.ts";

const MAC_BYTES = 16;
const MAX_CURSOR = 2_048;

export class CursorSigner {
  readonly #secret: Uint8Array;

  /** @param secret at least 16 bytes; the same after a restart, so that a pager goes on */
  constructor(secret: Uint8Array = randomBytes(32)) {
    this.#secret = secret;
  }

  /** @param list names the list and everything that selects its members */
  sign(list: string, place: string): string {
    return Buffer.concat([this.#mac(list, place), Buffer.from(place, "utf8")]).toString("base64url");
  }

  /** @throws HoldfastError `usage` when it was not given by this list */
  read(list: string, cursor: string | undefined): string | undefined {
    if (cursor === undefined) return undefined;
    const bytes =
      cursor.length > MAX_CURSOR || !/^[A-Za-z0-9_-]+$/.test(cursor)
        ? Buffer.alloc(0)
        : Buffer.from(cursor, "base64url");
    const place = bytes.subarray(MAC_BYTES).toString("utf8");
    // One spelling a cursor: base64url has several for some bytes.
    const spelled = bytes.toString("base64url") === cursor;
    if (spelled && bytes.length > MAC_BYTES && timingSafeEqual(bytes.subarray(0, MAC_BYTES), this.#mac(list, place)))
      return place;
    throw refusal(
      "usage",
      "Cannot use this cursor: it is not one that this list gave; start the list again without it",
    );
  }

  #mac(list: string, place: string): Buffer {
    return createHmac("sha256", this.#secret).update(list).update("\0").update(place).digest().subarray(0, MAC_BYTES);
  }
}
