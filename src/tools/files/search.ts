/** Searching the text of one file line by line, without holding the event loop for long (C40). */
import type { RE2JS } from "re2js";
import { MAX_LINE_SEARCHED, MAX_LINE_SHOWN } from "./limits.ts";
import { compilePattern, FLAGS } from "./pattern.ts";
import { characterStart } from "./text.ts";

/** Whole lines of about so many characters are tried at once; only in those that match is each line looked at. */
const CHUNK_CHARS = 32_768;
/** After so long other work gets its turn. */
const SLICE_MS = 8;
/** How much is shown before a match that lies far into a long line. */
const LEAD_CHARS = 80;

export interface LineMatch {
  /** From 1. */
  readonly line: number;
  readonly text: string;
  /** `text` is only a part of the line. */
  readonly truncated?: true;
}

/** Called between pieces of work: throws to stop. */
export type Breath = () => Promise<void>;

export interface Searcher {
  /**
   * Adds up to `limit` matching lines to `into`.
   * @returns true when something was not searched: a line longer than 65,536 characters, or more lines matched
   */
  search(text: string, limit: number, into: (match: LineMatch) => void): Promise<boolean>;
}

/** @throws ToolError `bad_arguments` when the pattern is not RE2's */
export function createSearcher(pattern: string, ignoreCase: boolean, breath: Breath): Searcher {
  const flags = ignoreCase ? FLAGS.ignoreCase : 0;
  const line = compilePattern(pattern, flags);
  // \A, \z and (?-m) mean each line's edges line by line, but the chunk's in a chunk: then every line is looked at.
  const chunk = /\\[AzZ]|\(\?\w*-/.test(pattern) ? undefined : compilePattern(pattern, flags | FLAGS.lines);
  return {
    async search(text, limit, into) {
      let number = 0;
      let found = 0;
      let skipped = false;
      for (let from = 0; from < text.length; ) {
        await breath();
        const to = chunkEnd(text, from);
        const part = text.slice(from, to);
        from = to;
        if (part.length <= MAX_LINE_SEARCHED && chunk !== undefined && !chunk.test(part.replaceAll("\r\n", "\n"))) {
          number += countLines(part);
          continue;
        }
        for (const whole of linesOf(part)) {
          number++;
          if (whole.length > MAX_LINE_SEARCHED) skipped = true;
          const searched = whole.slice(0, MAX_LINE_SEARCHED).toWellFormed();
          if (!line.test(searched)) continue;
          if (found++ === limit) return true;
          into({ line: number, ...show(whole, searched, line) });
        }
      }
      return skipped;
    },
  };
}

/** A breath that gives other work its turn every few milliseconds and looks at the signal. */
export function createBreath(signal: AbortSignal): Breath {
  let since = performance.now();
  return async () => {
    signal.throwIfAborted();
    if (performance.now() - since < SLICE_MS) return;
    await new Promise((resolve) => setImmediate(resolve));
    since = performance.now();
    signal.throwIfAborted();
  };
}

function chunkEnd(text: string, from: number): number {
  if (text.length - from <= CHUNK_CHARS) return text.length;
  const before = text.lastIndexOf("\n", from + CHUNK_CHARS - 1);
  if (before >= from) return before + 1;
  const after = text.indexOf("\n", from + CHUNK_CHARS);
  return after === -1 ? text.length : after + 1;
}

function countLines(part: string): number {
  let count = 0;
  for (let at = part.indexOf("\n"); at !== -1; at = part.indexOf("\n", at + 1)) count++;
  return part.endsWith("\n") ? count : count + 1;
}

/** Lines without their ends; what follows the last end is a line only if it holds something. */
function* linesOf(part: string): Generator<string, void, void> {
  for (let from = 0; from < part.length; ) {
    const end = part.indexOf("\n", from);
    const to = end === -1 ? part.length : end;
    yield part.slice(from, to > from && end !== -1 && part[to - 1] === "\r" ? to - 1 : to);
    from = to + 1;
  }
}

/** The line, or of a long one the part around its first match. */
function show(whole: string, searched: string, pattern: RE2JS): Omit<LineMatch, "line"> {
  if (whole.length <= MAX_LINE_SHOWN) return { text: whole };
  const matcher = pattern.matcher(searched);
  const match = matcher.find() ? matcher.start() : 0;
  const from = match < MAX_LINE_SHOWN - LEAD_CHARS ? 0 : characterStart(whole, match - LEAD_CHARS);
  const to = characterStart(whole, from + MAX_LINE_SHOWN);
  return { text: whole.slice(from, to), truncated: true };
}
