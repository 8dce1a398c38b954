/** What `Holdfast.tools()` gives, as its users see it: one tool, its calls, and the shapes that other loops take. */
import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import type { Json, JsonObject } from "../domain/json.ts";
import type { PublicEvent, PublicRun } from "./api.ts";
import type { RunOutcome } from "./run-outcome.ts";

export interface ToolSetOptions {
  /** Session that owns the runs; default the process's own. */
  readonly session?: string;
  /** Only what reads: starting, cancelling and restarting are refused, and there are no typed tools. */
  readonly readOnly?: boolean;
  /** Who calls, for the journal: `mcp:CLIENT`. Default `model`. */
  readonly caller?: string;
  /** False: runs are left queued for a worker process. Default true. */
  readonly drives?: boolean;
  /** Longest wait of a typed tool for its run, ms, 0..50,000; then it answers with the run's id. Default 50,000. */
  readonly maxWaitMs?: number;
}

/** Hints for whoever schedules or shows a tool, as MCP names them. */
export interface ToolAnnotations {
  readonly readOnlyHint: boolean;
  readonly destructiveHint: boolean;
  readonly idempotentHint: boolean;
  readonly openWorldHint: boolean;
}

export interface ToolCallOptions {
  /** Ends the waiting, never the run. */
  readonly signal?: AbortSignal;
  /** Told of each durable event of the run that is waited for, from `since` on; default from now on. */
  readonly since?: number;
  readonly onEvent?: (event: PublicEvent) => void;
}

export interface WorkflowTool {
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  /** JSON Schema; the root is an object. */
  readonly inputSchema: JsonObject;
  readonly outputSchema?: JsonObject;
  readonly annotations: ToolAnnotations;
  /** Present for typed tools: the workflow that it starts. */
  readonly workflow?: { readonly workflow_id: string; readonly revision: number };
  /** RP-82: how this very call may be scheduled. */
  classify(args: unknown): { readonly read_only: boolean; readonly parallel_safe: boolean };
  /**
   * Answers JSON: the public projection, or for a typed tool the run's output, or `{run_id, status, sentence}` when it
   * has not ended in time.
   * @throws ToolCallError with a text that is safe for a model (RP-83)
   */
  execute(args: unknown, options?: ToolCallOptions): Promise<Json>;
}

/** A tool as the AI SDK takes it: `tool({description, inputSchema: jsonSchema(…), execute})`. */
export interface AiSdkTool {
  readonly description: string;
  readonly inputSchema: AiSdkSchema;
  execute(input: unknown, options?: { readonly abortSignal?: AbortSignal | undefined }): Promise<Json>;
}

/** The AI SDK's own schema to the program, a Standard Schema to the type checker, so that neither has to be imported. */
export type AiSdkSchema = StandardSchemaV1<unknown, unknown> &
  StandardJSONSchemaV1<unknown, unknown> & { readonly jsonSchema: JsonObject };

export interface FunctionTool {
  readonly type: "function";
  readonly function: { readonly name: string; readonly description: string; readonly parameters: JsonObject };
}

export interface WorkflowTools {
  /** Looks at the catalog again. */
  list(): readonly WorkflowTool[];
  find(name: string): WorkflowTool | undefined;
  /** @param args an object, or its JSON text as OpenAI-style calls carry it. @throws ToolCallError */
  call(name: string, args: unknown, options?: ToolCallOptions): Promise<Json>;
  /** For `generateText({tools})` and the like. */
  aiSdk(): { readonly [name: string]: AiSdkTool };
  /** For chat APIs that take `{type: "function", function: {…}}`. */
  functions(): readonly FunctionTool[];
  /** Starts the run of a typed tool and answers at once with its id. @throws ToolCallError */
  begin(tool: WorkflowTool, args: unknown): Promise<string>;
  /** Waits at most so long for the run to end or to stand still. @throws ToolCallError */
  wait(runId: string, timeoutMs: number, options?: ToolCallOptions): Promise<RunOutcome>;
  /** Where the run stands; its output only if this session started it by a tool. @throws ToolCallError */
  outcome(runId: string): Promise<RunOutcome>;
  /** @throws ToolCallError */
  cancel(runId: string): Promise<PublicRun>;
}

/** How the AI SDK knows its schemas; it would change a Standard Schema on the way (RP-80 is kept byte for byte). */
const AI_SDK_SCHEMA = Symbol.for("vercel.ai.schema");

/** A schema that the AI SDK takes for its own, unchanged. */
export function aiSdkSchema(schema: JsonObject): AiSdkSchema {
  const convert = (): Record<string, unknown> => ({ ...schema });
  const own = { [AI_SDK_SCHEMA]: true, _type: undefined, jsonSchema: schema, validate: undefined };
  return {
    ...own,
    // The tool itself refuses what does not fit, in words that a model can use.
    "~standard": {
      version: 1,
      vendor: "holdfast",
      validate: (value) => ({ value }),
      jsonSchema: { input: convert, output: convert },
    },
  };
}
