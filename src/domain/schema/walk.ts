/** Static walks through schemas (RP-5). */
import { getOwn, type Json, type JsonObject, pointerTokens } from "../json.ts";

/**
 * The schema of the part that a JSON pointer names: names go through `properties`, integers through `items`
 * (`~0`, `~1` unescaped). `undefined` when the schema does not declare that part, or the text is no pointer.
 */
export function schemaAt(schema: JsonObject, pointer: string): JsonObject | undefined {
  const tokens = pointerTokens(pointer);
  let at: JsonObject | undefined = tokens === undefined ? undefined : schema;
  for (const token of tokens ?? []) {
    at = at === undefined ? undefined : schemaBelow(at, token);
    if (at === undefined) return undefined;
  }
  return at;
}

/** One step of `schemaAt`. */
export function schemaBelow(schema: JsonObject, token: string): JsonObject | undefined {
  const properties = getOwn(schema, "properties");
  const named = isObject(properties) ? getOwn(properties, token) : undefined;
  if (isObject(named)) return named;
  const items = getOwn(schema, "items");
  return isObject(items) && isArrayIndex(token) ? items : undefined;
}

/** Array indexes have no leading zero (RFC 6901). */
export function isArrayIndex(token: string): boolean {
  return /^(0|[1-9]\d*)$/.test(token);
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
