/**
 * R-2 over plans that nobody wrote: random trees of every node, tools that fail, answer late or hang, a stop at a
 * random durable prefix, again and again. A failure names its seed.
 */
import { expect, test } from "vitest";
import type { RunEvent } from "../domain/events.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { cutStore, type FakeTool, type Fixture, failed, fixture, ok, turn } from "./fixture.ts";

const SEEDS = 60;
const FIRST = 1_000;
const POLICIES = ["fail_fast", "fail_fast", "continue_with_error", "skip_dependents"];

/** Numbers from 0 to 1 that follow from the seed (mulberry32). */
function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

interface Grown {
  readonly steps: object[];
  readonly nested: readonly object[];
  readonly plan: object;
}

function grow(roll: () => number, depth: number): Grown {
  const steps: object[] = [];
  const pick = (n: number): number => Math.floor(roll() * n);
  const leaf = (): object => {
    const id = `s${steps.length}`;
    const kind = roll();
    const failure = POLICIES[pick(POLICIES.length)];
    if (kind < 0.1) steps.push({ id, type: "wait", for_ms: pick(3) });
    else if (kind < 0.25 && depth > 0)
      steps.push({ id, type: "workflow", workflow_id: "child", revision: 1, args: {}, failure });
    else steps.push({ id, type: "tool", tool: "Do", args: {}, output_schema: {}, failure });
    return { type: "step", step: id };
  };
  const node = (left: number): object => {
    const kind = left === 0 ? 0 : pick(7);
    const some = (): object[] => Array.from({ length: 1 + pick(3) }, () => node(left - 1));
    switch (kind) {
      case 1:
      case 2:
        return { type: "sequence", nodes: some() };
      case 3:
        return { type: "parallel", nodes: some() };
      case 4:
        return {
          type: "choice",
          condition: { from: "literal", value: roll() < 0.5 },
          then_branch: node(left - 1),
          else_branch: node(left - 1),
        };
      case 5:
        return {
          type: "map",
          source: { from: "literal", value: [0, 1, 2].slice(0, 1 + pick(3)) },
          item: `i${left}`,
          body: node(left - 1),
        };
      case 6:
        return { type: "retry", max_attempts: 2 + pick(2), delay_ms: pick(3), node: node(left - 1) };
      default:
        return leaf();
    }
  };
  const plan = { type: "sequence", nodes: [node(depth), node(depth)] };
  const nested = depth > 0 ? [{ id: "child", ...grow(roll, 0), nested: undefined }] : [];
  return { steps, nested: nested.map(({ nested: _, ...rest }) => rest), plan };
}

/** Answers by the place and the attempt alone: a call that is repeated meets the same. */
function tools(seed: number): Record<string, FakeTool> {
  return {
    Do: {
      run: async (call) => {
        const text = `${call.step_id}/${call.attempt}`;
        const roll = dice([...text].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), seed));
        for (let i = 0; i < Math.floor(roll() * 5); i++) await turn();
        const luck = roll();
        if (luck < 0.15) return failed(true);
        return luck < 0.22 ? failed(false) : ok(text);
      },
    },
  };
}

async function drive(f: Fixture, runId: string): Promise<string> {
  let state = await f.resume(runId).catch(async (error: { code?: string }) => {
    if (error.code === "storage_unavailable") return f.state(runId);
    throw error;
  });
  for (let i = 0; i < 200 && state.status === "suspended"; i++) {
    if (state.waits.some((wait) => wait.type === "recovery")) return "cut";
    state = await f.resume(runId, "woken").catch(() => f.state(runId));
  }
  return state.status;
}

function expectLegal(seed: number, events: readonly RunEvent[]): void {
  const open = new Map<string, number>();
  for (const event of events) {
    if (event.type === "step_queued") open.set(event.step_id, (open.get(event.step_id) ?? 0) + 1);
    if (event.type === "step_completed" || event.type === "step_failed" || event.type === "step_cancelled")
      open.set(event.step_id, (open.get(event.step_id) ?? 0) - 1);
  }
  expect([seed, [...open].filter(([, left]) => left !== 0)]).toEqual([seed, []]);
  expect(events.map((event) => event.sequence)).toEqual(events.map((_, i) => i + 1));
}

test(`R-2 ${SEEDS} random plans from seed ${FIRST}, each stopped again and again`, async () => {
  const ends: Record<string, number> = {};
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
    const roll = dice(seed);
    const grown = grow(roll, 2 + Math.floor(roll() * 2));
    const durability = roll() < 0.5 ? ("strict" as const) : ("standard" as const);
    const store = await openSqliteStore({ path: ":memory:" });
    const document = { steps: grown.steps, plan: grown.plan, budgets: { max_steps: 400, max_retries: 50 } };
    const options = { durability, nested: grown.steps.some((step) => "workflow_id" in step) ? grown.nested : [] };
    const first = await fixture({
      store: cutStore(store, 1 + Math.floor(roll() * 12)),
      quiet: true,
      tools: tools(seed),
    });
    const runId = await first.start(document, {}, options);
    await first.engine.idle(runId).catch(() => undefined);
    let status = (await first.state(runId)).status as string;
    for (let i = 0; i < 12 && status !== "succeeded" && status !== "failed"; i++) {
      // The last one is left alone, so that it gets to the end.
      const cut = i === 11 ? Number.MAX_SAFE_INTEGER : 1 + Math.floor(roll() * 8);
      const f = await fixture({
        store: cutStore(store, cut),
        quiet: true,
        limits: { recoveries: 100 },
        tools: tools(seed),
      });
      status = await drive(f, runId).catch((cause: unknown) => {
        throw new Error(`seed ${seed} at stop ${i}`, { cause });
      });
    }
    expect([seed, ["succeeded", "failed"].includes(status) ? "ended" : status]).toEqual([seed, "ended"]);
    ends[status] = (ends[status] ?? 0) + 1;
    for (const record of await store.treeRuns(runId)) {
      const state = await first.state(record.run_id);
      expect([seed, record.run_id, state.active]).toEqual([seed, record.run_id, 0]);
      expectLegal(seed, await first.events(record.run_id));
    }
    await store.close();
  }
  expect(Object.keys(ends).sort()).toEqual(["failed", "succeeded"]);
}, 60_000);
