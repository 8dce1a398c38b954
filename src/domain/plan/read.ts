/**
 * Reads the parts of a plan document by the tables of `shape.ts`: fills defaults, refuses unknown keys, and says of
 * each fault where it is. What the parts mean together is checked elsewhere.
 */
import { getOwn, type Json, type JsonObject, pointerTokens, setOwn } from "../json.ts";
import { checkPredicate, fillPredicate } from "../predicate.ts";
import { checkInputSchema, checkSchema, didYouMean, isSecretHandle, type Path } from "../schema/index.ts";
import type { Condition, Plan, Problem, ValueRef } from "./definition.ts";
import {
  type Field,
  type FieldType,
  PLAN_LIMITS,
  PLAN_SHAPES,
  REFERENCE_SHAPES,
  type Shape,
  TEST_SHAPE,
} from "./shape.ts";

/** Faults found so far, in the order of RP-1. */
export class Report {
  readonly problems: Problem[] = [];

  error(path: Path, code: string, message: string, more: { hint?: string; at_key?: true } = {}): undefined {
    this.problems.push({ path, code, message, severity: "error", ...more });
  }

  warn(path: Path, code: string, message: string, more: { hint?: string } = {}): undefined {
    this.problems.push({ path, code, message, severity: "warning", ...more });
  }

  get errors(): number {
    return this.problems.reduce((count, { severity }) => count + (severity === "error" ? 1 : 0), 0);
  }
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * An object of a closed key set, defaults filled and absent optionals left out; keys in the table's order.
 * `undefined` when it is no object at all. Keys that are at fault are left out and reported.
 * @param discriminator a key that was read already, such as `type`
 */
export function readShape(
  value: Json,
  what: string,
  shape: Shape,
  path: Path,
  report: Report,
  discriminator?: string,
): JsonObject | undefined {
  if (!isObject(value)) return report.error(path, "type", `Cannot read ${what}: it is not an object; write its keys`);
  readUnknownKeys(value, what, shape, path, report, discriminator);
  const out: Record<string, Json> = {};
  for (const [key, field] of Object.entries(shape)) {
    const item = readKey(value, what, key, field, path, report);
    if (item !== undefined) setOwn(out, key, item);
  }
  return out;
}

/** Reports every key that the shape does not have. */
export function readUnknownKeys(
  value: JsonObject,
  what: string,
  shape: Shape,
  path: Path,
  report: Report,
  discriminator?: string,
): void {
  for (const key of Object.keys(value)) {
    if (key === discriminator || Object.hasOwn(shape, key)) continue;
    const known = [...(discriminator === undefined ? [] : [discriminator]), ...Object.keys(shape)];
    const message = `Cannot use the key "${key.slice(0, 64)}": ${what} has ${known.join(", ")}; correct or remove it`;
    report.error([...path, key], "unknown_key", message, { at_key: true, ...didYouMean(key, known) });
  }
}

/** One key of an object; `undefined` when it is absent, or at fault, which is then reported. */
export function readKey(
  value: JsonObject,
  what: string,
  key: string,
  field: Field,
  path: Path,
  report: Report,
): Json | undefined {
  const item = getOwn(value, key);
  if (item !== undefined) return readField(item, key, field.type, [...path, key], report);
  if (field.required === true) return report.error(path, "missing", `Cannot read ${what}: "${key}" is missing; add it`);
  return field.fill === undefined ? undefined : readField(field.fill, key, field.type, [...path, key], report);
}

function readField(value: Json, key: string, type: FieldType, path: Path, report: Report): Json | undefined {
  const wrong = (must: string, code = "type") =>
    report.error(path, code, `Cannot use this "${key}": it must be ${must}; correct it`);
  switch (type.is) {
    case "text":
      return readName(value, key, path, report);
    case "note":
      return typeof value === "string" ? value : wrong("text");
    case "boolean":
      return typeof value === "boolean" ? value : wrong("true or false");
    case "integer":
      return readInteger(value, type, wrong);
    case "one_of":
      if (type.values.some((known) => known === value)) return value;
      return report.error(path, "range", `Cannot use this "${key}": it must be ${type.values.join(", ")}; choose one`, {
        ...didYouMean(String(value), type.values),
      });
    case "texts":
      if (!Array.isArray(value)) return wrong("a list of words");
      return value.map((item: Json, index) => readName(item, key, [...path, index], report) ?? "");
    case "some_of":
      return readSome(value, key, type.values, path, report);
    case "resource":
      return readResource(value, path, report, wrong);
    case "schema":
    case "input_schema": {
      const problems = type.is === "schema" ? checkSchema(value, path) : checkInputSchema(value, path);
      report.problems.push(...problems);
      return problems.length === 0 ? value : undefined;
    }
    case "template":
      return readTemplate(value, path, report);
    case "literal":
      return value;
    case "fields":
      return isObject(value) ? readMembers(value, path, report) : wrong("an object of templates");
    case "pointer":
      if (typeof value !== "string") return wrong("text");
      return pointerTokens(value) === undefined
        ? wrong("empty or start with /, with ~0 for ~ and ~1 for / in names", "pointer")
        : value;
    case "reference":
      return readReference(value, path, report) as Json | undefined;
    case "condition":
      return readCondition(value, path, report) as Json | undefined;
    case "predicate":
      return readPredicate(value, path, report);
    case "duration":
      return isFrom(value) ? readTemplate(value, path, report) : readInteger(value, { min: 0 }, wrong);
    case "moment":
      return isFrom(value) ? readTemplate(value, path, report) : readMoment(value, wrong);
    case "plan":
      return readPlan(value, path, report) as Json | undefined;
    case "plans":
      return readPlans(value, path, report) as Json | undefined;
    case "steps":
      return value;
    case "object":
      return readShape(value, type.what, type.shape, path, report);
    case "objects":
      if (!Array.isArray(value)) return wrong("a list of objects");
      if (value.length > type.most) return wrong(`a list of at most ${type.most} objects`, "range");
      return value.map((item: Json, i) => readShape(item, type.what, type.shape, [...path, i], report) ?? null);
  }
}

/** At least one of the values, none twice. */
function readSome(
  value: Json,
  key: string,
  values: readonly string[],
  path: Path,
  report: Report,
): readonly Json[] | undefined {
  const wrong = (at: Path, code: string, must: string, more: { hint?: string } = {}) =>
    report.error(at, code, `Cannot use this "${key}": it must ${must}; correct it`, more);
  if (!Array.isArray(value) || value.length === 0)
    return wrong(path, "type", `be a list of at least one of ${values.join(", ")}`);
  for (const [i, item] of (value as readonly Json[]).entries()) {
    if (!values.some((known) => known === item))
      wrong([...path, i], "range", `name only ${values.join(", ")}`, didYouMean(String(item), values));
    else if (value.indexOf(item) < i) wrong([...path, i], "duplicate", `name "${String(item)}" once`);
  }
  return value;
}

/** What a resource's name must be, where this is none; `undefined` when it may be claimed (GD-53). */
export function resourceFault(value: Json): string | undefined {
  const bytes = typeof value === "string" && value.trim() !== "" ? new TextEncoder().encode(value).length : 0;
  if (bytes > 0 && bytes <= PLAN_LIMITS.resource_bytes) return undefined;
  return `text of 1 to ${PLAN_LIMITS.resource_bytes} bytes that is not blank`;
}

/** The name of a resource, or a reference that can lead to one. */
function readResource(value: Json, path: Path, report: Report, wrong: (must: string) => undefined): Json | undefined {
  const read = isFrom(value) ? readReference(value, path, report) : undefined;
  if (isFrom(value) && read === undefined) return undefined;
  const leads = read !== undefined && read.from !== "literal" && read.from !== "object";
  const fault = leads ? undefined : resourceFault(read?.from === "literal" ? read.value : value);
  if (fault !== undefined) return wrong(`${fault}, or a reference to such a text`);
  return read === undefined ? value : (read as Json);
}

function readName(value: Json, key: string, path: Path, report: Report): string | undefined {
  const wrong = (must: string) =>
    report.error(path, "blank", `Cannot use this "${key}": it must be ${must}; correct it`);
  if (typeof value !== "string" || value.trim() === "") return wrong("text that is not blank");
  // Most of these become ids and keys; prompts are the one long text.
  if (key === "prompt") return value;
  if (value.length > PLAN_LIMITS.name) return wrong(`at most ${PLAN_LIMITS.name} characters`);
  // NUL joins the parts of a dispatch id
  return /[\u0000-\u001f\u007f]/.test(value) ? wrong("free of control characters") : value;
}

function readInteger(
  value: Json,
  { min, max }: { min: number; max?: number },
  wrong: (must: string, code?: string) => undefined,
): number | undefined {
  const range = max === undefined ? `from ${min}` : min === max ? String(min) : `from ${min} to ${max}`;
  if (!Number.isSafeInteger(value)) return wrong(`a whole number ${range}`);
  const number = value as number;
  return number < min || (max !== undefined && number > max) ? wrong(`a whole number ${range}`, "range") : number;
}

const RFC_3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$/;

function readMoment(value: Json, wrong: (must: string) => undefined): Json | undefined {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value;
  if (momentMs(value) !== undefined) return value;
  return wrong("a time such as 2030-01-31T09:00:00Z, milliseconds since 1970, or a reference");
}

/** Milliseconds since 1970 of a `until` value: a whole number, or RFC 3339 text; `undefined` for anything else. */
export function momentMs(value: Json): number | undefined {
  if (typeof value === "number") return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
  if (typeof value !== "string" || !RFC_3339.test(value)) return undefined;
  const ms = Date.parse(value);
  return Number.isNaN(ms) ? undefined : ms;
}

/** An object with a `from` key is a reference wherever a template stands (RP-4). */
export function isFrom(value: Json): value is JsonObject {
  return isObject(value) && Object.hasOwn(value, "from");
}

/** A template with its references completed; literals inside are not looked at (RP-4). */
export function readTemplate(value: Json, path: Path, report: Report): Json | undefined {
  if (Array.isArray(value))
    return value.map((item: Json, index) => readTemplate(item, [...path, index], report) ?? null);
  if (!isObject(value)) return value;
  if (isFrom(value)) return readReference(value, path, report) as Json | undefined;
  if (Object.hasOwn(value, "$secret") && !isSecretHandle(value)) {
    return report.error(
      path,
      "template",
      'Cannot use this secret handle: it must be {"$secret": "name"} and nothing more; correct it',
    );
  }
  return readMembers(value, path, report);
}

function readMembers(value: JsonObject, path: Path, report: Report): JsonObject {
  const out: Record<string, Json> = {};
  for (const [key, item] of Object.entries(value)) setOwn(out, key, readTemplate(item, [...path, key], report) ?? null);
  return out;
}

/** A value reference (RP §2, R-32). */
export function readReference(value: Json, path: Path, report: Report): ValueRef | undefined {
  const read = readTagged(value, "from", "a reference", REFERENCE_SHAPES, path, report);
  return read as ValueRef | undefined;
}

function readCondition(value: Json, path: Path, report: Report): Condition | undefined {
  return readTagged(value, "from", "a condition", { ...REFERENCE_SHAPES, test: TEST_SHAPE }, path, report) as
    | Condition
    | undefined;
}

function readPredicate(value: Json, path: Path, report: Report): Json | undefined {
  const problems = checkPredicate(value, path);
  report.problems.push(...problems);
  return problems.length === 0 ? fillPredicate(value as JsonObject) : undefined;
}

/** A plan node with everything below it; `undefined` when a part that it cannot do without is at fault. */
export function readPlan(value: Json, path: Path, report: Report): Plan | undefined {
  return readTagged(value, "type", "a plan node", PLAN_SHAPES, path, report) as Plan | undefined;
}

function readPlans(value: Json, path: Path, report: Report): readonly Plan[] | undefined {
  if (!Array.isArray(value) || value.length === 0) {
    return report.error(
      path,
      "plan",
      "Cannot use this list of plan nodes: it is empty or no list; give at least one node",
    );
  }
  const nodes = value.map((item: Json, index) => readPlan(item, [...path, index], report));
  return nodes.every((node) => node !== undefined) ? nodes : undefined;
}

/** An object whose tag names its shape; `undefined` when the tag or a required key is at fault. */
export function readTagged(
  value: Json,
  tag: string,
  what: string,
  shapes: { readonly [name: string]: Shape },
  path: Path,
  report: Report,
): JsonObject | undefined {
  if (!isObject(value))
    return report.error(path, "type", `Cannot read ${what}: it is not an object; write one with a "${tag}"`);
  const name = getOwn(value, tag);
  const shape = typeof name === "string" ? getOwn(shapes, name) : undefined;
  const names = Object.keys(shapes);
  if (name === undefined) {
    return report.error(path, "missing", `Cannot read ${what}: "${tag}" is missing; add one of ${names.join(", ")}`);
  }
  if (shape === undefined) {
    const hint = typeof name === "string" ? didYouMean(name, names) : {};
    return report.error(
      [...path, tag],
      "range",
      `Cannot use this "${tag}": it must be one of ${names.join(", ")}; choose one`,
      hint,
    );
  }
  const before = report.errors;
  const read = readShape(value, `${what} of ${tag} ${name as string}`, shape, path, report, tag);
  return read === undefined || (report.errors > before && misses(read, shape))
    ? undefined
    : { [tag]: name as string, ...read };
}

function misses(read: JsonObject, shape: Shape): boolean {
  return Object.entries(shape).some(([key, field]) => field.required === true && !Object.hasOwn(read, key));
}
