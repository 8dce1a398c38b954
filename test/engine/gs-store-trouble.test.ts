/** GS-1, C02, C07, C33, C34: a store that is not there, is full, or is used by many; and what the driver makes of it. */
import { expect, test } from "vitest";
import { type Json, sha256 } from "../../src/domain/json.ts";
import { gate, NEVER, ok, TestClock, turn } from "../../src/engine/fixture.ts";
import { openHealingStore, systemClock } from "../../src/engine/index.ts";
import type { Program } from "../../src/engine/program.ts";
import { type Db, type OpenDatabase, openDatabase } from "../../src/stores/sqlite/driver.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { carrier, eventually, file, open, plain, processOn, stepOf, TurnOwner, turnSpec } from "./gs-world.ts";

test("GS-1 a store that another holds: refused at once, opened once behind, and the driver that was started goes on by itself", async () => {
  const path = file();
  const owner = new TurnOwner();
  const tools = { turn: owner.tool("read_only") };
  const dying = await processOn(await open(path), {
    tools,
    faults: { write: (n) => (n === 2 ? { kind: "stop", when: "after" } : undefined) },
  });
  const started = dying.start(carrier());
  await eventually(() => dying.faulty.stopped);
  void started.catch(() => undefined);
  await dying.kill();
  const [run] = await (await open(path)).listRuns({ limit: 1 });
  const runId = run?.run_id ?? "";
  let locked = true;
  let openings = 0;
  let atOnce = 0;
  const store = await openHealingStore({
    clock: systemClock,
    open: async () => {
      openings++;
      atOnce++;
      try {
        await turn();
        if (locked) return await heldElsewhere();
        return await openSqliteStore({ path });
      } finally {
        expect(atOnce--).toBe(1);
      }
    },
  });
  const f = await processOn(store, { tools }).catch((error: unknown) => error);
  // Nothing of it is admitted, and the caller is told so at once.
  expect(f).toMatchObject({ code: "storage_unavailable" });
  const asked = await Promise.allSettled(Array.from({ length: 8 }, () => store.getRun(runId)));
  for (const answer of asked)
    expect(answer).toMatchObject({ status: "rejected", reason: { code: "storage_unavailable" } });
  let woken = 0;
  store.watch(() => woken++);
  await eventually(() => openings >= 3);
  locked = false;
  await eventually(() => woken > 0);
  const healed = await processOn(store, { tools });
  const driver = healed.drive();
  await driver.start();
  await eventually(async () => (await healed.state(runId)).status === "succeeded");
  expect([stepOf(await healed.state(runId)).attempts, owner.accepted.length]).toEqual([1, 1]);
  const before = openings;
  await Promise.all(Array.from({ length: 8 }, () => store.getRun(runId)));
  expect(openings).toBe(before);
  await store.close();
});

/** What opening a database says that another process has locked. */
async function heldElsewhere(): Promise<never> {
  const { HoldfastError } = await import("../../src/domain/errors.ts");
  throw new HoldfastError("storage_unavailable", "Cannot open the store: another process holds it; wait and try again");
}

test("GS-1 a driver that was started before the store was there needs no second start", async () => {
  const path = file();
  const owner = new TurnOwner();
  const tools = { turn: owner.tool("read_only") };
  const raw = await open(path);
  const first = await processOn(raw, { tools });
  owner.permit = "somebody else";
  const runId = await first.start(carrier());
  await first.engine.close();
  owner.release();
  let broken = true;
  const f = await processOn(raw, { tools, faults: { call: () => (broken ? "busy" : undefined) } }).catch(
    () => undefined,
  );
  expect(f).toBeUndefined();
  broken = false;
  const late = await processOn(raw, { tools, faults: { call: () => (broken ? "busy" : undefined) } });
  broken = true;
  const driver = late.drive();
  await driver.start();
  await driver.start();
  expect((await raw.getTree(runId))?.owner).toBeUndefined();
  broken = false;
  await eventually(async () => (await raw.getRun(runId))?.status === "succeeded");
  expect(owner.accepted).toHaveLength(1);
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
