/** Pause and resume: what goes again, and what waits for repair. */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { fixture, gate, leaf, NEVER, ok, turn } from "./fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const writes = { side_effect: "mutating", capabilities: ["write"] } as const;

test("R-36 pause, then resume: the same result, what ran within the grace is kept, nothing runs twice", async () => {
  const store = await open();
  const calls: string[] = [];
  const inside = gate();
  const leave = gate();
  const tools = {
    Read: {
      run: async (call: { step_id: string }) => {
        calls.push(call.step_id);
        if (call.step_id === "b") {
          inside.open();
          await leave.promise;
        }
        return ok(call.step_id);
      },
    },
  };
  const ids = ["a", "b", "c"];
  const f = await fixture({ store, tools });
  const runId = await f.start({ steps: ids.map((id) => tool(id)), plan: { type: "sequence", nodes: ids.map(leaf) } });
  await inside.promise;
  const paused = f.signal(runId, "pause", { decided_by: "me", reason: "lunch" });
  for (let i = 0; i < 10; i++) await turn();
  leave.open();
  await paused;
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "suspended", waits: [{ type: "paused", reason: "lunch" }] });
  expect((await f.state(runId)).steps.get("b")?.status).toBe("succeeded");
  const g = await fixture({ store, tools });
  expect(await g.resume(runId)).toMatchObject({ status: "succeeded", output: "c" });
  expect(calls).toEqual(ids);
});

test("R-36 what does not end within the grace of a pause: read-only goes again, a mutation waits for repair, then both go on", async () => {
  const store = await open();
  const inside = gate();
  let round = 0;
  const run = async () => {
    if (++round === 2) inside.open();
    return NEVER;
  };
  const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools: { Read: { run }, Write: { ...writes, run } } });
  const runId = await f.start({
    steps: [tool("read"), tool("write", { tool: "Write" })],
    plan: { type: "parallel", nodes: [leaf("read"), leaf("write")] },
  });
  await inside.promise;
  await f.signal(runId, "pause", { decided_by: "me" });
  await f.engine.idle(runId);
  const paused = await f.state(runId);
  expect(paused.waits.map((wait) => wait.type).sort()).toEqual(["paused", "repair"]);
  const g = await fixture({
    store,
    tools: { Read: { run: () => ok("read") }, Write: { ...writes, run: () => ok("write") } },
  });
  const repair = paused.waits.find((wait) => wait.type === "repair");
  await g.signal(runId, "repair", {
    wait_id: repair?.wait_id ?? "",
    resolution: "succeeded",
    output: "by hand",
    decided_by: "me",
  });
  await g.engine.idle(runId);
  expect(await g.state(runId)).toMatchObject({ status: "succeeded", output: ["read", "by hand"] });
});
