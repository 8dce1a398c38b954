import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HoldfastError } from "./errors.ts";
import type { EventBody, RunEvent } from "./events.ts";
import { canonicalJson, type Json, type JsonObject } from "./json.ts";
import { deadlineMs, openSteps, suspensionOf } from "./questions.ts";
import { isTerminal, type Wait } from "./run.ts";
import { decodeState, encodeState } from "./snapshot.ts";
import { drawJournal, foldBodies, HEADER, illegalEvents, legalBodies, nextEvent } from "./state.fixture.ts";
import { evolve, initialState, type RunState } from "./state.ts";

const SEED = { seed: 20260102, numRuns: 150 } as const;
const journals = fc.array(fc.nat({ max: 10_000 }), { maxLength: 60, size: "max" }).map(drawJournal);

/** A state as text: the same for equal states, however their maps were built. */
function textOf(run: RunState): string {
  const { steps, reservations, ...rest } = encodeState(run) as JsonObject;
  const sorted = (list: Json | undefined): Json =>
    [...(list as Json[])].sort((a, b) => (canonicalJson(a) < canonicalJson(b) ? -1 : 1));
  return canonicalJson({ ...rest, steps: sorted(steps), reservations: sorted(reservations) });
}

/** Freezes what is plain; the maps are persistent and checked by their text. */
function freeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== Array.prototype) return value;
  for (const item of Object.values(value)) freeze(item);
  return Object.freeze(value);
}

function frozen(run: RunState): RunState {
  for (const step of run.steps.values()) freeze(step);
  for (const reservation of run.reservations.values()) freeze(reservation);
  return freeze(run);
}

function checkInvariants(run: RunState, event: RunEvent): void {
  const steps = [...run.steps.values()];
  const where = `${event.type} at ${event.sequence}`;
  expect(run.last_sequence, where).toBe(event.sequence);
  expect(run.updated_at_ms, where).toBe(event.at_ms);
  expect(run.active, where).toBe(steps.filter((step) => step.status === "queued" || step.status === "running").length);
  expect(new Set(run.waits.map((wait) => wait.wait_id)).size, where).toBe(run.waits.length);
  for (const wait of run.waits)
    if (wait.step_id !== undefined)
      expect(["queued", "running", "suspended"], where).toContain(run.steps.get(wait.step_id)?.status);
  if (isTerminal(run.status))
    expect([run.active, run.waits.length, run.stopping, run.suspended_at_ms], where).toEqual([
      0,
      0,
      undefined,
      undefined,
    ]);
  if (run.status !== "suspended") expect(run.suspended_at_ms, where).toBeUndefined();
  expect(run.unplaced_steps, where).toBeGreaterThanOrEqual(0);
}

describe("DESIGN §14 any legal order of events folds", () => {
  test("RP-56 each event takes the run on by one and changes nothing that was there before", () => {
    fc.assert(
      fc.property(journals, (events) => {
        let run = frozen(initialState(HEADER));
        for (const event of events) {
          const before = textOf(run);
          const next = evolve(run, freeze(event));
          expect(textOf(run)).toBe(before);
          checkInvariants(next, event);
          run = frozen(next);
        }
      }),
      SEED,
    );
  });

  test("what is spent is never given back (R-16)", () => {
    fc.assert(
      fc.property(journals, (events) => {
        let run = initialState(HEADER);
        for (const event of events) {
          const { usage } = run;
          run = evolve(run, event);
          for (const field of ["steps", "retries", "agents", "tokens"] as const)
            expect(run.usage[field]).toBeGreaterThanOrEqual(usage[field]);
          if (usage.cost_micros === null) expect(run.usage.cost_micros).toBeNull();
        }
      }),
      SEED,
    );
  });

  test("DESIGN §4 a snapshot is a cache: taken anywhere, the rest of the journal folds to the same", () => {
    fc.assert(
      fc.property(journals, fc.nat(), (events, cut) => {
        const at = events.length === 0 ? 0 : cut % events.length;
        const whole = events.reduce(evolve, initialState(HEADER));
        const head = events.slice(0, at).reduce(evolve, initialState(HEADER));
        const stored = JSON.parse(JSON.stringify(encodeState(head))) as Json;
        const resumed = events.slice(at).reduce(evolve, decodeState(HEADER, stored));
        expect(textOf(resumed)).toBe(textOf(whole));
      }),
      SEED,
    );
  });

  test("the walk reaches every status, every event and every open wait: it proves something", () => {
    const seen = new Set<string>();
    const walks = fc.sample(fc.array(fc.nat({ max: 10_000 }), { minLength: 60, maxLength: 60 }), {
      seed: SEED.seed,
      numRuns: 150,
    });
    for (const events of walks.map(drawJournal)) {
      let run = initialState(HEADER);
      for (const event of events) {
        run = evolve(run, event);
        seen.add(event.type === "phase" ? event.name : event.type).add(run.status);
        for (const step of run.steps.values()) seen.add(`step ${step.status}`);
      }
    }
    const names =
      "run_queued run_started step_queued step_started step_suspended step_completed step_failed step_cancelled step_skipped run_suspended run_succeeded run_failed run_cancelled decision handed_off receipt wait_opened wait_warned wait_closed grant_issued child_linked cancel_requested repaired late_result budget_raised step_reserved retry_reserved agent_reserved agent_usage_recorded suspension_context_persisted";
    for (const name of names.split(" ")) expect(seen).toContain(name);
    for (const status of ["queued", "running", "suspended", "succeeded", "failed", "cancelled"]) {
      expect(seen).toContain(status);
      expect(seen).toContain(`step ${status}`);
    }
  });
});

function refusesAll(run: RunState): void {
  const before = textOf(run);
  for (const { rule, event } of illegalEvents(run))
    expect(() => evolve(run, freeze(event)), `${rule}: ${event.type}`).toThrow(HoldfastError);
  expect(textOf(run)).toBe(before);
}

describe("DESIGN §14 any illegal event throws", () => {
  test("RP-56 it names the event as a bug and leaves the state as it was", () => {
    fc.assert(
      fc.property(journals, (events) => {
        let run = frozen(initialState(HEADER));
        for (const event of events) {
          refusesAll(run);
          run = frozen(evolve(run, event));
        }
        if (!isTerminal(run.status)) refusesAll(run);
      }),
      { ...SEED, numRuns: 60 },
    );
  });

  test("RP-65 exactly one terminal event: nothing follows it", () => {
    fc.assert(
      fc.property(journals, (events) => {
        const ended = events.reduce(evolve, initialState(HEADER));
        if (!isTerminal(ended.status)) return;
        const last = events.slice(0, -1).reduce(evolve, initialState(HEADER));
        for (const body of legalBodies(last))
          expect(() => evolve(ended, nextEvent(ended, body))).toThrow(/after the run has ended/);
        expect(legalBodies(ended)).toEqual([]);
      }),
      SEED,
    );
  });
});

const STARTED: readonly EventBody[] = [{ type: "run_queued" }, { type: "run_started" }];
const QUEUE: readonly EventBody[] = [
  { type: "phase", name: "step_reserved" },
  { type: "step_queued", step_id: "a", visit: 1 },
];
const start = (attempt: number, more: Partial<Extract<EventBody, { type: "step_started" }>> = {}): EventBody => ({
  type: "step_started",
  step_id: "a",
  attempt,
  side_effect: "mutating",
  input_hash: "h",
  ...more,
});
const wait = (sequence: number, type: Wait["type"], step_id?: string): Wait => ({
  wait_id: `w-${sequence}`,
  type,
  run_id: HEADER.run_id,
  since_ms: 1,
  ...(step_id === undefined ? {} : { step_id }),
});

describe("what the fold says", () => {
  test("RP-46 one tool step succeeds in seven events", () => {
    const run = foldBodies([
      ...STARTED,
      ...QUEUE,
      start(1),
      { type: "step_completed", step_id: "a", output: 1 },
      { type: "run_succeeded", output: [1] },
    ]);
    expect(run).toMatchObject({ status: "succeeded", output: [1], last_sequence: 7, usage: { steps: 1 } });
    expect(run.steps.get("a")).toEqual({
      id: "a",
      status: "succeeded",
      input_hash: "h",
      output: 1,
      attempts: 1,
      visit: 1,
      side_effect: "mutating",
      redispatch: 0,
      started_at_ms: 1_005,
    });
  });

  test("RP-61 what recovery interrupted goes back to what it was doing, attempt kept", () => {
    const interrupted = foldBodies([
      ...STARTED,
      ...QUEUE,
      start(1),
      { type: "step_suspended", step_id: "a", reason: "lost" },
      { type: "run_suspended", reason: "lost", wait: wait(7, "recovery") },
    ]);
    expect(interrupted.steps.get("a")).toMatchObject({
      status: "suspended",
      was: "running",
      attempts: 1,
      failure: { code: "recovery_suspended", retryable: true },
    });
    expect(suspensionOf(interrupted)?.type).toBe("recovery");
    const resumed = evolve(interrupted, nextEvent(interrupted, { type: "run_started" }));
    expect(resumed).toMatchObject({ status: "running", active: 1, waits: [] });
    expect(resumed.steps.get("a")).toMatchObject({ status: "running", attempts: 1 });
    expect(resumed.steps.get("a")).not.toHaveProperty("failure");
  });

  test.each<[Wait["type"], number]>([
    ["paused", 500],
    ["recovery", 0],
  ])("R-14 time suspended on %s moves the deadline by %d ms", (type, moved) => {
    const suspended = foldBodies([...STARTED, { type: "run_suspended", reason: "x", wait: wait(3, type) }]);
    const before = deadlineMs(suspended);
    const at_ms = suspended.updated_at_ms + 500;
    const resumed = evolve(suspended, { sequence: 4, at_ms, type: "run_started" });
    expect(deadlineMs(resumed) - before).toBe(moved);
    // A clock that was set back takes nothing away.
    const back = evolve(suspended, { sequence: 4, at_ms: 0, type: "run_started" });
    expect(deadlineMs(back)).toBe(before);
  });

  test("R-9 a wait ends with the start that its grant allowed, and with its step", () => {
    const asked = [
      ...STARTED,
      ...QUEUE,
      start(1),
      { type: "step_suspended", step_id: "a", reason: "ask", wait: wait(6, "tool_approval", "a") },
    ] as const;
    expect(foldBodies(asked).waits).toHaveLength(1);
    expect(foldBodies([...asked, start(1, { grant: "w-6" })]).waits).toEqual([]);
    expect(foldBodies([...asked, { type: "step_cancelled", step_id: "a" }]).waits).toEqual([]);
  });

  test("GD-74 a repair that retries starts a new attempt, any other keeps it", () => {
    const unknown = [
      ...STARTED,
      ...QUEUE,
      start(1),
      { type: "step_suspended", step_id: "a", reason: "unknown", wait: wait(6, "repair", "a") },
    ] as const;
    const retried = [
      ...unknown,
      { type: "repaired", step_id: "a", wait_id: "w-6", resolution: "retry", decided_by: "os:me" },
    ] as const;
    expect(() => foldBodies([...retried, start(1)])).toThrow(/attempt 1/);
    expect(foldBodies([...retried, start(2)]).steps.get("a")).toMatchObject({ status: "running", attempts: 2 });
  });

  test("RP-50 open steps come in id order", () => {
    const bodies: EventBody[] = [...STARTED];
    for (const step_id of ["b", "a@root[10]", "a@root[2]"])
      bodies.push({ type: "phase", name: "step_reserved" }, { type: "step_queued", step_id, visit: 1 });
    expect(openSteps(foldBodies(bodies), ["queued"]).map((step) => step.id)).toEqual(["a@root[10]", "a@root[2]", "b"]);
  });

  test("C24 `__proto__` is a step like any other, through the snapshot too", () => {
    const run = foldBodies([
      ...STARTED,
      { type: "phase", name: "step_reserved" },
      { type: "step_queued", step_id: "__proto__", visit: 1 },
    ]);
    const back = decodeState(HEADER, encodeState(run));
    for (const state of [run, back]) {
      expect(state.steps.get("__proto__")?.status).toBe("queued");
      expect(state.steps.get("constructor")).toBeUndefined();
    }
    expect(({} as { queued?: unknown }).queued).toBeUndefined();
  });
});
