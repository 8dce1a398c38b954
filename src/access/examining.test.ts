/** `doctor RUN` (GD-73, GS-39): planted faults are found, each with what to do, and nothing is changed. */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { afterEach, expect, test } from "vitest";
import type { RunEvent } from "../domain/events.ts";
import { dispatchId, eventLine, genesisHash, segmentHash } from "../domain/journal.ts";
import { hashJson, type Json } from "../domain/json.ts";
import { NO_USAGE, type RunHeader, type Wait } from "../domain/run.ts";
import { encodeState } from "../domain/snapshot.ts";
import { evolve, initialState, type RunState } from "../domain/state.ts";
import { createHoldfast, defineTool, type Holdfast } from "../index.ts";
import type { RunRow, RunStore, SessionStore, SnapshotBlob } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";

const ANY = { type: "object", additionalProperties: true } as const;
const OUT = { type: "object", required: ["id"], properties: { id: { type: "integer" } } } as const;
const step = (id: string, tool: string) => ({ id, type: "tool", tool, args: {}, capabilities: ["read"] });
const leaf = (id: string) => ({ type: "step", step: id });

let ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

interface World {
  readonly holdfast: Holdfast;
  readonly store: RunStore & SessionStore;
  /** Writes a journal as it stands, with rows that may say something else. */
  plant(
    bodies: readonly object[],
    derive: (
      state: RunState,
      header: RunHeader,
    ) => { row?: Partial<RunRow>; waits?: readonly Wait[]; snapshot?: RunState },
  ): Promise<string>;
}

async function world(): Promise<World> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "holdfast doctor ")));
  const store = await openSqliteStore({ path: ":memory:" });
  const nested = { workflow_schema: 1, id: "inner", revision: 1, steps: [step("make", "make")], plan: leaf("make") };
  const holdfast = await createHoldfast({
    workspace: folder,
    store,
    trust: true,
    worker: false,
    tools: [
      defineTool({
        name: "make",
        description: "Makes.",
        input: ANY,
        output: OUT,
        capabilities: ["read"],
        sideEffect: "read_only",
        run: () => ({ id: 1 }),
      }),
      defineTool({
        name: "write",
        description: "Writes.",
        input: ANY,
        capabilities: ["read"],
        run: () => ({ ok: true }),
      }),
    ],
    workflows: [
      nested,
      {
        workflow_schema: 1,
        id: "two",
        revision: 1,
        steps: [step("make", "make"), step("write", "write")],
        plan: { type: "sequence", nodes: [leaf("make"), leaf("write")] },
      },
      {
        workflow_schema: 1,
        id: "outer",
        revision: 1,
        steps: [{ id: "call", type: "workflow", workflow_id: "inner", revision: 1, args: {} }],
        plan: leaf("call"),
      },
    ],
  });
  ends.push(
    () => rm(folder, { recursive: true, force: true }),
    () => store.close(),
    () => holdfast.close(),
  );
  const model = await holdfast.run({ workflow: "two" });
  const record = (await store.getRun(model.run_id)) as RunHeader;
  let made = 0;
  const plant: World["plant"] = async (bodies, derive) => {
    const run_id = `planted-${++made}`;
    const header: RunHeader = { ...headerFields(record), run_id, root_run_id: run_id };
    const events = bodies.map(
      (body, i) => ({ ...body, sequence: i + 1, at_ms: header.created_at_ms + i }) as unknown as RunEvent,
    );
    const state = events.reduce(evolve, initialState(header));
    const text = events.map(eventLine).join("");
    const prev = genesisHash(header);
    const { row = {}, waits = state.waits, snapshot } = derive(state, header);
    const [suspension] = state.status === "suspended" ? state.waits : [];
    const [result] = await store.commit([
      {
        root_run_id: run_id,
        create: { session_id: header.session_id, max_open_runs: 100 },
        fence: 1,
        runs: [
          {
            run_id,
            header,
            expected: 0,
            segment: {
              first: 1,
              last: events.length,
              prev,
              hash: segmentHash(prev, text),
              codec: "json",
              bytes: Buffer.from(text),
            },
            row: {
              status: state.status,
              ...(suspension === undefined ? {} : { suspension: suspension.type }),
              wait_count: state.waits.length,
              usage: NO_USAGE,
              last_sequence: events.length,
              updated_at_ms: 1,
              ...row,
            },
            waits,
            ...(snapshot === undefined ? {} : { snapshot: blobOf(snapshot, events.length) }),
          },
        ],
        artifacts: [],
        signals_done: [],
        tree: { wake_at_ms: null },
      },
    ]);
    expect(result).toEqual({ ok: true });
    return run_id;
  };
  return { holdfast, store, plant };
}

function headerFields(record: RunHeader): RunHeader {
  const {
    session_id,
    kind,
    workflow_id,
    workflow_revision,
    bundle_hash,
    args,
    args_hash,
    budget,
    created_at_ms,
    depth,
    engine_version,
    durability,
    origin,
  } = record;
  return {
    run_id: "",
    root_run_id: "",
    session_id,
    kind,
    workflow_id,
    workflow_revision,
    bundle_hash,
    ...(args === undefined ? {} : { args }),
    args_hash,
    budget,
    created_at_ms,
    depth,
    engine_version,
    durability,
    origin,
  };
}

function blobOf(state: RunState, sequence: number): SnapshotBlob {
  return { sequence, codec: "deflate", bytes: deflateRawSync(Buffer.from(JSON.stringify(encodeState(state)))) };
}

const hash = hashJson({});
const started = (step_id: string, more: object = {}) => ({
  type: "step_started",
  step_id,
  attempt: 1,
  side_effect: "read_only",
  input_hash: hash,
  input: {},
  tool: step_id,
  ...more,
});
const begun = (step_id: string, more: object = {}) => [
  { type: "phase", name: "step_reserved" },
  { type: "step_queued", step_id, visit: 1 },
  started(step_id, more),
];
const HEAD = [{ type: "run_queued" }, { type: "run_started" }];
const wait = (sequence: number, more: object): Wait =>
  ({ wait_id: `w-${sequence}`, run_id: "planted-1", step_id: "write", since_ms: 1, ...more }) as Wait;
const DIGEST = "a".repeat(64);

test("GS-39 four planted faults: limit 1 gives one and says there are more, limit 10 gives four, and nothing is written", async () => {
  const { holdfast, store, plant } = await world();
  const evidence = {
    dispatch_id: "f".repeat(64),
    tool: "write",
    input_hash: hash,
    attempt: 1,
    started_at_ms: 1,
    late_results: [],
  };
  const run = await plant(
    [
      ...HEAD,
      ...begun("make"),
      { type: "step_completed", step_id: "make", output: { id: "no number" } },
      ...begun("write", { side_effect: "mutating" }),
      {
        type: "step_suspended",
        step_id: "write",
        reason: "asks",
        wait: wait(10, { type: "tool_approval", tool: "write", digest: DIGEST }),
      },
      { type: "run_suspended", reason: "tool_approval" },
      {
        type: "grant_issued",
        wait_id: "w-10",
        digest: "b".repeat(64),
        decision: { approved: true, decision: "approved", decided_by: "os:x", decided_at_ms: 1 },
      },
      { type: "run_started" },
      started("write", { side_effect: "mutating", grant: "w-10" }),
      {
        type: "step_suspended",
        step_id: "write",
        reason: "outcome unknown",
        wait: wait(15, { type: "repair", tool: "write", digest: DIGEST, evidence }),
      },
      { type: "run_suspended", reason: "repair" },
    ],
    () => ({ row: { status: "queued" } }),
  );
  const before = [
    await holdfast.runs.events(run),
    await store.getRun(run),
    await store.getTree(run),
    await store.listWaits({ run_id: run, limit: 10 }),
  ];
  const first = await holdfast.runs.doctor(run, 1);
  expect([first.findings.length, first.truncated]).toEqual([1, true]);
  const all = await holdfast.runs.doctor(run, 10);
  expect(all.findings.map(({ code, step_id, wait_id }) => [code, step_id, wait_id])).toEqual([
    ["activation_output_mismatch", "make", undefined],
    ["invalid_grant", "write", "w-10"],
    ["attempt_identity_mismatch", "write", "w-15"],
    ["repair_status_mismatch", undefined, undefined],
  ]);
  expect(all.truncated).toBe(false);
  for (const finding of all.findings)
    expect([finding.run_id, finding.guidance.length > 20, finding.message.endsWith(".")]).toEqual([run, true, true]);
  expect(all.findings[2]?.guidance).toContain(dispatchId(run, "write", 1));
  expect([
    await holdfast.runs.events(run),
    await store.getRun(run),
    await store.getTree(run),
    await store.listWaits({ run_id: run, limit: 10 }),
  ]).toEqual(before);
  await expect(holdfast.runs.doctor(run, 0)).rejects.toMatchObject({ code: "usage" });
  await expect(holdfast.runs.doctor("nobody", 1)).rejects.toMatchObject({ code: "not_found" });
});

test("GD-73 open work that nobody drives, rows of waits that are not so, a snapshot that says otherwise", async () => {
  const { holdfast, plant } = await world();
  const orphan = await plant([...HEAD, ...begun("make")], () => ({}));
  expect((await holdfast.runs.doctor(orphan)).findings).toMatchObject([
    {
      code: "orphaned_attempt",
      step_id: "make",
      attempt: 1,
      dispatch_id: dispatchId(orphan, "make", 1),
      guidance: expect.stringContaining(`holdfast resume ${orphan}`),
    },
  ]);

  const asks = [
    ...HEAD,
    ...begun("write"),
    {
      type: "step_suspended",
      step_id: "write",
      reason: "asks",
      wait: wait(6, { type: "tool_approval", digest: DIGEST }),
    },
    { type: "run_suspended", reason: "tool_approval" },
  ];
  const hidden = await plant(asks, () => ({ waits: [wait(9, { type: "input", run_id: "planted-2" })] }));
  expect((await holdfast.runs.doctor(hidden)).findings.map(({ code, wait_id }) => [code, wait_id])).toEqual([
    ["repair_status_mismatch", "w-6"],
    ["repair_status_mismatch", "w-9"],
  ]);

  const done = [
    ...HEAD,
    ...begun("make"),
    { type: "step_completed", step_id: "make", output: { id: 1 } },
    ...begun("write"),
    { type: "step_suspended", step_id: "write", reason: "asks", wait: wait(10, { type: "tool_approval" }) },
    { type: "run_suspended", reason: "tool_approval" },
  ];
  const cached = await plant(done, (state) => {
    const make = state.steps.get("make");
    return {
      snapshot:
        make === undefined
          ? state
          : { ...state, steps: state.steps.set("make", { ...make, output: { id: 2 } as Json }) },
    };
  });
  expect((await holdfast.runs.doctor(cached)).findings).toMatchObject([
    { code: "activation_output_mismatch", step_id: "make", message: expect.stringContaining("snapshot") },
  ]);
});

test("GD-73 a grant that another step used, or that nobody gave", async () => {
  const { holdfast, plant } = await world();
  const run = await plant(
    [
      ...HEAD,
      ...begun("write"),
      { type: "step_completed", step_id: "write", output: {} },
      ...begun("make", { grant: "w-3" }),
    ],
    () => ({ row: { status: "running" } }),
  );
  expect((await holdfast.runs.doctor(run)).findings.map(({ code }) => code)).toEqual([
    "invalid_grant",
    "orphaned_attempt",
  ]);
});

test("GD-73 a sound tree has no findings, while it runs, after it has ended, and for its child", async () => {
  const { holdfast, store } = await world();
  const run = await holdfast.run({ workflow: "outer" });
  expect(run.status).toBe("succeeded");
  expect(await holdfast.runs.doctor(run.run_id)).toEqual({ findings: [], truncated: false });
  const [child] = (await holdfast.runs.list({ parent_run_id: run.run_id, children: true })).runs;
  expect(await holdfast.runs.doctor(child?.run_id ?? "")).toEqual({ findings: [], truncated: false });
  // An altered journal is found too, and no fold is tried on it.
  const segments = await store.readSegments(run.run_id, 0, 1 << 20);
  const altered = new Proxy(store, {
    get: (target, key) => {
      if (key === "readSegments") return async () => segments.map((segment) => ({ ...segment, hash: "0".repeat(64) }));
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  const other = await createHoldfast({ store: altered, workspace: tmpdir(), worker: false });
  ends.push(() => other.close());
  expect((await other.runs.doctor(run.run_id)).findings).toMatchObject([
    { code: "journal_unreadable", guidance: expect.stringContaining("holdfast verify") },
  ]);
});
