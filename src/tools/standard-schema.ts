/**
 * Schemas that people bring: any Standard Schema (zod, valibot, arktype) or a JSON Schema object. Both become a
 * JSON Schema to show and a check to run, and both give the types of a tool's input and output (DESIGN §12).
 */
import { createRequire } from "node:module";
import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import { HoldfastError } from "../domain/errors.ts";
import { JsonError, type JsonObject, normalizeJson } from "../domain/json.ts";

/** What `input` and `output` of a tool may be. */
export type SchemaLike = StandardSchemaV1 | JsonObject;

/** The value before its schema has seen it: what a caller passes, what `run` returns. */
export type RawOf<S> = S extends StandardSchemaV1 ? StandardSchemaV1.InferInput<S> : FromJsonSchema<S>;
/** The value after its schema has seen it: what `run` gets, what a caller receives. */
export type ParsedOf<S> = S extends StandardSchemaV1 ? StandardSchemaV1.InferOutput<S> : FromJsonSchema<S>;

type Simplify<T> = { [K in keyof T]: T[K] };
type RequiredKey<S> = S extends { readonly required: readonly (infer K)[] } ? K : never;
type Properties<P, R> = Simplify<
  { -readonly [K in keyof P as K extends R ? K : never]: FromJsonSchema<P[K]> } & {
    -readonly [K in keyof P as K extends R ? never : K]?: FromJsonSchema<P[K]>;
  }
>;
interface TypeNames {
  string: string;
  number: number;
  integer: number;
  boolean: boolean;
  null: null;
}

/** The type that a JSON Schema written in place describes; `unknown` where it says more than this reads. */
export type FromJsonSchema<S> = S extends { readonly const: infer V }
  ? V
  : S extends { readonly enum: readonly (infer V)[] }
    ? V
    : S extends { readonly type: infer T }
      ? T extends keyof TypeNames
        ? TypeNames[T]
        : T extends "array"
          ? S extends { readonly items: infer I }
            ? FromJsonSchema<I>[]
            : unknown[]
          : T extends "object"
            ? S extends { readonly properties: infer P }
              ? Properties<P, RequiredKey<S>>
              : { [key: string]: unknown }
            : unknown
      : unknown;

export interface SchemaIssue {
  /** `$.files[2]`, as in `JsonError`. */
  readonly path: string;
  readonly message: string;
}

export type Checked<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly issues: readonly SchemaIssue[] };

export function isStandardSchema(schema: unknown): schema is StandardSchemaV1 {
  if ((typeof schema !== "object" && typeof schema !== "function") || schema === null) return false;
  if (!("~standard" in schema)) return false;
  const props = schema["~standard"];
  return typeof props === "object" && props !== null && "validate" in props && typeof props.validate === "function";
}

/**
 * JSON Schema 2020-12 of either kind of schema, in normal form, without `$schema` and without the bounds
 * ±(2^53-1) that some libraries write for every integer.
 * @param side a schema that transforms accepts one shape and answers another
 * @throws HoldfastError `usage` when the schema has no JSON form
 */
export function toJsonSchema(schema: SchemaLike, side: "input" | "output"): JsonObject {
  try {
    const json = normalizeJson(isStandardSchema(schema) ? convert(schema, side) : schema);
    if (typeof json !== "object" || json === null || Array.isArray(json)) throw new Error("it is not an object");
    return strip(json) as JsonObject;
  } catch (error) {
    if (HoldfastError.is(error)) throw error;
    const reason = error instanceof JsonError ? `${error.path}: ${error.reason}` : (error as Error).message;
    throw new HoldfastError(
      "usage",
      `Cannot write the ${side} schema as JSON Schema: ${reason}; use types that JSON has, or give a JSON Schema`,
      { cause: error },
    );
  }
}

function convert(schema: StandardSchemaV1, side: "input" | "output"): unknown {
  const props = schema["~standard"] as StandardSchemaV1.Props & Partial<StandardJSONSchemaV1.Props>;
  if (props.jsonSchema !== undefined) return props.jsonSchema[side]({ target: "draft-2020-12" });
  if (props.vendor === "zod" && "_zod" in schema) {
    // Early releases of zod 4 lack `~standard.jsonSchema`; our copy reads their schemas. Loaded only here.
    const zod = createRequire(import.meta.url)("zod") as {
      toJSONSchema(schema: unknown, options: { target: string; io: string }): unknown;
    };
    return zod.toJSONSchema(schema, { target: "draft-2020-12", io: side });
  }
  throw new HoldfastError(
    "usage",
    `Cannot write the ${side} schema as JSON Schema: ${props.vendor} gives none; update it, wrap the schema ` +
      "(valibot: toStandardJsonSchema), or give a JSON Schema",
  );
}

function strip(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(strip);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(
    ([key, item]) =>
      !(key === "$schema" && typeof item === "string") &&
      !(key === "minimum" && item === Number.MIN_SAFE_INTEGER) &&
      !(key === "maximum" && item === Number.MAX_SAFE_INTEGER),
  );
  return Object.fromEntries(entries.map(([key, item]) => [key, strip(item)]));
}

/** Most issues that one check reports. */
const MAX_ISSUES = 20;

/** Runs a Standard Schema; `value` is its output, transforms and defaults applied. */
export async function validateStandard<S extends StandardSchemaV1>(
  schema: S,
  value: unknown,
): Promise<Checked<StandardSchemaV1.InferOutput<S>>> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return { ok: true, value: result.value as StandardSchemaV1.InferOutput<S> };
  return {
    ok: false,
    issues: result.issues.slice(0, MAX_ISSUES).map((issue) => ({
      path: renderPath((issue.path ?? []).map((part) => (typeof part === "object" ? part.key : part))),
      message: issue.message,
    })),
  };
}

function renderPath(parts: readonly PropertyKey[]): string {
  let text = "$";
  for (const part of parts) {
    if (typeof part === "number") text += `[${part}]`;
    else if (/^[A-Za-z_$][\w$]*$/.test(String(part))) text += `.${String(part)}`;
    else text += `[${JSON.stringify(String(part))}]`;
  }
  return text;
}
