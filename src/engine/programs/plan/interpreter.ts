/**
 * Interprets a plan over a program context (RP-29 … RP-40). Everything it decides follows from the definition and
 * from what the context answers, in the order it answers: that is what makes a plan replayable.
 */
import type { Json, JsonObject } from "../../../domain/json.ts";
import {
  type AgentStep,
  childPath,
  type Definition,
  leafBound,
  leaves,
  momentMs,
  type NamedClaim,
  type Plan,
  placeKey,
  type Resolved,
  ROOT_PATH,
  resolveClaims,
  resolveCondition,
  resolveReference,
  resolveTemplate,
  type Step,
  type TemplateScope,
  type ToolStep,
} from "../../../domain/plan/index.ts";
import { type Failure, failure } from "../../../domain/run.ts";
import { type Program, type ProgramContext, StepFailure, type StepSpec, type WaitSpec } from "../../program.ts";

/** A failure message lists at most this many items; a map may have many more. */
const MAX_NAMED_ITEMS = 50;

/** Where in the tree of map items a node runs (RP §1). */
interface Scope {
  /** `root`, `root[3]`, `root[3][0]` … */
  readonly name: string;
  readonly parent?: Scope;
  /** Item name and value of the map that made this scope. */
  readonly item?: { readonly name: string; readonly value: Json };
}

const ROOT: Scope = { name: "root" };

export function planProgram(definition: Definition): Program {
  return (context) => new PlanRun(definition, context.args).run(context);
}

function instanceId(step: string, scope: Scope): string {
  return scope.parent === undefined ? step : `${step}@${scope.name}`;
}

function valueOrThrow<T>(resolved: Resolved<T>): T {
  if (resolved.ok) return resolved.value;
  throw new StepFailure(resolved.failure);
}

class PlanRun {
  readonly #definition: Definition;
  readonly #args: Json;
  readonly #steps: ReadonlyMap<string, Step>;
  /** Ids that something refers to: only their values are kept. */
  readonly #wanted: ReadonlySet<string>;
  /** Instance id → value of a step, or of a node with an id. */
  readonly #values = new Map<string, Json>();
  /** Step id → scope names in which it has an instance (RP-38). */
  readonly #entered = new Map<string, Set<string>>();
  /** How often a node was entered in a scope: part of the keys under which its decisions are recorded. */
  readonly #entries = new Map<string, number>();

  constructor(definition: Definition, args: Json) {
    this.#definition = definition;
    this.#args = args;
    this.#steps = new Map(definition.steps.map((step) => [step.id, step]));
    this.#wanted = referencedIds(definition);
  }

  run(context: ProgramContext): Promise<Json> {
    return this.#node(this.#definition.plan, ROOT_PATH, ROOT, context);
  }

  #node(node: Plan, path: string, scope: Scope, ctx: ProgramContext): Promise<Json> {
    switch (node.type) {
      case "step":
        return this.#step(node.step, scope, ctx);
      case "sequence":
        return this.#sequence(node.nodes, path, scope, ctx);
      case "parallel":
        return this.#named(node.id, scope, this.#parallel(node.nodes, path, scope, ctx));
      case "choice":
        return this.#named(node.id, scope, this.#choice(node, path, scope, ctx));
      case "map":
        return this.#named(node.id, scope, this.#map(node, path, scope, ctx));
      case "retry":
        return this.#retry(node, path, scope, ctx);
    }
  }

  /** R-32: a node with an id can be read like a step. */
  async #named(id: string | undefined, scope: Scope, value: Promise<Json>): Promise<Json> {
    if (id === undefined) return value;
    const key = instanceId(id, scope);
    this.#values.delete(key);
    const result = await value;
    if (this.#wanted.has(id)) this.#values.set(key, result);
    return result;
  }

  #key(kind: string, path: string, scope: Scope): string {
    const place = `${kind}:${path}@${scope.name}`;
    const entry = (this.#entries.get(place) ?? 0) + 1;
    this.#entries.set(place, entry);
    return placeKey(kind, path, scope.name, entry);
  }

  // ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────

  async #step(id: string, scope: Scope, ctx: ProgramContext): Promise<Json> {
    const step = this.#steps.get(id) as Step;
    const instance = instanceId(id, scope);
    this.#values.delete(instance);
    const ask = this.#request(step, instance, scope, ctx);
    this.#enter(id, scope);
    try {
      const value = await ask();
      if (this.#wanted.has(id)) this.#values.set(instance, value);
      return value;
    } catch (error) {
      return applyPolicy(step, error);
    }
  }

  /** Templates are resolved before anything is reserved: their failure leaves no step state (RP-29). */
  #request(step: Step, instance: string, scope: Scope, ctx: ProgramContext): () => Promise<Json> {
    const view = this.#view(scope);
    const resolve = (template: Json): Json => valueOrThrow(resolveTemplate(template, view));
    switch (step.type) {
      case "tool": {
        const input = resolve(step.args);
        const claims = step.resources === undefined ? undefined : valueOrThrow(resolveClaims(step.resources, view));
        return () => ctx.step(instance, toolSpec(step, claims), input);
      }
      case "agent": {
        const input = resolve(step.prompt);
        return () => ctx.step(instance, agentSpec(step), input);
      }
      case "workflow": {
        const input = resolve(step.args);
        return () => ctx.child(instance, { workflow_id: step.workflow_id, revision: step.revision }, input);
      }
      case "approval":
      case "input": {
        const details = step.details === undefined ? {} : { details: resolve(step.details) };
        const spec = {
          type: step.type,
          prompt: step.prompt,
          ...details,
          ...(step.deadline_ms === undefined ? {} : { deadline_ms: step.deadline_ms }),
          ...(step.warn_ms === undefined ? {} : { warn_ms: step.warn_ms }),
          ...(step.type === "input" ? { schema: step.schema } : {}),
          ...(step.type === "approval" && step.outcome !== undefined ? { outcome: step.outcome } : {}),
        } as WaitSpec;
        return () => ctx.wait(instance, spec);
      }
      case "wait": {
        const spec = timerSpec(
          step.id,
          step.for_ms === undefined ? undefined : resolve(step.for_ms),
          step.until === undefined ? undefined : resolve(step.until),
        );
        return () => ctx.wait(instance, spec);
      }
    }
  }

  #enter(id: string, scope: Scope): void {
    const scopes = this.#entered.get(id);
    if (scopes === undefined) this.#entered.set(id, new Set([scope.name]));
    else scopes.add(scope.name);
  }

  /** RP-39: the current scope's instance, then each enclosing scope's, outward to root. */
  #view(scope: Scope): TemplateScope {
    return {
      args: this.#args,
      step: (id) => {
        for (let at: Scope | undefined = scope; at !== undefined; at = at.parent) {
          const value = this.#values.get(instanceId(id, at));
          if (value !== undefined) return value;
        }
        return undefined;
      },
      item: (name) => {
        for (let at: Scope | undefined = scope; at !== undefined; at = at.parent)
          if (at.item?.name === name) return at.item.value;
        return undefined;
      },
    };
  }

  // ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────

  /** RP-31: stops at a failure; after `dependency_skipped` every remaining leaf is skipped. */
  async #sequence(nodes: readonly Plan[], path: string, scope: Scope, ctx: ProgramContext): Promise<Json> {
    let value: Json = null;
    for (const [i, node] of nodes.entries()) {
      try {
        value = await this.#node(node, childPath(path, i), scope, ctx);
      } catch (error) {
        if (error instanceof StepFailure && error.failure.code === "dependency_skipped")
          for (const rest of nodes.slice(i + 1)) this.#skip(rest, scope, error.failure.message, ctx);
        throw error;
      }
    }
    return value;
  }

  /** RP-32: the first failure cancels the siblings, and is told once they have stopped. */
  #parallel(nodes: readonly Plan[], path: string, scope: Scope, ctx: ProgramContext): Promise<Json> {
    const key = this.#key("parallel", path, scope);
    const branches = nodes.map(() => ctx.branch());
    const values: Json[] = new Array(nodes.length).fill(null);
    return new Promise((resolve, reject) => {
      let left = nodes.length;
      let failed = false;
      const fail = (i: number, error: unknown): void => {
        if (failed) return;
        failed = true;
        const siblings = branches.filter((_, other) => other !== i);
        void ctx.cancel(siblings, key).then(() => reject(prefixed(error, `parallel branch[${i}] failed: `)), reject);
      };
      for (const [i, node] of nodes.entries()) {
        this.#node(node, childPath(path, i), scope, branches[i] as ProgramContext).then(
          (value) => {
            values[i] = value;
            left--;
            if (left === 0 && !failed) resolve(values);
          },
          (error: unknown) => fail(i, error),
        );
      }
    });
  }

  /** RP-33: the unchosen branch is skipped before the chosen one runs. */
  async #choice(
    node: Extract<Plan, { type: "choice" }>,
    path: string,
    scope: Scope,
    ctx: ProgramContext,
  ): Promise<Json> {
    const chosen = valueOrThrow(resolveCondition(node.condition, this.#view(scope)));
    this.#skip(chosen ? node.else_branch : node.then_branch, scope, "conditional branch not selected", ctx);
    return this.#node(
      chosen ? node.then_branch : node.else_branch,
      childPath(path, chosen ? "then" : "else"),
      scope,
      ctx,
    );
  }

  /** RP-34, RP-35: all items settle; none cancels another. */
  async #map(node: Extract<Plan, { type: "map" }>, path: string, scope: Scope, ctx: ProgramContext): Promise<Json> {
    const source = valueOrThrow(resolveReference(node.source, this.#view(scope)));
    if (!Array.isArray(source))
      throw new StepFailure(failure("invalid_input", "Cannot map: the source is not an array"));
    await ctx.admit(this.#key("map", path, scope), source.length, leafBound(node.body));
    const failures: { readonly index: number; readonly failure: Failure }[] = [];
    const values: Json[] = await Promise.all(
      source.map(async (value: Json, index: number) => {
        const inner: Scope = { name: `${scope.name}[${index}]`, parent: scope, item: { name: node.item, value } };
        try {
          return await this.#node(node.body, childPath(path, "body"), inner, ctx);
        } catch (error) {
          if (!(error instanceof StepFailure)) throw error;
          failures.push({ index, failure: error.failure });
          return null;
        }
      }),
    );
    if (failures.length > 0) throw new StepFailure(mapFailure(failures.sort((a, b) => a.index - b.index)));
    return values;
  }

  /** RP-36: only retryable failures; each further attempt is reserved and recorded before its delay. */
  async #retry(node: Extract<Plan, { type: "retry" }>, path: string, scope: Scope, ctx: ProgramContext): Promise<Json> {
    const key = this.#key("retry", path, scope);
    const { max_retries, on_exhausted } = this.#definition.budgets;
    // Where a used-up limit is waited for, the ledger says no to the next retry, and raising it goes on.
    const attempts = on_exhausted === "suspend" ? node.max_attempts : Math.min(node.max_attempts, max_retries + 1);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#node(node.node, childPath(path, "node"), scope, ctx);
      } catch (error) {
        if (!(error instanceof StepFailure) || !mayRetry(error.failure)) throw error;
        if (attempt >= attempts) throw new StepFailure(failure("retry_exhausted", error.failure.message));
      }
      await ctx.retry(`${key}.${attempt}`, node.delay_ms);
    }
  }

  /** RP-38: every instance in this scope and in map scopes under it, or one new instance where there is none. */
  #skip(node: Plan, scope: Scope, reason: string, ctx: ProgramContext): void {
    const mapped = new Set(leavesUnderMaps(node));
    for (const id of leaves(node)) {
      const scopes = this.#entered.get(id);
      const here = scopes?.has(scope.name) === true ? [scope.name] : [];
      const below =
        mapped.has(id) && scopes !== undefined ? [...scopes].filter((name) => name.startsWith(`${scope.name}[`)) : [];
      const names = [...here, ...below];
      if (names.length === 0) this.#enter(id, scope);
      for (const name of names.length === 0 ? [scope.name] : names) {
        const instance = name === ROOT.name ? id : `${id}@${name}`;
        this.#values.delete(instance);
        ctx.skip(instance, reason);
      }
    }
  }
}

function leavesUnderMaps(node: Plan): string[] {
  if (node.type === "step") return [];
  if (node.type === "map") return leaves(node.body);
  if (node.type === "choice") return [...leavesUnderMaps(node.then_branch), ...leavesUnderMaps(node.else_branch)];
  if (node.type === "retry") return leavesUnderMaps(node.node);
  return node.nodes.flatMap(leavesUnderMaps);
}

function mayRetry(found: Failure): boolean {
  return found.retryable && found.code !== "suspended" && found.code !== "cancelled";
}

/** RP-37. A refused reservation and an unresolved template are no step failures: no policy applies to them. */
function applyPolicy(step: Step, error: unknown): Json {
  if (!(error instanceof StepFailure) || error.refused) throw error;
  switch (step.failure) {
    case "fail_fast":
      throw error;
    case "continue_with_error":
      return { error: errorValue(error.failure) };
    case "skip_dependents":
      throw new StepFailure(failure("dependency_skipped", `the step "${step.id}" failed: ${error.failure.message}`));
  }
}

/** The three members that a plan may read (RP-37), whatever else the engine notes of a failure. */
function errorValue({ code, message, retryable }: Failure): Json {
  return { code, message, retryable };
}

function prefixed(error: unknown, prefix: string): unknown {
  if (!(error instanceof StepFailure)) return error;
  return new StepFailure({ ...error.failure, message: prefix + error.failure.message });
}

/** RP-35. */
function mapFailure(failures: readonly { readonly index: number; readonly failure: Failure }[]): Failure {
  const codes = new Set(failures.map((f) => f.failure.code));
  const first = failures[0]?.failure.code ?? "execution_failed";
  const code = codes.has("dependency_skipped") ? "dependency_skipped" : codes.size === 1 ? first : "execution_failed";
  const named = failures.slice(0, MAX_NAMED_ITEMS).map((f) => `item[${f.index}]: ${f.failure.message}`);
  const more = failures.length - named.length;
  return {
    code,
    message: `map items failed: ${named.join("; ")}${more > 0 ? `; and ${more} more` : ""}`,
    retryable: failures.some((f) => f.failure.retryable),
  };
}

function toolSpec(step: ToolStep, resources: readonly NamedClaim[] | undefined): StepSpec {
  return {
    kind: "tool",
    tool: step.tool,
    capabilities: step.capabilities,
    ...(step.output_schema === undefined ? {} : { output_schema: step.output_schema }),
    ...(step.timeout_ms === undefined ? {} : { timeout_ms: step.timeout_ms }),
    ...(resources === undefined ? {} : { resources }),
    ...(step.retry === undefined ? {} : { retry: step.retry }),
  };
}

function agentSpec(step: AgentStep): StepSpec {
  return {
    kind: "agent",
    agent: step.agent,
    capabilities: step.capabilities,
    structured_output_attempts: step.structured_output_attempts,
    ...(step.model === undefined ? {} : { model: step.model }),
    ...(step.effort === undefined ? {} : { effort: step.effort }),
    ...(step.output_schema === undefined ? {} : { output_schema: step.output_schema }),
    ...(step.timeout_ms === undefined ? {} : { timeout_ms: step.timeout_ms }),
  };
}

function timerSpec(id: string, forMs: Json | undefined, until: Json | undefined): WaitSpec {
  if (until !== undefined) {
    const until_ms = momentMs(until);
    if (until_ms === undefined)
      throw new StepFailure(
        failure("invalid_input", `Cannot wait in "${id}": "until" is not a time; give RFC 3339 text or milliseconds`),
      );
    return { type: "timer", until_ms };
  }
  if (typeof forMs !== "number" || !Number.isSafeInteger(forMs) || forMs < 0)
    throw new StepFailure(
      failure("invalid_input", `Cannot wait in "${id}": "for_ms" is not a whole number of milliseconds from 0`),
    );
  return { type: "timer", for_ms: forMs };
}

/** Ids named by any step reference of the definition. */
function referencedIds(definition: Definition): Set<string> {
  const ids = new Set<string>();
  const visit = (value: Json): void => {
    if (Array.isArray(value)) return value.forEach(visit);
    if (typeof value !== "object" || value === null) return;
    const object = value as JsonObject;
    if (object.from === "step" && typeof object.step === "string") ids.add(object.step);
    for (const item of Object.values(object)) visit(item);
  };
  visit(definition.steps as unknown as Json);
  visit(definition.plan as unknown as Json);
  return ids;
}
