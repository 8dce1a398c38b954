/**
 * The closed keyword set of plan and graph schemas (RP-2, DESIGN §8): one table, read by the checker and by the
 * editor schema, so that they cannot drift.
 */
import type { JsonObject } from "../json.ts";

/** What a keyword's value must be. */
export type KeywordKind =
  | "type"
  | "array"
  | "names"
  | "schemas"
  | "boolean"
  | "schema"
  | "number"
  | "length"
  | "text"
  | "pattern"
  | "any";

interface Keyword {
  readonly kind: KeywordKind;
  readonly description: string;
}

export const KEYWORDS = {
  type: { kind: "type", description: "Kind of the value, or a list of kinds of which one must fit." },
  properties: { kind: "schemas", description: "Schema of each named member of an object." },
  required: { kind: "names", description: "Members that must be present. A value that is not an object fails." },
  additionalProperties: {
    kind: "boolean",
    description: "Whether members that `properties` does not name are allowed.",
  },
  items: { kind: "schema", description: "One schema for all members of an array." },
  enum: { kind: "array", description: "The value must equal one of these." },
  const: { kind: "any", description: "The value must equal this." },
  minimum: { kind: "number", description: "Least number allowed. A value that is not a number fails." },
  maximum: { kind: "number", description: "Greatest number allowed. A value that is not a number fails." },
  minLength: { kind: "length", description: "Least length of a text, in characters." },
  maxLength: { kind: "length", description: "Greatest length of a text, in characters." },
  minItems: { kind: "length", description: "Least number of members of an array." },
  maxItems: { kind: "length", description: "Greatest number of members of an array." },
  pattern: {
    kind: "pattern",
    description:
      "Regular expression found somewhere in the text; without look-around and back references, so that matching takes linear time.",
  },
  format: { kind: "text", description: "A note on the text's form, such as `date-time` or `uri`; not enforced." },
  title: { kind: "text", description: "Short name shown to people." },
  description: { kind: "text", description: "What the value is for, shown to people and to agents." },
  default: { kind: "any", description: "Value of a top-level input that is not given." },
  "x-holdfast-secret": {
    kind: "boolean",
    description: 'True: only a secret handle, {"$secret": "name"}, is accepted here.',
  },
} as const satisfies Record<string, Keyword>;

export type KeywordName = keyof typeof KEYWORDS;
export const KEYWORD_NAMES = Object.keys(KEYWORDS) as readonly KeywordName[];

export const TYPE_NAMES = ["null", "boolean", "object", "array", "number", "integer", "string"] as const;
export type TypeName = (typeof TYPE_NAMES)[number];

/** Keywords that say something to people and nothing about values. */
export const ANNOTATIONS: readonly string[] = ["title", "description", "format", "default"] satisfies KeywordName[];

/** Bounds on one schema, checked before it is looked at more closely (DESIGN §8, C40). */
export const SCHEMA_LIMITS = {
  /** Characters of keys, texts and numbers. */
  text: 262_144,
  /** JSON values, nested ones included. */
  nodes: 20_000,
  /** Levels of JSON nesting. */
  depth: 64,
} as const;

export function isKeyword(name: string): name is KeywordName {
  return Object.hasOwn(KEYWORDS, name);
}

/** A schema without its annotations, so that two can be compared for what they accept. */
export function withoutAnnotations(schema: JsonObject): JsonObject {
  const out: Record<string, JsonObject[string]> = {};
  for (const [name, value] of Object.entries(schema)) {
    if (ANNOTATIONS.includes(name)) continue;
    if (name === "items") out[name] = withoutAnnotations(value as JsonObject);
    else if (name === "properties") {
      const entries = Object.entries(value as JsonObject).map(
        ([key, item]) => [key, withoutAnnotations(item as JsonObject)] as const,
      );
      out[name] = Object.fromEntries(entries);
    } else out[name] = value;
  }
  return out;
}
