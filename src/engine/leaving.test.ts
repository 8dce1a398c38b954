/** A process that goes away, and one that never stays: what is at work settles, and nothing else is begun. */
import { expect, test } from "vitest";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { Driver } from "./driver.ts";
import { aborted, type FakeTool, failed, fixture, gate, leaf, NEVER, ok, turn } from "./fixture.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Write", capabilities: ["write"], ...more });
const sequence = (...ids: string[]) => ({
  steps: ids.map((id) => tool(id)),
  plan: { type: "sequence", nodes: ids.map(leaf) },
});
const writes = { side_effect: "mutating", capabilities: ["write"] } as const;

test("R-4 closing gives a mutation in flight its grace: it is not told to stop, it settles, and nothing after it is begun", async () => {
  const store = await open();
  const inside = gate();
  const leave = gate();
  const calls: string[] = [];
  let told = false;
  const slow: FakeTool = {
    ...writes,
    run: async (call) => {
      calls.push(call.step_id);
      void aborted(call).then(() => {
        told = true;
      });
      inside.open();
      await leave.promise;
      return ok(call.step_id);
    },
  };
  const f = await fixture({ store, tools: { Write: slow } });
  const runId = await f.start(sequence("a", "b"));
  await inside.promise;
  const closed = f.engine.close();
  for (let i = 0; i < 10; i++) await turn();
  expect(told).toBe(false);
  leave.open();
  await closed;
  expect([calls, told, (await f.state(runId)).steps.get("a")?.status]).toEqual([["a"], false, "succeeded"]);
  const g = await fixture({ store, tools: { Write: { ...writes, run: (call) => ok(call.step_id) } } });
  expect(await g.resume(runId, "auto")).toMatchObject({ status: "succeeded", output: "b" });
});

test("R-4 what does not end in its grace is told to stop and left; what only reads is not waited for", async () => {
  const store = await open();
  for (const [name, about, waits] of [
    ["Write", writes, true],
    ["Read", {}, false],
  ] as const) {
    const inside = gate();
    let told = false;
    const hangs: FakeTool = {
      ...about,
      run: (call) => {
        void aborted(call).then(() => {
          told = true;
        });
        inside.open();
        return NEVER;
      },
    };
    const f = await fixture({ store, limits: { stop_grace_ms: 60 }, tools: { [name]: hangs } });
    const runId = await f.start({ steps: [tool("a", { tool: name })], plan: leaf("a") });
    await inside.promise;
    const began = performance.now();
    await f.engine.close();
    await turn();
    expect([name, told, performance.now() - began >= 59]).toEqual([name, true, waits]);
    expect((await store.getTree(runId))?.owner).toBeUndefined();
  }
});

/** A tool that says which steps have called it. */
function recorded(): { readonly calls: string[]; readonly run: FakeTool["run"] } {
  const calls: string[] = [];
  const run: FakeTool["run"] = (call) => {
    calls.push(call.step_id);
    return ok(call.step_id);
  };
  return { calls, run };
}

const suspending = { max_steps: 1, on_exhausted: "suspend" };

test("DESIGN §6 a process that does not stay writes a raised limit down and dispatches nothing; one that drives goes on with it", async () => {
  const store = await open();
  const { calls, run } = recorded();
  const tools = { Write: { ...writes, run } };
  const f = await fixture({ store, tools });
  const stopped = await f.run({ ...sequence("a", "b", "c"), budgets: suspending });
  const runId = stopped.header.run_id;
  await f.engine.close();
  const raise = async (max_steps: number): Promise<void> => {
    const g = await fixture({ store, tools, leaves: true });
    await g.signal(runId, "budget", { budget: { max_steps }, decided_by: "me" });
    // As the command line does: at once, whatever else is still to be written.
    await g.engine.close();
  };
  await raise(2);
  expect([calls, (await f.state(runId)).status]).toEqual([["a"], "suspended"]);
  const h = await fixture({ store, tools });
  const driver = new Driver(h.engine);
  await driver.start();
  await h.until(runId, (state) => state.status === "suspended" && state.usage.steps === 2);
  await h.engine.idle(runId);
  // Used up again, and not raised since: nothing is due, however the limit stands to the one of the start.
  expect([calls, (await store.getTree(runId))?.wake_at_ms]).toEqual([["a", "b"], undefined]);
  await raise(3);
  await driver.wake();
  await h.until(runId, (state) => state.status === "succeeded");
  expect(calls).toEqual(["a", "b", "c"]);
  await driver.stop();
});

test.each([
  ["approve", "approval"],
  ["repair", "repair"],
  ["resume", "paused"],
  ["start", undefined],
] as const)(
  "R-36 what a process that does not stay sets going by %s is left for whoever takes the run next",
  async (verb, type) => {
    const store = await open();
    const { calls, run } = recorded();
    const tools = { Write: { ...writes, run } };
    const document =
      verb === "approve"
        ? {
            steps: [{ id: "gate", type: "approval", prompt: "go on?" }, tool("after")],
            plan: { type: "sequence", nodes: [leaf("gate"), leaf("after")] },
          }
        : sequence("after");
    const inside = gate();
    const hangs = () => {
      inside.open();
      return NEVER;
    };
    const f = await fixture({
      store,
      limits: { stop_grace_ms: 5 },
      tools: { Write: { ...writes, run: verb === "repair" ? hangs : run } },
      ...(verb === "start" ? { leaves: true } : {}),
    });
    const runId = await f.start(document);
    if (verb === "repair") await inside.promise;
    if (verb === "repair" || verb === "resume") await f.signal(runId, "pause", { decided_by: "me" });
    await f.engine.idle(runId);
    calls.length = 0;
    await f.engine.close();
    const g = await fixture({ store, tools, leaves: true });
    const wait = (await g.state(runId)).waits.find((each) => each.type === type);
    const wait_id = wait?.wait_id ?? "";
    if (verb === "approve") await g.signal(runId, "approve", { wait_id, decided_by: "me" });
    if (verb === "repair")
      await g.signal(runId, "repair", { wait_id, resolution: "retry", reason: "lost", decided_by: "me" });
    if (verb === "repair" || verb === "resume") {
      const tree = await g.engine.attach(runId);
      if (tree === undefined) throw new Error("it cannot be claimed");
      await g.engine.go(tree, "explicit");
    }
    for (let i = 0; i < 20; i++) await turn();
    await g.engine.close();
    expect(calls).toEqual([]);
    const h = await fixture({ store, tools });
    expect(await h.resume(runId, "auto")).toMatchObject({ status: "succeeded", output: "after" });
    expect([calls, (await store.getTree(runId))?.recoveries]).toEqual([["after"], 0]);
  },
);

test("R-36 a process that does not stay goes on as far as nobody has to be called: to the next question, or to the end", async () => {
  const f = await fixture({ store: await open(), leaves: true });
  const questions = ["first", "last"].map((id) => ({ id, type: "approval", prompt: id }));
  const runId = await f.start({
    steps: questions,
    plan: { type: "sequence", nodes: [leaf("first"), leaf("last")] },
  });
  const approve = async () => {
    const tree = await f.engine.attach(runId);
    if (tree !== undefined) await f.engine.go(tree, "auto");
    await f.engine.idle(runId);
    const wait_id = (await f.state(runId)).waits[0]?.wait_id ?? "";
    await f.signal(runId, "approve", { wait_id, decided_by: "me" });
    await f.engine.idle(runId);
    return f.state(runId);
  };
  expect(await approve()).toMatchObject({ status: "suspended", waits: [{ step_id: "last" }] });
  expect(await approve()).toMatchObject({ status: "succeeded" });
});

test("DESIGN §6 retries that find no room wait for a raised limit too, however few the definition names", async () => {
  const f = await fixture({ store: await open(), tools: { Write: { run: () => failed(true) } } });
  const stopped = await f.run({
    steps: [tool("a")],
    plan: { type: "retry", node: leaf("a"), max_attempts: 3 },
    budgets: { max_retries: 1, on_exhausted: "suspend" },
  });
  const runId = stopped.header.run_id;
  expect(stopped).toMatchObject({ status: "suspended", usage: { retries: 1 }, waits: [{ type: "budget" }] });
  await f.signal(runId, "budget", { budget: { max_retries: 5 }, decided_by: "me" });
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({
    status: "failed",
    usage: { retries: 2 },
    failure: { code: "retry_exhausted" },
  });
});
