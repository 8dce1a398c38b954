/** Sequences of RP-46 … RP-52, event by event. */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { failed, fixture, ok } from "./fixture.ts";

const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Read", capabilities: ["read"], ...more });
const one = { steps: [tool("inspect")], plan: { type: "step", step: "inspect" } };
const R = ["run_queued", "run_started"];
const S = ["phase step_reserved", "step_queued", "step_started"];

test("RP-46 one step", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const f = await fixture({ store, tools: { Read: { run: () => ok({ ok: true }) } } });
  const state = await f.run(one);
  expect(state.status).toBe("succeeded");
  expect(await f.kinds(state.header.run_id)).toEqual([...R, ...S, "step_completed", "run_succeeded"]);
});

test("RP-47 one retry", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  let n = 0;
  const f = await fixture({ store, tools: { Read: { run: () => (n++ === 0 ? failed() : ok(1)) } } });
  const state = await f.run({ ...one, plan: { type: "retry", max_attempts: 2, delay_ms: 5, node: one.plan } });
  expect(await f.kinds(state.header.run_id)).toEqual([...R, ...S, "step_failed", "phase retry_reserved", ...S, "step_completed", "run_succeeded"]);
});
