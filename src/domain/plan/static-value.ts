/**
 * What is known of a value before anything has run (RP-5, R-32): a declared schema, or the array that a map or a
 * parallel will make. References are checked against it.
 */
import { hashJson, type Json, pointerTokens } from "../json.ts";
import { isArrayIndex, schemaBelow, withoutAnnotations } from "../schema/index.ts";
import type { Schema } from "./definition.ts";

export type StaticValue =
  | { readonly kind: "schema"; readonly schema: Schema }
  /** A map's value: any number of members of one kind. */
  | { readonly kind: "array"; readonly item: StaticValue }
  /** A parallel's value: one member for each node. */
  | { readonly kind: "tuple"; readonly items: readonly StaticValue[] }
  | { readonly kind: "literal"; readonly value: Json }
  /** Nothing was declared. */
  | { readonly kind: "unknown" };

export const UNKNOWN: StaticValue = { kind: "unknown" };

export function ofSchema(schema: Schema | undefined): StaticValue {
  return schema === undefined ? UNKNOWN : { kind: "schema", schema };
}

/** A Decision, as the value of an approval. */
export const DECISION_SCHEMA: Schema = {
  type: "object",
  required: ["approved", "decision", "decided_by", "decided_at_ms"],
  additionalProperties: false,
  properties: {
    approved: { type: "boolean" },
    decision: { type: "string", enum: ["approved", "denied", "expired"] },
    decided_by: { type: "string" },
    decided_at_ms: { type: "integer" },
    reason: { type: "string" },
  },
};

/** The part that a pointer names; `undefined` when it is not declared. */
export function partAt(value: StaticValue, pointer: string): StaticValue | undefined {
  let at: StaticValue | undefined = value;
  for (const token of pointerTokens(pointer) ?? []) {
    at = at === undefined ? undefined : partBelow(at, token);
    if (at === undefined) return undefined;
  }
  return at;
}

function partBelow(value: StaticValue, token: string): StaticValue | undefined {
  switch (value.kind) {
    case "schema": {
      const below = schemaBelow(value.schema, token);
      return below === undefined ? undefined : { kind: "schema", schema: below };
    }
    case "array":
      return isArrayIndex(token) ? value.item : undefined;
    case "tuple":
      return isArrayIndex(token) ? value.items[Number(token)] : undefined;
    default:
      return undefined;
  }
}

/**
 * Whether a pointer that `partAt` did not find contradicts what was declared: a place that says nothing of its parts
 * forbids none. Items of maps are checked so, for many sources are `items: {type: object}` and no more.
 */
export function contradicts(value: StaticValue, pointer: string): boolean {
  let at: StaticValue = value;
  for (const token of pointerTokens(pointer) ?? []) {
    const below = partBelow(at, token);
    if (below === undefined)
      return at.kind === "tuple" || at.kind === "array" || (at.kind === "schema" && saysWhatItHolds(at.schema));
    at = below;
  }
  return false;
}

function saysWhatItHolds(schema: Schema): boolean {
  const open = schema.type === undefined || [schema.type].flat().some((type) => type === "object" || type === "array");
  return (
    !open || schema.properties !== undefined || schema.items !== undefined || schema.additionalProperties === false
  );
}

/** What a map over this value would hand to its body; `undefined` when it is not declared to be an array with members. */
export function itemOf(value: StaticValue): StaticValue | undefined {
  switch (value.kind) {
    case "schema": {
      const items = value.schema.items;
      return typeof items === "object" && items !== null ? { kind: "schema", schema: items as Schema } : undefined;
    }
    case "array":
      return value.item;
    case "tuple":
      return value.items.every((item) => sameValue(item, value.items[0] ?? UNKNOWN))
        ? (value.items[0] ?? UNKNOWN)
        : UNKNOWN;
    case "literal":
      return Array.isArray(value.value) ? UNKNOWN : undefined;
    case "unknown":
      return undefined;
  }
}

export function isBoolean(value: StaticValue): boolean {
  if (value.kind === "literal") return typeof value.value === "boolean";
  if (value.kind !== "schema") return false;
  const type = value.schema.type;
  return type === "boolean" || (Array.isArray(type) && type.length === 1 && type[0] === "boolean");
}

/** Whether two places accept the same, as far as is declared; two unknown ones do not. */
export function sameValue(a: StaticValue, b: StaticValue): boolean {
  if (a.kind === "unknown" || b.kind === "unknown") return false;
  return hashJson(asJson(a)) === hashJson(asJson(b));
}

function asJson(value: StaticValue): Json {
  switch (value.kind) {
    case "schema":
      return withoutAnnotations(value.schema);
    case "array":
      return { type: "array", items: asJson(value.item) };
    case "tuple":
      return { tuple: value.items.map(asJson) };
    case "literal":
      return { literal: value.value };
    case "unknown":
      return {};
  }
}
