/** Tool steps: classes of effect, timeouts, secrets, posture (SC-35, SC-37, R-8, R-12, RP-41, RP-42, C06). */
import { expect, test } from "vitest";
import type { Json } from "../domain/json.ts";
import type { SideEffect } from "../domain/run.ts";
import type { ToolOutcome } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { aborted, type FakeTool, failed, fixture, gate, leaf, NEVER, ok, turn } from "./fixture.ts";
import { unpackText } from "./index.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Do", args: { n: 1 }, ...more });
const one = (more: object = {}) => ({ steps: [tool("do", more)], plan: leaf("do") });
const writes = { side_effect: "mutating", capabilities: ["write"] } as const;

test("RP-41 what a tool reports becomes a failure; its words do not", async () => {
  const cases: [ToolOutcome | "throws", string, boolean][] = [
    [{ type: "failed", kind: "not_found", retryable: false, message: "private" }, "unknown_reference", false],
    [{ type: "failed", kind: "bad_arguments", retryable: false, message: "private" }, "invalid_input", false],
    [{ type: "failed", kind: "bad_output", retryable: false, message: "private" }, "invalid_output", false],
    [{ type: "failed", kind: "execution", retryable: true, message: "private" }, "execution_failed", true],
    ["throws", "execution_failed", true],
  ];
  for (const [answer, code, retryable] of cases) {
    const run = (): ToolOutcome => {
      if (answer === "throws") throw new Error("private");
      return answer;
    };
    const f = await fixture({ store: await open(), tools: { Do: { run } } });
    const state = await f.run(one());
    expect(state.failure).toMatchObject({ code, retryable });
    expect(JSON.stringify(state.failure)).not.toContain("private");
    expect((await f.events(state.header.run_id)).find((event) => event.type === "step_failed")).toMatchObject({
      detail: "private",
    });
  }
});

test("RP-41 a tool that is not there is unknown_reference", async () => {
  const f = await fixture({ store: await open() });
  expect((await f.run(one())).failure?.code).toBe("unknown_reference");
});

test("R-8 the intent of a mutating or idempotent call is durable before the call; of a read-only one it need not be", async () => {
  for (const side_effect of ["mutating", "idempotent"] as const) {
    const store = await open();
    let seen: string[] = [];
    const f = await fixture({
      store,
      tools: {
        Do: {
          side_effect,
          capabilities: ["write"],
          run: async (call) => {
            seen = (await store.readSegments(call.run_id, 0, 1 << 20)).flatMap((segment) =>
              unpackText(segment).trim().split("\n"),
            );
            return ok(1);
          },
        },
      },
    });
    await f.run(one());
    expect(JSON.parse(seen.at(-1) ?? "{}")).toMatchObject({
      type: "step_started",
      step_id: "do",
      attempt: 1,
      side_effect,
      tool: "Do",
      input: { n: 1 },
    });
  }
});

test("R-3 read-only work that goes over the network or a shell waits for its intent too", async () => {
  const store = await open();
  let seen = 0;
  const f = await fixture({
    store,
    tools: {
      Do: {
        capabilities: ["network"],
        run: async (call) => {
          seen = (await store.getRun(call.run_id))?.last_sequence ?? 0;
          return ok(1);
        },
      },
    },
  });
  await f.run(one());
  expect(seen).toBe(5);
});

test("R-8 a mutating tool fails by its own word only: reported, then retried as it says", async () => {
  let calls = 0;
  const f = await fixture({
    store: await open(),
    tools: { Do: { ...writes, run: () => (calls++ === 0 ? failed(true) : ok("done")) } },
  });
  const state = await f.run({ ...one(), plan: { type: "retry", max_attempts: 3, node: leaf("do") } });
  expect([state.status, state.output, calls]).toEqual(["succeeded", "done", 2]);
  const g = await fixture({ store: await open(), tools: { Do: { ...writes, run: () => failed(false) } } });
  expect(
    (await g.run({ ...one(), plan: { type: "retry", max_attempts: 3, node: leaf("do") } })).steps.get("do"),
  ).toMatchObject({ attempts: 1 });
});

test("R-8 anything else that a mutating tool does is an unknown outcome: no retry, no policy, a repair", async () => {
  let calls = 0;
  const f = await fixture({
    store: await open(),
    tools: {
      Do: {
        ...writes,
        run: () => {
          calls++;
          throw new Error("socket hang up");
        },
      },
    },
  });
  const state = await f.run({
    ...one({ failure: "continue_with_error" }),
    plan: { type: "retry", max_attempts: 3, node: leaf("do") },
  });
  expect([state.status, calls]).toEqual(["suspended", 1]);
  expect(state.waits).toMatchObject([
    { type: "repair", step_id: "do", tool: "Do", input: { n: 1 }, evidence: { attempt: 1 } },
  ]);
  expect(state.steps.get("do")).toMatchObject({ status: "suspended", failure: { code: "recovery_suspended" } });
  // it is not continued; a person says what became of it.
  await expect(f.resume(state.header.run_id)).rejects.toMatchObject({ code: "not_possible" });
});

test("R-8 each answer of a repair: succeeded, failed, cancelled, retry", async () => {
  const cases = [
    ["succeeded", { output: "by hand" }, { status: "succeeded", output: "by hand" }, 1],
    ["failed", { message: "never arrived" }, { status: "failed", failure: { code: "execution_failed" } }, 1],
    ["cancelled", {}, { status: "failed", failure: { code: "cancelled" } }, 1],
    ["retry", {}, { status: "succeeded", output: "again" }, 2],
  ] as const;
  for (const [resolution, more, end, wanted] of cases) {
    const ids: string[] = [];
    const run: FakeTool["run"] = (call) => {
      ids.push(call.dispatch_id);
      if (ids.length === 1) throw new Error("gone");
      return ok("again");
    };
    const f = await fixture({ store: await open(), tools: { Do: { ...writes, run } } });
    const waiting = await f.run(one());
    const runId = waiting.header.run_id;
    await f.signal(runId, "repair", {
      wait_id: waiting.waits[0]?.wait_id ?? "",
      resolution,
      decided_by: "me",
      ...more,
    });
    await f.engine.idle(runId);
    expect(await f.state(runId)).toMatchObject(end);
    // A new attempt has a new id: the owner may have seen the old one.
    expect([ids.length, new Set(ids).size]).toEqual([wanted, wanted]);
  }
});

test("R-8 an answer to a repair that does not fit the output schema changes nothing", async () => {
  const f = await fixture({
    store: await open(),
    tools: {
      Do: {
        ...writes,
        run: () => {
          throw new Error("gone");
        },
      },
    },
  });
  const waiting = await f.run(one({ output_schema: { type: "integer" } }));
  const runId = waiting.header.run_id;
  await f.signal(runId, "repair", {
    wait_id: waiting.waits[0]?.wait_id ?? "",
    resolution: "succeeded",
    output: "text",
    decided_by: "me",
  });
  await f.engine.idle(runId);
  expect((await f.state(runId)).last_sequence).toBe(waiting.last_sequence);
});

test("C06 R-12 a step's timeout: read-only and idempotent fail retryably, a mutation is unknown unless it reports", async () => {
  const cases: [SideEffect, "hears" | "reports" | "ignores", string][] = [
    ["read_only", "hears", "failed"],
    ["read_only", "ignores", "failed"],
    ["idempotent", "ignores", "failed"],
    ["mutating", "ignores", "suspended"],
    ["mutating", "hears", "suspended"],
    ["mutating", "reports", "succeeded"],
  ];
  for (const [side_effect, how, status] of cases) {
    const run: FakeTool["run"] = async (call) => {
      if (how === "ignores") return NEVER;
      await aborted(call);
      if (how === "hears") throw new Error("aborted");
      return ok("just in time");
    };
    const f = await fixture({
      store: await open(),
      limits: { stop_grace_ms: 5 },
      tools: { Do: { side_effect, capabilities: ["write"], run } },
    });
    const state = await f.run(one({ timeout_ms: 10 }));
    expect([side_effect, how, state.status]).toEqual([side_effect, how, status]);
    if (status === "failed") expect(state.failure).toMatchObject({ code: "execution_failed", retryable: true });
    if (status === "suspended") expect(state.waits[0]).toMatchObject({ type: "repair" });
  }
});

test("C06 the attempt that timed out has ended, or was given its grace, before the next begins; its late answer is kept apart", async () => {
  const log: string[] = [];
  const late = gate();
  const f = await fixture({
    store: await open(),
    limits: { stop_grace_ms: 20 },
    tools: {
      Do: {
        run: async (call) => {
          log.push(`begin ${call.attempt}`);
          if (call.attempt === 1) {
            await aborted(call);
            log.push("abort 1");
            await late.promise;
            return ok("late");
          }
          late.open();
          for (let i = 0; i < 5; i++) await turn();
          return ok("second");
        },
      },
    },
  });
  const state = await f.run({ ...one({ timeout_ms: 10 }), plan: { type: "retry", max_attempts: 2, node: leaf("do") } });
  expect([state.output, log]).toEqual(["second", ["begin 1", "abort 1", "begin 2"]]);
  const kept = (await f.events(state.header.run_id)).filter((event) => event.type === "late_result");
  expect(kept).toMatchObject([{ step_id: "do", attempt: 1, result: { type: "succeeded", output: "late" } }]);
});

test("R-12 a mutation that answers after it was given up is evidence of its repair, also once its tree was let go", async () => {
  const answer = gate<Json>();
  const store = await open();
  const f = await fixture({
    store,
    limits: { stop_grace_ms: 5 },
    tools: { Do: { ...writes, run: async () => ok(await answer.promise) } },
  });
  const waiting = await f.run(one({ timeout_ms: 5 }));
  const runId = waiting.header.run_id;
  expect(waiting.waits[0]?.evidence?.late_results).toEqual([]);
  expect(f.engine.holds(runId)).toBeUndefined();
  answer.open("it did happen");
  const kept = await f.until(runId, (state) => state.waits[0]?.evidence?.late_results.length === 1);
  expect(kept.waits[0]?.evidence?.late_results).toEqual([{ type: "succeeded", output: "it did happen" }]);
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "suspended", waits: [{ type: "repair" }] });
  expect((await store.listWaits({ run_id: runId, limit: 10 }))[0]?.evidence?.late_results).toHaveLength(1);
});

test("SC-35 a handle reaches the tool resolved; the journal holds only the handle; an output that repeats it fails", async () => {
  const store = await open();
  const secret = "s3cr3t-value-of-the-vault";
  let seen: Json = null;
  const f = await fixture({
    store,
    secrets: {
      resolve: async (name) => (name === "vault" ? { ok: true, value: secret } : { ok: false, reason: "unknown" }),
    },
    tools: {
      Do: {
        run: (call) => {
          seen = call.input;
          return call.step_id === "echo" ? ok({ [`key ${secret}`]: 1 }) : ok("$(rm -rf /) {{braces}} `x`");
        },
      },
    },
  });
  const args = { token: { $secret: "vault" }, text: "$(rm -rf /) {{braces}}" };
  const state = await f.run({ steps: [tool("use", { args })], plan: leaf("use") });
  expect(seen).toEqual({ token: secret, text: "$(rm -rf /) {{braces}}" });
  expect(state).toMatchObject({ status: "succeeded", output: "$(rm -rf /) {{braces}} `x`" });
  const echo = await f.run({ steps: [tool("echo", { args })], plan: leaf("echo") });
  expect(echo.failure?.code).toBe("invalid_output");
  for (const runId of [state.header.run_id, echo.header.run_id]) {
    const bytes = (await store.readSegments(runId, 0, 1 << 20)).map((segment) => unpackText(segment)).join("");
    expect(bytes).toContain('"$secret":"vault"');
    expect(bytes).not.toContain(secret);
  }
  const denied = await f.run({ steps: [tool("use", { args: { token: { $secret: "other" } } })], plan: leaf("use") });
  expect(denied.failure?.code).toBe("permission_denied");
});

test("SC-35 a secret in a late answer is not kept either", async () => {
  const store = await open();
  const secret = "s3cr3t-value-of-the-vault";
  const answer = gate();
  const f = await fixture({
    store,
    limits: { stop_grace_ms: 5 },
    secrets: { resolve: async () => ({ ok: true, value: secret }) },
    tools: {
      Do: {
        ...writes,
        run: async () => {
          await answer.promise;
          return ok({ echoed: secret });
        },
      },
    },
  });
  const waiting = await f.run(one({ timeout_ms: 5, args: { token: { $secret: "vault" } } }));
  const runId = waiting.header.run_id;
  answer.open();
  const kept = await f.until(runId, (state) => state.waits[0]?.evidence?.late_results.length === 1);
  expect(kept.waits[0]?.evidence?.late_results).toMatchObject([
    { type: "succeeded", unstorable: expect.stringContaining("secret") },
  ]);
  expect((await store.readSegments(runId, 0, 1 << 20)).map((segment) => unpackText(segment)).join("")).not.toContain(
    secret,
  );
});

test("SC-37 plan mode blocks what writes with no call, and lets reading pass with the posture", async () => {
  const store = await open();
  const calls: [string, string][] = [];
  const f = await fixture({
    store,
    policy: {
      fingerprint: "plan",
      decide: ({ posture, side_effect }) =>
        posture === "read_only" && side_effect !== "read_only"
          ? { decision: "deny", reason: "plan mode", cause: "plan_mode" }
          : { decision: "allow" },
    },
    tools: {
      Read: {
        run: (call) => {
          calls.push([call.tool, call.posture]);
          return ok(1);
        },
      },
      Write: {
        ...writes,
        run: (call) => {
          calls.push([call.tool, call.posture]);
          return ok(1);
        },
      },
    },
  });
  await store.updateSession("00000000-0000-7000-8000-000000000001", { posture: "read_only" }, Date.now());
  const state = await f.run({
    steps: [tool("read", { tool: "Read" }), tool("write", { tool: "Write" })],
    plan: { type: "sequence", nodes: [leaf("read"), leaf("write")] },
  });
  expect(state.failure).toMatchObject({ code: "execution_failed", retryable: false });
  expect(state.failure?.message).toContain("Plan mode");
  expect(calls).toEqual([["Read", "read_only"]]);
});

test("RP-20 a workspace whose trust was taken back fails as untrusted", async () => {
  const f = await fixture({
    store: await open(),
    trusted: false,
    policy: { fingerprint: "x", decide: () => ({ decision: "deny", reason: "no", cause: "trust" }) },
    tools: { Do: { run: () => ok(1) } },
  });
  expect((await f.run(one())).failure?.code).toBe("untrusted_workspace");
});

test("SC-39 RP-68 a detached tool is killed, then shown as running; a person settles it", async () => {
  let killed = 0;
  const f = await fixture({
    store: await open(),
    tools: {
      Do: {
        ...writes,
        run: () => ({
          type: "running",
          kill: async () => {
            killed++;
            return true;
          },
        }),
      },
    },
  });
  const state = await f.run(one());
  expect(state.waits).toMatchObject([{ type: "tool_running", step_id: "do", tool: "Do", killed: true }]);
  expect(killed).toBe(1);
  expect((await f.kinds(state.header.run_id)).slice(-3)).toEqual([
    "phase suspension_context_persisted",
    "step_suspended",
    "run_suspended",
  ]);
  await f.signal(state.header.run_id, "repair", {
    wait_id: state.waits[0]?.wait_id ?? "",
    resolution: "succeeded",
    output: 1,
    decided_by: "me",
  });
  await f.engine.idle(state.header.run_id);
  expect((await f.state(state.header.run_id)).status).toBe("succeeded");
});

test("RP-68 a tool that asks first is told that it was approved", async () => {
  const seen: (true | undefined)[] = [];
  const f = await fixture({
    store: await open(),
    tools: {
      Do: {
        ...writes,
        run: (call) => {
          seen.push(call.approved);
          return call.approved === true ? ok(1) : { type: "needs_approval", prompt: "sure?" };
        },
      },
    },
  });
  const state = await f.run(one());
  await f.signal(state.header.run_id, "approve", { wait_id: state.waits[0]?.wait_id ?? "", decided_by: "me" });
  await f.engine.idle(state.header.run_id);
  expect([(await f.state(state.header.run_id)).status, seen]).toEqual(["succeeded", [undefined, true]]);
});
