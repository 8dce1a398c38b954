/**
 * Checks values against the JSON Schema of a tool: all of 2020-12, with linear-time patterns (C40). The subset that
 * plans use is checked by the domain's own validator; the general library is loaded by the first schema that needs
 * more, because loading it costs as much as a whole short run.
 */
import { createRequire } from "node:module";
import type * as ajv2020 from "ajv/dist/2020.js";
import { RE2JS } from "re2js";
import { HoldfastError } from "../domain/errors.ts";
import { canonicalJson, type Json, type JsonObject } from "../domain/json.ts";
import { checkSchema, compileSchema } from "../domain/schema/index.ts";
import type { SchemaIssue } from "./standard-schema.ts";

export type JsonCheck = (value: Json) => readonly SchemaIssue[];

/** Largest schema that is compiled, in bytes of its canonical text. */
const MAX_SCHEMA_BYTES = 262_144;
/** Most issues that one check reports. */
const MAX_ISSUES = 20;

let shared: ajv2020.Ajv2020 | undefined;

/** One validator for all schemas: making another costs 40 to 115 ms. */
function validator(): ajv2020.Ajv2020 {
  if (shared !== undefined) return shared;
  const { Ajv2020 } = createRequire(import.meta.url)("ajv/dist/2020.js") as typeof ajv2020;
  shared = new Ajv2020({
    allErrors: false,
    strict: true,
    strictTuples: false,
    strictTypes: false,
    strictRequired: false,
    // `format` is an annotation (DESIGN §8).
    validateFormats: false,
    // A schema's `$id` must not collide with the same schema in another tool.
    addUsedSchema: false,
    logger: false,
    code: { regExp: Object.assign(linearRegExp, { code: "linearRegExp" }) },
  });
  for (const keyword of ["x-holdfast-secret"]) shared.addKeyword({ keyword });
  return shared;
}

/** The library caches patterns by their text, so each one needs its own `toString`. */
function linearRegExp(pattern: string): { test(text: string): boolean; toString(): string } {
  const compiled = RE2JS.compile(pattern);
  return { test: (text) => compiled.test(text), toString: () => `/${pattern}/u` };
}

/**
 * Compiles a schema at once, so that a wrong one is an error where it is written.
 * @throws HoldfastError `usage` naming the fault
 */
export function compileJsonSchema(schema: JsonObject, what: string): JsonCheck {
  const text = canonicalJson(schema);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_SCHEMA_BYTES)
    throw new HoldfastError(
      "usage",
      `Cannot read ${what}: it has ${bytes} bytes; at most ${MAX_SCHEMA_BYTES} are read, make it smaller`,
    );
  // At a tool secrets are resolved, so a position that wants a handle (RP-2) holds text by now.
  const simple = !text.includes('"x-holdfast-secret"') && checkSchema(schema, [], { defaults: true }).length === 0;
  return simple ? subsetCheck(schema) : generalCheck(schema, what);
}

function subsetCheck(schema: JsonObject): JsonCheck {
  const validator = compileSchema(schema);
  return (value) => {
    const verdict = validator.validate(value);
    return verdict.ok ? [] : [{ path: pathOf(verdict.path), message: verdict.message }];
  };
}

function generalCheck(schema: JsonObject, what: string): JsonCheck {
  let check: ajv2020.ValidateFunction;
  try {
    check = validator().compile(schema);
  } catch (error) {
    throw new HoldfastError("usage", `Cannot read ${what}: ${(error as Error).message}; correct the schema`, {
      cause: error,
    });
  }
  return (value) => (check(value) ? [] : (check.errors ?? []).slice(0, MAX_ISSUES).map(issueOf));
}

function issueOf(error: ajv2020.ErrorObject): SchemaIssue {
  const params = error.params as Record<string, unknown>;
  const named = params["additionalProperty"] ?? params["allowedValues"] ?? params["allowedValue"];
  return {
    path: pathOf(error.instancePath),
    message: `${error.message ?? error.keyword}${named === undefined ? "" : ` (${JSON.stringify(named)})`}`,
  };
}

/** `/a/0/b` as `$.a[0].b`. */
function pathOf(pointer: string): string {
  return `$${pointer.replace(/\/(\d+)(?=\/|$)/g, "[$1]").replaceAll("/", ".")}`;
}
