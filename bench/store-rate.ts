/**
 * What the SQLite store can commit, beside the raw rate of single-row durable commits on the same disk in the
 * same minute (performance.md §1): single commits, groups of 64 trees, and whole runs of 5 steps.
 *
 * Run: node_modules/.bin/esbuild bench/store-rate.ts --bundle --platform=node --format=esm --packages=external
 *   --outfile=dist/store-rate.mjs && node dist/store-rate.mjs [folder]
 */
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEFAULT_BUDGETS, NO_USAGE, type RunStatus } from "../src/domain/run.ts";
import type { RunCommit, TreeCommit } from "../src/ports/index.ts";
import { openDatabase } from "../src/stores/sqlite/driver.ts";
import { openSqliteStore } from "../src/stores/sqlite/index.ts";

const OWNER = "018f0000-0000-7000-8000-00000000cafe";
const SESSION = "018f0000-0000-7000-8000-000000005e55";
const folder = mkdtempSync(join(process.argv[2] ?? tmpdir(), "holdfast-rate-"));

/** About what one step of a plan writes: queued, reserved, started, completed. */
const STEP = Buffer.from(
  '{"at_ms":1764460800000,"name":"step_reserved","sequence":2,"type":"phase"}\n' +
    '{"at_ms":1764460800000,"sequence":3,"step_id":"inspect@root[0]","type":"step_queued","visit":1}\n' +
    '{"at_ms":1764460800000,"attempt":1,"input_hash":"' +
    `${"ab".repeat(32)}","sequence":4,"side_effect":"read_only","step_id":"inspect@root[0]","type":"step_started"}\n` +
    '{"at_ms":1764460800000,"output":{"ok":true},"sequence":5,"step_id":"inspect@root[0]","type":"step_completed"}\n',
);

interface Journal {
  readonly run_id: string;
  sequence: number;
  tip: string;
}

let made = 0;
function journal(): Journal {
  const run_id = `018f0000-0000-7000-8000-${String(++made).padStart(12, "0")}`;
  return { run_id, sequence: 0, tip: createHash("sha256").update(run_id).digest("hex") };
}

function batch(at: Journal, status: RunStatus, events = 4): TreeCommit {
  const expected = at.sequence;
  const hash = createHash("sha256").update(at.tip).update(STEP).digest("hex");
  const now = Date.now();
  const run: RunCommit = {
    run_id: at.run_id,
    expected,
    segment: { first: expected + 1, last: expected + events, prev: at.tip, hash, codec: "json", bytes: STEP },
    row: {
      status,
      wait_count: 0,
      usage: { ...NO_USAGE, steps: 1 },
      last_sequence: expected + events,
      updated_at_ms: now,
    },
    ...(expected === 0 ? { header: header(at.run_id, now) } : {}),
  };
  at.sequence += events;
  at.tip = hash;
  const ended = status === "succeeded";
  return {
    root_run_id: at.run_id,
    fence: 1,
    runs: [run],
    artifacts: [],
    signals_done: [],
    ...(ended ? { tree: { ended: true, release: true } } : {}),
    ...(expected === 0 ? { create: create(now) } : {}),
  };
}

function header(run_id: string, created_at_ms: number): NonNullable<RunCommit["header"]> {
  return {
    run_id,
    root_run_id: run_id,
    session_id: SESSION,
    kind: "plan",
    workflow_id: "bench",
    workflow_revision: 1,
    bundle_hash: "cd".repeat(32),
    args: { path: "." },
    args_hash: "ef".repeat(32),
    budget: DEFAULT_BUDGETS,
    created_at_ms,
    depth: 0,
    engine_version: 1,
    durability: "standard",
    origin: "explicit",
  };
}

function create(now: number): NonNullable<TreeCommit["create"]> {
  const claim = { owner: OWNER, lease_expires_at_ms: now + 30_000 };
  return { session_id: SESSION, max_open_runs: 1_000_000, claim };
}

function rawRate(commits: number): number {
  const db = openDatabase(join(folder, `raw-${Date.now()}.db`), { readOnly: false });
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)");
  const start = performance.now();
  for (let i = 0; i < commits; i++) db.run("INSERT INTO t (b) VALUES (?)", STEP);
  const rate = (commits / (performance.now() - start)) * 1000;
  db.close();
  return rate;
}

async function measure(name: string, units: number, work: () => Promise<void>): Promise<void> {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000;
  const used = process.cpuUsage(cpu);
  const micros = (used.user + used.system) / units;
  console.log(`${name}: ${Math.round(units / seconds)}/s, ${micros.toFixed(0)} µs of CPU each`);
}

const file = join(folder, "state", "holdfast.db");
const store = await openSqliteStore({ path: file });
await store.createSession({
  session_id: SESSION,
  name: "default",
  workspace: folder,
  posture: "ask",
  orchestration_opt_in: false,
  metadata: {},
  created_at_ms: 1,
  updated_at_ms: 1,
});

console.log(`raw single-row commits: ${Math.round(rawRate(2_000))}/s`);

await measure("single commits", 2_000, async () => {
  const one = journal();
  for (let i = 0; i < 2_000; i++) await store.commit([batch(one, "running")]);
});

await measure("steps in groups of 64 trees", 64 * 200, async () => {
  const trees = Array.from({ length: 64 }, journal);
  for (let i = 0; i < 200; i++) await store.commit(trees.map((tree) => batch(tree, "running")));
});

// 5 steps in 7 batches: start, one a step, end; 64 runs in flight, each at another place, as under W2.
await measure("runs of 5 steps, 64 at once", 3_000, async () => {
  let started = 0;
  let open: Journal[] = [];
  while (started < 3_000 || open.length > 0) {
    while (open.length < 64 && started < 3_000 && started++ >= 0) open.push(journal());
    await store.commit(open.map((run) => batch(run, run.sequence >= 24 ? "succeeded" : "running")));
    open = open.filter((run) => run.sequence < 28);
  }
});

const before = (await store.info()).bytes;
const long = journal();
for (let i = 0; i < 10_000; i++) await store.commit([batch(long, "running")]);
const bytes = ((await store.info()).bytes - before) / 10_000;
console.log(`bytes a step in a run of 10,000: ${Math.round(bytes)}, of which ${STEP.byteLength} are its events`);
await store.close();
console.log(`raw single-row commits again: ${Math.round(rawRate(2_000))}/s`);
rmSync(folder, { recursive: true });
