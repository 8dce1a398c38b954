/**
 * How events become stored bytes and come back: large values leave the event for an artifact named by its hash
 * (DESIGN §4), long segments are deflated. An event line never grows past `INLINE_LIMIT` because of one value.
 */
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { eventLine, parseEvents } from "../domain/journal.ts";
import { canonicalJson, type Json, type JsonObject, sha256 } from "../domain/json.ts";
import type { RunStore, Segment } from "../ports/index.ts";

/** Bytes (UTF-16 units of canonical text) above which a value is stored once, by hash. */
export const INLINE_LIMIT = 256 * 1024;
/** Below this a segment is stored as it is: deflate would cost more than it saves. */
const DEFLATE_FROM = 2048;
const decoder = new TextDecoder("utf-8", { fatal: true });

/** A tool's own words are for the operator's eye: this much of them is kept, and no character is cut in half (C23). */
const CLIP = 16 * 1024;

export function clip(text: string): string {
  const whole = text.toWellFormed();
  if (whole.length <= CLIP) return whole;
  const end = /[\ud800-\udbff]/.test(whole[CLIP - 1] ?? "") ? CLIP - 1 : CLIP;
  return `${whole.slice(0, end)}… (${whole.length} characters)`;
}

export interface Artifact {
  readonly sha256: string;
  readonly bytes: Uint8Array;
}

/** Fields of events, and of the waits inside them, that may hold a value of any size. */
const VALUE_FIELDS = ["output", "input", "value", "receipt", "result", "intent"] as const;
const WAIT_FIELDS = ["details", "input", "schema"] as const;

function toArtifact(value: Json): Artifact {
  const bytes = Buffer.from(canonicalJson(value), "utf8");
  return { sha256: sha256(bytes), bytes };
}

/** The event's line; values too large for it are handed to `keep` and replaced by `<field>_ref`. */
export function encodeEvent(event: RunEvent, keep: (artifact: Artifact) => void): string {
  const line = eventLine(event);
  if (line.length <= INLINE_LIMIT) return line;
  const slim = outline(event as unknown as JsonObject, VALUE_FIELDS, keep);
  const wait = slim.wait as JsonObject | undefined;
  return eventLine({
    ...slim,
    ...(wait === undefined ? {} : { wait: outline(wait, WAIT_FIELDS, keep) }),
  } as unknown as RunEvent);
}

function outline(
  object: JsonObject,
  fields: readonly string[],
  keep: (artifact: Artifact) => void,
): Record<string, Json> {
  const slim: Record<string, Json> = { ...object };
  for (const field of fields) {
    const value = slim[field];
    if (value === undefined || canonicalJson(value).length <= INLINE_LIMIT / 4) continue;
    const artifact = toArtifact(value);
    keep(artifact);
    delete slim[field];
    slim[`${field}_ref`] = { sha256: artifact.sha256, bytes: artifact.bytes.length };
  }
  return slim;
}

/** A segment as it is stored, with its hash (`segmentHash`): its text is encoded once for both. */
export function packSegment(prev: string, text: string): Pick<Segment, "prev" | "hash" | "codec" | "bytes"> {
  // The previous hash is hexadecimal digits, so it has as many bytes as characters.
  const hashed = Buffer.from(prev + text, "utf8");
  return { prev, hash: sha256(hashed), ...packBytes(hashed.subarray(prev.length)) };
}

export function packText(text: string): { codec: Segment["codec"]; bytes: Uint8Array } {
  return packBytes(Buffer.from(text, "utf8"));
}

function packBytes(bytes: Uint8Array): { codec: Segment["codec"]; bytes: Uint8Array } {
  if (bytes.length < DEFLATE_FROM) return { codec: "json", bytes };
  return { codec: "deflate", bytes: deflateRawSync(bytes, { level: 1 }) };
}

/** @throws HoldfastError `storage` when the bytes are not what was stored */
export function unpackText(packed: { codec: Segment["codec"]; bytes: Uint8Array }): string {
  try {
    return decoder.decode(packed.codec === "deflate" ? inflateRawSync(packed.bytes) : packed.bytes);
  } catch (cause) {
    throw new HoldfastError("storage", "Cannot read the journal: a segment is damaged; run `holdfast verify`", {
      cause,
    });
  }
}

/** Events of a segment with their large values back in place. */
export async function readEvents(store: RunStore, segment: Segment): Promise<RunEvent[]> {
  return hydrateEvents(store, parseEvents(unpackText(segment)));
}

export async function hydrateEvents(store: RunStore, events: readonly RunEvent[]): Promise<RunEvent[]> {
  const whole: RunEvent[] = [];
  for (const event of events) whole.push(isSlim(event) ? await hydrate(store, event) : event);
  return whole;
}

function isSlim(event: RunEvent): boolean {
  const keys = [...Object.keys(event), ...("wait" in event && event.wait !== undefined ? Object.keys(event.wait) : [])];
  return keys.some((key) => key.endsWith("_ref"));
}

async function hydrate(store: RunStore, event: RunEvent): Promise<RunEvent> {
  let object = event as unknown as JsonObject;
  for (const field of VALUE_FIELDS) if (`${field}_ref` in object) object = await inline(store, object, field);
  let wait = object.wait as JsonObject | undefined;
  if (wait === undefined) return object as unknown as RunEvent;
  for (const field of WAIT_FIELDS) if (`${field}_ref` in wait) wait = await inline(store, wait, field);
  return { ...object, wait } as unknown as RunEvent;
}

async function inline(store: RunStore, object: JsonObject, field: string): Promise<JsonObject> {
  const { [`${field}_ref`]: ref, ...rest } = object;
  return { ...rest, [field]: await readArtifact(store, (ref as { sha256: string }).sha256) };
}

/** @throws HoldfastError `storage` when it is missing or is not what its name says */
export async function readArtifact(store: RunStore, hash: string): Promise<Json> {
  const bytes = await store.getArtifact(hash);
  if (bytes === undefined || sha256(bytes) !== hash)
    throw new HoldfastError("storage", `Cannot read the stored value ${hash}: it is missing or altered`);
  return JSON.parse(decoder.decode(bytes)) as Json;
}
