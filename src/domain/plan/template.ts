/** Templates at run time (RP-4): references become values, handles stay handles, everything else passes as it is. */
import { type Json, type JsonObject, resolvePointer, setOwn } from "../json.ts";
import { evaluatePredicate } from "../predicate.ts";
import { type Failure, failure } from "../run.ts";
import type { Condition, ValueRef } from "./definition.ts";
import { isFrom, isObject } from "./read.ts";

/** What a place in the plan can see. */
export interface TemplateScope {
  readonly args: Json;
  /** Value of a step, or of a map, parallel or choice with an id; `undefined` while there is none (RP-37, RP-39). */
  step(id: string): Json | undefined;
  /** Member that the innermost map of this item name works on. */
  item(name: string): Json | undefined;
}

export type Resolved<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly failure: Failure };

/** Raised and caught inside this file only. */
class Unresolved extends Error {
  readonly failure: Failure;
  constructor(found: Failure) {
    super(found.message);
    this.failure = found;
  }
}

/** The value of a template; fails with `unknown_reference` where a reference leads nowhere. */
export function resolveTemplate(template: Json, scope: TemplateScope): Resolved<Json> {
  return attempt(() => resolve(template, scope));
}

/** The value of one reference, such as a map's source. */
export function resolveReference(reference: ValueRef, scope: TemplateScope): Resolved<Json> {
  return attempt(() => resolveRef(reference, scope));
}

/** RP-33: a condition that is not a boolean is `invalid_input`, one that leads nowhere `unknown_reference`. */
export function resolveCondition(condition: Condition, scope: TemplateScope): Resolved<boolean> {
  return attempt(() => {
    if (condition.from !== "test") {
      const value = resolveRef(condition, scope);
      if (typeof value === "boolean") return value;
      throw new Unresolved(
        failure(
          "invalid_input",
          `Cannot choose: the condition ${describe(condition)} is not true or false; give it a boolean`,
        ),
      );
    }
    const result = evaluatePredicate(condition.predicate, resolveRef(condition.of, scope));
    if (result.ok) return result.value;
    throw new Unresolved(
      failure(
        "invalid_input",
        `Cannot test ${describe(condition.of)}: ${result.message}; change the predicate or the value`,
      ),
    );
  });
}

function attempt<T>(work: () => T): Resolved<T> {
  try {
    return { ok: true, value: work() };
  } catch (error) {
    if (error instanceof Unresolved) return { ok: false, failure: error.failure };
    throw error;
  }
}

function resolve(template: Json, scope: TemplateScope): Json {
  if (Array.isArray(template)) return template.map((item: Json) => resolve(item, scope));
  if (!isObject(template)) return template;
  if (isFrom(template)) return resolveRef(template as unknown as ValueRef, scope);
  return resolveMembers(template, scope);
}

function resolveMembers(members: JsonObject, scope: TemplateScope): JsonObject {
  const out: Record<string, Json> = {};
  for (const [key, item] of Object.entries(members)) setOwn(out, key, resolve(item, scope));
  return out;
}

function resolveRef(reference: ValueRef, scope: TemplateScope): Json {
  switch (reference.from) {
    case "literal":
      return reference.value;
    case "object":
      return resolveMembers(reference.fields, scope);
    case "args":
      return pointed(scope.args, reference.pointer, reference);
    case "step":
      return pointed(scope.step(reference.step), reference.pointer, reference);
    case "item":
      return pointed(scope.item(reference.name), reference.pointer, reference);
    default:
      // Compiled definitions hold no other; a stored one that does is broken.
      throw new Unresolved(
        failure("invalid_definition", "Cannot resolve a reference: its kind is not known; publish the workflow again"),
      );
  }
}

function pointed(value: Json | undefined, pointer: string | undefined, reference: ValueRef): Json {
  const found = value === undefined ? undefined : resolvePointer(value, pointer ?? "");
  if (found !== undefined) return found;
  const why = value === undefined ? "it has no value" : "the value has no such part";
  throw new Unresolved(
    failure(
      "unknown_reference",
      `Cannot read ${describe(reference)}: ${why}; check the step before it and the pointer`,
    ),
  );
}

/** A reference in words; it names places of the definition, never values. */
export function describe(reference: ValueRef): string {
  switch (reference.from) {
    case "args":
      return `args${reference.pointer ?? ""}`;
    case "step":
      return `step "${reference.step}"${reference.pointer ?? ""}`;
    case "item":
      return `item "${reference.name}"${reference.pointer ?? ""}`;
    case "literal":
      return "a literal";
    case "object":
      return "an object";
  }
}
