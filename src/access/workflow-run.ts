/**
 * The `workflow_run` tool (RP-80 … RP-83): one flat schema for every model provider, its own fields for each action,
 * and results that are the public projection. Also the typed tools and `workflow_wait` read their calls here.
 */
import { type Json, JsonError, type JsonObject, normalizeJson } from "../domain/json.ts";
import type { Budgets } from "../domain/run.ts";
import { BUDGET_FIELDS } from "../domain/run.ts";
import { invalidCall, ToolCallError, unknownField } from "./tool-errors.ts";

export const WORKFLOW_RUN = "workflow_run";
export const WORKFLOW_WAIT = "workflow_wait";

/** Longest bounded wait of a call, ms: below the usual 60 s after which clients give up. */
export const MAX_WAIT_MS = 50_000;
const DEFAULT_WAIT_MS = 30_000;
/** Largest call, in bytes of its JSON text. */
const MAX_CALL_BYTES = 1_048_576;
const MAX_ID = 256;

/** RP-80, byte for byte: no root combinators, so that every provider takes it as it is. */
export const WORKFLOW_RUN_SCHEMA = {
  type: "object",
  properties: {
    action: { type: "string", enum: ["start", "list", "get", "events", "cancel", "restart"] },
    workflow_id: { type: "string", minLength: 1 },
    revision: { type: "integer", minimum: 1 },
    args: { type: "object", default: {} },
    budget: {
      type: "object",
      properties: {
        max_concurrency: { type: "integer", minimum: 1 },
        max_agents: { type: "integer", minimum: 0 },
        max_steps: { type: "integer", minimum: 1 },
        max_retries: { type: "integer", minimum: 0 },
        max_nesting_depth: { type: "integer", minimum: 1 },
        wall_time_ms: { type: "integer", minimum: 1 },
        max_tokens: { type: "integer", minimum: 0 },
        max_cost_micros: { type: "integer", minimum: 0 },
      },
      required: ["max_concurrency", "max_agents", "max_steps", "max_retries", "max_nesting_depth", "wall_time_ms"],
      additionalProperties: false,
    },
    run_id: { type: "string" },
    since: { type: "integer", minimum: 0 },
  },
  required: ["action"],
  additionalProperties: false,
} as const satisfies JsonObject;

export const WORKFLOW_WAIT_SCHEMA = {
  type: "object",
  properties: {
    run_id: { type: "string", description: "The run to wait for." },
    timeout_ms: {
      type: "integer",
      minimum: 0,
      maximum: MAX_WAIT_MS,
      default: DEFAULT_WAIT_MS,
      description: "How long to wait at most, in milliseconds.",
    },
  },
  required: ["run_id"],
  additionalProperties: false,
} as const satisfies JsonObject;

export const WORKFLOW_RUN_DESCRIPTION =
  "Start and look after durable workflow runs. Each action takes only its own fields: start: workflow_id, revision, " +
  "args?, budget?; list: none; get, cancel, restart: run_id; events: run_id, since? (events after that sequence). " +
  "A started run goes on by itself; follow it with get, events or workflow_wait. Runs that wait for an approval or a " +
  "repair are decided by a person, never by a tool.";

export type WorkflowRunCall =
  | {
      readonly action: "start";
      readonly workflow_id: string;
      readonly revision: number;
      readonly args: JsonObject;
      readonly budget?: Budgets;
    }
  | { readonly action: "list" }
  | { readonly action: "get" | "cancel" | "restart"; readonly run_id: string }
  | { readonly action: "events"; readonly run_id: string; readonly since: number };

type Action = WorkflowRunCall["action"];

/** RP-81: fields of each action, those that it needs first. */
const FIELDS: {
  readonly [action in Action]: { readonly needs: readonly string[]; readonly takes: readonly string[] };
} = {
  start: { needs: ["workflow_id", "revision"], takes: ["args", "budget"] },
  list: { needs: [], takes: [] },
  get: { needs: ["run_id"], takes: [] },
  cancel: { needs: ["run_id"], takes: [] },
  restart: { needs: ["run_id"], takes: [] },
  events: { needs: ["run_id"], takes: ["since"] },
};
const READING: ReadonlySet<unknown> = new Set<Action>(["get", "list", "events"]);

/** RP-82: how a call may be scheduled; also one with no or an unknown action counts as mutating and serial. */
export function classifyWorkflowRun(call: unknown): { readonly read_only: boolean; readonly parallel_safe: boolean } {
  const action: unknown =
    typeof call === "object" && call !== null && Object.hasOwn(call, "action") ? Object(call).action : undefined;
  const reads = READING.has(action);
  return { read_only: reads, parallel_safe: reads };
}

/** @throws ToolCallError naming the first field that is wrong */
export function parseWorkflowRun(raw: unknown): WorkflowRunCall {
  const call = readCall(raw);
  const { action } = call;
  if (typeof action !== "string" || !Object.hasOwn(FIELDS, action))
    throw invalidCall(`action is one of ${Object.keys(FIELDS).join(", ")}`);
  const known = action as Action;
  const { needs, takes } = FIELDS[known];
  checkFields(call, known, needs, ["action", ...needs, ...takes]);
  if (known === "list") return { action: known };
  if (known === "start")
    return {
      action: known,
      workflow_id: readWorkflowId(call.workflow_id),
      revision: readWhole(call, "revision", 1),
      args: readObject(call, "args") ?? {},
      ...readBudget(call),
    };
  const run_id = readText(call, "run_id");
  if (known === "events")
    return { action: known, run_id, since: call.since === undefined ? 0 : readWhole(call, "since", 0) };
  return { action: known, run_id };
}

export function parseWorkflowWait(raw: unknown): { readonly run_id: string; readonly timeout_ms: number } {
  const call = readCall(raw);
  checkFields(call, WORKFLOW_WAIT, ["run_id"], ["run_id", "timeout_ms"]);
  const timeout_ms = call.timeout_ms === undefined ? DEFAULT_WAIT_MS : readWhole(call, "timeout_ms", 0, MAX_WAIT_MS);
  return { run_id: readText(call, "run_id"), timeout_ms };
}

/** The arguments of any of the tools, in normal form; models of some providers send them as text. */
export function readCall(raw: unknown): JsonObject {
  let value: Json;
  try {
    if (typeof raw === "string" && raw.length > MAX_CALL_BYTES)
      throw new ToolCallError(
        "InvalidArguments",
        "too_large",
        "workflow input is invalid: the arguments are too large",
      );
    value = normalizeJson(typeof raw === "string" ? (JSON.parse(raw) as unknown) : (raw ?? {}));
  } catch (error) {
    if (ToolCallError.is(error)) throw error;
    if (error instanceof JsonError || error instanceof SyntaxError) throw invalidCall("the arguments are not JSON");
    throw error;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw invalidCall("the arguments are no object");
  if (Buffer.byteLength(JSON.stringify(value)) > MAX_CALL_BYTES)
    throw new ToolCallError("InvalidArguments", "too_large", "workflow input is invalid: the arguments are too large");
  return value as JsonObject;
}

function checkFields(call: JsonObject, act: string, needs: readonly string[], known: readonly string[]): void {
  for (const name of Object.keys(call))
    if (!known.includes(name))
      throw unknownField(
        name,
        act,
        known.filter((field) => field !== "action"),
      );
  for (const name of needs)
    if (!Object.hasOwn(call, name)) throw invalidCall(`${name} is missing; ${act} needs ${needs.join(", ")}`);
}

function readText(call: JsonObject, name: string): string {
  const value = call[name];
  if (typeof value !== "string" || value === "" || value.length > MAX_ID)
    throw invalidCall(`${name} is text of 1 to ${MAX_ID} characters`);
  return value;
}

/** A model names what the catalog has by its id: a path or a hash never reaches the catalog from here. */
function readWorkflowId(value: Json | undefined): string {
  if (typeof value !== "string" || value === "" || value.length > MAX_ID)
    throw invalidCall(`workflow_id is text of 1 to ${MAX_ID} characters`);
  return value;
}

function readWhole(call: JsonObject, name: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
  const value = call[name];
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= least && value <= most) return value;
  throw invalidCall(
    `${name} is a whole number ${most === Number.MAX_SAFE_INTEGER ? `from ${least}` : `from ${least} to ${most}`}`,
  );
}

function readObject(call: JsonObject, name: string): JsonObject | undefined {
  const value = call[name];
  if (value === undefined) return undefined;
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalidCall(`${name} is an object`);
  return value as JsonObject;
}

/** RP-23: all six numeric limits, tokens and cost as one likes. */
function readBudget(call: JsonObject): { readonly budget?: Budgets } {
  const given = readObject(call, "budget");
  if (given === undefined) return {};
  const { properties, required } = WORKFLOW_RUN_SCHEMA.properties.budget;
  checkFields(given, "budget", required, BUDGET_FIELDS);
  for (const field of BUDGET_FIELDS)
    if (Object.hasOwn(given, field)) readWhole(given, field, properties[field].minimum);
  return { budget: given as unknown as Budgets };
}
