/**
 * What the GS scenarios play on: a test program over ProgramContext, and an owner that stands for turn, session and
 * permit — it plans, hands out receipts, knows each dispatch by its id, and can be held up at any point. Never shipped.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { Json } from "../../src/domain/json.ts";
import type { RunState } from "../../src/domain/state.ts";
import {
  aborted,
  type FakeTool,
  type Fixture,
  type FixtureOptions,
  fixture,
  type Gate,
  gate,
  NEVER,
  ok,
} from "../../src/engine/fixture.ts";
import { Driver } from "../../src/engine/index.ts";
import type { Program, ToolSpec } from "../../src/engine/program.ts";
import type { OwnerAnswer, RunStore, SessionStore } from "../../src/ports/index.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { type FaultPlan, type FaultyStore, faultyStore } from "../../src/testing/faulty-store.ts";

export type Store = RunStore & SessionStore;

interface Turn {
  readonly receipt: Json;
  state: "running" | "succeeded" | "cancelled";
  readonly end: Gate;
}

/** One session's owner of turns: the dispatch id is the key under which a turn is admitted once (GD-18). */
export class TurnOwner {
  readonly turns = new Map<string, Turn>();
  /** `submission_accepted`, by dispatch id. */
  readonly accepted: string[] = [];
  readonly intents: Json[] = [];
  readonly cancelled: string[] = [];
  calls = 0;
  lookups = 0;
  observations = 0;
  /** Who holds the session's permit. */
  permit: string | undefined;
  /** Turns end by themselves as soon as their receipt is stored. */
  prompt = true;
  /** Answers every observation instead of the truth. */
  says: OwnerAnswer | undefined;
  /** Called once a turn is accepted, before its receipt is handed back; `NEVER` holds it there. */
  onAccepted: () => Promise<void> | void = () => undefined;
  #free = gate();

  release(): void {
    this.permit = undefined;
    this.#free.open();
    this.#free = gate();
  }

  end(): void {
    for (const turn of this.turns.values()) {
      if (turn.state === "running") turn.state = "succeeded";
      turn.end.open();
    }
  }

  tool(sideEffect: "read_only" | "mutating" = "mutating"): FakeTool {
    return {
      side_effect: sideEffect,
      capabilities: [sideEffect === "mutating" ? "write" : "read"],
      plan: async (_, query) =>
        this.permit === undefined
          ? { type: "ready", intent: { prompt: query.input, key: query.dispatch_id } }
          : { type: "busy", waits_for: this.permit, free: this.#free.promise },
      run: async (call) => {
        this.calls++;
        this.intents.push(call.intent ?? null);
        const turn = this.#admit(call.dispatch_id);
        await this.onAccepted();
        await call.receipt(turn.receipt);
        if (this.prompt) this.end();
        await Promise.race([turn.end.promise, aborted(call).then(() => this.#cancel(call.dispatch_id))]);
        if (turn.state === "cancelled") throw new Error("the turn was cancelled");
        return ok(1);
      },
      lookup: async (_, query) => {
        this.lookups++;
        return this.#known(query.dispatch_id);
      },
      observe: async (_, query) => {
        this.observations++;
        return this.says ?? this.#known(query.dispatch_id);
      },
      cancel: async (_, query) => this.#cancel(query.dispatch_id),
    };
  }

  #admit(key: string): Turn {
    const known = this.turns.get(key);
    if (known !== undefined) return known;
    const turn: Turn = {
      receipt: { session_id: "s", turn_id: `t${this.turns.size + 1}` },
      state: "running",
      end: gate(),
    };
    this.turns.set(key, turn);
    this.accepted.push(key);
    return turn;
  }

  #cancel(key: string): void {
    this.cancelled.push(key);
  }

  /** Turns never answer absent. */
  #known(key: string): OwnerAnswer {
    const turn = this.turns.get(key);
    if (turn === undefined) return { type: "unknown", reason: "no such turn" };
    const { receipt } = turn;
    if (turn.state === "succeeded") return { type: "succeeded", output: 1, receipt };
    return turn.state === "cancelled" ? { type: "cancelled", receipt } : { type: "running", receipt };
  }
}

/** A tool of an owner that answers at once. */
export function plain(run: FakeTool["run"], more: Partial<FakeTool> = {}): FakeTool {
  return { side_effect: "mutating", capabilities: ["write"], run, ...more };
}

export const turnSpec = (more: Partial<ToolSpec> = {}): ToolSpec => ({
  kind: "tool",
  tool: "turn",
  capabilities: ["read"],
  ...more,
});
export const oneTurn: Program = (ctx) => ctx.step("turn", turnSpec(), 1);

/** The definition that carries a test program: its own plan is never run. */
export const carrier = (budgets: object = {}): object => ({
  budgets: { max_concurrency: 4, max_agents: 0, max_steps: 16, max_retries: 8, wall_time_ms: 60_000, ...budgets },
  steps: [{ id: "turn", type: "tool", tool: "turn", args: {}, capabilities: ["read"] }],
  plan: { type: "step", step: "turn" },
});

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A file, so that several handles can be on it. */
export function file(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-gs-"));
  ends.push(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "store.db");
}

export async function open(path = file()): Promise<Store> {
  const store = await openSqliteStore({ path });
  ends.push(() => store.close());
  return store;
}

export interface Process extends Fixture {
  readonly faulty: FaultyStore;
  /** As by SIGKILL; its death is proved to the others. */
  kill(): Promise<void>;
  /** A driver that is stopped with the test. */
  drive(pollMs?: number): Driver;
}

export async function processOn(
  raw: Store,
  options: Partial<Omit<FixtureOptions, "store">> & { readonly faults?: FaultPlan } = {},
): Promise<Process> {
  const { faults = {}, ...rest } = options;
  const faulty = faultyStore(raw, faults);
  const f = await fixture({ program: () => oneTurn, quiet: true, ...rest, store: faulty.store });
  ends.push(async () => {
    if (!faulty.stopped) await f.engine.close();
  });
  return {
    ...f,
    faulty,
    async kill() {
      faulty.stop();
      await raw.renew(f.engine.owner, -86_400_000);
    },
    drive(pollMs = 50) {
      const driver = new Driver(f.engine, { pollMs });
      ends.push(async () => {
        // In a process that is gone no sweep ever ends.
        const stopped = driver.stop();
        if (!faulty.stopped) await stopped;
      });
      void driver.start();
      return driver;
    },
  };
}

/** Stops the process when a commit with an event of that type reaches the disk. */
export function stopsAfter(
  type: string,
  text: (group: Parameters<NonNullable<FaultPlan["write"]>>[2]) => string,
): FaultPlan {
  return {
    write: (_, method, group) =>
      method === "commit" && text(group).includes(`"${type}"`) ? { kind: "stop", when: "after" } : undefined,
  };
}

/** Resolves once `fits`, looked at again after every turn of the loop; for what no event tells of. */
export async function eventually(fits: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await fits())) await new Promise<void>((resolve) => setImmediate(resolve));
}

export function stepOf(state: RunState, id = "turn"): NonNullable<ReturnType<RunState["steps"]["get"]>> {
  const step = state.steps.get(id);
  if (step === undefined) throw new Error(`no step ${id}`);
  return step;
}

export { gate, NEVER };
