/** Bundles: identity and hashes (RP-11), their bounds (RP-10), and everything that must hold before one is run (RP-13). */
import { canonicalJson, getOwn, hashJson, type Json, jsonEquals } from "../json.ts";
import { applyDefaults, compileSchema, withoutAnnotations } from "../schema/index.ts";
import { type Compiled, type CompileEnv, compilePlan, isPreflightProblem } from "./compile.ts";
import type { Bundle, Definition, Problem, ValueRef, WorkflowStep } from "./definition.ts";
import { isFrom } from "./read.ts";
import { templateReferences } from "./references.ts";
import { ofSchema, type StaticValue, sameValue } from "./static-value.ts";
import { resolveTemplate } from "./template.ts";

/** Key of a definition in a bundle. */
export function definitionKey(id: string, revision: number): string {
  return `${id}@${revision}`;
}

/** SHA-256 of the canonical text, in which absent optionals are omitted and defaults filled (RP-11). */
export function definitionHash(definition: Definition): string {
  return hashJson(definition as unknown as Json);
}

/** Taken after the root's budgets were tightened (RP-11). */
export function bundleHash(bundle: Bundle): string {
  return hashJson(bundle as unknown as Json);
}

/** Size of the canonical text in bytes. */
export function bundleBytes(bundle: Bundle): number {
  return new TextEncoder().encode(canonicalJson(bundle as unknown as Json)).length;
}

export function rootDefinition(bundle: Bundle): Definition | undefined {
  return getOwn(bundle.definitions, definitionKey(bundle.root_id, bundle.root_revision));
}

export interface NestedRef {
  readonly workflow_id: string;
  readonly revision: number;
}

/** The definitions that a definition's steps start, each once, in the order declared. */
export function nestedRefs(definition: Definition): NestedRef[] {
  const refs = new Map<string, NestedRef>();
  for (const { workflow_id, revision } of nestedSteps(definition)) {
    refs.set(definitionKey(workflow_id, revision), { workflow_id, revision });
  }
  return [...refs.values()];
}

function nestedSteps(definition: Definition): WorkflowStep[] {
  return definition.steps.filter((step) => step.type === "workflow");
}

/** Longest chain of nested workflows below the root: 0 when it nests none (RP-18). Infinite where they form a cycle. */
export function maxDepth(bundle: Bundle): number {
  const known = new Map<string, number>();
  const depth = (key: string): number => {
    const found = known.get(key);
    if (found !== undefined) return found;
    known.set(key, Number.POSITIVE_INFINITY);
    const definition = getOwn(bundle.definitions, key);
    const below =
      definition === undefined
        ? []
        : nestedRefs(definition).map((ref) => 1 + depth(definitionKey(ref.workflow_id, ref.revision)));
    const deepest = Math.max(0, ...below);
    known.set(key, deepest);
    return deepest;
  };
  return depth(definitionKey(bundle.root_id, bundle.root_revision));
}

export interface BundleLimits {
  readonly maxDefinitions: number;
  /** Of the canonical text. */
  readonly maxBytes: number;
}

export interface LimitRefusal {
  readonly limit: keyof BundleLimits;
  readonly message: string;
}

/** RP-10: both bounds are inclusive. */
export function checkBundleSize(
  size: { readonly definitions: number; readonly bytes: number },
  limits: BundleLimits,
): LimitRefusal | undefined {
  const { definitions, bytes } = size;
  if (definitions > limits.maxDefinitions) {
    const message = `Cannot start: the workflow reaches ${definitions} definitions, at most ${limits.maxDefinitions} are allowed; nest fewer`;
    return { limit: "maxDefinitions", message };
  }
  if (bytes <= limits.maxBytes) return undefined;
  const message = `Cannot start: the workflow and all that it nests take ${bytes} bytes, at most ${limits.maxBytes} are allowed; make it smaller`;
  return { limit: "maxBytes", message };
}

/** RP-10 for a bundle; the bytes are looked at only when the count is within its bound. */
export function checkBundleLimits(bundle: Bundle, limits: BundleLimits): LimitRefusal | undefined {
  const definitions = Object.keys(bundle.definitions).length;
  return (
    checkBundleSize({ definitions, bytes: 0 }, limits) ??
    checkBundleSize({ definitions, bytes: bundleBytes(bundle) }, limits)
  );
}

export interface BundleRefusal {
  /** How the caller answers: a fault of a definition, or of the bundle (RP-13). */
  readonly kind: "definition" | "preflight";
  /** `id@revision` of the definition at fault. */
  readonly definition: string;
  readonly message: string;
  /** Where in that definition. */
  readonly problems?: readonly Problem[];
}

/**
 * Whether a bundle may run (RP-13); empty when it may.
 * @param requested the definition that the caller asked for; the root must equal it
 */
export function validateBundle(bundle: Bundle, env: CompileEnv, requested?: Definition): BundleRefusal[] {
  const rootKey = definitionKey(bundle.root_id, bundle.root_revision);
  const root = getOwn(bundle.definitions, rootKey);
  const preflight = (definition: string, message: string): BundleRefusal => ({
    kind: "preflight",
    definition,
    message,
  });
  if (root === undefined) return [preflight(rootKey, "Cannot start: the bundle does not hold its root; pin it again")];
  if (requested !== undefined && !jsonEquals(root as unknown as Json, requested as unknown as Json)) {
    return [
      preflight(rootKey, "Cannot start: the bundle's root is not the definition that was asked for; pin it again"),
    ];
  }
  const compiled = new Map<string, Compiled>();
  const refusals: BundleRefusal[] = [];
  for (const [key, definition] of Object.entries(bundle.definitions)) {
    if (definitionKey(definition.id, definition.revision) !== key) {
      refusals.push(
        preflight(
          key,
          `Cannot start: ${key} holds another definition, ${definition.id}@${definition.revision}; pin it again`,
        ),
      );
    }
    const result = compilePlan(definition as unknown as Json, env);
    compiled.set(key, result);
    refusals.push(...compileRefusals(key, result));
    for (const { workflow_id, revision } of nestedRefs(definition)) {
      const target = definitionKey(workflow_id, revision);
      if (getOwn(bundle.definitions, target) !== undefined) continue;
      refusals.push(
        preflight(key, `Cannot start: ${key} nests ${target}, which is not there; publish it or correct the reference`),
      );
    }
  }
  if (maxDepth(bundle) === Number.POSITIVE_INFINITY) {
    refusals.push(
      preflight(rootKey, "Cannot start: workflows nest each other in a circle; remove one of the steps that do"),
    );
  }
  if (refusals.length > 0) return refusals;
  for (const [key, { definition, values }] of compiled) {
    if (definition !== undefined) refusals.push(...contractRefusals(key, definition, values ?? new Map(), bundle));
  }
  return refusals;
}

function compileRefusals(key: string, { problems }: Compiled): BundleRefusal[] {
  const errors = problems.filter(({ severity }) => severity === "error");
  const [first] = errors;
  if (first === undefined) return [];
  const kind = errors.every(isPreflightProblem) ? "preflight" : "definition";
  return [{ kind, definition: key, message: first.message, problems: errors }];
}

/** The nested input contract: what a step hands down must be known to fit the nested workflow's input. */
function contractRefusals(
  key: string,
  definition: Definition,
  values: ReadonlyMap<ValueRef, StaticValue>,
  bundle: Bundle,
): BundleRefusal[] {
  return definition.steps.flatMap((step, index) => {
    if (step.type !== "workflow") return [];
    const target = getOwn(bundle.definitions, definitionKey(step.workflow_id, step.revision));
    const reason = target === undefined ? undefined : contractFault(step.args, target, values);
    if (reason === undefined) return [];
    const message = `Cannot start: step "${step.id}" of ${key} may not fit the input of ${step.workflow_id}@${step.revision}: ${reason}`;
    const problem: Problem = { path: ["steps", index, "args"], code: "nested_input", message, severity: "error" };
    return [{ kind: "preflight" as const, definition: key, message, problems: [problem] }];
  });
}

function contractFault(args: Json, target: Definition, values: ReadonlyMap<ValueRef, StaticValue>): string | undefined {
  const open = templateReferences(args, []).filter(
    ({ reference }) => reference.from !== "literal" && reference.from !== "object",
  );
  if (open.length === 0) return constantFault(args, target);
  if (!isFrom(args) || args.from === "object")
    return "references inside a larger template cannot be checked; pass one reference, or values";
  const [only] = open;
  if (only === undefined || only.reference.from === "item")
    return "an item cannot be checked; pass a step's output or the arguments";
  const source = values.get(only.reference);
  const wanted = ofSchema(target.input_schema);
  if (
    source === undefined ||
    sameValue(source, wanted) ||
    typeOf(source) === plainType(withoutAnnotations(target.input_schema).type)
  )
    return undefined;
  return "the schema of what is passed differs from its input_schema; make them equal";
}

function constantFault(args: Json, target: Definition): string | undefined {
  const scope = { args: null, step: () => undefined, item: () => undefined };
  const resolved = resolveTemplate(args, scope);
  if (!resolved.ok) return resolved.failure.message;
  const verdict = compileSchema(target.input_schema).validate(applyDefaults(target.input_schema, resolved.value));
  return verdict.ok
    ? undefined
    : `${verdict.path === "" ? "the value" : verdict.path} ${verdict.message}; correct the arguments`;
}

/** A type that says all that matters: objects differ in their members, so that only equal schemas will do. */
function plainType(type: Json | undefined): string | undefined {
  return typeof type === "string" && type !== "object" ? type : undefined;
}

function typeOf(value: StaticValue): string | undefined {
  if (value.kind === "schema") return plainType(value.schema.type) ?? "unknown";
  return value.kind === "array" || value.kind === "tuple" ? "array" : "unknown";
}
