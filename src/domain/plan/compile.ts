/**
 * From a document to a definition (RP-1): checks everything that can be known before a run, in the order of RP-1,
 * fills every default, and strips the header. All faults are collected; stages whose input is broken are left out.
 */
import type { RetryPolicy } from "../backoff.ts";
import { getOwn, type Json, JsonError, type JsonObject, MAX_JSON_DEPTH, normalizeJson } from "../json.ts";
import { checkSchema, didYouMean, type Path } from "../schema/index.ts";
import { type Bindings, checkBindings } from "./bindings.ts";
import { findCredential } from "./credentials.ts";
import { cyclicReferences } from "./cycles.ts";
import {
  DEFAULT_INVOCATION_POLICY,
  type Definition,
  type Header,
  type InvocationPolicy,
  type Plan,
  type Problem,
  type Schema,
  type Step,
  type ValueRef,
} from "./definition.ts";
import { isObject, Report, readKey, readPlan, readShape, readTagged, readUnknownKeys } from "./read.ts";
import { childPaths, nodeId } from "./references.ts";
import { secretHandles } from "./secrets.ts";
import {
  BUDGET_SHAPE,
  HEADER_SHAPE,
  PLAN_LIMITS,
  ROOT_SHAPE,
  type Shape,
  STEP_COMMON,
  STEP_SHAPES,
  TYPED_ID,
  TYPED_ID_LENGTH,
} from "./shape.ts";
import { warnOfToolArgs } from "./tool-args.ts";

/** What the place where a definition is published or started knows of tools and agents. */
export interface CompileEnv {
  /** Schemas that a tool declares; `undefined`: not known here, which is for preflight to judge. */
  readonly tool?: (name: string) => { readonly input_schema?: Schema; readonly output_schema?: Schema } | undefined;
  readonly agent?: (name: string) => { readonly output_schema?: Schema } | undefined;
  /** Highest `max_concurrency`: 64 for untrusted workspaces, else the configuration's (RP-1, R-15). */
  readonly maxConcurrency: number;
}

export interface Compiled {
  /** Present exactly when no problem is an error. */
  readonly definition?: Definition;
  readonly header: Header;
  readonly problems: readonly Problem[];
  /** What each reference will read; for the nested input contract of RP-13. */
  readonly values?: Bindings["values"];
}

/** Credential material is refused in preflight and not as a fault of the definition (RP-7). */
export function isPreflightProblem(problem: Problem): boolean {
  return problem.code === "credential";
}

/** Compiles a document. Never throws for anything that the document holds; a compiled definition compiles to itself. */
export function compilePlan(document: Json, env: CompileEnv): Compiled {
  const report = new Report();
  const root = enter(document, report);
  if (root === undefined)
    return { header: { invocation_policy: DEFAULT_INVOCATION_POLICY }, problems: report.problems };
  readUnknownKeys(root, "a workflow", ROOT_SHAPE, [], report);
  const key = (name: string) => readKey(root, "the workflow", name, ROOT_SHAPE[name] as Shape[string], [], report);
  const id = key("id");
  if (typeof id === "string") checkId(id, report);
  const revision = key("revision");
  const header = readHeader(root, report);
  const budgets = readBudgets(root, env, report);
  const [input_schema, output_schema] = [key("input_schema"), key("output_schema")];
  const steps = readSteps(root, env, report);
  const plan = readPlacement(root, steps, report);
  const values =
    plan === undefined || input_schema === undefined
      ? undefined
      : readBindings(plan, input_schema as Schema, steps, report);
  const definition = {
    ...{ workflow_schema: 1, id, revision, input_schema, steps: steps.list.map(({ step }) => step), plan, budgets },
    ...(output_schema === undefined ? {} : { output_schema }),
  };
  screen(root, report);
  if (report.errors > 0) return { header, problems: report.problems };
  // Every part was read by its table, so that the whole has the type that the tables describe.
  return {
    definition: definition as unknown as Definition,
    header,
    problems: report.problems,
    ...(values === undefined ? {} : { values }),
  };
}

/** The document in normal form, or nothing when it cannot be a definition of this version. */
function enter(document: Json, report: Report): JsonObject | undefined {
  if (!isWithin(document, PLAN_LIMITS.nodes)) {
    return report.error(
      [],
      "size",
      `Cannot compile: the document has more than ${PLAN_LIMITS.nodes} values; make it smaller`,
    );
  }
  let value: Json;
  try {
    value = normalizeJson(document);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return report.error([], "json", `Cannot compile: at ${error.path}, ${error.reason}; correct the value`);
  }
  if (!isObject(value))
    return report.error([], "type", "Cannot compile: the document is not an object; write the workflow's keys");
  const version = getOwn(value, "workflow_schema");
  if (version === 1) return value;
  if (version === undefined)
    return report.error([], "missing", "Cannot compile: workflow_schema is missing; write workflow_schema: 1");
  const shown = typeof version === "number" ? String(version) : "that is not a number";
  return report.error(
    ["workflow_schema"],
    "unsupported_schema",
    `Cannot compile: unsupported schema ${shown}; write workflow_schema: 1`,
  );
}

/**
 * Counts shared parts as often as they stand in the text, so that chained aliases cannot expand without end (C38).
 * What is deeper than JSON may be is not counted: normalising names its place.
 */
function isWithin(document: Json, limit: number): boolean {
  let left = limit;
  const visit = (value: Json, depth: number): boolean => {
    if (--left < 0) return false;
    if (typeof value !== "object" || value === null || depth > MAX_JSON_DEPTH) return true;
    if (Array.isArray(value)) return value.every((item: Json) => visit(item, depth + 1));
    for (const key in value) if (!visit((value as JsonObject)[key] as Json, depth + 1)) return false;
    return true;
  };
  return visit(document, 0);
}

function checkId(id: string, report: Report): void {
  if (TYPED_ID.test(id) && id.length <= TYPED_ID_LENGTH) return;
  const message =
    `Cannot offer "${id}" as a tool of its own: only lower-case words joined by - or _, at most ${TYPED_ID_LENGTH} characters, ` +
    "can be tool names; rename it, or start it by id";
  report.warn(["id"], "id", message);
}

function readHeader(root: JsonObject, report: Report): Header {
  const header: Record<string, Json> = {};
  for (const [name, field] of Object.entries(HEADER_SHAPE)) {
    const value = readKey(root, "the workflow", name, field, [], report);
    if (value !== undefined) header[name] = value;
  }
  const policy = (header.invocation_policy ?? { ...DEFAULT_INVOCATION_POLICY }) as unknown as InvocationPolicy;
  return { ...header, invocation_policy: policy };
}

function readBudgets(root: JsonObject, env: CompileEnv, report: Report): JsonObject | undefined {
  const given = getOwn(root, "budgets") ?? {};
  const path = ["budgets"];
  const read = readShape(given, "budgets", BUDGET_SHAPE, path, report);
  if (read === undefined) return undefined;
  const { max_concurrency, max_agents, max_steps } = read;
  if (typeof max_concurrency === "number" && max_concurrency > env.maxConcurrency) {
    report.error(
      [...path, "max_concurrency"],
      "range",
      `Cannot use this max_concurrency: it must be from 1 to ${env.maxConcurrency}; lower it`,
    );
  }
  if (typeof max_agents !== "number" || typeof max_steps !== "number" || max_agents <= max_steps) return read;
  // A default must not make a plan wrong that never spoke of agents.
  if (!Object.hasOwn(given as JsonObject, "max_agents")) return { ...read, max_agents: max_steps };
  report.error(
    [...path, "max_agents"],
    "range",
    `Cannot use this max_agents: it is above max_steps, ${max_steps}; lower it or raise max_steps`,
  );
  return read;
}

interface Steps {
  readonly byId: ReadonlyMap<string, { readonly step: Step; readonly path: Path }>;
  readonly list: readonly { readonly step: Step; readonly path: Path }[];
  /** Ids of steps that are declared and at fault: placed is placed, there is nothing to say of it twice. */
  readonly broken: ReadonlySet<string>;
}

function readSteps(root: JsonObject, env: CompileEnv, report: Report): Steps {
  const byId = new Map<string, { step: Step; path: Path }>();
  const list: { step: Step; path: Path }[] = [];
  const broken = new Set<string>();
  const given = getOwn(root, "steps");
  const out: Steps = { byId, list, broken };
  if (!Array.isArray(given) || given.length === 0 || given.length > PLAN_LIMITS.steps) {
    const state =
      Array.isArray(given) && given.length > 0 ? `there are more than ${PLAN_LIMITS.steps}` : "there is none";
    report.error(
      given === undefined ? [] : ["steps"],
      "steps",
      `Cannot compile the steps: ${state}; declare at least one step`,
    );
    return out;
  }
  const seen = new Map<string, number>();
  given.forEach((value: Json, index: number) => {
    const path = ["steps", index];
    const before = report.errors;
    const step = readStep(value, path, env, report);
    const id = isObject(value) ? getOwn(value, "id") : undefined;
    if (typeof id !== "string") return;
    const first = seen.get(id);
    if (first !== undefined)
      report.error(
        [...path, "id"],
        "duplicate",
        `Cannot use the id "${id}" again: step ${first + 1} has it; give each step its own`,
      );
    else seen.set(id, index);
    if (step === undefined || report.errors > before) broken.add(id);
    else {
      byId.set(id, { step, path });
      list.push({ step, path });
    }
  });
  return out;
}

const WHOLE_STEP_SHAPES = Object.fromEntries(
  Object.entries(STEP_SHAPES).map(([type, shape]): [string, Shape] => [type, { ...STEP_COMMON, ...shape }]),
);

function readStep(value: Json, path: Path, env: CompileEnv, report: Report): Step | undefined {
  const read = readTagged(value, "type", "a step", WHOLE_STEP_SHAPES, path, report);
  if (read === undefined) return undefined;
  const step = read as unknown as Step;
  if (typeof step.id === "string") checkStepId(step.id, path, report);
  const has = (key: string) => isObject(value) && Object.hasOwn(value, key);
  if (step.type === "wait" && has("for_ms") === has("until")) {
    report.error(path, "wait", "Cannot use this wait: it needs exactly one of for_ms and until; give one");
  }
  if (step.type === "approval" || step.type === "input") checkWarning(step, path, report);
  if (step.type === "tool" && step.retry !== undefined) checkBackoff(step.retry, path, report);
  if (step.type === "agent" && secretHandles(step.prompt ?? null).length > 0) {
    report.warn(
      [...path, "prompt"],
      "secret_in_prompt",
      "Cannot send a secret to an agent: the step will fail permission_denied; give the secret to a tool",
    );
  }
  const input = step.type === "tool" ? env.tool?.(step.tool)?.input_schema : undefined;
  if (step.type === "tool" && input !== undefined) warnOfToolArgs(step, path, input, report);
  return fillOutputSchema(step, env);
}

function checkStepId(id: string, path: Path, report: Report): void {
  // RP §1: `step@root[i]` is a map item's instance; a step of that name could not be told from it.
  if (!id.includes("@root")) return;
  report.error(
    [...path, "id"],
    "id",
    `Cannot use the id "${id}": "@root" is kept for the instances of map items; choose another`,
  );
}

function checkWarning(step: Extract<Step, { type: "approval" | "input" }>, path: Path, report: Report): void {
  if (step.warn_ms === undefined || (step.deadline_ms !== undefined && step.warn_ms < step.deadline_ms)) return;
  report.error(
    [...path, "warn_ms"],
    "range",
    "Cannot use this warn_ms: it must be less than deadline_ms, which must be given too; correct it",
  );
}

/** A first wait that its own cap would cut short was not meant so. */
function checkBackoff(retry: RetryPolicy, path: Path, report: Report): void {
  const { initial_backoff_ms, maximum_backoff_ms } = retry;
  if (!(initial_backoff_ms > maximum_backoff_ms)) return;
  report.error(
    [...path, "retry", "initial_backoff_ms"],
    "range",
    `Cannot use this initial_backoff_ms: it is above maximum_backoff_ms, ${maximum_backoff_ms}; lower it or raise maximum_backoff_ms`,
  );
}

/** what a tool or agent declares need not be typed out again, as far as it stays inside the schema subset. */
function fillOutputSchema(step: Step, env: CompileEnv): Step {
  if ((step.type !== "tool" && step.type !== "agent") || step.output_schema !== undefined) return step;
  const declared = step.type === "tool" ? env.tool?.(step.tool) : env.agent?.(step.agent);
  const schema = declared?.output_schema === undefined ? undefined : portable(declared.output_schema);
  return schema === undefined ? step : { ...step, output_schema: schema };
}

/** The schema without what generators add and the subset does not need; nothing when it goes beyond the subset. */
function portable(schema: Schema): Schema | undefined {
  const { $schema: _dialect, ...rest } = schema;
  return checkSchema(rest, []).length === 0 ? (normalizeJson(rest) as Schema) : undefined;
}

/** RP-3: every step placed exactly once, nothing unknown, names of their own. */
function readPlacement(root: JsonObject, steps: Steps, report: Report): Plan | undefined {
  const before = report.errors;
  const given = getOwn(root, "plan");
  if (given === undefined)
    return report.error([], "missing", 'Cannot compile: "plan" is missing; place the steps in it');
  const plan = readPlan(given, ["plan"], report);
  if (plan === undefined) return undefined;
  const placed = new Map<string, Path>();
  const names = new Map<string, Path>();
  const declared = [...steps.byId.keys(), ...steps.broken];
  const known = new Set(declared);
  const visit = (node: Plan, path: Path): void => {
    if (node.type === "step") {
      const at = [...path, "step"];
      if (!known.has(node.step)) {
        report.error(
          at,
          "plan",
          `Cannot place "${node.step}": no step has that id; correct it or declare the step`,
          didYouMean(node.step, declared),
        );
      } else if (placed.has(node.step)) {
        report.error(
          at,
          "plan",
          `Cannot place "${node.step}" again: each step stands in the plan exactly once; declare a second step`,
        );
      } else placed.set(node.step, at);
    } else {
      const id = nodeId(node);
      if (id !== undefined && (known.has(id) || names.has(id))) {
        report.error(
          [...path, "id"],
          "duplicate",
          `Cannot use the id "${id}" again: a step or node has it; choose another`,
        );
      } else if (id !== undefined) names.set(id, path);
    }
    for (const [child, at] of childPaths(node, path)) visit(child, at);
  };
  visit(plan, ["plan"]);
  for (const { step, path } of steps.list) {
    if (!placed.has(step.id))
      report.error(
        [...path, "id"],
        "plan",
        `Cannot run "${step.id}": the plan does not place it; add it to the plan or remove it`,
      );
  }
  return report.errors === before && steps.broken.size === 0 && steps.list.length > 0 ? plan : undefined;
}

function readBindings(plan: Plan, inputSchema: Schema, steps: Steps, report: Report): Bindings["values"] {
  const cyclic = cyclicReferences(plan, steps.byId, ["plan"]);
  for (const { target, reader, path } of cyclic) {
    const who = reader === undefined ? "this place" : `"${reader}"`;
    const message =
      target === reader
        ? `Cannot order the steps: ${who} reads its own value; read an earlier step`
        : `Cannot order the steps: ${who} reads "${target}", which waits for ${who} (a cycle); read an earlier step or move "${target}" before it`;
    report.error([...path, "step"], "cycle", message);
  }
  const skip = new Set<ValueRef>(cyclic.map(({ reference }) => reference));
  const bindings = checkBindings({ inputSchema, plan, planPath: ["plan"], steps: steps.byId, skip });
  report.problems.push(...bindings.problems);
  return bindings.values;
}

/** RP-7, on what will be stored: the header is the catalog's and no part of it. */
function screen(root: JsonObject, report: Report): void {
  const stored = Object.fromEntries(Object.entries(root).filter(([key]) => !Object.hasOwn(HEADER_SHAPE, key)));
  const found = findCredential(stored, "definition");
  if (found === undefined) return;
  // A malformed handle was reported as what it is.
  const place = JSON.stringify(found.path.slice(0, -1));
  if (report.problems.some(({ code, path }) => code === "template" && JSON.stringify(path) === place)) return;
  const message = `Cannot publish a credential: ${found.reason}; write a secret handle, {"$secret": "name"}, or a reference in its place`;
  report.error(found.path, "credential", message);
}
