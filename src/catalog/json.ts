/**
 * Reads strict JSON (RFC 8259) with places and the same bounds as YAML. Its own small parser, because
 * `JSON.parse` gives no places and keeps the last of two equal keys without a word.
 */
import { type Json, MAX_JSON_DEPTH, setOwn } from "../domain/json.ts";
import { documentOf, Faults, type Located, lineIndex, MAX_VALUES, type ReadResult, refuseSize } from "./document.ts";
import { numberFault } from "./yaml.ts";

/** @param file name shown in diagnostics */
export function readJson(text: string, file: string): ReadResult {
  const tooLarge = refuseSize(text, file);
  if (tooLarge !== undefined) return tooLarge;
  const placeAt = lineIndex(text);
  const faults = new Faults(file, placeAt);
  try {
    const { value, located } = new JsonReader(text).document();
    return documentOf(value, located, placeAt);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    faults.add(error.at, error.code, error.message);
    return { diagnostics: faults.list };
  }
}

class Fault extends Error {
  readonly at: number;
  readonly code: string;
  constructor(at: number, code: string, message: string) {
    super(message);
    this.at = at;
    this.code = code;
  }
}

interface Read {
  readonly value: Json;
  readonly located: Located;
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORDS: readonly (readonly [string, Json])[] = [
  ["true", true],
  ["false", false],
  ["null", null],
];

class JsonReader {
  readonly #text: string;
  #at = 0;
  #values = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Read {
    const read = this.#value(0);
    this.#space();
    if (this.#at < this.#text.length) throw this.#syntax("nothing may follow the value");
    return read;
  }

  #value(depth: number): Read {
    this.#space();
    if (++this.#values > MAX_VALUES)
      throw new Fault(this.#at, "too_many_values", `the file holds more than ${MAX_VALUES} values; split it`);
    const start = this.#at;
    const char = this.#text[start];
    if (char === "{" || char === "[") {
      if (depth >= MAX_JSON_DEPTH)
        throw new Fault(start, "too_deep", `values are nested deeper than ${MAX_JSON_DEPTH} levels; flatten them`);
      this.#at++;
      return char === "{" ? this.#object(start, depth) : this.#array(start, depth);
    }
    if (char === '"') return { value: this.#string(), located: { start } };
    for (const [word, value] of WORDS)
      if (this.#text.startsWith(word, start)) {
        this.#at += word.length;
        return { value, located: { start } };
      }
    return { value: this.#number(start), located: { start } };
  }

  #array(start: number, depth: number): Read {
    const value: Json[] = [];
    const parts = new Map<string | number, Located>();
    if (this.#takes("]")) return { value, located: { start, parts } };
    do {
      const read = this.#value(depth + 1);
      parts.set(value.length, read.located);
      value.push(read.value);
    } while (this.#takes(","));
    if (!this.#takes("]")) throw this.#syntax("a `,` or `]` is missing here");
    return { value, located: { start, parts } };
  }

  #object(start: number, depth: number): Read {
    const entries: [string, Json][] = [];
    const keys = new Map<string, number>();
    const parts = new Map<string | number, Located>();
    if (!this.#takes("}")) {
      do {
        this.#space();
        const keyAt = this.#at;
        if (this.#text[keyAt] !== '"') throw this.#syntax("a key in double quotes is missing here");
        const key = this.#string();
        if (keys.has(key)) throw new Fault(keyAt, "duplicate_key", `the key ${JSON.stringify(key)} is given twice`);
        if (!this.#takes(":")) throw this.#syntax("a `:` is missing here");
        const read = this.#value(depth + 1);
        entries.push([key, read.value]);
        keys.set(key, keyAt);
        parts.set(key, read.located);
      } while (this.#takes(","));
      if (!this.#takes("}")) throw this.#syntax("a `,` or `}` is missing here");
    }
    const value: Record<string, Json> = {};
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    for (const [key, item] of entries) setOwn(value, key, item);
    return { value, located: { start, keys, parts } };
  }

  #string(): string {
    const start = this.#at;
    const raw = this.#match(STRING);
    if (raw === undefined)
      throw this.#syntax("the text that starts here does not end, or holds a bad escape or control character");
    const text = JSON.parse(raw) as string;
    if (!text.isWellFormed()) throw new Fault(start, "json_text", "the text contains half of a surrogate pair");
    return text;
  }

  #number(start: number): number {
    const source = this.#match(NUMBER);
    if (source === undefined) throw this.#syntax("a value is missing here");
    const value = Number(source);
    const fault = numberFault(value, source);
    if (fault !== undefined) throw new Fault(start, "number", fault);
    return value === 0 ? 0 : value;
  }

  #takes(char: string): boolean {
    this.#space();
    if (this.#text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #space(): void {
    this.#match(SPACE);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #syntax(message: string): Fault {
    return new Fault(this.#at, "json_syntax", message);
  }
}
