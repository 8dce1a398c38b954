/** Pause and resume: what goes again, and what waits for repair. */
import { expect, test } from "vitest";
import type { OwnerAnswer, PolicyPort } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { type FakeTool, fixture, gate, leaf, NEVER, ok, turn } from "./fixture.ts";

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
  expect(await g.state(runId)).toMatchObject({ status: "suspended", waits: [{ type: "paused" }] });
  expect(await g.resume(runId)).toMatchObject({ status: "succeeded", output: ["read", "by hand"] });
});

const ask: PolicyPort = {
  fingerprint: "ask",
  decide: ({ target }) => (target === "Ask" ? { decision: "ask", reason: "asks" } : { decision: "allow" }),
};

/** Four questions at once, one of them in a child, and what comes after each. */
const QUESTIONS = {
  steps: [
    { id: "gate", type: "approval", prompt: "go on?" },
    { id: "amount", type: "input", prompt: "how many?", schema: { type: "integer" } },
    tool("send", { tool: "Ask" }),
    { id: "below", type: "workflow", workflow_id: "inner", revision: 1, args: {} },
    ...["after-gate", "after-amount", "after-send"].map((id) => tool(id)),
  ],
  plan: {
    type: "parallel",
    nodes: [
      { type: "sequence", nodes: [leaf("gate"), leaf("after-gate")] },
      { type: "sequence", nodes: [leaf("amount"), leaf("after-amount")] },
      { type: "sequence", nodes: [leaf("send"), leaf("after-send")] },
      leaf("below"),
    ],
  },
};
const INNER = {
  id: "inner",
  steps: [{ id: "inside", type: "approval", prompt: "in there?" }, tool("after-inside")],
  plan: { type: "sequence", nodes: [leaf("inside"), leaf("after-inside")] },
};

test("GD-62 what is decided while a run is paused is written down, by whichever process, and nothing goes on before it is resumed", async () => {
  const store = await open();
  const calls: string[] = [];
  const run = (call: { step_id: string }) => {
    calls.push(call.step_id);
    return ok(call.step_id);
  };
  const tools = { Read: { run }, Ask: { ...writes, run } };
  const f = await fixture({ store, tools, policy: ask });
  const waiting = await f.start(QUESTIONS, {}, { nested: [INNER] });
  await f.engine.idle(waiting);
  await f.signal(waiting, "pause", { decided_by: "me" });
  await f.engine.idle(waiting);
  const child = (await f.state(waiting)).waits.find((wait) => wait.type === "child")?.child_run_id ?? "";
  const decisions = [
    ["gate", "approve", {}, undefined],
    ["amount", "answer", { value: 7 }, undefined],
    ["send", "approve", {}, undefined],
    ["inside", "approve", {}, child],
  ] as const;
  for (const [step, kind, more, of] of decisions) {
    const g = await fixture({ store, tools, policy: ask });
    const wait = (await g.state(of ?? waiting)).waits.find((each) => each.step_id === step);
    expect(await g.signal(waiting, kind, { wait_id: wait?.wait_id ?? "", decided_by: "you", ...more }, of)).toBe(true);
    await g.engine.idle(waiting);
    expect([step, (await g.state(waiting)).status, (await g.state(of ?? waiting)).status]).toEqual([
      step,
      "suspended",
      "suspended",
    ]);
    await g.engine.close();
  }
  expect(calls).toEqual([]);
  const paused = await f.state(waiting);
  expect(paused.waits.map(({ type, granted }) => [type, granted?.decided_by])).toEqual([
    ["tool_approval", "you"],
    ["child", undefined],
    ["paused", undefined],
  ]);
  expect((await f.kinds(waiting)).filter((kind) => kind === "run_started")).toHaveLength(1);
  const g = await fixture({ store, tools, policy: ask });
  expect(await g.resume(waiting)).toMatchObject({
    status: "succeeded",
    output: ["after-gate", "after-amount", "after-send", "after-inside"],
  });
  expect([...calls].sort()).toEqual(["after-amount", "after-gate", "after-inside", "after-send", "send"]);
});

test("GD-62 what a denial of a paused run stops is stopped at once, here and below, and the run ends when it is resumed", async () => {
  const store = await open();
  const f = await fixture({ store });
  const runId = await f.start(
    {
      steps: [
        { id: "gate", type: "approval", prompt: "go on?" },
        { id: "other", type: "approval", prompt: "and this?" },
        { id: "below", type: "workflow", workflow_id: "inner", revision: 1, args: {} },
        tool("never"),
      ],
      plan: {
        type: "sequence",
        nodes: [{ type: "parallel", nodes: [leaf("gate"), leaf("other"), leaf("below")] }, leaf("never")],
      },
    },
    {},
    { nested: [INNER] },
  );
  await f.engine.idle(runId);
  await f.signal(runId, "pause", { decided_by: "me" });
  await f.engine.idle(runId);
  const before = await f.state(runId);
  const child = before.waits.find((wait) => wait.type === "child")?.child_run_id ?? "";
  const g = await fixture({ store });
  await g.signal(runId, "deny", {
    wait_id: before.waits.find((wait) => wait.step_id === "gate")?.wait_id ?? "",
    decided_by: "me",
  });
  await g.engine.idle(runId);
  const denied = await g.state(runId);
  expect([denied.status, denied.waits.map(({ type }) => type)]).toEqual(["suspended", ["paused"]]);
  expect([denied.steps.get("other")?.status, (await g.state(child)).status]).toEqual(["cancelled", "cancelled"]);
  expect(await store.listWaits({ limit: 10 })).toHaveLength(1);
  const h = await fixture({ store });
  expect(await h.resume(runId)).toMatchObject({ status: "failed", failure: { code: "permission_denied" } });
});

test.each([
  ["succeeded", { output: "by hand" }, { status: "succeeded", output: ["by hand", "b"] }],
  ["failed", { message: "no" }, { status: "failed", failure: { code: "execution_failed" } }],
  ["cancelled", { message: "no" }, { status: "failed", failure: { code: "cancelled" } }],
  ["retry", { reason: "lost" }, { status: "succeeded", output: ["a", "b"] }],
] as const)(
  "GD-62 a repair as %s of a paused run settles its step, and the run goes on when it is resumed",
  async (resolution, more, end) => {
    const store = await open();
    const inside = gate();
    const plan = {
      steps: [tool("a", { tool: "Write" }), { id: "gate", type: "approval", prompt: "b?" }, tool("b")],
      plan: { type: "parallel", nodes: [leaf("a"), { type: "sequence", nodes: [leaf("gate"), leaf("b")] }] },
    };
    const hang = {
      ...writes,
      run: () => {
        inside.open();
        return NEVER;
      },
    };
    const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools: { Write: hang } });
    const runId = await f.start(plan);
    await inside.promise;
    await f.signal(runId, "pause", { decided_by: "me" });
    await f.engine.idle(runId);
    const sent: string[] = [];
    const run = (call: { step_id: string }) => {
      sent.push(call.step_id);
      return ok(call.step_id);
    };
    const g = await fixture({ store, tools: { Read: { run }, Write: { ...writes, run } } });
    const waitOf = async (id: string) =>
      (await g.state(runId)).waits.find((wait) => wait.step_id === id)?.wait_id ?? "";
    await g.signal(runId, "repair", { wait_id: await waitOf("a"), resolution, decided_by: "me", ...more });
    await g.engine.idle(runId);
    await g.signal(runId, "approve", { wait_id: await waitOf("gate"), decided_by: "me" });
    await g.engine.idle(runId);
    expect([sent, (await g.state(runId)).waits.map(({ type }) => type)]).toEqual([[], ["paused"]]);
    expect(await g.resume(runId)).toMatchObject(end);
    expect(sent.filter((id) => id === "a")).toHaveLength(resolution === "retry" ? 1 : 0);
  },
);

test("GD-62 a resume that comes while a decision of the paused run is still being written goes on with it", async () => {
  const store = await open();
  const f = await fixture({ store, tools: { Read: { run: (call) => ok(call.step_id) } } });
  const runId = await f.start({
    steps: [{ id: "gate", type: "approval", prompt: "go on?" }, tool("after")],
    plan: { type: "sequence", nodes: [leaf("gate"), leaf("after")] },
  });
  await f.engine.idle(runId);
  await f.signal(runId, "pause", { decided_by: "me" });
  await f.engine.idle(runId);
  const [wait] = (await f.state(runId)).waits;
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("it cannot be claimed");
  // As for a decision: its programs are there, and stand by.
  await f.engine.go(tree, "woken");
  const approved = f.signal(runId, "approve", { wait_id: wait?.wait_id ?? "", decided_by: "me" });
  await f.resume(runId);
  await approved;
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: "after" });
});

test("R-12 a paused run that is cancelled asks the owner of what its pause had let go of, and is not called cancelled before", async () => {
  const store = await open();
  const inside = gate();
  const said: string[] = [];
  let answer: OwnerAnswer = { type: "running" };
  const tools: Record<string, FakeTool> = {
    Write: {
      ...writes,
      run: async (call) => {
        await call.receipt({ ticket: 1 });
        inside.open();
        return NEVER;
      },
      observe: async () => {
        said.push("asked");
        return answer;
      },
      cancel: async () => {
        said.push("told");
        answer = { type: "succeeded", output: "done before it heard" };
      },
    },
  };
  const f = await fixture({ store, limits: { stop_grace_ms: 5 }, tools });
  const runId = await f.start({ steps: [tool("a", { tool: "Write" })], plan: leaf("a") });
  await inside.promise;
  await f.signal(runId, "pause", { decided_by: "me" });
  await f.engine.idle(runId);
  expect((await f.state(runId)).waits.map(({ type }) => type)).toEqual(["paused"]);
  const g = await fixture({ store, tools });
  await g.signal(runId, "cancel", { decided_by: "me" });
  expect(said).toEqual(["asked", "told", "asked"]);
  expect((await g.kinds(runId)).slice(-3)).toEqual(["late_result", "step_cancelled", "run_cancelled"]);
});
