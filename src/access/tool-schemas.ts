/** The schemas of typed tools as they are published: what a workflow declares, in a form that every client takes. */
import type { Json, JsonObject } from "../domain/json.ts";

/** What a typed tool answers while its run goes on. */
const PENDING: JsonObject = {
  type: "object",
  required: ["run_id", "status", "sentence"],
  properties: { run_id: { type: "string" }, status: { type: "string" }, sentence: { type: "string" } },
  additionalProperties: false,
};

/** What stands where a secret is wanted (RP-2). */
const SECRET_HANDLE: JsonObject = {
  type: "object",
  required: ["$secret"],
  properties: { $secret: { type: "string", description: "Name of a configured secret." } },
  additionalProperties: false,
};

/** Without Holdfast's own keywords, which a strict validator of a client would refuse. */
export function publishedSchema(schema: JsonObject): JsonObject {
  return strip(schema, false) as JsonObject;
}

function strip(value: Json, isNames: boolean): Json {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return (value as readonly Json[]).map((item) => strip(item, false));
  if (!isNames && (value as JsonObject)["x-holdfast-secret"] === true) return SECRET_HANDLE;
  const entries = Object.entries(value as JsonObject);
  const kept = isNames ? entries : entries.filter(([key]) => !key.startsWith("x-holdfast-"));
  // `enum`, `const` and `default` hold values, not schemas: nothing in them is a keyword.
  return Object.fromEntries(
    kept.map(([key, item]) => [
      key,
      !isNames && (key === "enum" || key === "const" || key === "default")
        ? item
        : strip(item, !isNames && key === "properties"),
    ]),
  );
}

/**
 * The output, or where the run stands when it has not ended in time: clients check answers against this. Nothing is
 * published for a workflow that declares no output: older clients would then get it wrapped.
 */
export function resultSchema(output: JsonObject | undefined): JsonObject | undefined {
  if (output === undefined) return undefined;
  const published = publishedSchema(output);
  return { ...(published.type === "object" ? { type: "object" } : {}), anyOf: [published, PENDING] };
}
