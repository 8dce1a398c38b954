/** What is durable when, and how much may lag behind (R-3, R-4, DESIGN §4). */
import { expect, test } from "vitest";
import type { RunStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { fixture, gate, leaf, ok, turn, wrapStore } from "./fixture.ts";
import { readJournal, unpackText } from "./index.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Do", args: {}, ...more });
const sequence = (n: number) => {
  const ids = Array.from({ length: n }, (_, i) => `s${i}`);
  return {
    steps: ids.map((id) => tool(id)),
    plan: { type: "sequence", nodes: ids.map(leaf) },
    budgets: { max_steps: n },
  };
};
const map = (n: number) => ({
  steps: [tool("m", { args: { from: "item", name: "n" } })],
  plan: {
    type: "map",
    source: { from: "literal", value: Array.from({ length: n }, (_, i) => i) },
    item: "n",
    body: leaf("m"),
  },
  budgets: { max_steps: n, max_concurrency: 64 },
});

/** Events of each commit, and the store that counts them. */
function counting(store: RunStore): { readonly commit: RunStore["commit"]; readonly sizes: number[] } {
  const sizes: number[] = [];
  return {
    sizes,
    commit: async (group) => {
      sizes.push(
        group.flatMap((tree) => tree.runs).reduce((sum, run) => sum + run.segment.last - run.segment.first + 1, 0),
      );
      return store.commit(group);
    },
  };
}

test("R-3 5,000 read-only steps: what lags behind the disk stays bounded, in a sequence and in a map", async () => {
  for (const document of [sequence(5_000), map(5_000)]) {
    const store = await open();
    const { commit, sizes } = counting(store);
    const f = await fixture({ store: wrapStore(store, { commit }), tools: { Do: { run: () => ok(1) } } });
    const state = await f.run(document);
    expect([state.status, state.usage.steps]).toEqual(["succeeded", 5_000]);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(state.last_sequence);
    // At most 1,000 events lag, and what was appended in the turn that reached it.
    expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000 + 4 * 64 + 4);
    // Read-only steps share commits.
    expect(sizes.length).toBeLessThan(5_000 / 4);
  }
}, 30_000);

test("R-3 a map of thousands that fails fast beside it drops what it never wrote", async () => {
  const f = await fixture({
    store: await open(),
    tools: {
      Do: {
        run: async (call) => {
          if (call.step_id === "bad") return { type: "failed", kind: "execution", retryable: false, message: "x" };
          await turn();
          return ok(1);
        },
      },
    },
  });
  const many = map(3_000);
  const state = await f.run({
    steps: [tool("bad"), ...many.steps],
    plan: { type: "parallel", nodes: [many.plan, leaf("bad")] },
    budgets: { max_steps: 4_000, max_concurrency: 4 },
  });
  expect(state).toMatchObject({ status: "failed", active: 0 });
  const events = await f.events(state.header.run_id);
  const cancelled = events.findIndex((event) => event.type === "step_cancelled");
  expect(events.slice(cancelled).some((event) => event.type === "step_queued" || event.type === "step_completed")).toBe(
    false,
  );
}, 20_000);

test("R-3 strict: everything so far is durable before each next call, and before each program turn", async () => {
  const store = await open();
  const seen: number[] = [];
  const f = await fixture({
    store,
    tools: {
      Do: {
        run: async (call) => {
          seen.push((await store.getRun(call.run_id))?.last_sequence ?? 0);
          return ok(1);
        },
      },
    },
  });
  const state = await f.run(sequence(3), {}, { durability: "strict" });
  // R and S of the first, then each settlement and the S of the next.
  expect(seen).toEqual([5, 9, 13]);
  expect(state.status).toBe("succeeded");
  const loose = await f.run(sequence(3));
  expect(seen.slice(3).every((sequence) => sequence < loose.last_sequence)).toBe(true);
  expect(seen.slice(3)).not.toEqual([5, 9, 13]);
});

test("R-3 mutating steps share a commit: a settlement goes with the next intent", async () => {
  const store = await open();
  const { commit, sizes } = counting(store);
  const f = await fixture({
    store: wrapStore(store, { commit }),
    tools: { Do: { side_effect: "mutating", capabilities: ["write"], run: () => ok(1) } },
  });
  await f.run(sequence(10));
  expect(sizes.length).toBeLessThanOrEqual(12);
});

test("R-23 the journal is a chain: an altered segment is found and named", async () => {
  const store = await open();
  const f = await fixture({ store, tools: { Do: { run: () => ok("genuine") } } });
  const runId = (await f.run(sequence(3), {}, { durability: "strict" })).header.run_id;
  const readSegments: RunStore["readSegments"] = async (...args) =>
    (await store.readSegments(...args)).map((segment) => {
      const text = unpackText(segment);
      return text.includes("genuine")
        ? { ...segment, codec: "json" as const, bytes: Buffer.from(text.replace("genuine", "changed")) }
        : segment;
    });
  const record = await store.getRun(runId);
  if (record === undefined) throw new Error("no run");
  const read = async (): Promise<void> => {
    for await (const _ of readJournal(wrapStore(store, { readSegments }), record));
  };
  await expect(read()).rejects.toMatchObject({ code: "storage", message: expect.stringContaining("was altered") });
});

test("R-4 a commit whose outcome is unknown: the tree is dropped, its work aborted, and another engine goes on from the disk", async () => {
  const store = await open();
  let fail = false;
  const aborted = gate();
  const commit: RunStore["commit"] = async (group) => {
    if (fail) throw new Error("EIO");
    return store.commit(group);
  };
  const inside = gate();
  const f = await fixture({
    store: wrapStore(store, { commit }),
    tools: {
      Do: {
        run: (call) => {
          inside.open();
          call.signal.addEventListener("abort", () => aborted.open());
          return aborted.promise.then(() => ok("late"));
        },
      },
    },
  });
  const runId = await f.start(sequence(1));
  await inside.promise;
  fail = true;
  f.engine.holds(runId)?.append(runId, [{ type: "decision", key: "x", value: 1 }]);
  await expect(f.engine.idle(runId)).rejects.toMatchObject({ code: "storage" });
  await aborted.promise;
  const g = await fixture({ store, tools: { Do: { run: () => ok("again") } } });
  expect(await g.resume(runId)).toMatchObject({ status: "succeeded", output: "again" });
});

test("R-4 one tree that is refused does not hold up the others of its group", async () => {
  const store = await open();
  const f = await fixture({
    store,
    quiet: true,
    tools: {
      Do: {
        run: async () => {
          await turn();
          return ok(1);
        },
      },
    },
  });
  const bad = await f.start(sequence(5));
  await store.release(bad, f.engine.holds(bad)?.journal.fence ?? 0);
  const states = await Promise.all([...Array.from({ length: 10 }, () => f.run(sequence(5)))]);
  await f.engine.idle(bad);
  expect(states.every((state) => state.status === "succeeded")).toBe(true);
});

test("RP-55 subscribers hear of an event only when the store has it", async () => {
  const store = await open();
  const f = await fixture({
    store,
    tools: {
      Do: {
        run: async () => {
          await turn();
          return ok(1);
        },
      },
    },
  });
  const runId = await f.start(sequence(20));
  const behind: number[] = [];
  let checks = Promise.resolve();
  f.engine.subscribe(runId, (events) => {
    const last = events.at(-1)?.sequence ?? 0;
    checks = checks.then(async () => {
      if (((await store.getRun(runId))?.last_sequence ?? 0) < last) behind.push(last);
    });
  });
  await f.engine.idle(runId);
  await checks;
  expect(behind).toEqual([]);
});
