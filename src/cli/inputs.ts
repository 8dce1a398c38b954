/** `--input`, `--input-file` and `--budget` (interfaces §2): from words of a shell to values a schema allows. */
import { HoldfastError } from "../domain/errors.ts";
import { getOwn, type Json, type JsonObject, setOwn } from "../domain/json.ts";
import { nearest } from "../domain/nearest.ts";
import { BUDGET_FIELDS, type Budgets } from "../domain/run.ts";
import { parseDuration } from "./duration.ts";
import { oneLine, shellQuote } from "./text.ts";

/** An input document is at most this long, before it is parsed. */
export const MAX_INPUT_BYTES = 1_048_576;

const JSON_TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"] as const;
type JsonType = (typeof JSON_TYPES)[number];

export interface InputWords {
  /** Each `key=value`. */
  readonly pairs: readonly string[];
  /** Text of `--input-file`, already bounded. */
  readonly file?: { readonly name: string; readonly text: string };
}

/**
 * The arguments of a run, read by the workflow's input schema. Pairs go over the file, key by key.
 * @param command words before the inputs in a ready command, e.g. `["holdfast", "run", "release"]`
 * @throws HoldfastError `usage` (a pair without `=`, a key twice) or `input` (a value that its type cannot
 *   hold, an unknown key, missing keys: all of them at once, with a ready command)
 */
export function readInputs(words: InputWords, schema: JsonObject | undefined, command: readonly string[]): Json {
  const document = words.file === undefined ? undefined : readDocument(words.file);
  if (words.pairs.length === 0 && document !== undefined && !isObject(document)) return document;
  if (document !== undefined && !isObject(document))
    throw new HoldfastError(
      "input",
      `Cannot add --input to ${words.file?.name}: it holds ${kindOf(document)}, not an object; give one of the two`,
    );
  const args: Record<string, Json> = {};
  for (const [key, value] of Object.entries(document ?? {})) setOwn(args, key, value);
  const seen = new Set<string>();
  for (const pair of words.pairs) {
    const [key, text] = splitPair(pair, "--input", "key=value");
    if (seen.has(key))
      throw new HoldfastError("usage", `Cannot read --input: ${quoted(key)} is given twice; give it once`);
    seen.add(key);
    refuseUnknown(key, schema);
    setOwn(args, key, readValue(key, text, propertySchema(schema, key)));
  }
  refuseMissing(args, schema, command, words.pairs);
  return args;
}

function splitPair(pair: string, flag: string, shape: string): [string, string] {
  const at = pair.indexOf("=");
  if (at < 1)
    throw new HoldfastError("usage", `Cannot read ${flag} ${quoted(pair)}: it has no "="; write ${flag} ${shape}`);
  return [pair.slice(0, at), pair.slice(at + 1)];
}

function readDocument(file: { readonly name: string; readonly text: string }): Json {
  try {
    return JSON.parse(file.text) as Json;
  } catch (error) {
    const why = error instanceof Error ? oneLine(error.message) : "it does not parse";
    throw new HoldfastError("input", `Cannot read ${file.name}: it is not JSON (${why}); correct it`);
  }
}

/** One value by the types that its property allows. */
function readValue(key: string, text: string, schema: JsonObject | undefined): Json {
  const allowed = allowedTypes(schema);
  if (allowed.length === 1 && allowed[0] === "string") return text;
  const parsed = parseJson(text);
  if (typeof parsed === "number" && Number.isInteger(parsed) && !Number.isSafeInteger(parsed))
    throw new HoldfastError(
      "input",
      `Cannot read --input ${key}: ${fitted(text)} is too large to be held exactly; declare the property as a string`,
    );
  if (parsed !== undefined && allowed.some((type) => fits(parsed, type))) return parsed;
  if (allowed.includes("string")) return text;
  throw new HoldfastError(
    "input",
    `Cannot read --input ${key}: it must be ${orList(allowed)} and ${quoted(fitted(text))} is ${
      parsed === undefined ? "plain text" : kindOf(parsed)
    }; give ${example(allowed[0] ?? "string")}`,
    { details: { key, expected: [...allowed] } },
  );
}

/** Bounded by the shell; `undefined` when it is no JSON. */
function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** Types a schema allows; from `enum` or `const` where `type` is unsaid; all of them where nothing is said. */
function allowedTypes(schema: JsonObject | undefined): readonly JsonType[] {
  if (schema === undefined) return JSON_TYPES;
  const type = getOwn(schema, "type");
  const named = (Array.isArray(type) ? type : [type]).filter((t): t is JsonType => JSON_TYPES.includes(t as JsonType));
  if (named.length > 0) return named;
  const listed = getOwn(schema, "enum");
  const values = Array.isArray(listed)
    ? listed
    : Object.hasOwn(schema, "const")
      ? [getOwn(schema, "const") ?? null]
      : [];
  if (values.length === 0) return JSON_TYPES;
  return JSON_TYPES.filter(
    (t) => values.some((value) => fits(value, t)) && !(t === "number" && values.every(isInteger)),
  );
}

function isInteger(value: Json): boolean {
  return Number.isInteger(value);
}

function fits(value: Json, type: JsonType): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "integer":
      return isInteger(value);
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    default:
      return typeof value === type;
  }
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function propertiesOf(schema: JsonObject | undefined): JsonObject {
  const properties = schema === undefined ? undefined : getOwn(schema, "properties");
  return isObject(properties) ? properties : {};
}

function propertySchema(schema: JsonObject | undefined, key: string): JsonObject | undefined {
  const property = getOwn(propertiesOf(schema), key);
  return isObject(property) ? property : undefined;
}

function refuseUnknown(key: string, schema: JsonObject | undefined): void {
  if (schema === undefined || getOwn(schema, "additionalProperties") !== false) return;
  const names = Object.keys(propertiesOf(schema));
  if (names.includes(key)) return;
  const meant = nearest(key, names);
  const known = names.length === 0 ? "it takes no inputs" : `it takes ${names.join(", ")}`;
  throw new HoldfastError(
    "input",
    `Cannot read --input ${key}: the workflow has no such input, ${known}; ${
      meant === undefined ? "use one of them" : `did you mean ${meant}?`
    }`,
    { details: { key, inputs: names } },
  );
}

function refuseMissing(
  args: JsonObject,
  schema: JsonObject | undefined,
  command: readonly string[],
  given: readonly string[],
): void {
  const required = schema === undefined ? undefined : getOwn(schema, "required");
  if (!Array.isArray(required)) return;
  const missing = (required as readonly Json[]).filter(
    (key): key is string =>
      typeof key === "string" &&
      !Object.hasOwn(args, key) &&
      !Object.hasOwn(propertySchema(schema, key) ?? {}, "default"),
  );
  if (missing.length === 0) return;
  const named = missing.map((key) => {
    const property = propertySchema(schema, key);
    const about = property === undefined ? undefined : getOwn(property, "description");
    return `${key} (${orList(allowedTypes(property), true)}${typeof about === "string" ? `: ${oneLine(about)}` : ""})`;
  });
  const words = [...given, ...missing.map((key) => `${key}=${sample(allowedTypes(propertySchema(schema, key))[0])}`)];
  const ready = [...command, ...words.flatMap((word) => ["--input", word])].map(shellQuote).join(" ");
  throw new HoldfastError("input", `Cannot start the workflow: it needs ${named.join(", ")}; for example: ${ready}`, {
    details: { missing },
  });
}

/** What a ready command shows in place of a value: it parses, so that only its meaning is left to fill in. */
function sample(type: JsonType | undefined): string {
  switch (type) {
    case "boolean":
      return "true";
    case "integer":
    case "number":
      return "1";
    case "array":
      return "[]";
    case "object":
      return "{}";
    case "null":
      return "null";
    default:
      return "TEXT";
  }
}

function example(type: JsonType): string {
  return `a value such as ${sample(type)}`;
}

function orList(types: readonly JsonType[], brief = false): string {
  if (types.length === JSON_TYPES.length) return brief ? "any value" : "a JSON value";
  const article = (t: JsonType) => (brief ? t : /^[aio]/.test(t) ? `an ${t}` : t === "null" ? t : `a ${t}`);
  return types.map(article).join(" or ");
}

function kindOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  return `a ${typeof value}`;
}

function quoted(text: string): string {
  return JSON.stringify(oneLine(text));
}

function fitted(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/**
 * `--budget k=v`: limits by their field names; only tightens (RP-23), which the engine sees to.
 * `wall_time_ms` also takes a duration (`wall_time_ms=15m`).
 * @throws HoldfastError `usage` with the nearest field name
 */
export function readBudget(pairs: readonly string[]): Partial<Budgets> | undefined {
  if (pairs.length === 0) return undefined;
  const budget = new Map<keyof Budgets, number>();
  for (const pair of pairs) {
    const [key, text] = splitPair(pair, "--budget", "max_steps=100");
    const field = BUDGET_FIELDS.find((name) => name === key);
    if (field === undefined) {
      const meant = nearest(key, BUDGET_FIELDS);
      throw new HoldfastError(
        "usage",
        `Cannot read --budget: ${quoted(key)} is no limit; ${meant === undefined ? `use one of ${BUDGET_FIELDS.join(", ")}` : `did you mean ${meant}?`}`,
        { details: { fields: [...BUDGET_FIELDS] } },
      );
    }
    if (budget.has(field))
      throw new HoldfastError("usage", `Cannot read --budget: ${field} is given twice; give it once`);
    budget.set(field, readLimit(field, text));
  }
  return Object.fromEntries(budget) as Partial<Budgets>;
}

function readLimit(field: keyof Budgets, text: string): number {
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  if (field === "wall_time_ms") return parseDuration(text, "--budget wall_time_ms");
  throw new HoldfastError(
    "usage",
    `Cannot read --budget ${field}: ${quoted(fitted(text))} is not a whole number from 0; give one`,
  );
}
