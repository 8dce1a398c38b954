/**
 * JSON as Holdfast knows it: the one normal form in which every value enters, is stored, hashed and
 * handed to programs, and its canonical text (RFC 8785) that all hashes are taken over.
 */
import { hash } from "node:crypto";

export type Json = null | boolean | number | string | JsonArray | JsonObject;
export type JsonArray = readonly Json[];
export interface JsonObject {
  readonly [key: string]: Json;
}

/** Deepest nesting of any value. */
export const MAX_JSON_DEPTH = 128;

/** A value that cannot be stored as JSON; `path` says where (`$.b[2]`), `reason` why. */
export class JsonError extends Error {
  readonly path: string;
  readonly reason: string;
  constructor(path: string, reason: string) {
    super(`${path}: ${reason}`);
    this.name = "JsonError";
    this.path = path;
    this.reason = reason;
  }
}

type Path = readonly (string | number)[];

function renderPath(path: Path): string {
  let text = "$";
  for (const part of path) {
    if (typeof part === "number") text += `[${part}]`;
    else text += /^[A-Za-z_$][\w$]*$/.test(part) ? `.${part}` : `[${JSON.stringify(part)}]`;
  }
  return text;
}

function refuse(path: Path, reason: string): never {
  throw new JsonError(renderPath(path), reason);
}

/**
 * Copies a value into normal form: keys sorted, `-0` as `0`, nothing shared with the caller, so that the
 * view before a pause, after it and after a crash is the same (R-25, C22).
 * @throws JsonError for NaN, infinities, BigInt, undefined, functions, symbols, Date, Map and other
 *   class instances, lone surrogates, cycles, and nesting past `MAX_JSON_DEPTH`; it names the path.
 */
export function normalizeJson(value: unknown): Json {
  return copy(value, []);
}

function copy(value: unknown, path: (string | number)[]): Json {
  switch (typeof value) {
    case "string":
      if (!value.isWellFormed()) refuse(path, "the text contains half of a surrogate pair");
      return value;
    case "number":
      if (!Number.isFinite(value)) refuse(path, `${value} is not a JSON number`);
      return value === 0 ? 0 : value;
    case "boolean":
      return value;
    case "object":
      if (value === null) return null;
      if (path.length >= MAX_JSON_DEPTH) refuse(path, `nested deeper than ${MAX_JSON_DEPTH} levels`);
      return Array.isArray(value) ? copyArray(value, path) : copyObject(value, path);
    default:
      return refuse(path, `${typeof value} is not a JSON value`);
  }
}

function copyArray(value: readonly unknown[], path: (string | number)[]): Json {
  const out: Json[] = new Array(value.length);
  for (let i = 0; i < value.length; i++) {
    path.push(i);
    out[i] = copy(value[i], path);
    path.pop();
  }
  return out;
}

function copyObject(value: object, path: (string | number)[]): Json {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null && !isForeignPlain(prototype))
    refuse(path, `a ${value.constructor?.name || "class"} instance is not a JSON value`);
  const out: Record<string, Json> = {};
  for (const key of Object.keys(value).sort()) {
    if (!key.isWellFormed()) refuse(path, "a key contains half of a surrogate pair");
    path.push(key);
    const item = copy((value as Record<string, unknown>)[key], path);
    path.pop();
    setOwn(out, key, item);
  }
  return out;
}

/** Plain objects of another realm (a VM context) have a prototype whose own prototype is null. */
function isForeignPlain(prototype: unknown): boolean {
  return (
    typeof prototype === "object" &&
    prototype !== null &&
    Object.getPrototypeOf(prototype) === null &&
    Object.hasOwn(prototype, "hasOwnProperty")
  );
}

/** Sets an own property whatever its name: `__proto__` is a key like any other (C24). */
export function setOwn<T>(target: Record<string, T>, key: string, value: T): void {
  if (key === "__proto__")
    Object.defineProperty(target, key, { value, enumerable: true, writable: true, configurable: true });
  else target[key] = value;
}

/** The value of an own property; inherited names such as `constructor` are absent (C24). */
export function getOwn<T>(target: { readonly [key: string]: T }, key: string): T | undefined {
  return Object.hasOwn(target, key) ? target[key] : undefined;
}

/** RFC 8785 text of a normal-form value. Members that are `undefined` are left out. */
export function canonicalJson(value: Json | undefined): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) {
    let text = "[";
    for (let i = 0; i < value.length; i++) text += (i === 0 ? "" : ",") + canonicalJson(value[i]);
    return `${text}]`;
  }
  const object = value as JsonObject;
  const keys = Object.keys(object);
  // Normal-form objects are sorted already, but for names that look like integers, which engines move ahead.
  if (!isSorted(keys)) keys.sort();
  let text = "";
  for (const key of keys) {
    const item = object[key];
    if (item === undefined) continue;
    text += `${text === "" ? "" : ","}${quoted(key)}:${canonicalJson(item)}`;
  }
  return `{${text}}`;
}

/** Keys come again and again: their quoted text is kept, for a bounded number of short ones. */
const QUOTED = new Map<string, string>();
const MAX_QUOTED = 1024;

function quoted(key: string): string {
  const known = QUOTED.get(key);
  if (known !== undefined) return known;
  const text = JSON.stringify(key);
  if (key.length <= 32 && QUOTED.size < MAX_QUOTED) QUOTED.set(key, text);
  return text;
}

function isSorted(keys: readonly string[]): boolean {
  for (let i = 1; i < keys.length; i++) if ((keys[i - 1] as string) > (keys[i] as string)) return false;
  return true;
}

/** Lowercase hex SHA-256 of UTF-8 text or bytes. */
export function sha256(data: string | Uint8Array): string {
  return hash("sha256", data, "hex");
}

/** Hash of a value: SHA-256 over its canonical text (RP-11). */
export function hashJson(value: Json): string {
  return sha256(canonicalJson(value));
}

/** Deep equality of normal-form values. */
export function jsonEquals(a: Json, b: Json): boolean {
  return a === b || canonicalJson(a) === canonicalJson(b);
}

/** Resolves an RFC 6901 pointer; `undefined` when any part is absent. Array indexes have no leading zero. */
export function resolvePointer(value: Json, pointer: string): Json | undefined {
  if (pointer === "") return value;
  const tokens = pointerTokens(pointer);
  if (tokens === undefined) return undefined;
  let at: Json | undefined = value;
  for (const token of tokens) {
    if (Array.isArray(at)) at = /^(0|[1-9]\d*)$/.test(token) ? at[Number(token)] : undefined;
    else if (typeof at === "object" && at !== null) at = getOwn(at as JsonObject, token);
    else return undefined;
    if (at === undefined) return undefined;
  }
  return at;
}

/** Unescaped tokens of a pointer, or `undefined` when it is not one (`~` only as `~0`, `~1`). */
export function pointerTokens(pointer: string): string[] | undefined {
  if (pointer === "") return [];
  if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) return undefined;
  return pointer
    .slice(1)
    .split("/")
    .map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** A pointer from unescaped tokens. */
export function toPointer(tokens: readonly (string | number)[]): string {
  return tokens.map((t) => `/${String(t).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}
