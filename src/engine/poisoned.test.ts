/** A tree that is given up while its commit is on the way: the writer goes on for the others. */
import { expect, test } from "vitest";
import type { RunStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { fixture, gate, ok, turn, wrapStore } from "./fixture.ts";

test("R-4 a commit that lands after its tree was poisoned stops neither the writer nor the run", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const held = gate();
  let holding = false;
  let onTheWay = false;
  const commit: RunStore["commit"] = async (group) => {
    const results = await store.commit(group);
    if (holding) {
      onTheWay = true;
      await held.promise;
    }
    return results;
  };
  const f = await fixture({
    store: wrapStore(store, { commit }),
    tools: { Write: { side_effect: "mutating", run: () => ok(1) } },
    quiet: true,
  });
  const write = {
    steps: [{ id: "write", type: "tool", tool: "Write", capabilities: [], args: {} }],
    plan: { type: "step", step: "write" },
  };
  holding = true;
  const started = f.start(write).catch((error: { code: string }) => error.code);
  while (!onTheWay) await turn();
  const [run] = await store.listRuns({ limit: 1 });
  f.engine.holds(run?.run_id ?? "")?.broken(new Error("a bug in the middle of a commit"));
  holding = false;
  held.open();
  expect(await started).toBe("internal");
  // The writer is not stuck, and what landed is there to go on with.
  expect((await f.run(write)).status).toBe("succeeded");
  expect((await f.resume(run?.run_id ?? "")).status).toBe("succeeded");
});
