// Owns the recovery scenarios of the specification with real processes: SC-21, SC-22, SC-40 (as R-17 amends them).
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { createHoldfast, defineTool, type Holdfast } from "../../src/index.ts";
import { openSqliteStore, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { eventsOf, faultyStore } from "../../src/testing/index.ts";
import { cleanUp, effectsIn, folder, runChild } from "./children.ts";
import { WORKFLOWS } from "./workflows.ts";

afterAll(cleanUp);

interface Cold {
  readonly holdfast: Holdfast;
  readonly store: SqliteStore;
  readonly runId: string;
  /** Calls of this process, as `step:value`. */
  readonly calls: string[];
  /** The stored segments, byte for byte: what an export is made of. */
  bytes(): Promise<string>;
  kinds(): Promise<readonly string[]>;
  close(): Promise<void>;
}

/** Opens what a dead process left, driving nothing by itself. */
async function cold(at: string, options: { trust?: boolean; commits?: () => boolean } = {}): Promise<Cold> {
  const store = await openSqliteStore({ path: join(at, "holdfast.db") });
  const calls: string[] = [];
  const called = async (value: unknown, { step_id }: { step_id: string }): Promise<never> => {
    calls.push(`${step_id}:${(value as { value: number }).value}`);
    return value as never;
  };
  const { commits } = options;
  const faulty = faultyStore(store, {
    write: (_, what) => (what === "commit" && commits?.() === true ? { kind: "full" } : undefined),
  });
  const input = { type: "object" } as const;
  const holdfast = await createHoldfast({
    store: faulty.store,
    workspace: at,
    trust: options.trust ?? true,
    recovery: "manual",
    worker: false,
    permissions: { write: "allow" },
    workflows: WORKFLOWS,
    tools: [
      defineTool({ name: "Look", description: "reads", input, sideEffect: "read_only", run: called }),
      defineTool({ name: "Gone", description: "mutates", input, run: called }),
    ],
  });
  const [run] = await store.listRuns({ limit: 2 });
  if (run === undefined) throw new Error("the dead process left no run");
  const read = async (): Promise<Awaited<ReturnType<typeof eventsOf>>> => {
    const record = await store.getRun(run.run_id);
    return record === undefined ? [] : eventsOf(store, record);
  };
  return {
    holdfast,
    store,
    runId: run.run_id,
    calls,
    bytes: async () =>
      JSON.stringify(
        (await store.readSegments(run.run_id, 0, 1e9)).map((segment) => [
          segment.hash,
          Buffer.from(segment.bytes).toString("base64"),
        ]),
      ),
    kinds: async () => (await read()).map((event) => (event.type === "phase" ? `phase ${event.name}` : event.type)),
    close: async () => {
      await holdfast.close();
      await store.close();
    },
  };
}

const STARTED = ["run_queued", "run_started", "phase step_reserved", "step_queued", "step_started"];

/** A process that ended with 81 right after the prefix's completion was committed. */
async function leftAfterPrefix(): Promise<string> {
  const at = folder();
  const { status } = await runChild({
    act: "start",
    folder: at,
    workflow: "prefix-suffix",
    durability: "strict",
    recovery: "manual",
    exit_after: { step: "prefix", status: 81 },
  });
  expect(status).toBe(81);
  return at;
}

test("SC-21 a process that exits right after its prefix: recover marks, continue does only the suffix", async () => {
  const it = await cold(await leftAfterPrefix());
  expect(await it.kinds()).toEqual([...STARTED, "step_completed"]);
  const before = await it.holdfast.runs.inspect(it.runId);
  expect(before).toMatchObject({ status: "running", usage: { steps: 1 } });
  expect(await it.holdfast.runs.step(it.runId, "prefix")).toMatchObject({
    status: "succeeded",
    attempts: expect.anything(),
    output: { value: 41 },
  });
  const whole = await it.kinds();
  expect(await it.holdfast.recover()).toEqual([it.runId]);
  const marked = await it.holdfast.runs.inspect(it.runId);
  expect(marked).toMatchObject({ status: "suspended", suspension: { type: "recovery" }, usage: before.usage });
  expect(await it.kinds()).toEqual([...whole, "run_suspended"]);
  expect(it.calls).toEqual([]);
  await it.holdfast.runs.resume(it.runId);
  const run = await it.holdfast.runs.drive(it.runId);
  expect(run).toMatchObject({ run_id: it.runId, status: "succeeded", output: { value: 42 }, usage: { steps: 2 } });
  // The prefix ran in the dead process, once; here only the suffix does.
  expect(it.calls).toEqual(["suffix:42"]);
  const kinds = await it.kinds();
  expect(kinds.slice(0, whole.length)).toEqual(whole);
  for (const once of ["step_reserved"]) expect(kinds.filter((kind) => kind === `phase ${once}`)).toHaveLength(2);
  expect(kinds.filter((kind) => kind === "step_started")).toHaveLength(2);
  expect(kinds.filter((kind) => kind === "step_completed")).toHaveLength(2);
  await it.close();
});

test("SC-22 a process that exits inside a mutating suffix: repair, and continue changes no byte", async () => {
  const at = folder();
  const { status } = await runChild({
    act: "start",
    folder: at,
    workflow: "prefix-gone",
    durability: "strict",
    recovery: "manual",
  });
  expect(status).toBe(82);
  const it = await cold(at);
  const before = await it.kinds();
  expect(before.at(-1)).toBe("step_started");
  expect(await it.holdfast.runs.inspect(it.runId)).toMatchObject({ status: "running", usage: { steps: 2 } });
  await it.holdfast.recover();
  expect(await it.kinds()).toEqual([...before, "step_suspended", "run_suspended"]);
  const marked = await it.holdfast.runs.inspect(it.runId);
  expect(marked).toMatchObject({ status: "suspended", waits: [{ type: "repair", step_id: "suffix" }] });
  expect(await it.holdfast.runs.step(it.runId, "suffix")).toMatchObject({ failure: { code: "recovery_suspended" } });
  const bytes = await it.bytes();
  await expect(it.holdfast.runs.resume(it.runId)).rejects.toMatchObject({ code: "not_possible" });
  expect(await it.bytes()).toBe(bytes);
  expect([it.calls, effectsIn(at).length]).toEqual([[], 1]);
  const run = await it.holdfast.runs.inspect(it.runId);
  expect([run.status, run.output]).toEqual(["suspended", undefined]);
  await it.close();
});

test("SC-40 continuing is refused with no write where trust was revoked since", async () => {
  const it = await cold(await leftAfterPrefix(), { trust: false });
  await it.holdfast.recover();
  const bytes = await it.bytes();
  await expect(it.holdfast.runs.resume(it.runId)).rejects.toMatchObject({
    code: "preflight",
    details: { refused: "trust" },
  });
  expect([await it.bytes(), it.calls]).toEqual([bytes, []]);
  expect(await it.holdfast.runs.inspect(it.runId)).toMatchObject({
    status: "suspended",
    suspension: { type: "recovery" },
  });
  await it.close();
});

test("SC-40 a commit that fails dispatches nothing, and the run can be continued afterwards", async () => {
  let full = false;
  const it = await cold(await leftAfterPrefix(), { commits: () => full });
  await it.holdfast.recover();
  const bytes = await it.bytes();
  full = true;
  await it.holdfast.runs.resume(it.runId).catch(() => undefined);
  expect([it.calls.filter((call) => call.startsWith("prefix")), await it.bytes()]).toEqual([[], bytes]);
  full = false;
  await it.holdfast.runs.resume(it.runId).catch(() => undefined);
  expect(await it.holdfast.runs.drive(it.runId)).toMatchObject({ status: "succeeded", output: { value: 42 } });
  await it.close();
});

test("SC-40 two processes that continue at once: one owner, one run_started", async () => {
  const at = await leftAfterPrefix();
  const first = await cold(at);
  await first.holdfast.recover();
  const second = await cold(at);
  const asked = await Promise.allSettled([
    first.holdfast.runs.resume(first.runId),
    second.holdfast.runs.resume(second.runId),
  ]);
  expect(asked.filter((each) => each.status === "fulfilled").length).toBeGreaterThanOrEqual(1);
  await Promise.all([first.holdfast.runs.drive(first.runId), second.holdfast.runs.drive(second.runId)]);
  expect([...first.calls, ...second.calls]).toEqual(["suffix:42"]);
  expect((await first.kinds()).filter((kind) => kind === "run_started")).toHaveLength(2);
  await first.close();
  await second.close();
});

test("SC-40 a cancel keeps the prefix and its usage, and then nothing continues it", async () => {
  const it = await cold(await leftAfterPrefix());
  await it.holdfast.recover();
  await it.holdfast.runs.cancel(it.runId, { reason: "not needed" });
  const run = await it.holdfast.runs.inspect(it.runId);
  expect(run).toMatchObject({ status: "cancelled", usage: { steps: 1 } });
  expect(await it.holdfast.runs.step(it.runId, "prefix")).toMatchObject({ status: "succeeded", output: { value: 41 } });
  await expect(it.holdfast.runs.resume(it.runId)).rejects.toMatchObject({ code: "terminal" });
  expect(it.calls).toEqual([]);
  await it.close();
});

test("SC-40 a run of another session is not found, and stays as it is", async () => {
  const it = await cold(await leftAfterPrefix());
  await it.holdfast.recover();
  await it.holdfast.sessions.create({ name: "other" });
  const bytes = await it.bytes();
  await expect(it.holdfast.runs.resume(it.runId, {}, "other")).rejects.toMatchObject({ code: "not_found" });
  await expect(it.holdfast.runs.cancel(it.runId, {}, "other")).rejects.toMatchObject({ code: "not_found" });
  expect(await it.bytes()).toBe(bytes);
  await it.close();
});
