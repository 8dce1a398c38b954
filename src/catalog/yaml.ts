/**
 * Reads YAML 1.2 (core schema) as JSON with places, safely: what can make a small text large or deep (anchors,
 * aliases, tags, merge keys, directives, nesting) is refused while it is being scanned, before any tree of it
 * exists (C38; the parser's recursion cannot be caught once it has overflowed). Nothing is guessed: a key that
 * is no text, a key given twice and a number that would lose digits are errors.
 */
import { Composer, CST, type Document, isMap, isPair, isScalar, isSeq, Lexer, Parser, type Scalar } from "yaml";
import { type Json, MAX_JSON_DEPTH, setOwn } from "../domain/json.ts";
import {
  documentOf,
  Faults,
  type Located,
  lineIndex,
  MAX_VALUES,
  type ReadResult,
  refused,
  refuseSize,
} from "./document.ts";

/** Depth of the parser's stack: 128 levels of values, the document and one to notice. */
const MAX_STACK = MAX_JSON_DEPTH + 2;
/** Most lexical tokens (each blank line, comment and space is one): bounds the time of the scan. */
const MAX_TOKENS = 100_000;
/** Most of them that hold nothing; a file of items, each on a line of its own, is half made of them. */
const MAX_BLANKS = 60_000;

/** Why a token is refused, by its type. */
const REFUSED_TOKENS: { readonly [type: string]: readonly [code: string, message: string] } = {
  anchor: ["yaml_anchor", "anchors (&name) are not allowed here; write the value out"],
  alias: ["yaml_alias", "aliases (*name) are not allowed here; write the value out"],
  tag: ["yaml_tag", "tags (!name) are not allowed here; remove it, and quote a text that starts with !"],
  "directive-line": ["yaml_directive", "directives (%…) are not allowed here; remove the line"],
};

const SEVERAL_DOCUMENTS = "a file holds one document; move the rest to a file of its own";

const MERGE_KEY = "merge keys (<<) are not allowed here; write the keys out, or quote the text";

const BLANK_TOKENS: ReadonlySet<string> = new Set(["newline", "space", "comment"]);

const VALUE_TOKENS: ReadonlySet<string> = new Set([
  "scalar",
  "single-quoted-scalar",
  "double-quoted-scalar",
  "block-scalar-header",
  "flow-map-start",
  "flow-seq-start",
  "seq-item-ind",
  "comma",
  "explicit-key-ind",
]);

/** @param file name shown in diagnostics */
export function readYaml(text: string, file: string): ReadResult {
  const tooLarge = refuseSize(text, file);
  if (tooLarge !== undefined) return tooLarge;
  const placeAt = lineIndex(text);
  const faults = new Faults(file, placeAt);
  const tokens = scan(text, faults);
  if (tokens === undefined) return { diagnostics: faults.list };
  const document = compose(tokens, text, faults);
  if (document === undefined) return { diagnostics: faults.list };
  if (document.contents === null) return refused(file, "yaml_empty", "the file is empty; write a mapping of keys");
  const reader = new Reader(faults);
  const { value, located } = reader.read(document.contents, 0, 0);
  if (faults.list.length > 0) return { diagnostics: faults.list };
  return documentOf(value, located, placeAt);
}

/** The tokens of one document, or `undefined` when something in them is refused. */
function scan(text: string, faults: Faults): CST.Token[] | undefined {
  const parser = new Parser();
  const tokens: CST.Token[] = [];
  let values = 0;
  let lexemes = 0;
  let blanks = 0;
  let documents = 0;
  let inScalar = false;
  for (const lexeme of new Lexer().lex(text)) {
    const type: string | null = inScalar ? "scalar-text" : CST.tokenType(lexeme);
    const at = parser.offset;
    if (inScalar && lexeme === "<<") return stop(faults, at, "yaml_merge", MERGE_KEY);
    inScalar = type === "scalar";
    const why = type === null ? undefined : REFUSED_TOKENS[type];
    if (why !== undefined) return stop(faults, at, why[0], why[1]);
    // `...` ends a document; one `---` may precede it.
    if ((type === "doc-start" || type === "doc-end") && ++documents > (type === "doc-start" ? 1 : 2))
      return stop(faults, at, "yaml_documents", SEVERAL_DOCUMENTS);
    if (++lexemes > MAX_TOKENS) return stop(faults, at, "too_large", `the file is too long to read; split it`);
    if (type !== null && BLANK_TOKENS.has(type) && ++blanks > MAX_BLANKS)
      return stop(faults, at, "too_large", "the file holds too many blank lines and comments; remove some");
    if (type !== null && VALUE_TOKENS.has(type) && ++values > MAX_VALUES)
      return stop(faults, at, "too_many_values", `the file holds more than ${MAX_VALUES} values; split it`);
    for (const token of parser.next(lexeme)) {
      // At once: the library copies all it has seen for each further one, which takes seconds for 1 MiB of `]`.
      if (token.type === "error") return stop(faults, at, "yaml_syntax", lower(token.message));
      tokens.push(token);
    }
    if (parser.stack.length > MAX_STACK) return stop(faults, at, "too_deep", tooDeep());
  }
  for (const token of parser.end()) tokens.push(token);
  return tokens;
}

function stop(faults: Faults, at: number, code: string, message: string): undefined {
  faults.add(at, code, message);
  return undefined;
}

function tooDeep(): string {
  return `values are nested deeper than ${MAX_JSON_DEPTH} levels; flatten them`;
}

function compose(tokens: readonly CST.Token[], text: string, faults: Faults): Document.Parsed | undefined {
  // Keys given twice are found in `Reader`, with a set: the library compares every pair of keys.
  const composer = new Composer({ version: "1.2", schema: "core", merge: false, uniqueKeys: false, logLevel: "error" });
  let documents: Document.Parsed[];
  try {
    documents = [...composer.compose(tokens, true, text.length)];
  } catch (error) {
    if (error instanceof RangeError) return stop(faults, 0, "too_deep", tooDeep());
    throw error;
  }
  const [document, second] = documents;
  const fault = documents.flatMap((each) => each.errors).sort((a, b) => a.pos[0] - b.pos[0])[0];
  // Only the first: what follows a slip of indentation is mostly its echo.
  if (fault !== undefined) {
    const [message, hint] = explain(fault.code, fault.message);
    faults.add(Math.min(fault.pos[0], text.length), "yaml_syntax", message, hint);
    return undefined;
  }
  if (second !== undefined) return stop(faults, second.range[0], "yaml_documents", SEVERAL_DOCUMENTS);
  return document;
}

/** The library's faults in the words of someone who writes workflow files. */
function explain(code: string, message: string): readonly [message: string, hint?: string] {
  switch (code) {
    case "TAB_AS_INDENT":
      return ["a tab is used to indent; YAML allows spaces only"];
    case "BLOCK_AS_IMPLICIT_KEY":
      return ["a second `: ` stands on this line", "quote a text that contains `: `"];
    case "BAD_SCALAR_START":
      return ["a plain text cannot start with this character", "quote the text"];
    case "MULTILINE_IMPLICIT_KEY":
      return ["a key must stand on one line and be followed by `:`", "is a `:` missing, or the indentation off?"];
    case "BAD_INDENT":
      return ["the indentation does not fit the lines around it", "items of one mapping or list start in one column"];
    case "BAD_DQ_ESCAPE":
      return [lower(message), "in double quotes write \\\\ for a backslash, or use single quotes"];
    default:
      return [lower(message)];
  }
}

function lower(sentence: string): string {
  return sentence.charAt(0).toLowerCase() + sentence.slice(1);
}

interface Read {
  readonly value: Json;
  readonly located: Located;
}

/** Turns the library's nodes into JSON and places; keeps going after a fault, so that all are shown at once. */
class Reader {
  readonly #faults: Faults;

  constructor(faults: Faults) {
    this.#faults = faults;
  }

  /** @param from where the value stands when it is absent (`key:` with nothing after it) */
  read(node: unknown, depth: number, from: number): Read {
    if (isScalar(node)) return this.#scalar(node, from);
    if (!isMap(node) && !isSeq(node)) return { value: null, located: { start: from } };
    const start = node.range?.[0] ?? from;
    if (depth >= MAX_JSON_DEPTH) {
      this.#faults.add(start, "too_deep", tooDeep());
      return { value: null, located: { start } };
    }
    return isMap(node) ? this.#map(node.items, depth, start) : this.#list(node.items, depth, start);
  }

  #list(items: readonly unknown[], depth: number, start: number): Read {
    const value: Json[] = [];
    const parts = new Map<string | number, Located>();
    for (const [i, item] of items.entries()) {
      const read = this.read(item, depth + 1, start);
      value.push(read.value);
      parts.set(i, read.located);
    }
    return { value, located: { start, parts } };
  }

  #map(items: readonly unknown[], depth: number, start: number): Read {
    const entries: [string, Json][] = [];
    const keys = new Map<string, number>();
    const parts = new Map<string | number, Located>();
    for (const pair of items) {
      if (!isPair(pair) || this.#faults.full) break;
      const keyAt = isScalar(pair.key) || isMap(pair.key) || isSeq(pair.key) ? (pair.key.range?.[0] ?? start) : start;
      const key = this.#key(pair.key, keyAt, keys);
      const read = this.read(pair.value, depth + 1, keyAt);
      if (key === undefined) continue;
      entries.push([key, read.value]);
      keys.set(key, keyAt);
      parts.set(key, read.located);
    }
    const value: Record<string, Json> = {};
    // normal form has its keys sorted.
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    for (const [key, item] of entries) setOwn(value, key, item);
    return { value, located: { start, keys, parts } };
  }

  #key(node: unknown, at: number, seen: ReadonlyMap<string, number>): string | undefined {
    if (!isScalar(node) || typeof node.value !== "string") {
      const hint =
        isScalar(node) && node.value !== null ? `write "${node.source ?? String(node.value)}": …` : undefined;
      this.#faults.add(at, "yaml_key", "a key must be a text", hint);
      return undefined;
    }
    const key = node.value;
    if (!key.isWellFormed()) this.#faults.add(at, "yaml_text", "the key contains half of a surrogate pair");
    else if (seen.has(key)) this.#faults.add(at, "duplicate_key", `the key ${JSON.stringify(key)} is given twice`);
    else return key;
    return undefined;
  }

  #scalar(node: Scalar, from: number): Read {
    const start = node.range?.[0] ?? from;
    const located: Located = { start };
    const value = node.value;
    switch (typeof value) {
      case "string":
        if (!value.isWellFormed()) this.#faults.add(start, "yaml_text", "the text contains half of a surrogate pair");
        return { value, located };
      case "number":
        return { value: this.#number(value, node.source ?? String(value), start), located };
      case "boolean":
        return { value, located };
      default:
        return { value: null, located };
    }
  }

  #number(value: number, source: string, start: number): number {
    const fault = numberFault(value, source);
    if (fault !== undefined) this.#faults.add(start, "number", fault, "quote it if it is meant as a text");
    return value === 0 ? 0 : value;
  }
}

/** Why a number cannot be kept as written, for YAML and JSON alike. */
export function numberFault(value: number, source: string): string | undefined {
  const shown = source.length > 40 ? `${source.slice(0, 40)}…` : source;
  if (!Number.isFinite(value)) return `${shown} is not a JSON number`;
  if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return `${shown} is beyond 2^53-1 and would lose digits`;
  return undefined;
}
