/** What changes while a run is under way: the posture of its session, its definition, today's authority. */
import { expect, test } from "vitest";
import type { PolicyPort } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { fixture, gate, NEVER, ok, wrapStore } from "./fixture.ts";

const SESSION = "00000000-0000-7000-8000-000000000001";
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Do", args: {}, ...more });
const seq = (...ids: string[]) => ({ type: "sequence", nodes: ids.map((step) => ({ type: "step", step })) });

/** Plan mode forbids whatever changes something. */
const byPosture: PolicyPort = {
  fingerprint: "posture",
  decide: ({ posture, side_effect }) =>
    posture === "read_only" && side_effect !== "read_only"
      ? { decision: "deny", cause: "plan_mode", reason: "Plan mode" }
      : { decision: "allow" },
};

test("R-1 a posture changed between the intent and the hand-over counts: the mutation is not sent", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  let calls = 0;
  let changed = false;
  const commit: typeof store.commit = async (group) => {
    const intent = group.some((tree) => tree.control_version !== undefined);
    if (intent && !changed) {
      changed = true;
      await store.updateSession(SESSION, { posture: "read_only" }, Date.now());
    }
    return store.commit(group);
  };
  const f = await fixture({
    store: wrapStore(store, { commit }),
    policy: byPosture,
    tools: { Do: { side_effect: "mutating", capabilities: ["write"], run: () => ok(++calls) } },
  });
  const state = await f.run({ steps: [tool("a")], plan: seq("a") });
  expect(changed).toBe(true);
  expect(calls).toBe(0);
  expect(state.failure).toMatchObject({ code: "execution_failed", message: expect.stringContaining("Plan mode") });
  // The intent is in the journal, refused once by the store and written again; nothing was handed over.
  expect((await f.kinds(state.header.run_id)).filter((kind) => kind === "step_started")).toHaveLength(1);
});

test("R-19 a run whose program changed while it waited is suspended with that reason, in one event", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const tools = { Do: { run: () => ok(1) } };
  const document = {
    steps: [tool("a", { args: { v: 1 } }), { id: "gate", type: "approval", prompt: "go on?" }],
    plan: seq("a", "gate"),
  };
  const f = await fixture({ store, tools });
  const waiting = await f.run(document);
  const run_id = waiting.header.run_id;
  await f.engine.close();
  const getBundle: typeof store.getBundle = async (hash) => {
    const bytes = await store.getBundle(hash);
    return bytes && Buffer.from(Buffer.from(bytes).toString("utf8").replace('"v":1', '"v":2'));
  };
  const g = await fixture({ store: wrapStore(store, { getBundle }), tools, quiet: true });
  const wait_id = waiting.waits[0]?.wait_id ?? "";
  await g.engine.signal({ root_run_id: run_id, run_id }, "approve", { wait_id, decided_by: "test" }, 200);
  await g.engine.idle(run_id);
  const after = await g.state(run_id);
  expect(after.last_sequence).toBe(waiting.last_sequence + 1);
  expect(after.status).toBe("suspended");
  expect(after.waits.at(-1)).toMatchObject({ type: "recovery", reason: expect.stringMatching(/^nondeterminism/) });
});

test("SC-40 an interrupted run that could not start today is not continued by itself", async () => {
  const store = await openSqliteStore({ path: ":memory:" });
  const inside = gate();
  const f = await fixture({
    store,
    tools: {
      Do: {
        run: () => {
          inside.open();
          return NEVER;
        },
      },
    },
  });
  const run_id = await f.start({ steps: [tool("a")], plan: seq("a") });
  await inside.promise;
  await f.engine.close();
  let calls = 0;
  let allowed = false;
  const g = await fixture({ store, tools: { Do: { run: () => ok(++calls) } }, authorised: async () => allowed });
  expect(await g.resume(run_id, "auto")).toMatchObject({ status: "suspended", waits: [{ type: "recovery" }] });
  expect(calls).toBe(0);
  allowed = true;
  expect(await g.resume(run_id, "auto")).toMatchObject({ status: "succeeded" });
});
