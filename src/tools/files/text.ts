/**
 * Bytes as text. Files are read as UTF-8, a byte order mark is dropped, and bytes that are not UTF-8 become U+FFFD
 * (so a lone surrogate can never come from a file, C23). A NUL in the first 8 KiB makes a file binary.
 */
import { BINARY_PROBE_BYTES } from "./limits.ts";

export function isBinary(bytes: Uint8Array): boolean {
  return bytes.subarray(0, BINARY_PROBE_BYTES).includes(0);
}

export function decode(bytes: Buffer): string {
  const text = bytes.toString("utf8");
  return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
}

/** How far around a cut characters are looked at: longer than any that people write. */
const CLUSTER_UNITS = 64;

let characters: Intl.Segmenter | undefined;

/**
 * The largest position at or before `at` that is between two characters as people see them: never inside a
 * surrogate pair, a flag, or an emoji joined from several (C23).
 */
export function characterStart(text: string, at: number): number {
  if (at >= text.length) return text.length;
  if (at <= 0) return 0;
  const from = pairStart(text, Math.max(0, at - CLUSTER_UNITS));
  characters ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  const around = characters.segment(text.slice(from, pairStart(text, at + CLUSTER_UNITS)));
  const start = from + (around.containing(at - from)?.index ?? 0);
  // One endless character, such as a letter under a thousand accents, is cut between code points.
  return start > from || from === 0 ? start : pairStart(text, at);
}

function pairStart(text: string, at: number): number {
  const inPair = at > 0 && at < text.length && isLow(text.charCodeAt(at)) && isHigh(text.charCodeAt(at - 1));
  return inPair ? at - 1 : at;
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

/** The beginning of a text, at most `limit` UTF-16 units long. */
export function clip(text: string, limit: number): string {
  return text.slice(0, characterStart(text, limit));
}
