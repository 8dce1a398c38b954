/** The plainest value that fits a schema: what a mock answers when nobody said what it should answer. */
import type { Json, JsonObject } from "../domain/json.ts";

/** Deeper than this a schema is met with null: no workflow needs more of a mock. */
const MAX_DEPTH = 12;

export function sampleOf(schema: Json | undefined, depth = 0): Json {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema) || depth > MAX_DEPTH) return null;
  const of = schema as JsonObject;
  if (of.const !== undefined) return of.const;
  if (of.default !== undefined) return of.default;
  if (Array.isArray(of.enum) && of.enum.length > 0) return of.enum[0] as Json;
  const type = Array.isArray(of.type) ? of.type[0] : of.type;
  switch (type) {
    case "object":
      return sampleObject(of, depth);
    case "array":
      return Array.from({ length: Math.max(1, numberOf(of.minItems)) }, () => sampleOf(of.items, depth + 1));
    case "string":
      return "mock"
        .padEnd(Math.min(numberOf(of.minLength), 1_000), "x")
        .slice(0, of.maxLength === undefined ? undefined : numberOf(of.maxLength));
    case "integer":
    case "number":
      return of.minimum === undefined ? Math.min(1, numberOf(of.maximum ?? 1)) : numberOf(of.minimum);
    case "boolean":
      return true;
    default:
      return of.properties === undefined ? null : sampleObject(of, depth);
  }
}

function sampleObject(schema: JsonObject, depth: number): Json {
  const properties = (schema.properties ?? {}) as JsonObject;
  return Object.fromEntries(Object.keys(properties).map((name) => [name, sampleOf(properties[name], depth + 1)]));
}

function numberOf(value: Json | undefined): number {
  return typeof value === "number" ? value : 0;
}
