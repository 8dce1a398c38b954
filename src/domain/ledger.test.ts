import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  addUsage,
  admitMap,
  type Counted,
  dropReservation,
  exhaustedLimit,
  foldLedger,
  type Ledger,
  reserveAgent,
  reserveRetry,
  reserveStep,
  settleAgent,
} from "./ledger.ts";
import { type Budgets, DEFAULT_BUDGETS, NO_USAGE } from "./run.ts";
import { drawJournal, foldBodies, HEADER } from "./state.fixture.ts";
import { evolve, initialState, type Reservation, type RunState } from "./state.ts";

const SEED = { seed: 20260102, numRuns: 1_000 } as const;

function ledgerOf(limits: Partial<Budgets>): Ledger {
  return {
    limits: { ...DEFAULT_BUDGETS, ...limits },
    spent: NO_USAGE,
    reserved: { tokens: 0, cost_micros: 0 },
    open: 0,
  };
}

type Act =
  | { readonly act: "step" }
  | { readonly act: "retry" }
  | { readonly act: "agent"; readonly tokens: number | undefined; readonly cost: number | undefined }
  | { readonly act: "settle" | "drop"; readonly which: number; readonly share: number };

const limits = fc.record({
  max_steps: fc.nat(6),
  max_retries: fc.nat(3),
  max_agents: fc.nat(8),
  max_tokens: fc.nat(100),
  max_cost_micros: fc.nat(100),
});
const estimate = fc.option(fc.nat(60), { nil: undefined });
const act: fc.Arbitrary<Act> = fc.oneof(
  fc.constantFrom<Act>({ act: "step" }, { act: "retry" }),
  fc.record({ act: fc.constant("agent" as const), tokens: estimate, cost: estimate }),
  fc.record({
    act: fc.constantFrom("settle" as const, "drop" as const),
    which: fc.nat(7),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  }),
);

interface World {
  ledger: Ledger;
  readonly open: Reservation[];
}

/** One act; whoever settles took at most what was reserved: an honest estimate. */
function play(world: World, one: Act): void {
  if (one.act === "step") return playCount(world, reserveStep(world.ledger));
  if (one.act === "retry") return playCount(world, reserveRetry(world.ledger));
  if (one.act === "agent") return playAgent(world, one.tokens, one.cost);
  const [reservation] = world.open.splice(one.which % Math.max(1, world.open.length), 1);
  if (reservation === undefined) return;
  if (one.act === "drop") {
    world.ledger = dropReservation(world.ledger, reservation);
    return;
  }
  const used = {
    tokens: Math.floor(reservation.tokens * one.share),
    cost_micros: Math.floor(reservation.cost_micros * one.share),
  };
  const settled = settleAgent(world.ledger, reservation, used);
  expect(settled.overshoot).toBeUndefined();
  world.ledger = settled.ledger;
}

function playCount(world: World, counted: Counted): void {
  if (counted.ok) world.ledger = counted.ledger;
  else expect(counted.failure.code).toBe("budget_exceeded");
}

function playAgent(world: World, tokens: number | undefined, cost: number | undefined): void {
  const room = reserveAgent(world.ledger, {
    ...(tokens === undefined ? {} : { tokens }),
    ...(cost === undefined ? {} : { cost_micros: cost }),
  });
  // it waits only for a settlement that can come, so nothing waits for ever.
  if (room.type === "wait") expect(world.open.length).toBeGreaterThan(0);
  if (room.type === "refused") expect(room.failure.code).toBe("budget_exceeded");
  if (room.type !== "fits") return;
  world.ledger = room.ledger;
  world.open.push(room.reservation);
}

function checkLimits({ ledger, open }: World): void {
  const { spent, reserved } = ledger;
  expect(spent.steps).toBeLessThanOrEqual(ledger.limits.max_steps);
  expect(spent.retries).toBeLessThanOrEqual(ledger.limits.max_retries);
  expect(spent.agents).toBeLessThanOrEqual(ledger.limits.max_agents);
  expect(spent.tokens + reserved.tokens).toBeLessThanOrEqual(ledger.limits.max_tokens ?? 0);
  expect((spent.cost_micros ?? 0) + reserved.cost_micros).toBeLessThanOrEqual(ledger.limits.max_cost_micros ?? 0);
  expect(ledger.open).toBe(open.length);
  const sum = open.reduce(
    (held, one) => ({ tokens: held.tokens + one.tokens, cost_micros: held.cost_micros + one.cost_micros }),
    {
      tokens: 0,
      cost_micros: 0,
    },
  );
  expect(reserved).toEqual(sum);
}

describe("DESIGN §6 at every instant spent + reserved ≤ limit", () => {
  test("R-16 for any limits and any order of reserving and settling honestly", () => {
    fc.assert(
      fc.property(limits, fc.array(act, { maxLength: 60 }), (bounds, acts) => {
        const world: World = { ledger: ledgerOf(bounds), open: [] };
        for (const one of acts) {
          play(world, one);
          checkLimits(world);
        }
        for (const reservation of world.open.splice(0))
          world.ledger = settleAgent(world.ledger, reservation, reservation).ledger;
        checkLimits(world);
        expect(world.ledger.reserved).toEqual({ tokens: 0, cost_micros: 0 });
      }),
      SEED,
    );
  });

  test("the order in which calls settle changes nothing", () => {
    fc.assert(
      fc.property(fc.shuffledSubarray([0, 1, 2, 3], { minLength: 4 }), (order) => {
        let ledger = ledgerOf({ max_tokens: 100, max_cost_micros: 100 });
        const held: Reservation[] = [];
        for (const tokens of [10, 20, 30, 40]) {
          const room = reserveAgent(ledger, { tokens, cost_micros: 1 });
          if (room.type !== "fits") throw new Error("it fits");
          ledger = room.ledger;
          held.push(room.reservation);
        }
        for (const i of order)
          ledger = settleAgent(ledger, held[i] as Reservation, { tokens: i, cost_micros: 1 }).ledger;
        expect(ledger).toMatchObject({ spent: { agents: 4, tokens: 6, cost_micros: 4 }, open: 0 });
      }),
    );
  });

  test("the ledger is the fold over the journals of the tree (R-16)", () => {
    const journals = fc.array(fc.nat({ max: 10_000 }), { maxLength: 60 }).map(drawJournal);
    fc.assert(
      fc.property(journals, journals, (a, b) => {
        const runs = [a, b].map((events) => events.reduce(evolve, initialState(HEADER)));
        const ledger = foldLedger(runs[0] as RunState, runs);
        expect(ledger.spent).toEqual(runs.map((run) => run.usage).reduce(addUsage, NO_USAGE));
        expect(ledger.open).toBe(runs.reduce((sum, run) => sum + run.reservations.size, 0));
        expect(ledger.reserved.tokens).toBe(5 * ledger.open);
        expect(ledger.limits).toBe(runs[0]?.budget);
      }),
      { ...SEED, numRuns: 200 },
    );
  });
});

describe("refusals", () => {
  test("name their limit, and it is read from them again", () => {
    const empty = ledgerOf({ max_steps: 0, max_retries: 0, max_agents: 0 });
    for (const [refused, field] of [
      [reserveStep(empty), "max_steps"],
      [reserveRetry(empty), "max_retries"],
    ] as const)
      expect(exhaustedLimit(refused.ok ? "" : refused.failure.message)).toEqual({ field, limit: 0 });
    for (const [limits, field] of [
      [{ max_agents: 0 }, "max_agents"],
      [{ max_tokens: 0 }, "max_tokens"],
      [{ max_cost_micros: 0 }, "max_cost_micros"],
    ] as const) {
      const refused = reserveAgent(ledgerOf(limits), { tokens: 1, cost_micros: 1 });
      expect(exhaustedLimit(refused.type === "refused" ? refused.failure.message : "")).toEqual({ field, limit: 0 });
    }
    expect(exhaustedLimit("the patience of 4 is exhausted")).toBeUndefined();
  });

  test("RP-27 usage at the limit fails before dispatch: a zero budget never dispatches", () => {
    for (const zero of [{ max_tokens: 0 }, { max_cost_micros: 0 }, { max_agents: 0 }]) {
      const room = reserveAgent(ledgerOf(zero), { tokens: 0, cost_micros: 0 });
      expect(room).toMatchObject({ type: "refused", failure: { code: "budget_exceeded", retryable: false } });
    }
    expect(reserveStep(ledgerOf({ max_steps: 0 })).ok).toBe(false);
    expect(reserveRetry(ledgerOf({ max_retries: 0 })).ok).toBe(false);
  });

  test("R-16 what does not fit waits while another reservation is open, else is refused", () => {
    const empty = ledgerOf({ max_tokens: 10 });
    expect(reserveAgent(empty, { tokens: 11 }).type).toBe("refused");
    const first = reserveAgent(empty, { tokens: 6 });
    if (first.type !== "fits") throw new Error("it fits");
    expect(reserveAgent(first.ledger, { tokens: 5 }).type).toBe("wait");
    expect(reserveAgent(first.ledger, { tokens: 4 }).type).toBe("fits");
    const settled = settleAgent(first.ledger, first.reservation, { tokens: 1, cost_micros: 0 });
    expect(reserveAgent(settled.ledger, { tokens: 5 }).type).toBe("fits");
  });

  test("SC-36 a port without an estimate reserves all that is left", () => {
    const all = reserveAgent(ledgerOf({ max_tokens: 10, max_cost_micros: 7 }), {});
    expect(all).toMatchObject({ type: "fits", reservation: { tokens: 10, cost_micros: 7 } });
    const free = reserveAgent(ledgerOf({}), {});
    expect(free).toMatchObject({ type: "fits", reservation: { tokens: 0, cost_micros: 0 } });
  });

  test("RP-27 a wrong estimate is corrected at the settlement and says which limit it passed", () => {
    const room = reserveAgent(ledgerOf({ max_tokens: 10 }), { tokens: 2 });
    if (room.type !== "fits") throw new Error("it fits");
    const over = settleAgent(room.ledger, room.reservation, { tokens: 11, cost_micros: 0 });
    expect(over.overshoot).toMatchObject({ code: "budget_exceeded" });
    expect(over.overshoot?.message).toContain("token");
    expect(over.ledger.spent.tokens).toBe(11);
    expect(settleAgent(room.ledger, room.reservation, { tokens: 10, cost_micros: 0 }).overshoot).toBeUndefined();
  });

  test("money that was not measured stays so", () => {
    const room = reserveAgent(ledgerOf({}), { cost_micros: 5 });
    if (room.type !== "fits") throw new Error("it fits");
    const once = settleAgent(room.ledger, room.reservation, { tokens: 1, cost_micros: null }).ledger;
    expect(once.spent.cost_micros).toBeNull();
    expect(addUsage(once.spent, { ...NO_USAGE, cost_micros: 3 }).cost_micros).toBeNull();
  });

  test("RP-34 a map is admitted when its worst case fits what is left, to the step", () => {
    const run = foldBodies([{ type: "run_queued" }, { type: "run_started" }, { type: "phase", name: "step_reserved" }]);
    const ledger = foldLedger({ ...run, budget: { ...run.budget, max_steps: 7 } }, [run]);
    expect(admitMap(ledger, 3, 2).ok).toBe(true);
    expect(admitMap(ledger, 2, 3).ok).toBe(true);
    expect(admitMap(ledger, 7, 1).ok).toBe(false);
    expect(admitMap(ledger, 0, 5).ok).toBe(true);
    // An item costs one step at least.
    expect(admitMap(ledger, 7, 0).ok).toBe(false);
  });
});
