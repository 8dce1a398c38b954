/** Tool results as MCP frames them: text for the model, the same as structured content, and errors by RP-83. */
import type { CallToolResult } from "@modelcontextprotocol/server";
import type { RunOutcome, ToolCallError } from "../access/index.ts";
import type { Json, JsonObject } from "../domain/json.ts";

/** A run's outcome as the result of the typed tool that started it. */
export function outcomeResult(outcome: RunOutcome): CallToolResult {
  const { run, sentence } = outcome;
  if (run.status === "succeeded" && outcome.output !== undefined) return result(outcome.output);
  const standing = { run_id: run.run_id, status: run.status, sentence };
  if (run.status === "failed" || run.status === "cancelled") return { ...result(standing, sentence), isError: true };
  return result(standing, `${sentence} The run is ${run.run_id}; call workflow_wait with it to go on waiting.`);
}

/**
 * The text is the value itself. Structured content is always an object in the answers of `workflow_run`, because
 * older revisions of the protocol know nothing else (interfaces §3).
 */
export function result(value: unknown, text?: string): CallToolResult {
  return {
    content: [{ type: "text", text: text ?? JSON.stringify(value) }],
    structuredContent: value as NonNullable<CallToolResult["structuredContent"]>,
  };
}

/** `workflow_run` answers lists for `list` and `events`. */
export function runResult(value: Json, action: unknown): CallToolResult {
  const wrapped: JsonObject | Json = Array.isArray(value)
    ? { [action === "events" ? "events" : "runs"]: value }
    : value;
  return result(wrapped, JSON.stringify(value));
}

/** The kind and code are for programs; the text is all that a model needs. */
export function errorResult(error: ToolCallError): CallToolResult {
  return {
    content: [{ type: "text", text: error.message }],
    isError: true,
    _meta: { "holdfast/error": { kind: error.kind, code: error.code } },
  };
}
