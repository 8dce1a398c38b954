/** Budgets: what a caller may tighten (RP-23), what a place allows at most (RP-24), what is inherited. */
import { getOwn, type Json } from "../json.ts";
import { BUDGET_FIELDS, type Budgets, type Limits } from "../run.ts";
import { didYouMean } from "../schema/index.ts";

export type BudgetField = (typeof BUDGET_FIELDS)[number];

export type BudgetResult =
  | { readonly ok: true; readonly budgets: Budgets }
  /** Always an input error (RP-23). */
  | { readonly ok: false; readonly field: string; readonly message: string; readonly hint?: string };

/** A run with none of these could not do anything. */
const AT_LEAST_ONE: readonly string[] = [
  "max_concurrency",
  "max_steps",
  "max_nesting_depth",
  "wall_time_ms",
] satisfies BudgetField[];
const OPTIONAL: readonly string[] = ["max_tokens", "max_cost_micros"] satisfies BudgetField[];

/**
 * The definition's budgets, each field made no larger than the request asks (RP-23).
 * @param options `complete`: the request must name all six numeric fields, as a budget from outside must. Without it
 *   `max_agents` also follows a smaller `max_steps`, since the caller did not speak of agents (RP-1 needs it so).
 */
export function tightenBudget(
  base: Budgets,
  requested: Partial<Limits>,
  options: { readonly complete: boolean },
): BudgetResult {
  for (const [field, value] of Object.entries(requested)) {
    const wrong = requestFault(field, value);
    if (wrong !== undefined) return wrong;
  }
  if (options.complete) {
    const missing = BUDGET_FIELDS.find((field) => !OPTIONAL.includes(field) && requested[field] === undefined);
    if (missing !== undefined)
      return refuse(missing, `Cannot use this budget: "${missing}" is missing; give all six limits`);
  }
  const budgets: Partial<Record<BudgetField, number>> = {};
  for (const field of BUDGET_FIELDS) {
    const least = smaller(base[field], requested[field]);
    if (least !== undefined) budgets[field] = least;
  }
  if (requested.max_agents === undefined)
    budgets.max_agents = Math.min(budgets.max_agents ?? 0, budgets.max_steps ?? 0);
  const { on_exhausted } = base;
  return { ok: true, budgets: { ...(budgets as Budgets), ...(on_exhausted === undefined ? {} : { on_exhausted }) } };
}

function requestFault(field: string, value: number | undefined): BudgetResult | undefined {
  if (!BUDGET_FIELDS.some((known) => known === field)) {
    const message = `Cannot use the budget "${field.slice(0, 64)}": known are ${BUDGET_FIELDS.join(", ")}; correct or remove it`;
    return { ok: false, field, message, ...didYouMean(field, BUDGET_FIELDS) };
  }
  if (value === undefined) return undefined;
  if (!Number.isSafeInteger(value) || value < 0)
    return refuse(field, `Cannot use the budget "${field}": it is not a whole number from 0; correct it`);
  if (value > 0 || !AT_LEAST_ONE.includes(field)) return undefined;
  return refuse(field, `Cannot use the budget "${field}": with 0 the run could not begin; give at least 1`);
}

function refuse(field: string, message: string): BudgetResult {
  return { ok: false, field, message };
}

/** A present limit beats an absent one (RP-23). */
function smaller(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

export interface CeilingRefusal {
  readonly field: BudgetField;
  readonly value: number;
  readonly ceiling: number;
  readonly message: string;
}

/** Every budget above its ceiling: such a definition is refused, not clamped (RP-24). */
export function checkCeilings(budgets: Budgets, ceilings: Budgets): CeilingRefusal[] {
  return BUDGET_FIELDS.flatMap((field) => {
    const [value, ceiling] = [budgets[field], ceilings[field]];
    if (value === undefined || ceiling === undefined || value <= ceiling) return [];
    const message = `Cannot allow ${field} ${value}: the ceiling is ${ceiling}; lower it in the definition or in the request`;
    return [{ field, value, ceiling, message }];
  });
}

/** The effective limits: token and cost limits that a definition leaves out are the ceiling's (RP-24). */
export function inheritCeilings(budgets: Budgets, ceilings: Budgets): Budgets {
  const max_tokens = budgets.max_tokens ?? ceilings.max_tokens;
  const max_cost_micros = budgets.max_cost_micros ?? ceilings.max_cost_micros;
  return {
    ...budgets,
    ...(max_tokens === undefined ? {} : { max_tokens }),
    ...(max_cost_micros === undefined ? {} : { max_cost_micros }),
  };
}

/** A budget as it came from outside; anything but an object of numbers is refused with the field that is wrong. */
export function readBudgetRequest(
  value: Json,
): { ok: true; requested: Partial<Limits> } | { ok: false; field: string; message: string } {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { ok: false, field: "", message: "Cannot use this budget: it is not an object; give limits by name" };
  }
  const object = value as { readonly [key: string]: Json };
  const requested: Partial<Record<BudgetField, number>> = {};
  for (const field of Object.keys(object)) {
    const item = getOwn(object, field);
    const wrong = requestFault(field, typeof item === "number" ? item : Number.NaN);
    if (wrong !== undefined && !wrong.ok) return wrong;
    requested[field as BudgetField] = item as number;
  }
  return { ok: true, requested };
}
