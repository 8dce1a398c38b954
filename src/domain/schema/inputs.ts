/** Schemas of a workflow's own input, the only place where `default` is allowed. */
import { getOwn, type Json, type JsonObject, setOwn } from "../json.ts";
import type { Problem } from "../plan/definition.ts";
import { checkSchema, type Path } from "./check.ts";
import { compileSchema } from "./validator.ts";

/** As `checkSchema`, with `default` allowed on the root's properties, where it must fit the property's own schema. */
export function checkInputSchema(schema: Json, path: Path): Problem[] {
  const problems = checkSchema(schema, path, { defaults: true });
  // A default that its own schema refuses would fail every run that leaves the input out.
  return problems.length > 0 ? problems : defaultsOf(schema).flatMap((entry) => defaultProblem(entry, path));
}

/** Arguments with the defaults of absent top-level inputs filled in; anything but an object comes back as it is. */
export function applyDefaults(schema: JsonObject, args: Json): Json {
  if (!isObject(args)) return args;
  const absent = defaultsOf(schema).filter(({ name }) => !Object.hasOwn(args, name));
  if (absent.length === 0) return args;
  const entries = [...Object.entries(args), ...absent.map(({ name, value }) => [name, value] as const)];
  const filled: Record<string, Json> = {};
  for (const [name, value] of entries.sort(([a], [b]) => (a < b ? -1 : 1))) setOwn(filled, name, value);
  return filled;
}

interface Default {
  readonly name: string;
  readonly value: Json;
  readonly schema: JsonObject;
}

function defaultsOf(schema: Json): Default[] {
  const properties = isObject(schema) ? getOwn(schema, "properties") : undefined;
  if (!isObject(properties)) return [];
  return Object.entries(properties).flatMap(([name, property]) => {
    const value = isObject(property) ? getOwn(property, "default") : undefined;
    return value === undefined ? [] : [{ name, value, schema: property as JsonObject }];
  });
}

function defaultProblem({ name, value, schema }: Default, path: Path): Problem[] {
  const result = compileSchema(schema).validate(value);
  if (result.ok) return [];
  const message = `Cannot use this default of "${name}": it ${result.message}; give a value that fits the input's own schema`;
  return [{ path: [...path, "properties", name, "default"], code: "schema_default", message, severity: "error" }];
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
