// Owns the proof that a cancel reaches everything below a run: runs, waits, queued work and processes (C09).
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { createHoldfast, type Holdfast } from "../../src/index.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { checkRules, readHistory, type TreeHistory } from "../../src/testing/index.ts";
import { type Child, childOf, cleanUp, folder } from "./children.ts";

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  cleanUp();
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** The tree with its six processes at work, seen from this process, which is not the one that holds it. */
async function atWork(): Promise<{ child: Child; holdfast: Holdfast; runId: string; pids: number[]; at: string }> {
  const at = folder();
  const child = await childOf("test/crash/tree-child.ts", { folder: at });
  const pids: number[] = [];
  ends.push(() => {
    for (const pid of pids) if (isAlive(pid)) process.kill(pid, "SIGKILL");
  });
  const runId = String((await child.hears(({ run_id }) => run_id !== undefined)).run_id);
  const store = `sqlite:${join(at, "holdfast.db")}`;
  const holdfast = await createHoldfast({ store, workspace: at, trust: true, worker: false });
  ends.push(() => holdfast.close());
  await child.hears(() => {
    pids.splice(
      0,
      pids.length,
      ...child.said.flatMap(({ sleeper }) => (sleeper === undefined ? [] : [Number(sleeper)])),
    );
    return pids.length === 6;
  });
  return { child, holdfast, runId, pids, at };
}

async function treeOf(at: string, runId: string): Promise<TreeHistory> {
  const store = await openSqliteStore({ path: join(at, "holdfast.db") });
  try {
    return await readHistory(store, runId);
  } finally {
    await store.close();
  }
}

const started = (tree: TreeHistory): string[] =>
  tree.runs.flatMap(({ record, events }) =>
    events.flatMap((event) => (event.type === "step_started" ? [`${record.run_id} ${event.step_id}`] : [])),
  );

test("C09 cancelled from another process: three children, their six grandchildren with a process each, one queued and one that asks are all over within 5 s, and no child after its parent", async () => {
  const { child, holdfast, runId, pids, at } = await atWork();
  await holdfast.waits.answer(runId, undefined, { value: true, decided_by: "os:anna" });
  const before = await treeOf(at, runId);
  const late = before.runs.find(({ record }) => record.workflow_id === "sleeps" && record.parent_run_id === runId);
  // The child is there, and its only step waits for one of the six permits.
  expect(late?.events.map(({ type }) => type)).toEqual(["run_queued", "run_started", "phase", "step_queued"]);
  expect((await holdfast.waits.list()).waits.map(({ type }) => type).sort()).toEqual(["approval", "child"]);
  expect([before.runs.length, pids.every(isAlive)]).toEqual([1 + 3 + 6 + 1 + 1, true]);
  const began = performance.now();
  const cancelled = await holdfast.runs.cancel(runId, { reason: "not needed", decided_by: "os:ben", wait_ms: 5_000 });
  expect(performance.now() - began).toBeLessThan(5_000);
  expect([cancelled.pending, cancelled.run.status]).toEqual([false, "cancelled"]);
  expect(pids.filter(isAlive)).toEqual([]);
  const after = await treeOf(at, runId);
  expect(after.runs.map(({ record }) => record.status)).toEqual(after.runs.map(() => "cancelled"));
  expect([after.runs.length, started(after), (await holdfast.waits.list()).waits]).toEqual([
    before.runs.length,
    started(before),
    [],
  ]);
  expect(checkRules(after)).toEqual([]);
  expect(await child.hears(({ status }) => status !== undefined)).toEqual({
    status: "cancelled",
  });
  await child.exited;
  expect(child.said.filter(({ sleeper }) => sleeper !== undefined)).toHaveLength(6);
  expectChildrenFirst(after);
}, 20_000);

/** As the events have it: a run writes the end of its steps before its own, and no child ends after its parent. */
function expectChildrenFirst(tree: TreeHistory): void {
  const runs = new Map(tree.runs.map((run) => [run.record.run_id, run]));
  for (const { record, events } of tree.runs) {
    const last = events.at(-1);
    expect(last).toMatchObject({ type: "run_cancelled", decided_by: "os:ben", reason: "not needed" });
    expect(events.filter(({ type }) => type === "step_cancelled").length).toBeGreaterThan(0);
    const parent = runs.get(record.parent_run_id ?? "")?.events.at(-1);
    if (parent !== undefined) expect(last?.at_ms).toBeLessThanOrEqual(parent.at_ms);
  }
}
