/**
 * The journal's stored form (DESIGN §4, R-23). Format, before code:
 *
 * - An event line is the canonical JSON (RFC 8785) of one event. A segment's text is its lines, each ended by `\n`.
 * - `hash = SHA-256(previous hash as 64 lowercase hex digits ‖ text as UTF-8)`.
 * - The first `prev` is the genesis hash: SHA-256 of the canonical JSON of `{run_id, parent, bundle_hash, args_hash}`.
 *
 * The fence is not hashed: who wrote a segment does not change what it says.
 */
import type { EventType, RunEvent } from "./events.ts";
import { canonicalJson, hashJson, type Json, type JsonObject, sha256 } from "./json.ts";
import type { RunHeader } from "./run.ts";

export function genesisHash(header: Pick<RunHeader, "run_id" | "parent_run_id" | "bundle_hash" | "args_hash">): string {
  return hashJson({
    run_id: header.run_id,
    parent: header.parent_run_id ?? null,
    bundle_hash: header.bundle_hash,
    args_hash: header.args_hash,
  });
}

/**
 * Fields of the events that are written for every step, in the order of canonical JSON: their lines need no sorting,
 * which is a third of the cost of writing one. `at_ms` is the first field and `sequence` a field of every event.
 */
const FIELDS: { readonly [type in EventType]?: readonly string[] } = {
  phase: ["cost_micros", "due_at_ms", "estimated", "instance", "key", "name", "sequence", "tokens", "type", "woke"],
  step_queued: ["sequence", "step_id", "type", "visit", "woke"],
  step_started: [
    ...["attempt", "grant", "input", "input_hash", "intent", "redispatch", "sequence", "side_effect", "step_id"],
    ...["tool", "type", "woke"],
  ],
  step_completed: ["output", "sequence", "step_id", "type", "woke"],
};

/** One event line, with its line end. */
export function eventLine(event: RunEvent): string {
  return `${knownLine(event) ?? canonicalJson(event as unknown as Json)}\n`;
}

/** The same text for events of known fields; undefined for any other, whatever more it has. */
function knownLine(event: RunEvent): string | undefined {
  const fields = FIELDS[event.type];
  if (fields === undefined) return undefined;
  const object = event as unknown as JsonObject;
  let text = `{"at_ms":${event.at_ms}`;
  let known = 1;
  for (const field of fields) {
    const value = object[field];
    if (value === undefined) continue;
    known++;
    text += `,"${field}":${typeof value === "number" ? value : canonicalJson(value)}`;
  }
  for (const field in object) if (object[field] !== undefined) known--;
  return known === 0 ? `${text}}` : undefined;
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
