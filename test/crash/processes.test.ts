// Owns what several real processes do on one SQLite file: one owner a tree, takeover, frozen and crashing processes.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { checkRules, readHistory } from "../../src/testing/index.ts";
import { GO } from "./child-request.ts";
import { child, cleanUp, effectsIn, folder, runChild, type Said } from "./children.ts";

afterAll(cleanUp);

const LEASE_MS = 1_000;
const isSlow = (said: Said): boolean => said.slow !== undefined;
const isEnd = (said: Said): boolean => said.status !== undefined;

/** The one run of the folder, as it is on the disk. */
async function runIn(at: string): Promise<{
  status: string;
  suspension?: string;
  recoveries: number;
  reasons: string[];
  broken: string[];
  /** Of each `step_started`: the step, the attempt, and how often it was sent again. */
  starts: [string, number, number | undefined][];
}> {
  const store = await openSqliteStore({ path: join(at, "holdfast.db") });
  try {
    const [run] = await store.listRuns({ limit: 1 });
    if (run === undefined) throw new Error("there is no run");
    const history = await readHistory(store, run.run_id);
    const events = history.runs[0]?.events ?? [];
    return {
      status: run.status,
      ...(run.suspension === undefined ? {} : { suspension: run.suspension }),
      recoveries: history.tree.recoveries,
      reasons: events.flatMap((event) => (event.type === "run_suspended" ? [event.reason] : [])),
      broken: checkRules(history).map((fault) => `${fault.rule} at ${fault.sequence}: ${fault.why}`),
      starts: events.flatMap((event) =>
        event.type === "step_started" ? [[event.step_id, event.attempt, event.redispatch]] : [],
      ),
    };
  } finally {
    await store.close();
  }
}

/** Waits until the disk shows it: there is no other process to hear it from. */
async function eventually(
  at: string,
  fits: (run: Awaited<ReturnType<typeof runIn>>) => boolean,
): Promise<Awaited<ReturnType<typeof runIn>>> {
  const until = Date.now() + 15_000;
  for (;;) {
    const run = await runIn(at);
    if (fits(run)) return run;
    if (Date.now() > until) throw new Error(`it stays ${JSON.stringify(run)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Follows the row of the folder's one tree until it has been renewed into the time of `until`; each expiry, once. */
async function leasesUntil(at: string, until: number): Promise<{ fences: number[]; expiries: number[] }> {
  const store = await openSqliteStore({ path: join(at, "holdfast.db") });
  const [fences, expiries] = [new Set<number>(), new Set<number>()];
  try {
    const [run] = await store.listRuns({ limit: 1 });
    for (;;) {
      const tree = await store.getTree(run?.run_id ?? "");
      const { fence = 0, lease_expires_at_ms: expiry = 0 } = tree ?? {};
      fences.add(fence);
      expiries.add(expiry);
      if (expiry === 0 || expiry - LEASE_MS >= until) break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  } finally {
    await store.close();
  }
  return { fences: [...fences], expiries: [...expiries] };
}

test("C01 C04 a step of four leases, three workers: its lease is renewed throughout, nobody else gets it, and it is one attempt with one effect", async () => {
  const at = folder();
  const first = await child({ act: "start", folder: at, workflow: "slow", lease_ms: LEASE_MS });
  await first.hears(isSlow);
  const idle = [
    await child({ act: "serve", folder: at, lease_ms: LEASE_MS }),
    await child({ act: "serve", folder: at, lease_ms: LEASE_MS }),
  ];
  for (const each of idle) await each.hears((said) => said.serving !== undefined);
  const { fences, expiries } = await leasesUntil(at, Date.now() + 4 * LEASE_MS);
  // One holder, whose renewals each came before the last one had run out.
  expect(fences).toEqual([1]);
  for (const [i, expiry] of expiries.entries())
    if (i > 0) expect(expiry - (expiries[i - 1] ?? 0)).toBeLessThan(LEASE_MS);
  expect(expiries.length).toBeGreaterThan(4);
  for (const each of idle) expect(each.said.filter(isSlow)).toEqual([]);
  writeFileSync(join(at, GO), "");
  expect((await first.hears(isEnd)).status).toBe("succeeded");
  const run = await runIn(at);
  expect([effectsIn(at).map((effect) => effect.pid), run.recoveries, run.broken]).toEqual([[first.process.pid], 0, []]);
  expect(run.starts).toEqual([
    ["look", 1, undefined],
    ["slow", 1, undefined],
    ["after", 1, undefined],
  ]);
  for (const each of idle) each.process.kill("SIGTERM");
  await Promise.all(idle.map((each) => each.exited));
}, 20_000);

test("R-5 a restart on the same host goes on at once: no lease is waited for", async () => {
  const at = folder();
  const first = await child({ act: "start", folder: at, workflow: "asked", die: { write: 2, when: "after" } });
  expect((await first.exited).signal).toBe("SIGKILL");
  const { last } = await runChild({ act: "finish", folder: at });
  const run = await runIn(at);
  expect([last.status, run.broken]).toEqual(["succeeded", []]);
  const store = await openSqliteStore({ path: join(at, "holdfast.db") });
  const [row] = await store.listRuns({ limit: 1 });
  await store.close();
  // The lease was 30 s.
  expect((row?.updated_at_ms ?? 0) - (row?.created_at_ms ?? 0)).toBeLessThan(10_000);
});

test("C03 a second worker that lives takes over: claimed and not sent goes on, sent and not answered is asked about", async () => {
  const at = folder();
  const worker = await child({ act: "serve", folder: at });
  await worker.hears((said) => said.serving !== undefined);
  expect(
    (await runChild({ act: "start", folder: at, workflow: "asked", die: { write: 2, when: "after" } })).signal,
  ).toBe("SIGKILL");
  const run = await eventually(at, (found) => found.status === "succeeded");
  expect([run.broken, effectsIn(at).length]).toEqual([[], 1]);
  const other = folder();
  const second = await child({ act: "serve", folder: other });
  await second.hears((said) => said.serving !== undefined);
  const lost = await child({ act: "start", folder: other, workflow: "slow" });
  await lost.hears(isSlow);
  lost.process.kill("SIGKILL");
  await lost.exited;
  const open = await eventually(other, (found) => found.status === "suspended");
  expect([open.suspension, open.broken, second.said.filter(isSlow)]).toEqual(["repair", [], []]);
  for (const each of [worker, second]) each.process.kill("SIGTERM");
  await Promise.all([worker.exited, second.exited]);
});

test.each([3, 4, 5])(
  "C05 frozen before its write %i, past its lease: another ends the run; woken, nothing of it is taken and nothing more happens",
  async (write) => {
    const at = folder();
    writeFileSync(join(at, GO), "");
    const frozen = await child({
      act: "start",
      folder: at,
      workflow: "mutating",
      lease_ms: LEASE_MS,
      die: { write, when: "before", how: "stop" },
    });
    await frozen.hears((said) => said.stopped === write);
    const before = effectsIn(at).length;
    // It holds its host lock and lives: only the lease says that it is late.
    const other = await child({ act: "finish", folder: at, lease_ms: LEASE_MS });
    expect((await other.hears(isEnd)).rules).toEqual([]);
    await other.exited;
    const journal = await runIn(at);
    const after = effectsIn(at);
    frozen.process.kill("SIGCONT");
    await frozen.exited;
    const last = frozen.said.at(-1);
    expect(await runIn(at)).toEqual(journal);
    expect([journal.status, journal.broken]).toEqual(["succeeded", []]);
    expect(effectsIn(at)).toEqual(after);
    expect(after.filter((effect) => effect.pid === frozen.process.pid)).toHaveLength(before);
    expect(new Set(after.map((effect) => effect.step)).size).toBe(after.length);
    // It follows what the other made of it, or says that it lost it.
    expect(last).toSatisfy(
      (said: Said) => said.status === "succeeded" || said.error !== undefined || said.log !== undefined,
    );
  },
  20_000,
);

test("C08 a step that takes its process down is parked after five recoveries without progress; other runs go on", async () => {
  const at = folder();
  expect((await runChild({ act: "start", folder: at, workflow: "exits" })).status).toBe(1);
  let restarts = 0;
  for (; restarts < 12; restarts++) {
    const worker = await child({ act: "serve", folder: at });
    await worker.hears((said) => said.serving !== undefined);
    const parked = await Promise.race([
      worker.exited.then(() => false),
      eventually(at, (run) => run.status === "suspended" && run.reasons.at(-1) === "no_progress").then(
        () => true,
        () => false,
      ),
    ]);
    if (!parked) continue;
    const { last } = await runChild({ act: "start", folder: at, workflow: "quick", key: "other" });
    expect(last.status).toBe("succeeded");
    worker.process.kill("SIGTERM");
    await worker.exited;
    break;
  }
  expect(restarts).toBeGreaterThanOrEqual(3);
  expect(restarts).toBeLessThanOrEqual(5);
}, 60_000);

test("C08 progress resets the count: a run that loses its process in each of six steps ends", async () => {
  const at = folder();
  expect((await runChild({ act: "start", folder: at, workflow: "progresses" })).status).toBe(1);
  let ended: Said = {};
  for (let restarts = 0; restarts < 10 && ended.status === undefined; restarts++)
    ended = (await runChild({ act: "finish", folder: at })).last;
  expect(ended.status).toBe("succeeded");
  expect(effectsIn(at)).toHaveLength(6);
  expect((await runIn(at)).broken).toEqual([]);
}, 60_000);
