/** Walks over plan trees: leaves, bounds, frontier, the public view and the worst case of a preview. */
import { type Json, resolvePointer } from "../json.ts";
import { schemaAt } from "../schema/index.ts";
import type { Bundle, Definition, Plan, Step } from "./definition.ts";

/** RP-70: the shape of a plan and nothing of what it works on. */
export type PublicPlan =
  | { readonly type: "step"; readonly step: string }
  | { readonly type: "sequence" | "parallel"; readonly nodes: readonly PublicPlan[] }
  | { readonly type: "choice"; readonly then_branch: PublicPlan; readonly else_branch: PublicPlan }
  | { readonly type: "map"; readonly body: PublicPlan }
  | { readonly type: "retry"; readonly node: PublicPlan; readonly max_attempts: number };

/** The nodes directly below a node, in order. */
export function childNodes(plan: Plan): readonly Plan[] {
  switch (plan.type) {
    case "step":
      return [];
    case "sequence":
    case "parallel":
      return plan.nodes;
    case "choice":
      return [plan.then_branch, plan.else_branch];
    case "map":
      return [plan.body];
    case "retry":
      return [plan.node];
  }
}

/** Step ids of all leaves, in plan order. */
export function leaves(plan: Plan): string[] {
  const out: string[] = [];
  const visit = (node: Plan): void => {
    if (node.type === "step") out.push(node.step);
    else for (const child of childNodes(node)) visit(child);
  };
  visit(plan);
  return out;
}

/** RP-34: how many leaves one pass can run; sequence and parallel add up, a choice counts its larger branch. */
export function leafBound(plan: Plan): number {
  if (plan.type === "step") return 1;
  const bounds = childNodes(plan).map(leafBound);
  return plan.type === "choice" ? Math.max(...bounds) : bounds.reduce((sum, bound) => sum + bound, 0);
}

/** RP-51: the leaves at which an unstarted plan would begin; sequence its first node, choice both branches. */
export function frontier(plan: Plan): string[] {
  if (plan.type === "step") return [plan.step];
  const nodes = plan.type === "sequence" ? plan.nodes.slice(0, 1) : childNodes(plan);
  return nodes.flatMap(frontier);
}

/** RP-70, built by listing fields (RP-74). */
export function publicPlan(plan: Plan): PublicPlan {
  switch (plan.type) {
    case "step":
      return { type: "step", step: plan.step };
    case "sequence":
    case "parallel":
      return { type: plan.type, nodes: plan.nodes.map(publicPlan) };
    case "choice":
      return { type: "choice", then_branch: publicPlan(plan.then_branch), else_branch: publicPlan(plan.else_branch) };
    case "map":
      return { type: "map", body: publicPlan(plan.body) };
    case "retry":
      return { type: "retry", node: publicPlan(plan.node), max_attempts: plan.max_attempts };
  }
}

/** The most that a run can use, in numbers of attempts; never above the root's budgets. */
export interface WorstCase {
  readonly steps: number;
  readonly agents: number;
  readonly retries: number;
}

const NOTHING: WorstCase = { steps: 0, agents: 0, retries: 0 };

/**
 * Bounds for a preview. Retries multiply what they hold; a map counts the largest source that its schema allows, or
 * without such a bound as much as the budgets allow; nested workflows count in, as they share the root's budgets (RP-25).
 */
export function worstCase(bundle: Bundle): WorstCase {
  const root = bundle.definitions[`${bundle.root_id}@${bundle.root_revision}`];
  if (root === undefined) return NOTHING;
  const { max_steps, max_agents, max_retries } = root.budgets;
  const worst = worstOf(root, bundle, new Map());
  return {
    steps: Math.min(worst.steps, max_steps),
    agents: Math.min(worst.agents, max_agents),
    retries: Math.min(worst.retries, max_retries),
  };
}

function worstOf(definition: Definition, bundle: Bundle, known: Map<Definition, WorstCase>): WorstCase {
  const found = known.get(definition);
  if (found !== undefined) return found;
  // A nesting cycle is refused elsewhere; here it must only not hang.
  known.set(definition, NOTHING);
  const steps = new Map(definition.steps.map((step) => [step.id, step]));
  const { max_retries } = definition.budgets;
  const visit = (plan: Plan): WorstCase => {
    if (plan.type === "step") return worstStep(steps.get(plan.step), max_retries, bundle, known);
    const parts = childNodes(plan).map(visit);
    if (plan.type === "choice") return parts.reduce(larger, NOTHING);
    const sum = parts.reduce(plus, NOTHING);
    if (plan.type === "map") return times(sum, mapSize(definition, steps, plan.source));
    if (plan.type !== "retry") return sum;
    const attempts = Math.min(plan.max_attempts, max_retries + 1);
    return plus(times(sum, attempts), { ...NOTHING, retries: attempts - 1 });
  };
  const worst = visit(definition.plan);
  known.set(definition, worst);
  return worst;
}

function worstStep(
  step: Step | undefined,
  maxRetries: number,
  bundle: Bundle,
  known: Map<Definition, WorstCase>,
): WorstCase {
  if (step?.type === "agent") return { steps: 1, agents: step.structured_output_attempts, retries: 0 };
  if (step?.type === "tool" && step.retry !== undefined) {
    const attempts = Math.min(step.retry.max_attempts, maxRetries + 1);
    return { steps: attempts, agents: 0, retries: attempts - 1 };
  }
  const one = { steps: 1, agents: 0, retries: 0 };
  if (step?.type !== "workflow") return one;
  const nested = bundle.definitions[`${step.workflow_id}@${step.revision}`];
  return nested === undefined ? one : plus(one, worstOf(nested, bundle, known));
}

/** The most members that a map's source can have, as far as the definition says. */
function mapSize(
  definition: Definition,
  steps: ReadonlyMap<string, Step>,
  source: Extract<Plan, { type: "map" }>["source"],
): number {
  if (source.from === "literal") return lengthOf(source.value);
  const schema =
    source.from === "args"
      ? definition.input_schema
      : source.from === "step"
        ? steps.get(source.step)?.output_schema
        : undefined;
  const at = schema === undefined || source.from === "object" ? undefined : schemaAt(schema, source.pointer ?? "");
  const most = at === undefined ? undefined : resolvePointer(at, "/maxItems");
  return typeof most === "number" ? most : Number.POSITIVE_INFINITY;
}

function lengthOf(value: Json): number {
  return Array.isArray(value) ? value.length : 0;
}

function plus(a: WorstCase, b: WorstCase): WorstCase {
  return { steps: a.steps + b.steps, agents: a.agents + b.agents, retries: a.retries + b.retries };
}

function times(a: WorstCase, n: number): WorstCase {
  const multiply = (count: number) => (count === 0 ? 0 : count * n);
  return { steps: multiply(a.steps), agents: multiply(a.agents), retries: multiply(a.retries) };
}

function larger(a: WorstCase, b: WorstCase): WorstCase {
  return {
    steps: Math.max(a.steps, b.steps),
    agents: Math.max(a.agents, b.agents),
    retries: Math.max(a.retries, b.retries),
  };
}
