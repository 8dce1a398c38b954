/**
 * The journal's stored form (DESIGN §4, R-23). Format, before code:
 *
 * - An event line is the canonical JSON (RFC 8785) of one event. A segment's text is its lines, each ended by `\n`.
 * - `hash = SHA-256(previous hash as 64 lowercase hex digits ‖ text as UTF-8)`.
 * - The first `prev` is the genesis hash: SHA-256 of the canonical JSON of `{run_id, parent, bundle_hash, args_hash}`.
 *
 * The fence is not hashed: who wrote a segment does not change what it says.
 */
import type { RunEvent } from "./events.ts";
import { canonicalJson, hashJson, type Json, sha256 } from "./json.ts";
import type { RunHeader } from "./run.ts";

export function genesisHash(header: Pick<RunHeader, "run_id" | "parent_run_id" | "bundle_hash" | "args_hash">): string {
  return hashJson({
    run_id: header.run_id,
    parent: header.parent_run_id ?? null,
    bundle_hash: header.bundle_hash,
    args_hash: header.args_hash,
  });
}

/** One event line, with its line end. */
export function eventLine(event: RunEvent): string {
  return `${canonicalJson(event as unknown as Json)}\n`;
}

export function segmentHash(prev: string, text: string): string {
  return sha256(prev + text);
}

/** Events of a segment's text. @throws SyntaxError when a line is not JSON */
export function parseEvents(text: string): RunEvent[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as RunEvent);
}

/** Idempotency key of an attempt, given to whoever does the work (R-24). */
export function dispatchId(runId: string, instance: string, attempt: number): string {
  return sha256(`${runId}\0${instance}\0${attempt}`);
}

/** RP-41's id of one call: fresh for each sending, and the same whoever asks for it again. */
export function toolCallId(dispatch: string, redispatch: number): string {
  return `workflow-${uuidOf(redispatch === 0 ? dispatch : sha256(`${dispatch}\0${redispatch}`))}`;
}

/** A child's run id: a UUIDv8 from SHA-256(root, parent, instance, attempt), so a repeat finds the same run (R-20). */
export function childRunId(root: string, parent: string, instance: string, attempt: number): string {
  return uuidOf(sha256(`${root}\0${parent}\0${instance}\0${attempt}`));
}

function uuidOf(hex: string): string {
  const variant = "89ab"[Number.parseInt(hex[16] as string, 16) & 3];
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
