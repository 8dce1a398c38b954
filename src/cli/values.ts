/** What a person typed, read by a schema (interfaces §2): one reader for `--input` and for inputs asked on a terminal. */
import { HoldfastError } from "../domain/errors.ts";
import { getOwn, type Json, type JsonObject } from "../domain/json.ts";
import { oneLine } from "./text.ts";

const JSON_TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"] as const;
export type JsonType = (typeof JSON_TYPES)[number];

/**
 * One value by the types that its schema allows: text as it stands where only a string is; else JSON; else text where
 * a string is one of several.
 * @param what names the value in a refusal, such as `--input count`
 * @throws HoldfastError `input` naming the type and what was given
 */
export function readValue(key: string, text: string, schema: JsonObject | undefined, what = `--input ${key}`): Json {
  const allowed = allowedTypes(schema);
  if (allowed.length === 1 && allowed[0] === "string") return text;
  const parsed = parseJson(text);
  if (typeof parsed === "number" && Number.isInteger(parsed) && !Number.isSafeInteger(parsed))
    throw new HoldfastError(
      "input",
      `Cannot read ${what}: ${fitted(text)} is too large to be held exactly; declare the property as a string`,
    );
  if (parsed !== undefined && allowed.some((type) => fits(parsed, type))) return parsed;
  if (allowed.includes("string")) return text;
  throw new HoldfastError(
    "input",
    `Cannot read ${what}: it must be ${orList(allowed)} and ${quoted(fitted(text))} is ${
      parsed === undefined ? "plain text" : kindOf(parsed)
    }; give ${example(allowed[0] ?? "string")}`,
    { details: { key, expected: [...allowed] } },
  );
}

/** Bounded by the shell, or by what one line of a terminal holds; `undefined` when it is no JSON. */
function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** Types a schema allows; from `enum` or `const` where `type` is unsaid; all of them where nothing is said. */
export function allowedTypes(schema: JsonObject | undefined): readonly JsonType[] {
  if (schema === undefined) return JSON_TYPES;
  // The other keywords there describe the secret itself; what is given is its handle (RP-2).
  if (getOwn(schema, "x-holdfast-secret") === true) return ["object"];
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

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function propertiesOf(schema: JsonObject | undefined): JsonObject {
  const properties = schema === undefined ? undefined : getOwn(schema, "properties");
  return isObject(properties) ? properties : {};
}

/** Names of the members that have to be there. */
export function requiredKeys(schema: JsonObject | undefined): readonly string[] {
  const required = schema === undefined ? undefined : getOwn(schema, "required");
  return Array.isArray(required) ? (required as readonly Json[]).filter((key) => typeof key === "string") : [];
}

export function propertySchema(schema: JsonObject | undefined, key: string): JsonObject | undefined {
  const property = getOwn(propertiesOf(schema), key);
  return isObject(property) ? property : undefined;
}

/** What a ready command shows in place of a value: it parses, so that only its meaning is left to fill in. */
export function sample(type: JsonType | undefined): string {
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

export function orList(types: readonly JsonType[], brief = false): string {
  if (types.length === JSON_TYPES.length) return brief ? "any value" : "a JSON value";
  const article = (t: JsonType) => (brief ? t : /^[aio]/.test(t) ? `an ${t}` : t === "null" ? t : `a ${t}`);
  return types.map(article).join(" or ");
}

export function kindOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  return `a ${typeof value}`;
}

export function quoted(text: string): string {
  return JSON.stringify(oneLine(text));
}

export function fitted(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
