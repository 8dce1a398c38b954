/**
 * Validators for the closed schema subset (RP-2, DESIGN §8): each schema becomes a few closures, made once and kept
 * by hash. Written here and not left to a general library because every step's output passes through.
 */
import { HoldfastError } from "../errors.ts";
import { canonicalJson, getOwn, type Json, type JsonObject, sha256, toPointer } from "../json.ts";
import { checkSchema } from "./check.ts";
import type { TypeName } from "./keywords.ts";
import { compilePattern, type Pattern } from "./pattern.ts";

/** `path` is a JSON pointer into the value; `message` says what must hold there, never what the value was. */
export type Verdict = { readonly ok: true } | { readonly ok: false; readonly path: string; readonly message: string };

export interface Validator {
  validate(value: Json): Verdict;
}

/** Compiled schemas kept at most; the least recently used goes first. */
const CACHE_SIZE = 512;
/** Pattern work of one whole validation, in `Pattern.work` units, so that many texts cannot add up to a freeze. */
const MAX_PATTERN_WORK = 8_000_000;

const OK: Verdict = { ok: true };
const byHash = new Map<string, Validator>();
/** Definitions are pinned and immutable, so the same object is the same schema: no hashing on the hot path. */
const byIdentity = new WeakMap<object, Validator>();

/**
 * The validator of a schema that `checkSchema` accepts.
 * @throws HoldfastError `definition` when the schema is outside the subset
 */
export function compileSchema(schema: Json): Validator {
  const known = typeof schema === "object" && schema !== null ? byIdentity.get(schema) : undefined;
  if (known !== undefined) return known;
  // `default` is an annotation to a validator; where it may stand is the definition's affair.
  const problems = checkSchema(schema, [], { defaults: "anywhere" });
  const first = problems[0];
  if (first !== undefined) {
    throw new HoldfastError("definition", first.message, {
      details: { path: toPointer(first.path), problems: problems.length },
    });
  }
  const hash = sha256(canonicalJson(schema));
  const validator = byHash.get(hash) ?? makeValidator(schema as JsonObject);
  byHash.delete(hash);
  byHash.set(hash, validator);
  if (byHash.size > CACHE_SIZE) byHash.delete(byHash.keys().next().value as string);
  byIdentity.set(schema as JsonObject, validator);
  return validator;
}

interface Fault {
  readonly path: (string | number)[];
  readonly message: string;
}
type Check = (value: Json, work: { left: number }) => Fault | undefined;

function makeValidator(schema: JsonObject): Validator {
  const check = makeCheck(schema);
  return {
    validate(value) {
      const fault = check(value, { left: MAX_PATTERN_WORK });
      return fault === undefined ? OK : { ok: false, path: toPointer(fault.path.reverse()), message: fault.message };
    },
  };
}

function fault(message: string): Fault {
  return { path: [], message };
}

/** Paths are built on the way out, innermost key first, so that a value that fits pays nothing for them. */
function below(inner: Fault, key: string | number): Fault {
  inner.path.push(key);
  return inner;
}

function makeCheck(schema: JsonObject): Check {
  // RP-2: only a handle is accepted; the other keywords there describe the secret itself, which is never seen.
  if (schema["x-holdfast-secret"] === true)
    return (value) => (isSecretHandle(value) ? undefined : fault('must be a secret handle, {"$secret": "name"}'));
  const checks: Check[] = [];
  const add = (check: Check | undefined) => void (check !== undefined && checks.push(check));
  add(schema.type === undefined ? undefined : typeCheck(schema.type));
  add(schema.enum === undefined ? undefined : enumCheck(schema.enum as readonly Json[]));
  add(schema.const === undefined ? undefined : constCheck(schema.const));
  add(numberCheck(schema));
  add(textCheck(schema));
  add(arrayCheck(schema));
  add(objectCheck(schema));
  const [first, second] = checks;
  if (first === undefined) return () => undefined;
  if (second === undefined) return first;
  return (value, work) => {
    for (const check of checks) {
      const found = check(value, work);
      if (found !== undefined) return found;
    }
    return undefined;
  };
}

const TYPE_TESTS: Record<TypeName, (value: Json) => boolean> = {
  null: (value) => value === null,
  boolean: (value) => typeof value === "boolean",
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  array: (value) => Array.isArray(value),
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  string: (value) => typeof value === "string",
};

function typeCheck(type: Json): Check {
  const names = (Array.isArray(type) ? type : [type]) as readonly TypeName[];
  const tests = names.map((name) => TYPE_TESTS[name]);
  const wrong = `must be ${names.map(article).join(" or ")}`;
  const [only] = tests;
  if (tests.length === 1 && only !== undefined) return (value) => (only(value) ? undefined : fault(wrong));
  return (value) => (tests.some((test) => test(value)) ? undefined : fault(wrong));
}

function article(type: TypeName): string {
  if (type === "null") return "null";
  if (type === "string") return "text";
  return /^[aio]/.test(type) ? `an ${type}` : `a ${type}`;
}

function enumCheck(values: readonly Json[]): Check {
  const scalars = new Set(values.filter((value) => !isComposite(value)));
  const composites = new Set(values.filter(isComposite).map((value) => canonicalJson(value)));
  const shown = values
    .slice(0, 10)
    .map((value) => canonicalJson(value).slice(0, 40))
    .join(", ");
  const wrong = `must be one of ${shown}${values.length > 10 ? ", …" : ""}`;
  return (value) => {
    const found = isComposite(value) ? composites.size > 0 && composites.has(canonicalJson(value)) : scalars.has(value);
    return found ? undefined : fault(wrong);
  };
}

function constCheck(expected: Json): Check {
  const text = canonicalJson(expected);
  const wrong = `must be ${text.slice(0, 80)}`;
  if (!isComposite(expected)) return (value) => (value === expected ? undefined : fault(wrong));
  return (value) => (isComposite(value) && canonicalJson(value) === text ? undefined : fault(wrong));
}

/** RP-2: a bound on a value that is not a number fails it. */
function numberCheck({ minimum, maximum }: JsonObject): Check | undefined {
  if (minimum === undefined && maximum === undefined) return undefined;
  const least = (minimum ?? Number.NEGATIVE_INFINITY) as number;
  const greatest = (maximum ?? Number.POSITIVE_INFINITY) as number;
  return (value) => {
    if (typeof value !== "number") return fault("must be a number");
    if (value < least) return fault(`must be at least ${least}`);
    return value > greatest ? fault(`must be at most ${greatest}`) : undefined;
  };
}

function textCheck({ minLength, maxLength, pattern }: JsonObject): Check | undefined {
  if (minLength === undefined && maxLength === undefined && pattern === undefined) return undefined;
  const least = (minLength ?? 0) as number;
  const greatest = (maxLength ?? Number.POSITIVE_INFINITY) as number;
  const compiled = pattern === undefined ? undefined : compilePattern(pattern as string);
  const matcher = compiled?.ok === true ? compiled.pattern : undefined;
  return (value, work) => {
    if (typeof value !== "string") return undefined;
    if (isShorter(value, least)) return fault(`must have at least ${least} characters`);
    if (isLonger(value, greatest)) return fault(`must have at most ${greatest} characters`);
    return matcher === undefined ? undefined : matchFault(matcher, value, work);
  };
}

function matchFault(pattern: Pattern, text: string, work: { left: number }): Fault | undefined {
  work.left -= pattern.work(text);
  const found = work.left < 0 ? undefined : pattern.test(text);
  if (found === undefined) return fault("is too long to be matched against the pattern");
  return found ? undefined : fault(`must match the pattern ${pattern.source}`);
}

/** Lengths count characters, not UTF-16 units, which differ only where a text holds surrogate pairs. */
function isShorter(text: string, least: number): boolean {
  if (text.length < least) return true;
  return text.length < least * 2 && characters(text) < least;
}

function isLonger(text: string, greatest: number): boolean {
  return text.length > greatest && characters(text) > greatest;
}

function characters(text: string): number {
  let count = text.length;
  for (let i = 0; i < text.length; i++) if ((text.charCodeAt(i) & 0xfc00) === 0xd800) count--;
  return count;
}

function arrayCheck({ items, minItems, maxItems }: JsonObject): Check | undefined {
  if (items === undefined && minItems === undefined && maxItems === undefined) return undefined;
  const least = (minItems ?? 0) as number;
  const greatest = (maxItems ?? Number.POSITIVE_INFINITY) as number;
  const item = items === undefined ? undefined : makeCheck(items as JsonObject);
  return (value, work) => {
    if (!Array.isArray(value)) return undefined;
    if (value.length < least) return fault(`must have at least ${least} members`);
    if (value.length > greatest) return fault(`must have at most ${greatest} members`);
    if (item === undefined) return undefined;
    for (let i = 0; i < value.length; i++) {
      const found = item(value[i], work);
      if (found !== undefined) return below(found, i);
    }
    return undefined;
  };
}

function objectCheck({ required, properties, additionalProperties }: JsonObject): Check | undefined {
  if (required === undefined && properties === undefined && additionalProperties !== false) return undefined;
  const names = (required ?? []) as readonly string[];
  const members = Object.entries((properties ?? {}) as JsonObject).map(([key, item]) => ({
    key,
    check: makeCheck(item as JsonObject),
  }));
  const declared = additionalProperties === false ? new Set(members.map(({ key }) => key)) : undefined;
  return (value, work) => {
    if (!isObject(value)) return required === undefined ? undefined : fault("must be an object");
    for (const name of names) if (!Object.hasOwn(value, name)) return below(fault("is required"), name);
    for (const { key, check } of members) {
      const member = getOwn(value, key);
      if (member === undefined) continue;
      const found = check(member, work);
      if (found !== undefined) return below(found, key);
    }
    if (declared === undefined) return undefined;
    for (const key of Object.keys(value)) if (!declared.has(key)) return below(fault("is not a known property"), key);
    return undefined;
  };
}

function isComposite(value: Json): boolean {
  return typeof value === "object" && value !== null;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Exactly `{"$secret": name}` with a name that is not blank (RP §2). */
export function isSecretHandle(value: Json | undefined): value is { readonly $secret: string } {
  if (!isObject(value)) return false;
  const name = getOwn(value, "$secret");
  return typeof name === "string" && name.trim() !== "" && Object.keys(value).length === 1;
}
