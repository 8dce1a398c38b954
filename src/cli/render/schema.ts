/** What a schema wants, for people: all of it, a line for each member, hidden characters escaped (R-40). */
import { getOwn, type Json, type JsonObject } from "../../domain/json.ts";
import { jsonText, oneLine } from "../text.ts";
import { allowedTypes, isObject, orList, propertiesOf, propertySchema, requiredKeys } from "../values.ts";

/** Keywords that have words of their own; every other one is shown by its name and value. */
const SAID = new Set(["type", "enum", "const", "title", "description", "x-holdfast-secret"]);
/** Of an object whose members have lines of their own. */
const SAID_BY_MEMBERS = new Set([...SAID, "properties", "required", "additionalProperties"]);

/** Members that an object names, those first that have to be there; empty when something else is wanted, or allowed. */
export function membersOf(schema: JsonObject | undefined): readonly string[] {
  if (schema === undefined || !isPlainObject(schema)) return [];
  const required = requiredKeys(schema);
  return [...new Set([...required, ...Object.keys(propertiesOf(schema))])];
}

/** Objects and nothing else, told by their members alone. */
function isPlainObject(schema: JsonObject): boolean {
  if (["enum", "const", "x-holdfast-secret"].some((keyword) => Object.hasOwn(schema, keyword))) return false;
  const types = allowedTypes(schema);
  return (types.length === 1 && types[0] === "object") || (!Object.hasOwn(schema, "type") && hasMembers(schema));
}

function hasMembers(schema: JsonObject): boolean {
  return Object.keys(propertiesOf(schema)).length > 0;
}

/** The whole schema: one line, or one for each member. */
export function schemaText(schema: Json): string {
  if (!isObject(schema)) return jsonText(schema);
  const members = membersOf(schema);
  if (members.length === 0) return withAbout(wanted(schema), schema);
  const closed = getOwn(schema, "additionalProperties") === false;
  const head = [`an object with ${closed ? "these and no others" : "these"}`, ...rest(schema, SAID_BY_MEMBERS)].join(
    ", ",
  );
  const required = new Set(requiredKeys(schema));
  const lines = members.map((key) => {
    const member = propertySchema(schema, key) ?? {};
    const must = required.has(key) ? "required" : "may be left out";
    return `  ${withAbout(`${oneLine(key)} (${wanted(member)}, ${must})`, member)}`;
  });
  return [`${withAbout(head, schema)}:`, ...lines].join("\n");
}

/** One value in a few words: `integer, minimum 1`, `string, one of small | large`. */
export function wanted(schema: JsonObject): string {
  if (getOwn(schema, "x-holdfast-secret") === true) return 'a secret handle, {"$secret": "name"}';
  const values = getOwn(schema, "enum");
  const words = [
    ...(Object.hasOwn(schema, "type") || !(Array.isArray(values) || Object.hasOwn(schema, "const"))
      ? [orList(allowedTypes(schema), true)]
      : []),
    ...(Array.isArray(values)
      ? [`one of ${(values as readonly Json[]).map((v) => typed(v, schema)).join(" | ")}`]
      : []),
    ...(Object.hasOwn(schema, "const") ? [`exactly ${typed(getOwn(schema, "const") ?? null, schema)}`] : []),
  ];
  return [...words, ...rest(schema, SAID)].join(", ");
}

/** A value as it is to be typed: bare where only texts are allowed, as JSON elsewhere and where it could not be seen. */
function typed(value: Json, schema: JsonObject): string {
  const types = allowedTypes(schema);
  const bare = typeof value === "string" && types.length === 1 && value.trim() === value && value !== "";
  return bare ? oneLine(value) : jsonText(value);
}

function rest(schema: JsonObject, said: ReadonlySet<string>): string[] {
  return Object.entries(schema)
    .filter(([keyword]) => !said.has(keyword))
    .map(([keyword, value]) => `${oneLine(keyword)} ${jsonText(value)}`);
}

/** Title and description behind it. Their line breaks become spaces, so that they cannot look like a member's line. */
function withAbout(text: string, schema: JsonObject): string {
  const about = [getOwn(schema, "title"), getOwn(schema, "description")]
    .filter((part) => typeof part === "string")
    .map((part) => oneLine(part.trim().replaceAll(/\s*\n\s*/g, " ")))
    .filter((part) => part !== "");
  return about.length === 0 ? text : `${text}: ${about.join(": ")}`;
}
