/** Decisions of people: the first one stands, the same again has the same answer (R-1, R-40, C12, C14, C36). */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createHoldfast, defineTool, type Holdfast, HoldfastError, type HoldfastOptions, type Run } from "../index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { seededRandom } from "../testing/index.ts";

const ANY = { type: "object", additionalProperties: true } as const;
const leaf = (step: string) => ({ type: "step", step });
const plan = (id: string, steps: object[], node: object) => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps,
  plan: node,
});

const WORKFLOWS = [
  plan("ask", [{ id: "write", type: "tool", tool: "write", args: { n: 1 }, capabilities: ["write"] }], leaf("write")),
  plan(
    "both",
    [1, 2].map((n) => ({ id: `write-${n}`, type: "tool", tool: "write", args: { n }, capabilities: ["write"] })),
    { type: "parallel", nodes: [leaf("write-1"), leaf("write-2")] },
  ),
  plan("gate", [{ id: "gate", type: "approval", prompt: "Go on?" }], leaf("gate")),
  plan("number", [{ id: "n", type: "input", prompt: "How many?", schema: { type: "integer", minimum: 0 } }], leaf("n")),
  plan("lost", [{ id: "lose", type: "tool", tool: "lose", args: {}, capabilities: ["lose"] }], leaf("lose")),
];

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

interface World {
  readonly written: unknown[];
  open(options?: HoldfastOptions): Promise<Holdfast>;
}

async function world(): Promise<World> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "holdfast decide ")));
  ends.push(() => rm(folder, { recursive: true, force: true }));
  const written: unknown[] = [];
  const tools = [
    defineTool({
      name: "write",
      description: "Writes.",
      input: ANY,
      capabilities: ["write"],
      run: (input) => ({ wrote: written.push(input) }),
    }),
    defineTool({
      name: "lose",
      description: "Breaks off.",
      input: ANY,
      output: { type: "object", required: ["id"], properties: { id: { type: "integer" } } },
      capabilities: ["lose"],
      run: () => Promise.reject(new Error("gone")),
    }),
  ];
  return {
    written,
    async open(options = {}) {
      const holdfast = await createHoldfast({
        workspace: folder,
        store: `sqlite:${join(folder, "store.db")}`,
        trust: true,
        permissions: { read: "allow", write: "ask", lose: "allow" },
        workflows: WORKFLOWS,
        tools,
        worker: false,
        ...options,
      });
      ends.push(() => holdfast.close());
      return holdfast;
    },
  };
}

const until = async (holdfast: Holdfast, workflow: string, options: { started_by?: string } = {}): Promise<Run> =>
  holdfast.run({ workflow, ...options });
const only = (run: Run) => run.waits[0] as NonNullable<Run["waits"][0]>;

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
const turns = async (count: number): Promise<void> => {
  for (let n = 0; n < count; n++) await new Promise<void>((resolve) => setImmediate(resolve));
};

const grants = async (holdfast: Holdfast, runId: string): Promise<number> =>
  (await holdfast.runs.events(runId)).filter(({ type }) => type === "grant_issued").length;

async function refused(act: Promise<unknown>): Promise<HoldfastError> {
  const error = await act.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!HoldfastError.is(error)) throw new Error(`not refused: ${String(error)}`);
  return error;
}

describe("approvals", () => {
  test("R-40 show who asks, where, and what; nothing of that is stored or public", async () => {
    const holdfast = await (await world()).open();
    const run = await until(holdfast, "ask", { started_by: "token:ci" });
    expect(only(run)).toMatchObject({
      type: "tool_approval",
      tool: "write",
      input: { n: 1 },
      side_effect: "mutating",
      started_by: "token:ci",
      origin: "explicit",
    });
    expect(only(run).workspace).toContain("holdfast decide");
    const [listed] = (await holdfast.waits.list({ type: ["tool_approval"] })).waits;
    expect(listed).toEqual({ ...only(run), workflow_id: "ask", session_id: run.session_id });
    const stored = JSON.stringify([await holdfast.runs.events(run.run_id), await holdfast.runs.get(run.run_id)]);
    expect(stored).not.toContain("token:ci");
    // Children, exports and restarts keep who started it; a program that says nothing is its user.
    const own = await until(holdfast, "gate");
    expect(only(own).started_by).toMatch(/^os:/);
    expect((await refused(holdfast.start({ workflow: "gate", started_by: "a\nb" }))).code).toBe("usage");
  });

  test("a list of an unknown type or no possible length is refused, as in every interface", async () => {
    const { waits, runs, sessions } = await (await world()).open();
    const bogus = await refused(waits.list({ type: ["bogus" as "input"] }));
    expect([bogus.code, bogus.message]).toEqual([
      "usage",
      expect.stringContaining('"bogus" is no type; use recovery,'),
    ]);
    expect((await refused(waits.list({ type: ["input", "aproval" as "input"] }))).message).toContain("mean approval?");
    for (const limit of [0, 201, 1.5, Number.NaN])
      for (const list of [waits.list({ limit }), runs.list({ limit }), sessions.page({ limit })])
        expect((await refused(list)).code).toBe("usage");
  });

  test("another digest is a conflict that says the new one", async () => {
    const holdfast = await (await world()).open();
    const run = await until(holdfast, "ask");
    const wait = only(run);
    const error = await refused(
      holdfast.waits.approve(run.run_id, wait.wait_id, { decided_by: "os:anna", digest: "00000000" }),
    );
    expect([error.code, error.details]).toEqual(["conflict", { wait_id: wait.wait_id, digest: wait.digest }]);
    expect((await holdfast.runs.inspect(run.run_id)).waits).toHaveLength(1);
  });

  test("GS-37 an approval of another checksum, workspace, session, run or node is refused: nothing is granted, all still waits", async () => {
    const { open, written } = await world();
    const holdfast = await open();
    const [run, twin, two] = [
      await until(holdfast, "ask"),
      await until(holdfast, "ask"),
      await until(holdfast, "both"),
    ];
    const session = (await holdfast.sessions.create({ name: "other" })).session_id;
    const elsewhere = await (await world()).open();
    const here = only(run);
    const [a, b] = two.waits as [Run["waits"][0], Run["waits"][0]];
    // The same work in another run, and the same tool in another node, are other things to approve.
    expect(new Set([here, only(twin), a, b].map(({ digest }) => digest)).size).toBe(4);
    const by = (wait: { digest?: string }) => ({ decided_by: "os:anna", digest: wait.digest ?? "" });
    const wrong: readonly [string, () => Promise<unknown>, string][] = [
      ["checksum", () => holdfast.waits.approve(run.run_id, here.wait_id, by({ digest: "0".repeat(64) })), "conflict"],
      ["workspace", () => elsewhere.waits.approve(run.run_id, here.wait_id, by(here)), "not_found"],
      ["session", () => holdfast.waits.approve(run.run_id, here.wait_id, by(here), session), "not_found"],
      ["run", () => holdfast.waits.approve(twin.run_id, here.wait_id, by(here)), "conflict"],
      ["node", () => holdfast.waits.approve(two.run_id, a.wait_id, by(b)), "conflict"],
      ["no node", () => holdfast.waits.approve(two.run_id, "w-999", by(a)), "not_found"],
    ];
    for (const [what, act, code] of wrong) expect([what, (await refused(act())).code]).toEqual([what, code]);
    for (const each of [run, twin, two]) {
      expect((await holdfast.runs.inspect(each.run_id)).waits).toEqual(each.waits);
      expect(await grants(holdfast, each.run_id)).toBe(0);
    }
    // One node's approval sends that node's call and no other.
    await holdfast.waits.approve(two.run_id, b.wait_id, by(b));
    const after = await holdfast.runs.drive(two.run_id);
    expect([after.waits, written]).toEqual([[a], [{ n: 2 }]]);
  });

  test("C36 the same decision again has the same answer, the opposite is a conflict that names who was first", async () => {
    const { written, open } = await world();
    const holdfast = await open();
    const run = await until(holdfast, "ask");
    const { wait_id, digest = "" } = only(run);
    await holdfast.waits.approve(run.run_id, wait_id, { decided_by: "os:anna", digest });
    const done = await holdfast.runs.drive(run.run_id);
    expect([done.status, written]).toEqual(["succeeded", [{ n: 1 }]]);
    // Also after the end, from another process, and by another person.
    const other = await open();
    const again = await other.waits.approve(run.run_id, wait_id, { decided_by: "os:ben", digest });
    expect([again.pending, again.run.last_sequence]).toEqual([false, done.last_sequence]);
    const no = await refused(other.waits.deny(run.run_id, wait_id, { decided_by: "os:ben", digest }));
    expect([no.code, no.message]).toEqual(["conflict", expect.stringContaining("approved meanwhile by os:anna")]);
    expect(no.details).toMatchObject({ decided: "approved", decided_by: "os:anna" });
    expect(
      (await refused(other.waits.approve(run.run_id, wait_id, { decided_by: "os:ben", digest: "11111111" }))).code,
    ).toBe("conflict");
    expect((await refused(other.waits.approve(run.run_id, "w-1", { decided_by: "os:ben" }))).code).toBe("terminal");
  });

  test("C36 fifty yes and fifty no at once over two processes: one word stands, everybody hears which", async () => {
    const { written, open } = await world();
    const [a, b] = [await open(), await open()];
    const run = await until(a, "ask");
    const { wait_id, digest = "" } = only(run);
    const answers = await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const kind = n % 4 < 2 ? "approve" : "deny";
        try {
          await (n % 2 === 0 ? a : b).waits[kind](run.run_id, wait_id, { decided_by: `os:p${n}`, digest });
          return kind;
        } catch (error) {
          expect(error).toMatchObject({ code: "conflict" });
          return `no ${kind}`;
        }
      }),
    );
    const end = await a.runs.drive(run.run_id);
    const won = end.status === "succeeded" ? "approve" : "deny";
    expect(new Set(answers)).toEqual(new Set([won, won === "approve" ? "no deny" : "no approve"]));
    expect(written).toHaveLength(won === "approve" ? 1 : 0);
  });

  test("C14 cancel and approve at once over two processes: an approval that is refused was cancelled and sent nothing, one that stands was sent or is cancelled, and both sides hear which", async () => {
    const { written, open } = await world();
    const [a, b] = [await open(), await open()];
    const random = seededRandom("C14", seed);
    const seen = new Map<string, number>();
    for (let n = 0; n < 100; n++) {
      const run = await until(a, "ask");
      const { wait_id, digest = "" } = only(run);
      const before = written.length;
      const [ahead, behind] = random.shuffle([0, random.int(40)]) as [number, number];
      const [approved, cancelled] = await Promise.allSettled([
        turns(ahead).then(() =>
          random.pick([a, b]).waits.approve(run.run_id, wait_id, { decided_by: "os:anna", digest }),
        ),
        turns(behind).then(() => random.pick([a, b]).runs.cancel(run.run_id, { decided_by: "os:ben" })),
      ]);
      const end = await a.runs.drive(run.run_id);
      const granted = await grants(a, run.run_id);
      const effects = written.length - before;
      const yes = approved.status === "fulfilled";
      const place = `round ${n} of seed ${seed}`;
      if (!yes)
        expect(approved.reason).toMatchObject({ code: "conflict", message: expect.stringContaining("run cancelled") });
      expect([place, granted, end.waits]).toEqual([place, yes ? 1 : 0, []]);
      // Never both and never neither: what was approved is sent once, unless the cancel came before it was.
      expect([place, effects <= granted, effects === 1 || end.status === "cancelled"]).toEqual([place, true, true]);
      if (cancelled.status === "fulfilled") expect([place, end.status]).toEqual([place, "cancelled"]);
      else expect([place, cancelled.reason, end.status]).toMatchObject([place, { code: "terminal" }, "succeeded"]);
      const late = await refused(b.waits.deny(run.run_id, wait_id, { decided_by: "os:ben" }));
      expect(late.code).toBe("conflict");
      const key = `${yes ? "approved" : "refused"}, ${end.status}, ${effects} sent`;
      seen.set(key, (seen.get(key) ?? 0) + 1);
    }
    console.log(`seed ${seed}: ${JSON.stringify(Object.fromEntries(seen))}`);
    expect([...seen.keys()].some((key) => key.startsWith("approved"))).toBe(true);
    expect([...seen.keys()].some((key) => key.startsWith("refused"))).toBe(true);
  });

  test("R-40 not_by_starter: who started a run may not approve it, but may deny it", async () => {
    const holdfast = await (await world()).open({ approvals: { not_by_starter: true } });
    const run = await until(holdfast, "gate", { started_by: "os:anna" });
    const own = await refused(holdfast.waits.approve(run.run_id, undefined, { decided_by: "os:anna" }));
    expect([own.code, own.message]).toEqual(["forbidden", expect.stringContaining("os:anna started this run")]);
    await holdfast.waits.approve(run.run_id, undefined, { decided_by: "os:ben" });
    expect((await holdfast.runs.drive(run.run_id)).status).toBe("succeeded");
    const other = await until(holdfast, "gate", { started_by: "os:anna" });
    await holdfast.waits.deny(other.run_id, undefined, { decided_by: "os:anna" });
    expect((await holdfast.runs.drive(other.run_id)).status).toBe("failed");
  });

  test("R-40 no model session approves, denies or repairs; an MCP client's user only where it says so", async () => {
    const { open } = await world();
    const holdfast = await open();
    const run = await until(holdfast, "gate");
    const lost = await until(holdfast, "lost");
    for (const decided_by of ["model", "model:x", "mcp:desk"]) {
      expect((await refused(holdfast.waits.approve(run.run_id, undefined, { decided_by }))).code).toBe("forbidden");
      expect((await refused(holdfast.waits.deny(run.run_id, undefined, { decided_by }))).code).toBe("forbidden");
      expect(
        (await refused(holdfast.waits.repair(lost.run_id, "lose", { resolution: "retry", reason: "x", decided_by })))
          .code,
      ).toBe("forbidden");
    }
    // The tools of a model have no such verb.
    const tools = holdfast.tools();
    expect(
      tools
        .list()
        .map(({ name }) => name)
        .filter((name) => /approve|deny|repair|decide|answer/.test(name)),
    ).toEqual([]);
    for (const action of ["approve", "deny", "repair", "answer"])
      await expect(tools.call("workflow_run", { action, run_id: run.run_id })).rejects.toThrow();
    const elicits = await open({ approvals: { mcp: "elicit" } });
    await elicits.waits.approve(run.run_id, undefined, { decided_by: "mcp:desk" });
    expect(
      (
        await refused(
          elicits.waits.repair(lost.run_id, "lose", { resolution: "retry", reason: "x", decided_by: "mcp:desk" }),
        )
      ).code,
    ).toBe("forbidden");
  });
});

describe("inputs", () => {
  test("GS-36 -1 is refused with its place and the wait stays; 7 is taken; again is the same, another is a conflict", async () => {
    const { open } = await world();
    const holdfast = await open();
    const run = await until(holdfast, "number");
    const wrong = await refused(holdfast.waits.answer(run.run_id, undefined, { value: -1, decided_by: "os:anna" }));
    expect([wrong.code, wrong.details]).toEqual(["input", { path: "" }]);
    expect((await holdfast.runs.inspect(run.run_id)).waits).toEqual(run.waits);
    const { wait_id } = only(run);
    await holdfast.waits.answer(run.run_id, wait_id, { value: 7, decided_by: "os:anna" });
    expect(await holdfast.runs.drive(run.run_id)).toMatchObject({ status: "succeeded", output: 7 });
    const other = await open();
    expect((await other.waits.answer(run.run_id, wait_id, { value: 7, decided_by: "os:ben" })).run.status).toBe(
      "succeeded",
    );
    const late = await refused(other.waits.answer(run.run_id, wait_id, { value: 8, decided_by: "os:ben" }));
    expect([late.code, late.message]).toEqual(["conflict", expect.stringContaining("answered meanwhile by os:anna")]);
    expect((await refused(other.waits.approve(run.run_id, wait_id, { decided_by: "os:ben" }))).code).toBe("conflict");
  });
});

describe("repairs", () => {
  test("GS-40 a foreign output is refused, the right one settles; doctor is clean; attempt 2 only after retry", async () => {
    const { open } = await world();
    const holdfast = await open();
    const run = await until(holdfast, "lost");
    const { digest = "", evidence } = only(run);
    const repair = (resolution: { resolution: "succeeded"; output: unknown }, more: object = {}) =>
      holdfast.waits.repair(run.run_id, "lose", { ...resolution, decided_by: "os:anna", digest, ...more });
    const foreign = await refused(repair({ resolution: "succeeded", output: { id: "x" } }));
    expect([foreign.code, foreign.message]).toEqual(["input", expect.stringContaining("does not fit at /id")]);
    expect(
      (await refused(repair({ resolution: "succeeded", output: { id: 1 } }, { dispatch_id: "0".repeat(64) }))).code,
    ).toBe("conflict");
    expect((await holdfast.runs.attempts(run.run_id)).attempts).toMatchObject([
      { step_id: "lose", attempt: 1, status: "suspended", dispatch_id: evidence?.dispatch_id },
    ]);
    expect(await holdfast.runs.doctor(run.run_id)).toEqual({ findings: [], truncated: false });
    await repair({ resolution: "succeeded", output: { id: 1 } });
    expect(await holdfast.runs.drive(run.run_id)).toMatchObject({ status: "succeeded", output: { id: 1 } });
    expect(await holdfast.runs.doctor(run.run_id)).toEqual({ findings: [], truncated: false });
    // Sent again it is the same repair; another word on the same attempt is a conflict.
    expect((await repair({ resolution: "succeeded", output: { id: 1 } })).run.status).toBe("succeeded");
    const other = await refused(
      holdfast.waits.repair(run.run_id, "lose", { resolution: "failed", message: "no", decided_by: "os:ben", digest }),
    );
    expect([other.code, other.message]).toEqual([
      "conflict",
      expect.stringContaining("repaired as succeeded meanwhile by os:anna"),
    ]);
  });

  test("GD-74 given up for a retry: the next attempt has a new number and a new key", async () => {
    const holdfast = await (await world()).open();
    const run = await until(holdfast, "lost");
    await holdfast.waits.repair(run.run_id, "lose", {
      resolution: "retry",
      reason: "nothing happened",
      decided_by: "os:anna",
    });
    const again = await holdfast.runs.drive(run.run_id);
    expect(again.waits).toMatchObject([{ type: "repair", evidence: { attempt: 2 } }]);
    const { attempts } = await holdfast.runs.attempts(run.run_id);
    expect(attempts.map(({ attempt, status, stage }) => [attempt, status, stage])).toEqual([
      [1, "failed", "abandoned"],
      [2, "suspended", undefined],
    ]);
    expect(attempts[0]?.dispatch_id).not.toBe(attempts[1]?.dispatch_id);
    // The first attempt is nobody's to repair any more.
    const old = {
      resolution: "failed",
      message: "x",
      decided_by: "os:anna",
      dispatch_id: attempts[0]?.dispatch_id ?? "",
    } as const;
    expect((await refused(holdfast.waits.repair(run.run_id, "lose", old))).code).toBe("conflict");
    await holdfast.waits.repair(run.run_id, "lose", {
      resolution: "cancelled",
      message: "stopped by hand",
      decided_by: "os:anna",
    });
    expect(await holdfast.runs.drive(run.run_id)).toMatchObject({ status: "failed", failure: { code: "cancelled" } });
  });
});

describe("attempts", () => {
  test("GS-37 a mutation that waits for approval is no attempt; approved it is the attempt of one grant, denied none", async () => {
    const { open, written } = await world();
    const holdfast = await open();
    const run = await until(holdfast, "ask");
    expect((await holdfast.runs.attempts(run.run_id)).attempts).toEqual([]);
    await holdfast.waits.approve(run.run_id, undefined, { decided_by: "os:anna" });
    await holdfast.runs.drive(run.run_id);
    expect((await holdfast.runs.attempts(run.run_id)).attempts).toMatchObject([
      { attempt: 1, status: "succeeded", side_effect: "mutating", has_receipt: false, redispatches: 0, tool: "write" },
    ]);
    expect(await grants(holdfast, run.run_id)).toBe(1);
    const denied = await until(holdfast, "ask");
    await holdfast.waits.deny(denied.run_id, undefined, { decided_by: "os:anna" });
    expect((await holdfast.runs.drive(denied.run_id)).status).toBe("failed");
    expect((await holdfast.runs.attempts(denied.run_id)).attempts).toEqual([]);
    expect([await grants(holdfast, denied.run_id), written.length]).toEqual([0, 1]);
  });

  test("come in pages, with a filter, each once", async () => {
    const folder = await realpath(await mkdtemp(join(tmpdir(), "holdfast pages ")));
    const store = await openSqliteStore({ path: ":memory:" });
    let n = 0;
    const flaky = defineTool({
      name: "flaky",
      description: "Every third fails.",
      input: ANY,
      capabilities: ["read"],
      sideEffect: "read_only",
      run: () => (n++ % 3 === 0 ? Promise.reject(new Error("no")) : { ok: true }),
    });
    const holdfast = await createHoldfast({
      workspace: folder,
      store,
      trust: true,
      tools: [flaky],
      worker: false,
      workflows: [
        plan(
          "many",
          [
            {
              id: "each",
              type: "tool",
              tool: "flaky",
              args: {},
              capabilities: ["read"],
              failure: "continue_with_error",
            },
          ],
          {
            type: "map",
            source: { from: "literal", value: Array.from({ length: 40 }, (_, i) => i) },
            item: "item",
            body: leaf("each"),
          },
        ),
      ],
    });
    ends.push(
      () => rm(folder, { recursive: true, force: true }),
      () => store.close(),
      () => holdfast.close(),
    );
    const run = await holdfast.run({ workflow: "many" });
    const pages = async (status?: readonly ("failed" | "succeeded")[]): Promise<string[]> => {
      const found: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await holdfast.runs.attempts(run.run_id, {
          limit: 7,
          ...(status === undefined ? {} : { status }),
          ...(cursor === undefined ? {} : { cursor }),
        });
        expect(page.attempts.length).toBeLessThanOrEqual(7);
        found.push(...page.attempts.map(({ step_id }) => step_id));
        cursor = page.next_cursor;
      } while (cursor !== undefined);
      return found;
    };
    const all = await pages();
    expect([all.length, new Set(all).size]).toEqual([40, 40]);
    expect([(await pages(["failed"])).length, (await pages(["succeeded"])).length]).toEqual([14, 26]);
  });
});
