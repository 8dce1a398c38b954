/** `--input`, `--input-file` and `--budget` (interfaces §2): from words of a shell to values a schema allows. */
import { HoldfastError } from "../domain/errors.ts";
import { getOwn, type Json, type JsonObject, setOwn } from "../domain/json.ts";
import { nearest } from "../domain/nearest.ts";
import { BUDGET_FIELDS, type Budgets } from "../domain/run.ts";
import { parseDuration } from "./duration.ts";
import { oneLine, shellQuote } from "./text.ts";
import {
  allowedTypes,
  fitted,
  isObject,
  kindOf,
  orList,
  propertiesOf,
  propertySchema,
  quoted,
  readValue,
  requiredKeys,
  sample,
} from "./values.ts";

/** An input document is at most this long, before it is parsed. */
export const MAX_INPUT_BYTES = 1_048_576;

export interface InputWords {
  /** Each `key=value`. */
  readonly pairs: readonly string[];
  /** Text of `--input-file`, already bounded. */
  readonly file?: { readonly name: string; readonly text: string };
}

/**
 * The arguments of a run, read by the workflow's input schema. Pairs go over the file, key by key.
 * @param command words before the inputs in a ready command, e.g. `["holdfast", "run", "release"]`
 * @param act what cannot be done without them, for the refusal
 * @throws HoldfastError `usage` (a pair without `=`, a key twice) or `input` (a value that its type cannot
 *   hold, an unknown key, missing keys: all of them at once, with a ready command)
 */
export function readInputs(
  words: InputWords,
  schema: JsonObject | undefined,
  command: readonly string[],
  act = "start the workflow",
): Json {
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
  refuseMissing(args, schema, command, words.pairs, act);
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
  act: string,
): void {
  const missing = requiredKeys(schema).filter(
    (key) => !Object.hasOwn(args, key) && !Object.hasOwn(propertySchema(schema, key) ?? {}, "default"),
  );
  if (missing.length === 0) return;
  const named = missing.map((key) => {
    const property = propertySchema(schema, key);
    const about = property === undefined ? undefined : getOwn(property, "description");
    return `${key} (${orList(allowedTypes(property), true)}${typeof about === "string" ? `: ${oneLine(about)}` : ""})`;
  });
  const words = [...given, ...missing.map((key) => `${key}=${sample(allowedTypes(propertySchema(schema, key))[0])}`)];
  const ready = [...command, ...words.flatMap((word) => ["--input", word])].map(shellQuote).join(" ");
  throw new HoldfastError("input", `Cannot ${act}: it needs ${named.join(", ")}; for example: ${ready}`, {
    details: { missing },
  });
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
