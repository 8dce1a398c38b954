/** Checks that a schema stays inside the closed subset of RP-2 and DESIGN §8, and inside its bounds. */
import type { Json, JsonObject } from "../json.ts";
import type { Problem } from "../plan/definition.ts";
import { didYouMean } from "./hint.ts";
import { isKeyword, KEYWORD_NAMES, KEYWORDS, type KeywordKind, SCHEMA_LIMITS, TYPE_NAMES } from "./keywords.ts";
import { compilePattern } from "./pattern.ts";

export type Path = readonly (string | number)[];

export interface CheckSchemaOptions {
  /**
   * Where `default` is allowed: true, on the properties of this schema's root, or, for a schema whose origin is
   * another's affair, anywhere. Otherwise nowhere.
   */
  readonly defaults?: true | "anywhere";
}

/**
 * Every fault of a schema. Never throws; a schema over the bounds gets one problem and is not looked into.
 * @param path where the schema stands in its document
 */
export function checkSchema(schema: Json, path: Path, options: CheckSchemaOptions = {}): Problem[] {
  const over = overBounds(schema);
  if (over !== undefined) return [problem(path, "schema_size", `Cannot use this schema: it ${over}; make it smaller`)];
  const problems: Problem[] = [];
  checkNode(schema, path, { problems, defaults: options.defaults }, 0);
  return problems;
}

interface Context {
  readonly problems: Problem[];
  readonly defaults: CheckSchemaOptions["defaults"];
}

function problem(path: Path, code: string, message: string, more: Partial<Problem> = {}): Problem {
  return { path, code, message, severity: "error", ...more };
}

/** What bound is passed, if any. Stops at the first excess, so that a huge schema costs no more than a large one. */
function overBounds(schema: Json): string | undefined {
  let nodes = 0;
  let text = 0;
  const visit = (value: Json, depth: number): string | undefined => {
    if (++nodes > SCHEMA_LIMITS.nodes) return `has more than ${SCHEMA_LIMITS.nodes} values`;
    if (typeof value === "string") text += value.length;
    if (text > SCHEMA_LIMITS.text) return `is longer than ${SCHEMA_LIMITS.text} characters`;
    if (typeof value !== "object" || value === null) return undefined;
    if (depth >= SCHEMA_LIMITS.depth) return `is nested deeper than ${SCHEMA_LIMITS.depth} levels`;
    // Not by entries: a list of all members would cost what the bound is there to save.
    for (const key in value) {
      text += key.length;
      const over = visit((value as JsonObject)[key] as Json, depth + 1);
      if (over !== undefined) return over;
    }
    return undefined;
  };
  return visit(schema, 0);
}

function checkNode(schema: Json, path: Path, context: Context, level: number): void {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
    context.problems.push(
      problem(
        path,
        "schema",
        'Cannot use this as a schema: it is not an object; write an object such as {"type": "string"}',
      ),
    );
    return;
  }
  for (const [name, value] of Object.entries(schema as JsonObject)) {
    const at = [...path, name];
    if (!isKeyword(name)) context.problems.push(unknownKeyword(name, at));
    else if (name === "default" && context.defaults !== "anywhere" && !(context.defaults === true && level === 1)) {
      const message = 'Cannot use "default" here: it is allowed only on top-level inputs; move it or leave it out';
      context.problems.push(problem(at, "schema_keyword", message, { at_key: true }));
    } else checkValue(KEYWORDS[name].kind, value, at, context, level);
  }
}

function unknownKeyword(name: string, path: Path): Problem {
  const hint = didYouMean(name, KEYWORD_NAMES);
  const message = `Cannot use the schema keyword "${name.slice(0, 64)}": only ${KEYWORD_NAMES.join(", ")} are known; remove it`;
  return problem(path, "schema_keyword", message, { at_key: true, ...hint });
}

function checkValue(kind: KeywordKind, value: Json, path: Path, context: Context, level: number): void {
  const wrong = (must: string) =>
    void context.problems.push(
      problem(path, "schema", `Cannot use this value of "${path.at(-1)}": it must be ${must}; correct it`),
    );
  switch (kind) {
    case "type":
      return checkType(value, path, context);
    case "array":
      return Array.isArray(value) ? undefined : wrong("an array of values");
    case "names":
      return isTextList(value) ? undefined : wrong("an array of property names");
    case "boolean":
      return typeof value === "boolean" ? undefined : wrong("true or false");
    case "number":
      return typeof value === "number" ? undefined : wrong("a number");
    case "length":
      return Number.isSafeInteger(value) && (value as number) >= 0 ? undefined : wrong("a whole number from 0");
    case "text":
      return typeof value === "string" ? undefined : wrong("text");
    case "pattern":
      return checkPattern(value, path, context);
    case "schema":
      // An item of the root is no top-level input, though it is as deep as one.
      return checkNode(value, path, context, level + 2);
    case "schemas":
      if (!isObject(value)) return wrong("an object of schemas");
      for (const [name, item] of Object.entries(value)) checkNode(item, [...path, name], context, level + 1);
      return;
    case "any":
      return;
  }
}

function checkType(value: Json, path: Path, context: Context): void {
  const names = Array.isArray(value) ? value : [value];
  if (names.length === 0) {
    context.problems.push(
      problem(path, "schema", 'Cannot use an empty list as "type": no value would fit; name at least one type'),
    );
  }
  names.forEach((name: Json, index: number) => {
    if (TYPE_NAMES.some((known) => known === name)) return;
    const at = Array.isArray(value) ? [...path, index] : path;
    const message = `Cannot use this type: it must be one of ${TYPE_NAMES.join(", ")}; correct it`;
    context.problems.push(problem(at, "schema", message, typeof name === "string" ? didYouMean(name, TYPE_NAMES) : {}));
  });
}

function checkPattern(value: Json, path: Path, context: Context): void {
  const result = typeof value === "string" ? compilePattern(value) : ({ ok: false, reason: "it is not text" } as const);
  if (result.ok) return;
  const message = `Cannot use this pattern: ${result.reason}; write one without look-around and back references`;
  context.problems.push(problem(path, "schema_pattern", message));
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isTextList(value: Json): boolean {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}
