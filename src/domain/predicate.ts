/**
 * Predicates over JSON values (GD-3): closed operations by version, bounded, and never `false` where the truth is
 * that the question cannot be answered.
 */
import { canonicalJson, getOwn, type Json, type JsonObject, jsonEquals, sha256 } from "./json.ts";
import type { Problem } from "./plan/definition.ts";
import { didYouMean } from "./schema/hint.ts";

/** What a predicate without a version means when it is published. */
export const NEWEST_PREDICATE_VERSION = 3;

export const PREDICATE_LIMITS = {
  depth: 16,
  operations: 256,
  /** Bytes of a dotted path. */
  path: 512,
  /** Bytes of a constant's canonical text. */
  constant: 65_536,
  segments: 64,
  index: 1_000_000,
} as const;

const COMPARISONS = {
  less_than: (a: number, b: number) => a < b,
  less_than_or_equal: (a: number, b: number) => a <= b,
  greater_than: (a: number, b: number) => a > b,
  greater_than_or_equal: (a: number, b: number) => a >= b,
} as const;
type Comparison = keyof typeof COMPARISONS;

export type OperandKind = "path" | "selector" | "value" | "predicate" | "predicates" | "comparison" | "assertion";
interface Operation {
  readonly since: number;
  readonly operands: { readonly [key: string]: OperandKind };
  readonly description: string;
}

/** Every operation with the version that brought it; the editor schema is made from this table too. */
export const PREDICATE_OPERATIONS = {
  equals: { since: 1, operands: { path: "path", value: "value" }, description: "The field equals a constant." },
  fields_equal: { since: 1, operands: { left_path: "path", right_path: "path" }, description: "Two fields are equal." },
  all: { since: 1, operands: { predicates: "predicates" }, description: "Every one of the predicates holds." },
  any: { since: 1, operands: { predicates: "predicates" }, description: "At least one of the predicates holds." },
  not: { since: 1, operands: { predicate: "predicate" }, description: "The predicate does not hold." },
  numeric_compare: {
    since: 2,
    operands: { left_path: "path", right_path: "path", comparison: "comparison" },
    description: "Compares two number fields.",
  },
  selected_equals: {
    since: 2,
    operands: { selector: "selector", value: "value" },
    description: "The selected value equals a constant.",
  },
  selected_values_equal: {
    since: 2,
    operands: { left_selector: "selector", right_selector: "selector" },
    description: "Two selected values are equal.",
  },
  selected_numeric_compare: {
    since: 2,
    operands: { left_selector: "selector", right_selector: "selector", comparison: "comparison" },
    description: "Compares two selected numbers.",
  },
  selected_assertion: {
    since: 3,
    operands: { selector: "selector", assertion: "assertion" },
    description: "The selected text is, or has the length or hash, that is expected.",
  },
} as const satisfies Record<string, Operation>;

export const ASSERTIONS = ["text_equals", "byte_length", "sha256"] as const;
export const COMPARISON_NAMES = Object.keys(COMPARISONS) as readonly Comparison[];

type Path = readonly (string | number)[];
type At = Path;

interface Context {
  readonly problems: Problem[];
  readonly version: number;
  operations: number;
}

/** Every fault of a predicate; none means that `evaluatePredicate` takes it. */
export function checkPredicate(predicate: Json, path: Path = []): Problem[] {
  const own = isObject(predicate) ? getOwn(predicate, "version") : undefined;
  const version = own ?? NEWEST_PREDICATE_VERSION;
  const context: Context = { problems: [], version: typeof version === "number" ? version : 0, operations: 0 };
  if (!isVersion(version)) {
    fault(
      context,
      [...path, "version"],
      `Cannot use this predicate version: only 1 to ${NEWEST_PREDICATE_VERSION} are known; correct it`,
    );
  } else checkNode(predicate, path, context, 1);
  return context.problems;
}

function isVersion(value: Json): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= NEWEST_PREDICATE_VERSION;
}

/** The predicate with its version written down, so that a pinned definition keeps its meaning. */
export function fillPredicate(predicate: JsonObject): JsonObject {
  return Object.hasOwn(predicate, "version") ? predicate : { ...predicate, version: NEWEST_PREDICATE_VERSION };
}

function fault(context: Context, path: At, message: string, more: { hint?: string; at_key?: true } = {}): undefined {
  context.problems.push({ path, code: "predicate", message, severity: "error", ...more });
}

function checkNode(predicate: Json, path: At, context: Context, depth: number): void {
  if (depth > PREDICATE_LIMITS.depth)
    return fault(
      context,
      path,
      `Cannot use this predicate: it is nested deeper than ${PREDICATE_LIMITS.depth}; flatten it`,
    );
  if (++context.operations > PREDICATE_LIMITS.operations) {
    // Said once: everything past the limit would repeat it.
    if (context.operations === PREDICATE_LIMITS.operations + 1) {
      fault(
        context,
        path,
        `Cannot use this predicate: it has more than ${PREDICATE_LIMITS.operations} operations; make it smaller`,
      );
    }
    return;
  }
  if (!isObject(predicate))
    return fault(context, path, 'Cannot use this predicate: it is not an object; write one with an "operation"');
  const name = getOwn(predicate, "operation");
  const operation = typeof name === "string" ? getOwn<Operation>(PREDICATE_OPERATIONS, name) : undefined;
  if (operation === undefined) {
    const names = Object.keys(PREDICATE_OPERATIONS);
    const message = `Cannot use this predicate: "operation" must be one of ${names.join(", ")}; choose one`;
    return fault(
      context,
      name === undefined ? path : [...path, "operation"],
      message,
      typeof name === "string" ? didYouMean(name, names) : {},
    );
  }
  if (operation.since > context.version) {
    fault(
      context,
      [...path, "operation"],
      `Cannot use "${name as string}" in version ${context.version}: it came with version ${operation.since}; raise the version`,
    );
  }
  if (depth > 1 && (getOwn(predicate, "version") ?? context.version) !== context.version) {
    fault(
      context,
      [...path, "version"],
      `Cannot use another version inside: the outer predicate has ${context.version}; leave it out here`,
    );
  }
  checkKeys(predicate, ["version", "operation", ...Object.keys(operation.operands)], path, context);
  for (const [key, kind] of Object.entries(operation.operands)) {
    const operand = getOwn(predicate, key);
    if (operand === undefined) fault(context, path, `Cannot use this predicate: "${key}" is missing; add it`);
    else checkOperand(operand, kind, [...path, key], context, depth);
  }
}

function checkKeys(value: JsonObject, known: readonly string[], path: At, context: Context): void {
  for (const key of Object.keys(value)) {
    if (known.includes(key)) continue;
    const message = `Cannot use the key "${key.slice(0, 64)}": known here are ${known.join(", ")}; correct or remove it`;
    fault(context, [...path, key], message, { at_key: true, ...didYouMean(key, known) });
  }
}

function checkOperand(value: Json, kind: OperandKind, path: At, context: Context, depth: number): void {
  const wrong = (must: string) =>
    fault(context, path, `Cannot use this "${path.at(-1)}": it must be ${must}; correct it`);
  switch (kind) {
    case "path":
      if (typeof value !== "string") return wrong("text, the fields joined by dots");
      return byteLength(value) > PREDICATE_LIMITS.path ? wrong(`at most ${PREDICATE_LIMITS.path} bytes`) : undefined;
    case "value":
      return byteLength(canonicalJson(value)) > PREDICATE_LIMITS.constant
        ? wrong(`at most ${PREDICATE_LIMITS.constant} bytes`)
        : undefined;
    case "predicate":
      return checkNode(value, path, context, depth + 1);
    case "predicates":
      if (!Array.isArray(value)) return wrong("a list of predicates");
      value.forEach((item: Json, index) => void checkNode(item, [...path, index], context, depth + 1));
      return;
    case "comparison":
      return COMPARISON_NAMES.some((name) => name === value)
        ? undefined
        : wrong(`one of ${COMPARISON_NAMES.join(", ")}`);
    case "selector":
      return checkSelector(value, path, context);
    case "assertion":
      return checkAssertion(value, path, context);
  }
}

function checkSelector(value: Json, path: At, context: Context): void {
  if (!isObject(value))
    return fault(context, path, 'Cannot use this selector: it is not an object; write {"segments": […]}');
  checkKeys(value, ["version", "segments"], path, context);
  if ((getOwn(value, "version") ?? 1) !== 1)
    fault(context, [...path, "version"], "Cannot use this selector version: only 1 is known; correct it");
  const segments = getOwn(value, "segments") ?? [];
  if (!Array.isArray(segments) || segments.length > PREDICATE_LIMITS.segments) {
    return fault(
      context,
      [...path, "segments"],
      `Cannot use these segments: they must be a list of at most ${PREDICATE_LIMITS.segments}; correct it`,
    );
  }
  segments.forEach((segment: Json, index: number) => void checkSegment(segment, [...path, "segments", index], context));
}

function checkSegment(segment: Json, path: At, context: Context): void {
  const kind = isObject(segment) ? getOwn(segment, "kind") : undefined;
  if (isObject(segment) && kind === "field") {
    checkKeys(segment, ["kind", "name"], path, context);
    if (typeof getOwn(segment, "name") !== "string")
      fault(context, path, 'Cannot use this segment: "name" must be text; correct it');
  } else if (isObject(segment) && kind === "index") {
    checkKeys(segment, ["kind", "index"], path, context);
    const index = getOwn(segment, "index");
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) > PREDICATE_LIMITS.index) {
      fault(
        context,
        path,
        `Cannot use this segment: "index" must be a whole number from 0 to ${PREDICATE_LIMITS.index}; correct it`,
      );
    }
  } else
    fault(
      context,
      path,
      'Cannot use this segment: it must be {"kind": "field", "name"} or {"kind": "index", "index"}; correct it',
    );
}

function checkAssertion(value: Json, path: At, context: Context): void {
  const kind = isObject(value) ? getOwn(value, "assertion") : undefined;
  if (!isObject(value) || !ASSERTIONS.some((name) => name === kind)) {
    return fault(
      context,
      path,
      `Cannot use this assertion: "assertion" must be one of ${ASSERTIONS.join(", ")}; choose one`,
    );
  }
  checkKeys(value, ["assertion", "expected"], path, context);
  const expected = getOwn(value, "expected") ?? null;
  if (byteLength(canonicalJson(expected)) > PREDICATE_LIMITS.constant) {
    return fault(
      context,
      [...path, "expected"],
      `Cannot use this "expected": it must be at most ${PREDICATE_LIMITS.constant} bytes; shorten it`,
    );
  }
  const fits =
    kind === "text_equals"
      ? typeof expected === "string"
      : kind === "byte_length"
        ? Number.isSafeInteger(expected) && (expected as number) >= 0
        : typeof expected === "string" && /^[0-9a-f]{64}$/.test(expected);
  const must =
    kind === "text_equals" ? "text" : kind === "byte_length" ? "a whole number of bytes" : "64 lower-case hex digits";
  if (!fits)
    fault(
      context,
      [...path, "expected"],
      `Cannot use this "expected": for ${kind as string} it must be ${must}; correct it`,
    );
}

export type PredicateResult =
  | { readonly ok: true; readonly value: boolean }
  | { readonly ok: false; readonly message: string };

/** Pinned predicates never change, so each is checked once. */
const checked = new WeakSet<JsonObject>();

/** Raised and caught inside this file only: a question that has no answer. */
class Unanswerable extends Error {}

/**
 * Whether a checked predicate holds for a value. A missing field, kinds that cannot be compared and numbers past exact
 * range are an error, not `false` (GD-3); messages name places, never values.
 */
export function evaluatePredicate(predicate: JsonObject, value: Json): PredicateResult {
  const [problem] = checked.has(predicate) ? [] : checkPredicate(predicate);
  if (problem !== undefined) return { ok: false, message: problem.message };
  checked.add(predicate);
  try {
    return { ok: true, value: holds(predicate, value) };
  } catch (error) {
    if (error instanceof Unanswerable) return { ok: false, message: error.message };
    throw error;
  }
}

function holds(predicate: JsonObject, value: Json): boolean {
  const at = (key: string): Json => selected(value, predicate[key] as JsonObject);
  const dotted = (key: string): Json => field(value, predicate[key] as string);
  const compare = () => COMPARISONS[predicate.comparison as Comparison];
  switch (predicate.operation as keyof typeof PREDICATE_OPERATIONS) {
    case "equals":
      return equal(dotted("path"), predicate.value as Json);
    case "fields_equal":
      return equal(dotted("left_path"), dotted("right_path"));
    case "all":
      return (predicate.predicates as readonly JsonObject[]).every((item) => holds(item, value));
    case "any":
      return (predicate.predicates as readonly JsonObject[]).some((item) => holds(item, value));
    case "not":
      return !holds(predicate.predicate as JsonObject, value);
    case "numeric_compare":
      return compare()(exact(dotted("left_path")), exact(dotted("right_path")));
    case "selected_equals":
      return equal(at("selector"), predicate.value as Json);
    case "selected_values_equal":
      return equal(at("left_selector"), at("right_selector"));
    case "selected_numeric_compare":
      return compare()(exact(at("left_selector")), exact(at("right_selector")));
    case "selected_assertion":
      return asserted(at("selector"), predicate.assertion as JsonObject);
  }
}

function field(value: Json, path: string): Json {
  let at = value;
  for (const name of path === "" ? [] : path.split(".")) at = step(at, name, path);
  return at;
}

function step(value: Json, name: string | number, path: string): Json {
  let next: Json | undefined;
  if (Array.isArray(value) && /^(0|[1-9]\d*)$/.test(String(name))) next = value[Number(name)];
  else if (isObject(value) && typeof name === "string") next = getOwn(value, name);
  else throw new Unanswerable(`the value has no part "${path}": what stands before "${name}" is ${kindOf(value)}`);
  if (next === undefined) throw new Unanswerable(`the value has no part "${path}": "${name}" is missing`);
  return next;
}

function selected(value: Json, selector: JsonObject): Json {
  const segments = (getOwn(selector, "segments") ?? []) as readonly JsonObject[];
  const names = segments.map((segment) =>
    segment.kind === "field" ? (segment.name as string) : (segment.index as number),
  );
  let at = value;
  names.forEach((name) => {
    // A field is never an array's index here: the segment's kind says which of the two is meant.
    if (typeof name === "string" && Array.isArray(at))
      throw new Unanswerable(`the value has no field "${name}": it is an array`);
    at = step(at, name, names.join("."));
  });
  return at;
}

/** Null may be compared with anything, since "absent or something" is what null is for; other kinds must agree. */
function equal(left: Json, right: Json): boolean {
  if (left === null || right === null) return left === right;
  const [a, b] = [kindOf(left), kindOf(right)];
  if (a !== b) throw new Unanswerable(`${a} cannot be compared with ${b}`);
  if (typeof left === "number") return exact(left) === exact(right);
  return jsonEquals(left, right);
}

/** Whole numbers past 2^53 may have been rounded on the way in, so that a comparison could lie. */
function exact(value: Json): number {
  if (typeof value !== "number") throw new Unanswerable(`${kindOf(value)} cannot be compared as a number`);
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    throw new Unanswerable("a number is past the range in which comparisons are exact");
  return value;
}

function asserted(value: Json, { assertion, expected }: JsonObject): boolean {
  if (typeof value !== "string") throw new Unanswerable(`${kindOf(value)} is not text`);
  if (!value.isWellFormed()) throw new Unanswerable("the text is not complete UTF-8");
  if (assertion === "text_equals") return value === expected;
  return assertion === "byte_length" ? byteLength(value) === expected : sha256(value) === expected;
}

function kindOf(value: Json): string {
  if (value === null) return "null";
  if (typeof value === "string") return "text";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
