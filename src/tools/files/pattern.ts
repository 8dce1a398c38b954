/**
 * Search patterns and globs of outside origin. Both run on RE2, whose time is linear in the text whatever the
 * pattern (C40); their size is bounded, because the factor of that line is the size of the program.
 */
import { RE2JS } from "re2js";
import { ToolError } from "../tool-error.ts";
import { MAX_GLOB, MAX_PATTERN } from "./limits.ts";

/** Most instructions of a compiled pattern: 32 KiB of text then take some 50 ms at worst. */
const MAX_PROGRAM = 2_000;
/** Most `{n,m}` of a pattern: they multiply its size before it can be measured. */
const MAX_REPEATS = 16;

/** @throws ToolError `bad_arguments` with what RE2 says about the pattern */
export function compilePattern(pattern: string, flags: number): RE2JS {
  if (pattern.length > MAX_PATTERN) throw bad(pattern, `it is longer than ${MAX_PATTERN} characters`);
  if ((pattern.match(/\{\d+,?\d*\}/g)?.length ?? 0) > MAX_REPEATS)
    throw bad(pattern, `it repeats by number more than ${MAX_REPEATS} times`);
  let compiled: RE2JS;
  try {
    compiled = RE2JS.compile(pattern, flags);
  } catch (error) {
    throw bad(pattern, error instanceof Error ? error.message : "it is no regular expression");
  }
  if (compiled.programSize() > MAX_PROGRAM) throw bad(pattern, "it is too large once its repeats are written out");
  return compiled;
}

/** RE2's flags, by the names used here. */
export const FLAGS = { ignoreCase: RE2JS.CASE_INSENSITIVE, lines: RE2JS.MULTILINE } as const;

function bad(pattern: string, why: string): ToolError {
  const shown = JSON.stringify(pattern.length > 80 ? `${pattern.slice(0, 80).toWellFormed()}…` : pattern);
  return new ToolError(`Cannot search for ${shown}: ${why}; use RE2 syntax`, { kind: "bad_arguments" });
}

/** A compiled glob: where a walk may begin, how deep it must go, and which paths below that match. */
export interface Glob {
  /** Leading names without wildcards. */
  readonly base: readonly string[];
  /** Most names of a matching path below `base`; undefined: any. */
  readonly depth: number | undefined;
  /** Tests a path relative to `base`. */
  matches(path: string): boolean;
}

/**
 * Compiles `*`, `**`, `?`, `[a-z]`, `[!a-z]`, `{a,b}` and `\` before any of them. A leading dot is matched like any
 * other character; `*` never passes a slash; case counts.
 * @throws ToolError `bad_arguments` for anything else that globs elsewhere know, so that nothing is silently missed
 */
export function compileGlob(pattern: string): Glob {
  if (pattern.length > MAX_GLOB) throw badGlob(pattern, `it is longer than ${MAX_GLOB} characters`);
  if (pattern.startsWith("/")) throw badGlob(pattern, "it is not relative; leave out the first slash");
  if (pattern.startsWith("!")) throw badGlob(pattern, "it says what to leave out; say what to find");
  if (/[!@+?*]\(/.test(pattern)) throw badGlob(pattern, "extended patterns such as !(a) are not known; use {a,b}");
  const names = pattern.split("/").filter((name) => name !== "." && name !== "");
  if (names.length === 0 || pattern.endsWith("/"))
    throw badGlob(pattern, "it names a folder; add ** for what is in it");
  if (names.includes("..")) throw badGlob(pattern, "it leads upwards; give `path` instead");
  let literal = 0;
  while (literal < names.length - 1 && !/[*?[\]{}\\]/.test(names[literal] as string)) literal++;
  const rest = names.slice(literal);
  const source = translate(rest.join("/"), pattern);
  let compiled: RE2JS;
  try {
    compiled = RE2JS.compile(source, RE2JS.DOTALL);
  } catch {
    throw badGlob(pattern, "a [ ] in it is not a set of characters");
  }
  if (compiled.programSize() > MAX_PROGRAM) throw badGlob(pattern, "it is too large; split it");
  return {
    base: names.slice(0, literal),
    depth: rest.some((name) => name.includes("**")) ? undefined : rest.length,
    matches: (path) => compiled.matches(path),
  };
}

/** One pass over the pattern; `whole` is only for errors. */
function translate(glob: string, whole: string): string {
  let out = "";
  // For each open brace, whether it is a choice or an ordinary character.
  const braces: boolean[] = [];
  for (let i = 0; i < glob.length; i++) {
    const char = glob[i] as string;
    if (char === "*") {
      const [source, used] = translateStars(glob, i);
      out += source;
      i += used - 1;
    } else if (char === "?") out += "[^/]";
    else if (char === "[") {
      const end = glob.indexOf("]", i + (/[!^]/.test(glob[i + 1] ?? "") ? 3 : 2));
      if (end === -1) throw badGlob(whole, "a [ has no ]");
      out += translateSet(glob.slice(i + 1, end));
      i = end;
    } else if (char === "{") {
      braces.push(closes(glob, i));
      out += braces.at(-1) === true ? "(?:" : "\\{";
    } else if (char === "}") out += braces.pop() === true ? ")" : "\\}";
    else if (char === "," && braces.at(-1) === true) out += "|";
    else if (char === "\\") {
      i++;
      out += RE2JS.quote(glob[i] ?? "\\");
    } else {
      const point = String.fromCodePoint(glob.codePointAt(i) as number);
      out += RE2JS.quote(point);
      i += point.length - 1;
    }
  }
  return out;
}

/** `**` as a whole name is any number of names; `**` at the end is at least one; any other run of stars is one. */
function translateStars(glob: string, at: number): [source: string, used: number] {
  let end = at;
  while (glob[end] === "*") end++;
  const whole = end - at >= 2 && (at === 0 || /[/{,]/.test(glob[at - 1] as string));
  if (whole && glob[end] === "/") return ["(?:[^/]+/)*", end - at + 1];
  if (whole && (end === glob.length || /[},]/.test(glob[end] as string))) return [".+", end - at];
  return ["[^/]*", end - at];
}

/** A set never matches a slash: a range that spans one is split around it. */
function translateSet(set: string): string {
  const negated = /^[!^]/.test(set);
  const points = [...(negated ? set.slice(1) : set)];
  let out = "";
  for (let i = 0; i < points.length; i++) {
    const from = points[i] as string;
    const to = points[i + 1] === "-" ? points[i + 2] : undefined;
    if (to === undefined) {
      if (from !== "/") out += quoteInSet(from);
      continue;
    }
    i += 2;
    if (from < "/" && to > "/") out += `${quoteInSet(from)}-.0-${quoteInSet(to)}`;
    else if (from === "/" && to > "/") out += `0-${quoteInSet(to)}`;
    else if (from < "/" && to === "/") out += `${quoteInSet(from)}-.`;
    else out += `${quoteInSet(from)}-${quoteInSet(to)}`;
  }
  return negated ? `[^/${out}]` : `[${out}]`;
}

function quoteInSet(point: string): string {
  return /[\\\]^[&~|-]/.test(point) ? `\\${point}` : point;
}

/** Does the brace at `at` have a partner with a comma between? Else it is an ordinary character. */
function closes(glob: string, at: number): boolean {
  let depth = 0;
  let comma = false;
  for (let i = at; i < glob.length; i++) {
    if (glob[i] === "\\") i++;
    else if (glob[i] === "{") depth++;
    else if (glob[i] === "," && depth === 1) comma = true;
    else if (glob[i] === "}" && --depth === 0) return comma;
  }
  return false;
}

function badGlob(pattern: string, why: string): ToolError {
  const shown = JSON.stringify(pattern.length > 80 ? `${pattern.slice(0, 80).toWellFormed()}…` : pattern);
  return new ToolError(`Cannot use the glob ${shown}: ${why}`, { kind: "bad_arguments" });
}
