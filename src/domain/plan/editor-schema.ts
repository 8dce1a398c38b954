/** The JSON Schema 2020-12 of plan files for editors (`holdfast schema plan`), made from the compiler's own tables. */
import type { Json, JsonObject } from "../json.ts";
import {
  ASSERTIONS,
  COMPARISON_NAMES,
  NEWEST_PREDICATE_VERSION,
  type OperandKind,
  PREDICATE_LIMITS,
  PREDICATE_OPERATIONS,
} from "../predicate.ts";
import { KEYWORDS, TYPE_NAMES } from "../schema/index.ts";
import {
  type Field,
  type FieldType,
  PLAN_LIMITS,
  PLAN_SHAPES,
  REFERENCE_SHAPES,
  ROOT_SHAPE,
  type Shape,
  STEP_COMMON,
  STEP_SHAPES,
  TEST_SHAPE,
} from "./shape.ts";

const TAGS = {
  step: "What does the work: a tool, an agent, a nested workflow, a person's approval or answer, or time.",
  plan: "How the parts run: a step, one after the other, side by side, by choice, once for each member, or with retries.",
  reference: "Where the value comes from.",
} as const;

/** The schema of a plan document; every key has a description. */
export function planEditorSchema(): JsonObject {
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Holdfast plan",
    description: "A workflow of steps and the plan that runs them.",
    ...objectOf(ROOT_SHAPE),
    $defs: {
      step: union("type", TAGS.step, STEP_SHAPES, STEP_COMMON),
      plan: union("type", TAGS.plan, PLAN_SHAPES),
      reference: union("from", TAGS.reference, REFERENCE_SHAPES),
      condition: union("from", TAGS.reference, { ...REFERENCE_SHAPES, test: TEST_SHAPE }),
      template: template(),
      schema: subsetSchema({}),
      input_schema: subsetSchema({ properties: { type: "object", additionalProperties: ref("input_property") } }),
      input_property: subsetSchema({ default: {} }),
      selector: selector(),
      predicate: predicate(),
    },
  };
}

function ref(name: string): JsonObject {
  return { $ref: `#/$defs/${name}` };
}

function objectOf(
  shape: Shape,
  tag?: { readonly name: string; readonly value: string; readonly description: string },
): JsonObject {
  const own = tag === undefined ? {} : { [tag.name]: { const: tag.value, description: tag.description } };
  const properties = Object.fromEntries(Object.entries(shape).map(([key, field]) => [key, property(field)] as const));
  const required = [
    ...(tag === undefined ? [] : [tag.name]),
    ...Object.entries(shape).flatMap(([key, field]) => (field.required === true ? [key] : [])),
  ];
  return { type: "object", properties: { ...own, ...properties }, required, additionalProperties: false };
}

function property(field: Field): JsonObject {
  const fill = field.fill === undefined ? {} : { default: field.fill };
  return { ...fieldSchema(field.type), ...fill, description: field.description };
}

function fieldSchema(type: FieldType): JsonObject {
  switch (type.is) {
    case "text":
      return { type: "string", pattern: "\\S" };
    case "note":
      return { type: "string" };
    case "boolean":
      return { type: "boolean" };
    case "integer":
      return { type: "integer", minimum: type.min, ...(type.max === undefined ? {} : { maximum: type.max }) };
    case "one_of":
      return { type: "string", enum: type.values };
    case "texts":
      return { type: "array", items: { type: "string", pattern: "\\S" } };
    case "some_of":
      return { type: "array", minItems: 1, uniqueItems: true, items: { type: "string", enum: type.values } };
    case "resource":
      return { anyOf: [{ type: "string", pattern: "\\S", maxLength: PLAN_LIMITS.resource_bytes }, ref("reference")] };
    case "pointer":
      return { type: "string", pattern: "^(/([^~]|~[01])*)?$" };
    case "literal":
      return {};
    case "fields":
      return { type: "object", additionalProperties: ref("template") };
    case "duration":
      return { anyOf: [{ type: "integer", minimum: 0 }, ref("reference")] };
    case "moment":
      return { anyOf: [{ type: "integer", minimum: 0 }, { type: "string", format: "date-time" }, ref("reference")] };
    case "plans":
      return { type: "array", minItems: 1, items: ref("plan") };
    case "steps":
      return { type: "array", minItems: 1, items: ref("step") };
    case "object":
      return objectOf(type.shape);
    case "objects":
      return { type: "array", maxItems: type.most, items: objectOf(type.shape) };
    default:
      return ref(type.is);
  }
}

/** One branch for each tag, so that an editor offers the keys of the kind that was chosen. */
function union(
  tag: string,
  description: string,
  shapes: { readonly [name: string]: Shape },
  common: Shape = {},
): JsonObject {
  const branches = Object.entries(shapes).map(([value, shape]) =>
    objectOf({ ...common, ...shape }, { name: tag, value, description }),
  );
  return { type: "object", oneOf: branches };
}

/** RP-4: an object with `from` is a reference, one with `$secret` a handle; all else stands as it is. */
function template(): JsonObject {
  const handle: JsonObject = {
    type: "object",
    required: ["$secret"],
    properties: { $secret: { type: "string", pattern: "\\S", description: "Name of the secret." } },
    additionalProperties: false,
  };
  const object: JsonObject = {
    if: { required: ["from"] },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: ref("reference"),
    else: {
      if: { required: ["$secret"] },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: handle,
      else: { additionalProperties: ref("template") },
    },
  };
  return {
    if: { type: "object" },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: object,
    else: { items: ref("template") },
  };
}

/** The schema subset (RP-2). `default` is left out but where the caller adds it. */
function subsetSchema(replaced: { readonly [keyword: string]: JsonObject }): JsonObject {
  const properties: Record<string, Json> = {};
  for (const [name, { kind, description }] of Object.entries(KEYWORDS)) {
    if (name === "default" && replaced.default === undefined) continue;
    properties[name] = { ...(replaced[name] ?? KEYWORD_SCHEMAS[kind]), description };
  }
  return { type: "object", properties, additionalProperties: false };
}

const TYPE: JsonObject = { enum: TYPE_NAMES };
const KEYWORD_SCHEMAS: { readonly [kind in (typeof KEYWORDS)[keyof typeof KEYWORDS]["kind"]]: JsonObject } = {
  type: { anyOf: [TYPE, { type: "array", minItems: 1, items: TYPE }] },
  array: { type: "array" },
  names: { type: "array", items: { type: "string" } },
  schemas: { type: "object", additionalProperties: ref("schema") },
  boolean: { type: "boolean" },
  schema: ref("schema"),
  number: { type: "number" },
  length: { type: "integer", minimum: 0 },
  text: { type: "string" },
  pattern: { type: "string" },
  any: {},
};

function predicate(): JsonObject {
  const branches = Object.entries(PREDICATE_OPERATIONS).map(([operation, { operands, description }]): JsonObject => {
    const properties = Object.fromEntries(Object.entries(operands).map(([key, kind]) => [key, operand(kind)] as const));
    const version = {
      type: "integer",
      minimum: 1,
      maximum: NEWEST_PREDICATE_VERSION,
      description: "Version of the operations; the newest unless given.",
    };
    return {
      type: "object",
      properties: { version, operation: { const: operation, description }, ...properties },
      required: ["operation", ...Object.keys(operands)],
      additionalProperties: false,
    };
  });
  return { type: "object", oneOf: branches };
}

function operand(kind: OperandKind): JsonObject {
  switch (kind) {
    case "path":
      return {
        type: "string",
        maxLength: PREDICATE_LIMITS.path,
        description: "Fields joined by dots; empty for the whole value.",
      };
    case "value":
      return { description: "The constant to compare with." };
    case "predicate":
      return { ...ref("predicate"), description: "The predicate to negate." };
    case "predicates":
      return { type: "array", items: ref("predicate"), description: "The predicates to combine." };
    case "comparison":
      return { enum: COMPARISON_NAMES, description: "How the left number must stand to the right one." };
    case "selector":
      return { ...ref("selector"), description: "Which part of the value." };
    case "assertion":
      return {
        type: "object",
        properties: {
          assertion: { enum: ASSERTIONS, description: "What is asserted of the text." },
          expected: { description: "What is expected." },
        },
        required: ["assertion", "expected"],
        additionalProperties: false,
        description: "What must hold for the text.",
      };
  }
}

function selector(): JsonObject {
  const segment = (kind: string, key: string, value: JsonObject): JsonObject => ({
    type: "object",
    properties: { kind: { const: kind, description: "A field of an object, or an index of an array." }, [key]: value },
    required: ["kind", key],
    additionalProperties: false,
  });
  const index = {
    type: "integer",
    minimum: 0,
    maximum: PREDICATE_LIMITS.index,
    description: "Place in the array, from 0.",
  };
  const segments = [
    segment("field", "name", { type: "string", description: "Name of the field." }),
    segment("index", "index", index),
  ];
  return {
    type: "object",
    properties: {
      version: { const: 1, description: "Version of selectors: 1." },
      segments: {
        type: "array",
        maxItems: PREDICATE_LIMITS.segments,
        items: { oneOf: segments },
        description: "The way into the value, outermost first.",
      },
    },
    additionalProperties: false,
  };
}
