/** What the owner of an attempt is asked after a crash, and what follows from its word (R-10, SC-35). */
import { expect, test } from "vitest";
import type { Json } from "../domain/json.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { cutStore, type FakeTool, fixture, gate, leaf, NEVER, ok } from "./fixture.ts";
import { unpackText } from "./index.ts";

const open = () => openSqliteStore({ path: ":memory:" });
const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "Do", args: { n: 1 }, ...more });
const one = (more: object = {}) => ({ steps: [tool("do", more)], plan: leaf("do") });
const writes = { side_effect: "mutating", capabilities: ["write"] } as const;

test("R-10 a receipt is durable before the tool goes on; after a crash its owner is asked, not the tool", async () => {
  const store = await open();
  const inside = gate();
  let at = 0;
  const mutation = (observe: FakeTool["observe"], run: FakeTool["run"]): Record<string, FakeTool> => ({
    Do: { ...writes, run, ...(observe === undefined ? {} : { observe }) },
  });
  const dying = await fixture({
    store: cutStore(store, 3),
    tools: mutation(
      async () => ({ type: "unknown" }),
      async (call) => {
        await call.receipt({ ticket: 7 });
        at = (await store.getRun(call.run_id))?.last_sequence ?? 0;
        inside.open();
        return NEVER;
      },
    ),
  });
  const runId = await dying.start(one());
  await inside.promise;
  expect(at).toBe(6);
  dying.engine.holds(runId)?.append(runId, [{ type: "decision", key: "last words", value: 1 }]);
  await dying.engine.idle(runId).catch(() => undefined);
  let calls = 0;
  const seen: Json[] = [];
  const f = await fixture({
    store,
    tools: mutation(
      async (_, query) => {
        seen.push(query.receipt);
        return { type: "succeeded", output: "from its owner" };
      },
      () => ok(++calls),
    ),
  });
  const state = await f.resume(runId);
  expect([state.status, state.output, calls, seen]).toEqual(["succeeded", "from its owner", 0, [{ ticket: 7 }]]);
});

test("R-10 an owner that gave a receipt and no longer knows it is not sent the work again: a person says what became of it", async () => {
  const store = await open();
  const inside = gate();
  let calls = 0;
  const tools: Record<string, FakeTool> = {
    Do: {
      ...writes,
      observe: async () => ({ type: "absent" }),
      run: async (call) => {
        calls++;
        await call.receipt({ ticket: 7 });
        inside.open();
        return NEVER;
      },
    },
  };
  const dying = await fixture({ store, tools, limits: { stop_grace_ms: 1 } });
  const runId = await dying.start(one());
  await inside.promise;
  await dying.engine.close();
  const f = await fixture({ store, tools });
  const state = await f.resume(runId);
  expect([calls, state.status, state.waits]).toMatchObject([
    1,
    "suspended",
    [{ type: "repair", evidence: { receipt: { ticket: 7 }, lookup: "unknown" } }],
  ]);
});

test("R-10 a mutation without a receipt is looked up once; absent is sent again under the same id, anything else waits", async () => {
  for (const [answer, status, calls] of [
    [{ type: "succeeded", output: "found" }, "succeeded", 0],
    [{ type: "absent" }, "succeeded", 1],
    [{ type: "failed", message: "x", retryable: false }, "failed", 0],
    [{ type: "unknown" }, "suspended", 0],
    [{ type: "running" }, "suspended", 0],
    [undefined, "suspended", 0],
  ] as const) {
    const store = await open();
    const inside = gate<string>();
    const lookup = answer === undefined ? {} : { lookup: async () => answer };
    const dying = await fixture({
      store: cutStore(store, 2),
      tools: {
        Do: {
          ...writes,
          ...lookup,
          run: (call) => {
            inside.open(call.dispatch_id);
            return NEVER;
          },
        },
      },
    });
    const runId = await dying.start(one());
    const id = await inside.promise;
    dying.engine.holds(runId)?.append(runId, [{ type: "decision", key: "last words", value: 1 }]);
    await dying.engine.idle(runId).catch(() => undefined);
    const sent: [string, number, number][] = [];
    const f = await fixture({
      store,
      tools: {
        Do: {
          ...writes,
          ...lookup,
          run: (call) => {
            sent.push([call.dispatch_id, call.attempt, call.redispatch]);
            return ok(1);
          },
        },
      },
    });
    const state = answer === undefined ? await f.resume(runId, "auto") : await f.resume(runId);
    expect([answer?.type, state.status, sent]).toEqual([answer?.type, status, calls === 1 ? [[id, 1, 1]] : []]);
    expect(state.usage.steps).toBe(1);
  }
});

test.each([
  ["whose call broke off", false],
  ["whose process has died", true],
])(
  "SC-35 an owner that repeats a secret when it is asked about an attempt %s: the secret is not kept",
  async (_, dies) => {
    const store = await open();
    const secret = "s3cr3t-value-of-the-vault";
    const inside = gate();
    const options = {
      store,
      limits: { stop_grace_ms: 1 },
      secrets: { resolve: async () => ({ ok: true, value: secret }) as const },
      tools: {
        Do: {
          ...writes,
          lookup: async () => ({ type: "succeeded", output: { echoed: secret } }) as const,
          run: () => {
            inside.open();
            if (!dies) throw new Error("the line broke");
            return NEVER;
          },
        },
      },
    };
    const f = await fixture(options);
    const runId = await f.start(one({ args: { token: { $secret: "vault" } } }));
    await inside.promise;
    if (dies) await f.engine.close();
    else await f.engine.idle(runId);
    const state = dies ? await (await fixture(options)).resume(runId) : await f.state(runId);
    expect(state).toMatchObject({ status: "failed", failure: { code: "invalid_output" } });
    expect((await store.readSegments(runId, 0, 1 << 20)).map((segment) => unpackText(segment)).join("")).not.toContain(
      secret,
    );
  },
);

test("SC-35 an owner that repeats a secret when its run is cancelled after a crash: that it succeeded is kept, not what it said", async () => {
  const store = await open();
  const secret = "s3cr3t-value-of-the-vault";
  const inside = gate();
  const options = {
    store,
    limits: { stop_grace_ms: 1 },
    secrets: { resolve: async () => ({ ok: true, value: secret }) as const },
    tools: {
      Do: {
        ...writes,
        lookup: async () => ({ type: "succeeded", output: { echoed: secret } }) as const,
        run: () => {
          inside.open();
          return NEVER;
        },
      },
    },
  };
  const dying = await fixture(options);
  const runId = await dying.start(one({ args: { token: { $secret: "vault" } } }));
  await inside.promise;
  await dying.engine.close();
  const f = await fixture(options);
  await f.signal(runId, "cancel", { decided_by: "me" });
  const events = await f.events(runId);
  expect(events.map(({ type }) => type).slice(-3)).toEqual(["late_result", "step_cancelled", "run_cancelled"]);
  expect(events.at(-3)).toMatchObject({
    result: { type: "succeeded", unstorable: expect.stringContaining("secrets") },
  });
  expect(JSON.stringify(events)).not.toContain(secret);
});
