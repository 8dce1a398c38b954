/**
 * The budget of a run tree (RP-23 … RP-28, R-16): reserved before work, settled after it. At every instant
 * spent + reserved ≤ limit, but for an overshoot that a port reports. Counts are never refunded.
 *
 * The ledger is the fold over the tree's journals; this file holds its decisions and its arithmetic.
 */
import type { Budgets, Failure, Usage } from "./run.ts";
import { failure, NO_USAGE } from "./run.ts";
import type { Reservation, RunState } from "./state.ts";

export interface Ledger {
  readonly limits: Budgets;
  readonly spent: Usage;
  readonly reserved: Reservation;
  /** How many reservations are open: while there is one, what does not fit may wait. */
  readonly open: number;
}

/** The ledger of a tree: limits are the root's, usage is everybody's. */
export function foldLedger(root: RunState, all: Iterable<RunState>): Ledger {
  let spent = NO_USAGE;
  let reserved: Reservation = { tokens: 0, cost_micros: 0 };
  let open = 0;
  for (const run of all) {
    spent = addUsage(spent, run.usage);
    for (const reservation of run.reservations.values()) {
      reserved = add(reserved, reservation, 1);
      open++;
    }
  }
  return { limits: root.budget, spent, reserved, open };
}

export function addUsage(a: Usage, b: Usage): Usage {
  return {
    steps: a.steps + b.steps,
    retries: a.retries + b.retries,
    agents: a.agents + b.agents,
    tokens: a.tokens + b.tokens,
    cost_micros: a.cost_micros === null || b.cost_micros === null ? null : a.cost_micros + b.cost_micros,
  };
}

function add(a: Reservation, b: Reservation, sign: 1 | -1): Reservation {
  return { tokens: a.tokens + sign * b.tokens, cost_micros: a.cost_micros + sign * b.cost_micros };
}

export type CountRefusal = { readonly ok: false; readonly failure: Failure };
export type Counted = { readonly ok: true; readonly ledger: Ledger } | CountRefusal;

const COUNTED = {
  step: "max_steps",
  retry: "max_retries",
  agent: "max_agents",
  token: "max_tokens",
  cost: "max_cost_micros",
} as const satisfies { readonly [what: string]: keyof Budgets };

/** The limit that a refusal of `exhausted` names, from its words; a wait has kept no more of it. */
export function exhaustedLimit(message: string): { readonly field: keyof Budgets; readonly limit: number } | undefined {
  const [, what, limit] = /^the (step|retry|agent|token|cost) budget of (\d{1,16}) is exhausted/.exec(message) ?? [];
  return what === undefined ? undefined : { field: COUNTED[what as keyof typeof COUNTED], limit: Number(limit) };
}

function exhausted(what: keyof typeof COUNTED, limit: number): CountRefusal {
  return {
    ok: false,
    failure: failure(
      "budget_exceeded",
      `the ${what} budget of ${limit} is exhausted; raise it or make the run smaller`,
    ),
  };
}

export function reserveStep(ledger: Ledger): Counted {
  const { spent, limits } = ledger;
  if (spent.steps >= limits.max_steps) return exhausted("step", limits.max_steps);
  return { ok: true, ledger: { ...ledger, spent: { ...spent, steps: spent.steps + 1 } } };
}

export function reserveRetry(ledger: Ledger): Counted {
  const { spent, limits } = ledger;
  if (spent.retries >= limits.max_retries) return exhausted("retry", limits.max_retries);
  return { ok: true, ledger: { ...ledger, spent: { ...spent, retries: spent.retries + 1 } } };
}

/** RP-34: a map is admitted only when its worst case fits what is left. */
export function admitMap(ledger: Ledger, items: number, leavesPerItem: number): CountRefusal | { readonly ok: true } {
  const need = items * Math.max(1, leavesPerItem);
  const left = ledger.limits.max_steps - ledger.spent.steps;
  if (need <= left) return { ok: true };
  return {
    ok: false,
    failure: failure(
      "budget_exceeded",
      `the map needs up to ${need} steps and ${left} are left of the step budget of ${ledger.limits.max_steps}`,
    ),
  };
}

export type Room =
  | { readonly type: "fits"; readonly ledger: Ledger; readonly reservation: Reservation }
  /** Does not fit now; another reservation is open, so its settlement may make room. */
  | { readonly type: "wait" }
  | { readonly type: "refused"; readonly failure: Failure };

/** Reserves one agent and the most it can take. A port without an estimate reserves all that is left. */
export function reserveAgent(
  ledger: Ledger,
  estimate: { readonly tokens?: number; readonly cost_micros?: number },
): Room {
  const { limits, spent } = ledger;
  if (spent.agents >= limits.max_agents)
    return { type: "refused", failure: exhausted("agent", limits.max_agents).failure };
  const tokens = roomFor(
    "token",
    limits.max_tokens,
    spent.tokens,
    ledger.reserved.tokens,
    estimate.tokens,
    ledger.open,
  );
  const cost = roomFor(
    "cost",
    limits.max_cost_micros,
    spent.cost_micros ?? 0,
    ledger.reserved.cost_micros,
    estimate.cost_micros,
    ledger.open,
  );
  for (const room of [tokens, cost]) if (typeof room !== "number" && room.type === "refused") return room;
  if (typeof tokens !== "number" || typeof cost !== "number") return { type: "wait" };
  const reservation = { tokens, cost_micros: cost };
  return {
    type: "fits",
    reservation,
    ledger: {
      ...ledger,
      spent: { ...spent, agents: spent.agents + 1 },
      reserved: add(ledger.reserved, reservation, 1),
      open: ledger.open + 1,
    },
  };
}

function roomFor(
  what: keyof typeof COUNTED,
  limit: number | undefined,
  spent: number,
  reserved: number,
  estimate: number | undefined,
  open: number,
): number | Exclude<Room, { type: "fits" }> {
  if (limit === undefined) return estimate ?? 0;
  // RP-27: usage at the limit fails before dispatch, so a zero budget never dispatches.
  if (spent >= limit) return { type: "refused", failure: exhausted(what, limit).failure };
  const left = limit - spent - reserved;
  const need = estimate ?? Math.max(left, 1);
  if (need <= left) return need;
  if (open > 0) return { type: "wait" };
  return {
    type: "refused",
    failure: failure(
      "budget_exceeded",
      `the next call may take ${need} and ${left} are left of the ${what} budget of ${limit}`,
    ),
  };
}

/** Books what a call took and frees its reservation; the second value tells whether a limit is now passed (RP-27). */
export function settleAgent(
  ledger: Ledger,
  reservation: Reservation,
  used: { readonly tokens: number; readonly cost_micros: number | null },
): { readonly ledger: Ledger; readonly overshoot?: Failure } {
  const spent = addUsage(ledger.spent, { ...NO_USAGE, tokens: used.tokens, cost_micros: used.cost_micros });
  const next = { ...ledger, spent, reserved: add(ledger.reserved, reservation, -1), open: ledger.open - 1 };
  const { max_tokens, max_cost_micros } = ledger.limits;
  if (max_tokens !== undefined && spent.tokens > max_tokens)
    return { ledger: next, overshoot: exhausted("token", max_tokens).failure };
  if (max_cost_micros !== undefined && (spent.cost_micros ?? 0) > max_cost_micros)
    return { ledger: next, overshoot: exhausted("cost", max_cost_micros).failure };
  return { ledger: next };
}

/** Gives back a reservation that was never written down because its step was stopped first. */
export function dropReservation(ledger: Ledger, reservation: Reservation): Ledger {
  return {
    ...ledger,
    spent: { ...ledger.spent, agents: ledger.spent.agents - 1 },
    reserved: add(ledger.reserved, reservation, -1),
    open: ledger.open - 1,
  };
}
