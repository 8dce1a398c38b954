/** GS-1, C02, C07, C33, C34: a store that is not there, is full, or is used by many; and what the driver makes of it. */
import { expect, test } from "vitest";
import { type Json, sha256 } from "../../src/domain/json.ts";
import { type FakeTool, gate, NEVER, ok, TestClock } from "../../src/engine/fixture.ts";
import { openHealingStore } from "../../src/engine/index.ts";
import type { Program } from "../../src/engine/program.ts";
import { collectStatements, type Db, type OpenDatabase, openDatabase } from "../../src/stores/sqlite/driver.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { carrier, eventually, file, open, plain, processOn, stepOf, TurnOwner, turnSpec } from "./gs-world.ts";

/** A run that its process left before it did anything of it, in a file that nobody has open. */
async function leftBehind(path: string, tools: Record<string, FakeTool>): Promise<string> {
  const raw = await open(path);
  const dying = await processOn(raw, {
    tools,
    faults: { write: (_, method) => (method === "commit" ? { kind: "stop", when: "after" } : undefined) },
  });
  void dying.start(carrier()).catch(() => undefined);
  await eventually(() => dying.faulty.stopped);
  await dying.kill();
  const [run] = await raw.listRuns({ limit: 1 });
  await raw.close();
  if (run === undefined) throw new Error("nothing was started");
  return run.run_id;
}

/** Keeps everybody else out of a store, as another process can. @returns what lets them in again */
async function holdStore(path: string): Promise<() => void> {
  const holder = openDatabase(path, { readOnly: false });
  holder.exec("PRAGMA locking_mode = EXCLUSIVE");
  await eventually(() => {
    // Handles of this process that are closed, but not yet collected, still hold their locks.
    collectStatements();
    try {
      holder.exec("BEGIN IMMEDIATE");
    } catch {
      return false;
    }
    return true;
  });
  return () => holder.close();
}

/** A store that heals by a clock of its own, and counts its openings. */
async function healing(path: string) {
  const clock = new TestClock();
  const counts = { openings: 0, atOnce: 0 };
  const store = await openHealingStore({
    clock,
    open: async () => {
      counts.openings++;
      counts.atOnce++;
      try {
        return await openSqliteStore({ path, busyTimeoutMs: 20 });
      } finally {
        expect(counts.atOnce--).toBe(1);
      }
    },
  });
  return { clock, counts, store };
}

test("GS-1 the driver is started while another holds the store: all is refused at once and nothing admitted; released, it is ready within 2 s and the run completes with one attempt", async () => {
  const path = file();
  const owner = new TurnOwner();
  const tools = { turn: owner.tool("read_only") };
  const runId = await leftBehind(path, tools);
  const release = await holdStore(path);
  const { clock, counts, store } = await healing(path);
  const eight = () => Promise.allSettled(Array.from({ length: 8 }, () => store.getRun(runId)));
  const refused = { status: "rejected", reason: { code: "storage_unavailable" } };
  const f = await processOn(store, { tools, hasSession: true });
  const driver = f.drive();
  await driver.wake();
  expect(await eight()).toMatchObject(Array.from({ length: 8 }, () => refused));
  // Nothing is taken up to be done later.
  expect([driver.running, f.engine.load, owner.calls]).toEqual([true, 0, 0]);
  // So many tries that the pause between two is the longest.
  while (counts.openings < 8) {
    await clock.advance(2_000);
    await eventually(() => counts.atOnce === 0);
  }
  release();
  const before = counts.openings;
  for (const answer of await eight())
    expect(answer).toMatchObject(answer.status === "fulfilled" ? { value: { run_id: runId } } : refused);
  await clock.advance(2_000);
  expect(counts.openings).toBe(before + 1);
  await eventually(async () => (await eight()).every(({ status }) => status === "fulfilled"));
  await driver.start();
  const done = await f.until(runId, ({ status }) => status === "succeeded");
  expect([stepOf(done).attempts, stepOf(done).status, owner.accepted.length]).toEqual([1, "succeeded", 1]);
  await f.engine.idle(runId);
  expect([f.engine.load, counts.openings]).toEqual([0, before + 1]);
  await f.engine.close();
  await store.close();
}, 15_000);

test("GS-1 a driver that was started before the store was there needs neither a second start nor its poll", async () => {
  const path = file();
  const owner = new TurnOwner();
  const tools = { turn: owner.tool("read_only") };
  const runId = await leftBehind(path, tools);
  const release = await holdStore(path);
  const { clock, store } = await healing(path);
  const f = await processOn(store, { tools, hasSession: true });
  const driver = f.drive(86_400_000);
  await driver.wake();
  release();
  await clock.advance(2_000);
  expect((await f.until(runId, ({ status }) => status === "succeeded")).output).toBe(1);
  expect(owner.accepted).toHaveLength(1);
  await f.engine.close();
  await store.close();
});

/** A disk of so many pages; reading goes on whatever they are. */
function disk(): { pages: number; readonly open: OpenDatabase } {
  const limit = {
    pages: 2 ** 30,
    open: (path: string, options: { readonly readOnly: boolean }): Db => {
      const db = openDatabase(path, options);
      return new Proxy(db, {
        get(target, key) {
          const value: unknown = Reflect.get(target, key, target);
          if (typeof value !== "function") return value;
          return (...args: unknown[]): unknown => {
            if (key === "run") target.exec(`PRAGMA max_page_count = ${limit.pages}`);
            return value.apply(target, args);
          };
        },
      });
    },
  };
  return limit;
}

test("C34 the disk fills at each point of a run: it stands still with that reason, is read, and goes on when there is space, also after a restart", async () => {
  // Does not get smaller by being packed.
  const large = (n: number): Json => Array.from({ length: 1_000 }, (_, i) => sha256(`${n} ${i}`)).join("");
  const five: Program = async (ctx) => {
    for (let n = 1; n <= 5; n++) await ctx.step(`s${n}`, turnSpec(), n);
    return "done";
  };
  for (let full = 1; full <= 5; full += 2) {
    const limit = disk();
    const path = file();
    const raw = await openSqliteStore({ path, open: limit.open });
    const done = new Set<string>();
    const run = (call: { readonly dispatch_id: string; readonly input: Json }) => {
      if (call.input === full && done.size === full - 1) limit.pages = 1;
      done.add(call.dispatch_id);
      return ok(large(Number(call.input)));
    };
    const options = { program: () => five, tools: { turn: plain(run, { side_effect: "idempotent" }) } };
    const f = await processOn(raw, options);
    f.drive(20);
    const runId = await f.start(carrier());
    await eventually(() => f.engine.troubleOf(runId)?.code === "storage");
    expect(f.engine.troubleOf(runId)?.message).toContain("disk is full");
    // What is finished is intact, and reading works.
    const kept = await f.state(runId);
    expect([...kept.steps.values()].filter((step) => step.status === "succeeded")).toHaveLength(full - 1);
    let last = f;
    if (full === 3) {
      await f.engine.close();
      last = await processOn(raw, options);
      last.drive(20);
      await raw.renew(f.engine.owner, -1).catch(() => undefined);
    }
    limit.pages = 2 ** 30;
    if (last !== f) await raw.renew(f.engine.owner, -86_400_000);
    await eventually(async () => (await raw.getRun(runId))?.status === "succeeded");
    expect([(await last.state(runId)).output, done.size]).toEqual(["done", 5]);
    await eventually(() => last.engine.troubleOf(runId) === undefined);
    await last.engine.close();
    await f.engine.close();
    await raw.close();
  }
});

test("C07 one run that cannot be driven strands none of its batch, and a store that fails between two claims loses none", async () => {
  const store = await open();
  const starter = await processOn(store, { tools: { turn: plain(() => NEVER, { side_effect: "read_only" }) } });
  const ids: string[] = [];
  for (let i = 0; i < 10; i++) ids.push(await starter.start(carrier(), i));
  for (const id of ids) await starter.engine.holds(id)?.journal.barrier();
  await starter.kill();
  let claims = 0;
  const f = await processOn(store, {
    program: () => (ctx) => {
      if (ctx.args === 2) throw new Error("this program cannot be loaded");
      return ctx.step("turn", turnSpec(), 1);
    },
    tools: { turn: plain(() => ok(1), { side_effect: "read_only" }) },
    faults: { call: (_, method) => (method === "claimDue" && ++claims === 1 ? "busy" : undefined) },
  });
  f.drive(20);
  const statuses = async (): Promise<string[]> =>
    Promise.all(ids.map(async (id) => (await store.getRun(id))?.status ?? ""));
  await eventually(async () => (await statuses()).filter((status) => status === "succeeded").length === 9);
  await eventually(async () =>
    (await Promise.all(ids.map((id) => store.getTree(id)))).every((tree) => tree?.owner === undefined),
  );
  expect((await statuses())[2]).not.toBe("succeeded");
  expect(claims).toBeGreaterThan(1);
});

test("C02 the process is lost during a sleep, and inside a step: a driver goes on with it, and nobody has to send anything", async () => {
  const clock = new TestClock();
  const store = await openSqliteStore({ path: ":memory:", clock });
  const counted: Json[] = [];
  const program: Program = async (ctx) => {
    await ctx.step("a", turnSpec(), "a");
    await ctx.wait("sleep", { type: "timer", for_ms: 5_000 });
    return ctx.step("b", turnSpec(), "b");
  };
  let hang = true;
  const run = (call: { readonly input: Json }) => {
    if (call.input === "b" && hang) return NEVER;
    counted.push(call.input);
    return ok(call.input);
  };
  const options = { program: () => program, clock, tools: { turn: plain(run, { side_effect: "read_only" }) } };
  const first = await processOn(store, options);
  const runId = await first.start(carrier());
  await first.until(runId, ({ waits }) => waits[0]?.type === "timer");
  first.engine.holds(runId)?.drop();
  await first.kill();
  const second = await processOn(store, options);
  second.drive();
  const advanceUntil = async (fits: () => boolean | Promise<boolean>): Promise<void> => {
    while (!(await fits())) await clock.advance(50);
  };
  const from = clock.now();
  await advanceUntil(() => second.engine.holds(runId)?.state(runId).steps.get("b")?.status === "running");
  expect(clock.now() - from).toBeLessThanOrEqual(5_100);
  await second.engine.holds(runId)?.journal.barrier();
  second.engine.holds(runId)?.drop();
  await second.kill();
  hang = false;
  const third = await processOn(store, options);
  third.drive();
  await advanceUntil(async () => (await store.getRun(runId))?.status === "succeeded");
  expect(counted).toEqual(["a", "b"]);
});

test("C33 fifty runs at work hold nothing of the store: it is read and written within a second, by others too", async () => {
  const path = file();
  const [inside, end] = [gate(), gate()];
  let at = 0;
  const run = async () => {
    if (++at === 50) inside.open();
    await end.promise;
    return ok(1);
  };
  const f = await processOn(await open(path), { tools: { turn: plain(run) } });
  const ids = await Promise.all(Array.from({ length: 50 }, () => f.start(carrier())));
  await inside.promise;
  const other = await open(path);
  const from = performance.now();
  for (const id of ids) expect((await other.getRun(id))?.status).toBe("running");
  await f.start(carrier());
  await other.createSession({
    ...(await other.listSessions({ limit: 1 }))[0],
    session_id: "018f0000-0000-7000-8000-0000000000ff",
    name: "other",
  } as Parameters<typeof other.createSession>[0]);
  expect(performance.now() - from).toBeLessThan(1_000);
  end.open();
  for (const id of ids) await f.engine.idle(id).catch(() => undefined);
});
