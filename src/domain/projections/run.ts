/**
 * A run as it is shown: to a model or an observer (RP-69 … RP-75), to the operator, and as one row of a list. Built
 * by listing fields, never by deleting them (RP-74): what is new in a state stays private until it is listed here.
 */
import { type Definition, publicPlan } from "../plan/index.ts";
import { suspensionOf } from "../questions.ts";
import { BUDGET_FIELDS, type Budgets, type RunHeader, type RunStatus, type Usage, type WaitType } from "../run.ts";
import type { RunState, StepState } from "../state.ts";
import { actions, decideCancel, decideRestart, type RunView } from "./decisions.ts";
import type { PublicRun, PublicStep, Run, RunSummary } from "./types.ts";
import { fullFailure, publicFailure, rfc3339 } from "./values.ts";
import { publicSuspension, publicWait } from "./wait.ts";

/**
 * RP-69's fields, then `actions` and `waits`.
 * @param definition the run's own, from its pinned bundle
 * @param usage what is shown as used: this run's, or for a root its tree's
 */
export function publicRun(view: RunView, definition: Definition, usage: Usage): PublicRun {
  const { state } = view;
  const { header } = state;
  const suspension = suspensionOf(state);
  return {
    run_id: header.run_id,
    ...(header.parent_run_id === undefined ? {} : { parent_run_id: header.parent_run_id }),
    ...(header.parent_step_id === undefined ? {} : { parent_step_id: header.parent_step_id }),
    session_id: header.session_id,
    workflow_id: header.workflow_id,
    workflow_revision: header.workflow_revision,
    definition_bundle_hash: header.bundle_hash,
    status: state.status,
    can_cancel: decideCancel(view).ok,
    can_restart_as_new_run: decideRestart(view).ok,
    planned_steps: definition.steps.map((step) => ({ id: step.id, kind: step.type })),
    plan: publicPlan(definition.plan),
    steps: inPlanOrder(state, definition).map(publicStep),
    budget: budgets(state.budget),
    usage: shownUsage(usage),
    child_agent_count: usage.agents,
    last_sequence: state.last_sequence,
    ...(state.failure === undefined ? {} : { failure: publicFailure(state.failure) }),
    ...(suspension === undefined ? {} : { suspension: publicSuspension(suspension) }),
    created_at: rfc3339(header.created_at_ms),
    updated_at: rfc3339(state.updated_at_ms),
    actions: actions(view),
    waits: state.waits.map(publicWait),
  };
}

/** The operator's form: args, output and waits whole, failures in their own words, steps' included. */
export function operatorRun(view: RunView, definition: Definition, usage: Usage): Run {
  const { state } = view;
  const { failure: _, ...shown } = publicRun(view, definition, usage);
  return {
    ...shown,
    kind: state.header.kind,
    root_run_id: state.header.root_run_id,
    args: state.header.args ?? null,
    steps: inPlanOrder(state, definition).map(operatorStep),
    ...(state.output === undefined ? {} : { output: state.output }),
    ...(state.failure === undefined ? {} : { failure: fullFailure(state.failure) }),
    waits: state.waits,
  };
}

/** What a list is made from: a run's header and its derived row. */
export interface SummarySource
  extends Pick<
    RunHeader,
    "run_id" | "parent_run_id" | "session_id" | "workflow_id" | "workflow_revision" | "kind" | "created_at_ms"
  > {
  readonly status: RunStatus;
  readonly suspension?: WaitType;
  readonly wait_count: number;
  readonly usage: Usage;
  readonly last_sequence: number;
  readonly updated_at_ms: number;
}

/** One row of a list: no plan, steps or budget (interfaces §1). */
export function runSummary(record: SummarySource): RunSummary {
  return {
    run_id: record.run_id,
    ...(record.parent_run_id === undefined ? {} : { parent_run_id: record.parent_run_id }),
    session_id: record.session_id,
    workflow_id: record.workflow_id,
    workflow_revision: record.workflow_revision,
    kind: record.kind,
    status: record.status,
    ...(record.suspension === undefined ? {} : { suspension: record.suspension }),
    wait_count: record.wait_count,
    usage: shownUsage(record.usage),
    last_sequence: record.last_sequence,
    created_at: rfc3339(record.created_at_ms),
    updated_at: rfc3339(record.updated_at_ms),
  };
}

export function publicStep(step: StepState): PublicStep {
  return {
    id: step.id,
    status: step.status,
    ...(step.failure === undefined ? {} : { failure: publicFailure(step.failure) }),
    attempts: step.attempts,
  };
}

function operatorStep(step: StepState): PublicStep {
  return {
    id: step.id,
    status: step.status,
    ...(step.failure === undefined ? {} : { failure: fullFailure(step.failure) }),
    attempts: step.attempts,
  };
}

function shownUsage(usage: Usage): Usage {
  return {
    steps: usage.steps,
    retries: usage.retries,
    agents: usage.agents,
    tokens: usage.tokens,
    cost_micros: usage.cost_micros,
  };
}

function budgets(budget: Budgets): Budgets {
  const shown: { -readonly [field in keyof Budgets]: Budgets[field] } = {
    max_concurrency: budget.max_concurrency,
    max_agents: budget.max_agents,
    max_steps: budget.max_steps,
    max_retries: budget.max_retries,
    max_nesting_depth: budget.max_nesting_depth,
    wall_time_ms: budget.wall_time_ms,
  };
  for (const field of BUDGET_FIELDS) {
    const value = budget[field];
    if (value !== undefined) shown[field] = value;
  }
  if (budget.on_exhausted !== undefined) shown.on_exhausted = budget.on_exhausted;
  return shown;
}

/** Steps as the definition lists them, the instances of one step by their places: `each@root[2]` before `…[10]`. */
function inPlanOrder(state: RunState, definition: Definition): StepState[] {
  const rank = new Map(definition.steps.map((step, index) => [step.id, index]));
  const keyed = [...state.steps.values()].map((step) => ({
    step,
    rank: rank.get(stepOfInstance(step.id)) ?? rank.size,
    parts: step.id.split(/(\d+)/),
  }));
  keyed.sort((a, b) => a.rank - b.rank || comparePlaces(a.parts, b.parts));
  return keyed.map(({ step }) => step);
}

/** The declared step of an instance: `each` of `each@root[3]`. */
function stepOfInstance(instance: string): string {
  const at = instance.indexOf("@");
  return at < 0 ? instance : instance.slice(0, at);
}

/** Compares ids cut into texts (even places) and numbers (odd places). */
function comparePlaces(a: readonly string[], b: readonly string[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const [x, y] = [a[i] as string, b[i] as string];
    if (x === y) continue;
    if (i % 2 === 1 && Number(x) !== Number(y)) return Number(x) - Number(y);
    return x < y ? -1 : 1;
  }
  return a.length - b.length;
}
