/**
 * `defineTool`: how code and configuration describe a tool. What it returns checks its input and output itself, so
 * that calling it in a test is the same as calling it from a run.
 */
import { HoldfastError } from "../domain/errors.ts";
import { type Json, JsonError, type JsonObject, normalizeJson } from "../domain/json.ts";
import { nearest } from "../domain/nearest.ts";
import { secretHandles } from "../domain/plan/index.ts";
import type { SideEffect } from "../domain/run.ts";
import type { OwnerAnswer, OwnerPlan, Posture } from "../ports/index.ts";
import { compileJsonSchema } from "./json-schema.ts";
import {
  type Checked,
  isStandardSchema,
  type ParsedOf,
  type RawOf,
  type SchemaIssue,
  type SchemaLike,
  toJsonSchema,
  validateStandard,
} from "./standard-schema.ts";
import { ToolError } from "./tool-error.ts";

/** What a tool is told besides its input. */
export interface ToolContext {
  /** Idempotency key: the same on every redispatch of this attempt. Hand it on to whoever does the work. */
  readonly dispatch_id: string;
  /** Aborted when the step is cancelled or timed out: stop, and throw what the signal throws. */
  readonly signal: AbortSignal;
  /** Real path of the session's workspace. */
  readonly workspace: string;
  readonly run_id: string;
  readonly step_id: string;
  readonly attempt: number;
  /** How often this attempt was sent before; 0 the first time. */
  readonly redispatch: number;
  readonly posture: Posture;
  /** Stores proof that the other side accepted the work; durable when it resolves. `observe` gets it back. */
  readonly receipt: (receipt: Json) => Promise<void>;
  /**
   * Says in which agent session the work goes on, where it does; durable when it resolves, and shown with the attempt.
   * `shared`: a parent's session, which other attempts use too; any other belongs to this attempt alone (GD-42).
   */
  readonly link: (session: { readonly session_id: string; readonly shared?: boolean }) => Promise<void>;
  /** What `plan` made of this dispatch: the same however often it is sent. Absent for a tool without `plan`. */
  readonly intent?: Json;
}

export interface LookupQuery<Raw> {
  readonly dispatch_id: string;
  readonly input: Raw;
  readonly signal: AbortSignal;
}

/** As for a lookup; a secret in `input` is still its handle, `{"$secret": "name"}`. */
export type PlanQuery<Raw> = LookupQuery<Raw>;

export interface ObserveQuery {
  readonly dispatch_id: string;
  readonly receipt: Json;
  readonly signal: AbortSignal;
}

export interface CancelQuery {
  readonly dispatch_id: string;
  /** Absent when none was given before its caller was gone. */
  readonly receipt?: Json;
}

type OutputRaw<O> = O extends SchemaLike ? RawOf<O> : unknown;
type OutputParsed<O> = O extends SchemaLike ? ParsedOf<O> : Json;

export interface ToolOptions<I extends SchemaLike, O extends SchemaLike | undefined> {
  /** A letter, then letters, digits, `_` or `-`; at most 64 characters. */
  readonly name: string;
  /** For people and models: what it does and when to use it. */
  readonly description: string;
  readonly input: I;
  readonly output?: O;
  /** Left out: `mutating`, so it is never repeated without proof (R-13). */
  readonly sideEffect?: SideEffect;
  /** `read`, `write`, `shell`, `network`, `agent` or your own. Left out: `read` for a read_only tool, else `write`. */
  readonly capabilities?: readonly string[];
  /** Fails by throwing `ToolError`; anything else that a mutating tool throws is an unknown outcome (R-8). */
  run(input: ParsedOf<I>, context: ToolContext): OutputRaw<O> | Promise<OutputRaw<O>>;
  /**
   * What became of this dispatch? Answer `absent` only if that id is from now on refused or deduplicated (R-10):
   * it will be sent again.
   */
  lookup?(query: LookupQuery<RawOf<I>>): OwnerAnswer | Promise<OwnerAnswer>;
  /** What became of the work with this receipt? */
  observe?(query: ObserveQuery): OwnerAnswer | Promise<OwnerAnswer>;
  /**
   * What will be done, decided without any side effect before anything is written (GD-13). `{type: "ready", intent}`
   * is stored with the attempt and handed to `run` as `context.intent`; `{type: "busy", waits_for?, free?}` leaves the
   * step queued, and it is asked again when `free` resolves or after a while. Throw `ToolError` to refuse; whatever
   * else it throws is a failure that may pass, since nothing was accepted.
   */
  plan?(query: PlanQuery<RawOf<I>>): OwnerPlan | Promise<OwnerPlan>;
  /**
   * Stop this work: nobody here is in a call with it, it is only observed or looked up. It must bear to be repeated,
   * and to be asked of work that has ended; what became of it is still for `observe` or `lookup` to say (GD-39, GD-40).
   */
  cancel?(query: CancelQuery): void | Promise<void>;
}

/** A tool of any types, as the registry keeps it. */
export interface AnyTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema?: JsonObject;
  readonly sideEffect: SideEffect;
  readonly capabilities: readonly string[];
  /**
   * Checks the input, works, checks the output and answers it in normal form.
   * @throws ToolError `bad_arguments` or `bad_output` with the path; else what the tool threw
   */
  run(input: unknown, context: ToolContext): Promise<unknown>;
  lookup?(query: LookupQuery<unknown>): Promise<OwnerAnswer>;
  observe?(query: ObserveQuery): Promise<OwnerAnswer>;
  /** @throws ToolError `bad_arguments` for an input that `run` would refuse; else what the tool threw */
  plan?(query: PlanQuery<unknown>): Promise<OwnerPlan>;
  cancel?(query: CancelQuery): Promise<void>;
}

export interface Tool<I extends SchemaLike = SchemaLike, O extends SchemaLike | undefined = undefined> extends AnyTool {
  run(input: RawOf<I>, context: ToolContext): Promise<OutputParsed<O>>;
}

const BRAND = Symbol.for("holdfast.tool");
const NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
/** Names that agents and MCP clients already see for something else. */
const RESERVED = /^(workflow_run|workflow__.*|finish_and_send|update_plan)$/;
const SIDE_EFFECTS: readonly SideEffect[] = ["read_only", "idempotent", "mutating"];
const KEYS: readonly (keyof ToolOptions<SchemaLike, undefined>)[] = [
  "name",
  "description",
  "input",
  "output",
  "sideEffect",
  "capabilities",
  "run",
  "lookup",
  "observe",
  "plan",
  "cancel",
];
const FUNCTIONS = ["run", "lookup", "observe", "plan", "cancel"] as const;
const MAX_DESCRIPTION = 16_384;
const MAX_CAPABILITIES = 32;

/** True for what `defineTool` of any copy of the package returned. */
export function isTool(value: unknown): value is AnyTool {
  return typeof value === "object" && value !== null && BRAND in value;
}

/**
 * Describes a tool. `input` and `output` are any Standard Schema or a JSON Schema; `run` and the result are typed
 * from them.
 * @throws HoldfastError `usage` for an unknown key, a wrong name or a schema that has no JSON form
 */
export function defineTool<const I extends SchemaLike, const O extends SchemaLike | undefined = undefined>(
  options: ToolOptions<I, O>,
): Tool<I, O> {
  checkOptions(options);
  const { name } = options;
  const input = checkerOf(options.input, "input", name);
  const output = options.output === undefined ? undefined : checkerOf(options.output, "output", name);
  const sideEffect = options.sideEffect ?? "mutating";
  const tool: AnyTool = {
    name,
    description: options.description,
    inputSchema: input.schema,
    ...(output === undefined ? {} : { outputSchema: output.schema }),
    sideEffect,
    capabilities: [...new Set(options.capabilities ?? [sideEffect === "read_only" ? "read" : "write"])].sort(),
    async run(raw, context) {
      const parsed = (await readInput(name, input, raw)) as ParsedOf<I>;
      return readOutput(name, output, await options.run(parsed, context));
    },
  };
  const { lookup, observe, plan, cancel } = options;
  if (lookup !== undefined) tool.lookup = async (query) => lookup.call(options, query as LookupQuery<RawOf<I>>);
  if (observe !== undefined) tool.observe = async (query) => observe.call(options, query);
  if (plan !== undefined)
    tool.plan = async (query) => {
      // With a secret still a handle only `run` can tell whether the input fits.
      if (secretHandles(query.input as Json).length === 0) await readInput(name, input, query.input);
      return plan.call(options, query as PlanQuery<RawOf<I>>);
    };
  if (cancel !== undefined) tool.cancel = async (query) => cancel.call(options, query);
  Object.defineProperty(tool, BRAND, { value: true });
  return Object.freeze(tool) as Tool<I, O>;
}

interface Checker {
  readonly schema: JsonObject;
  check(value: unknown): Checked<unknown> | Promise<Checked<unknown>>;
}

function checkerOf(schema: SchemaLike, side: "input" | "output", name: string): Checker {
  if (typeof schema !== "object" && typeof schema !== "function")
    refuse(name, `its ${side} is ${schema === undefined ? "missing" : typeof schema}; give a schema`);
  const json = toJsonSchema(schema, side);
  if (isStandardSchema(schema)) return { schema: json, check: (value) => validateStandard(schema, value) };
  const check = compileJsonSchema(json, `the ${side} schema of the tool "${name}"`);
  return {
    schema: json,
    check(value) {
      const normal = normalOf(value);
      if (!normal.ok) return normal;
      const issues = check(normal.value);
      return issues.length === 0 ? normal : { ok: false, issues };
    },
  };
}

function normalOf(value: unknown): Checked<Json> {
  try {
    return { ok: true, value: normalizeJson(value) };
  } catch (error) {
    if (error instanceof JsonError) return { ok: false, issues: [{ path: error.path, message: error.reason }] };
    throw error;
  }
}

async function readInput(name: string, input: Checker, raw: unknown): Promise<unknown> {
  const parsed = await input.check(raw);
  if (!parsed.ok) throw new ToolError(refusal(name, "input", parsed.issues), { kind: "bad_arguments" });
  return parsed.value;
}

/** A tool that returns nothing answers `null`; an `undefined` inside a value is refused with its path (C22). */
async function readOutput(name: string, output: Checker | undefined, raw: unknown): Promise<Json> {
  const value = raw === undefined ? null : raw;
  const checked = output === undefined ? { ok: true as const, value } : await output.check(value);
  const normal = checked.ok ? normalOf(checked.value) : checked;
  if (!normal.ok) throw new ToolError(refusal(name, "output", normal.issues), { kind: "bad_output", retryable: false });
  return normal.value;
}

function refusal(name: string, side: "input" | "output", issues: readonly SchemaIssue[]): string {
  const list = issues.map((issue) => `${issue.path}: ${issue.message}`).join("; ");
  return side === "input"
    ? `Cannot run the tool "${name}": its input does not fit (${list}); correct the arguments`
    : `Cannot use what the tool "${name}" returned: ${list}; correct the tool`;
}

function checkOptions(options: object): void {
  const given = options as Record<string, unknown>;
  const name = given["name"];
  if (typeof name !== "string") refuse(String(name), "its name is not text; give `name`");
  for (const key of Object.keys(given)) {
    if (KEYS.some((known) => known === key)) continue;
    const hint = nearest(key, KEYS);
    refuse(
      name,
      `"${key}" is not an option; ${hint === undefined ? `use ${KEYS.join(", ")}` : `did you mean "${hint}"?`}`,
    );
  }
  if (!NAME.test(name))
    refuse(name, "a name is a letter, then letters, digits, _ or -, at most 64 characters; choose another");
  if (RESERVED.test(name)) refuse(name, "the name is Holdfast's own; choose another");
  checkTexts(name, given);
  for (const key of FUNCTIONS) {
    if (key !== "run" && given[key] === undefined) continue;
    if (typeof given[key] !== "function") refuse(name, `${key} is not a function; give one`);
  }
}

function checkTexts(name: string, given: Record<string, unknown>): void {
  const { description, sideEffect, capabilities } = given;
  if (typeof description !== "string" || description.trim() === "" || description.length > MAX_DESCRIPTION)
    refuse(name, `its description is not text of 1 to ${MAX_DESCRIPTION} characters; say what the tool does`);
  if (sideEffect !== undefined && !SIDE_EFFECTS.some((known) => known === sideEffect))
    refuse(name, `sideEffect is ${JSON.stringify(sideEffect)}; use ${SIDE_EFFECTS.join(", ")}`);
  if (capabilities === undefined) return;
  if (!Array.isArray(capabilities) || capabilities.length > MAX_CAPABILITIES)
    refuse(name, `capabilities is not a list of at most ${MAX_CAPABILITIES} names; give names such as "network"`);
  for (const item of capabilities as readonly unknown[])
    if (typeof item !== "string" || item.trim() === "" || item.length > 128)
      refuse(name, `the capability ${JSON.stringify(item)} is not a name; give text of 1 to 128 characters`);
}

function refuse(name: string, why: string): never {
  throw new HoldfastError("usage", `Cannot define the tool "${name}": ${why}`);
}
