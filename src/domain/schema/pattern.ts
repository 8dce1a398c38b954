/**
 * Regular expressions of schemas, matched in linear time whatever the pattern and the text (C40). JavaScript's own
 * engine backtracks and is never given a pattern from outside.
 */
import { RE2JS } from "re2js";

const MAX_PATTERN = 1_000;
const MAX_PROGRAM = 2_000;
/** Program size times text length: about 40 ns each at worst, so one text takes at most some 40 ms. */
const MAX_WORK_PER_TEXT = 1_000_000;

export interface Pattern {
  readonly source: string;
  /** Whether the pattern is found in the text; `undefined` when the text is too long for this pattern. */
  test(text: string): boolean | undefined;
  /** Work of one match, in the unit of the limits above. */
  work(text: string): number;
}

export type PatternResult =
  | { readonly ok: true; readonly pattern: Pattern }
  | { readonly ok: false; readonly reason: string };

/** Compiles a pattern in JavaScript's notation, less look-around and back references. */
export function compilePattern(source: string): PatternResult {
  if (source.length > MAX_PATTERN) return { ok: false, reason: `it is longer than ${MAX_PATTERN} characters` };
  let program: RE2JS;
  try {
    program = RE2JS.compile(RE2JS.translateRegExp(source));
  } catch (error) {
    return {
      ok: false,
      reason: error instanceof Error ? error.message.replace(/^error parsing regexp: /, "") : "it cannot be read",
    };
  }
  const size = program.programSize();
  if (size > MAX_PROGRAM) return { ok: false, reason: "its repetitions make it too large" };
  const work = (text: string) => size * text.length;
  return {
    ok: true,
    pattern: { source, work, test: (text) => (work(text) > MAX_WORK_PER_TEXT ? undefined : program.test(text)) },
  };
}
