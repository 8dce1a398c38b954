/** Addresses of the API, each part percent-encoded (RP-88), and the word for what it does not offer. */
import { HoldfastError } from "../domain/errors.ts";

export const BASE = "/api/v1";

export function addressOf(session: string): string {
  return `${BASE}/sessions/${encodeURIComponent(session)}`;
}

export function notOffered(act: string): HoldfastError {
  return new HoldfastError(
    "usage",
    `Cannot ${act} through a server: its HTTP interface does not offer that; open the store itself, without --server`,
  );
}
