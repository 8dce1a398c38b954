/** Execution-session links (GD-42): an owner says in which agent session its work goes on. */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { type FakeTool, fixture, gate, hangs, leaf, ok } from "./fixture.ts";

const writes = { side_effect: "mutating", capabilities: ["write"] } as const;
const steps = (...ids: string[]) => ({
  steps: ids.map((id) => ({ id, type: "tool", tool: "Talk", capabilities: ["write"] })),
  plan: { type: "sequence", nodes: ids.map(leaf) },
});

test("GD-42 a link is durable when it resolves, belongs to its attempt, and outlives the process", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const called = gate();
  const hanging = hangs(called);
  const talk: FakeTool = {
    ...writes,
    run: async (call) => {
      await call.link({ session_id: "turn-1" });
      return hanging.run(call);
    },
  };
  const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools: { Talk: talk } });
  const runId = await f.start(steps("a"));
  await called.promise;
  await f.engine.close();
  const [link] = await store.sessionLinks({ root_run_id: runId });
  expect(link).toMatchObject({ run_id: runId, step_id: "a", attempt: 1, session_id: "turn-1", shared: false });
  const g = await fixture({ store, tools: { Talk: talk } });
  const repaired = await g.resume(runId, "auto");
  expect(repaired.waits[0]?.evidence?.dispatch_id).toBe(link?.dispatch_id);
});

test("GD-42 the same again is nothing; another session, another's session, a blank one and one after the end are refused", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const refused: string[] = [];
  let late: ((session: { session_id: string }) => Promise<void>) | undefined;
  const talk: FakeTool = {
    ...writes,
    run: async (call) => {
      const link = async (session_id: string, shared = false): Promise<void> =>
        call.link({ session_id, shared }).catch((error: { code: string }) => {
          refused.push(`${call.step_id} ${session_id}: ${error.code}`);
        });
      if (call.step_id === "a") {
        for (const id of ["own", "own", "other", " "]) await link(id);
        late = call.link;
      } else {
        await link("own");
        await link("parent", true);
      }
      return ok(null);
    },
  };
  const f = await fixture({ store, tools: { Talk: talk } });
  const state = await f.run(steps("a", "b", "c"));
  expect(state.status).toBe("succeeded");
  expect(refused).toEqual(["a other: conflict", "a  : usage", "b own: conflict", "c own: conflict"]);
  await expect(late?.({ session_id: "own" })).rejects.toMatchObject({ code: "conflict" });
  const links = await store.sessionLinks({ root_run_id: state.header.run_id });
  expect(links.map(({ step_id, session_id, shared }) => [step_id, session_id, shared]).sort()).toEqual([
    ["a", "own", false],
    ["b", "parent", true],
    ["c", "parent", true],
  ]);
});
