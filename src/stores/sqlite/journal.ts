/**
 * Appending: one group of tree commits in one transaction, each tree behind its own savepoint. All checks
 * are made inside the transaction, so nothing can move between a check and its write. And reading journals back.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { RunHeader } from "../../domain/run.ts";
import type { CommitResult, RunCommit, Segment, SnapshotBlob, TreeCommit } from "../../ports/index.ts";
import type { Landed } from "./connection.ts";
import { bindHash, bindText, type Db, readHash, readText } from "./driver.ts";
import { freeLeases } from "./resource-leases.ts";
import { FIRST_TERMINAL, POS_STRIDE, STATUS_NUMBERS } from "./schema.ts";
import { findTree, insertTree, updateTree } from "./trees.ts";
import { replaceWaits } from "./waits.ts";

/** Ends one tree's part of a group; everything since its savepoint is taken back. */
class Refused extends Error {
  readonly result: CommitResult;
  constructor(result: Omit<Extract<CommitResult, { ok: false }>, "ok">) {
    super(result.refusal);
    this.result = { ok: false, ...result };
  }
}

/** Commits each tree or refuses it; to be called in a write transaction. */
export function commitGroup(db: Db, group: readonly TreeCommit[], nowMs: number): CommitResult[] {
  // A commit to one run is checked before it writes: alone in its transaction it needs no savepoint.
  const [only] = group;
  if (only !== undefined && group.length === 1 && only.runs.length <= 1) return [commitAlone(db, only, nowMs)];
  return group.map((commit) => {
    db.run("SAVEPOINT tree");
    try {
      commitTree(db, commit, nowMs);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      db.run("ROLLBACK TO tree");
      db.run("RELEASE tree");
      return isReplay(db, commit, error.result) ? { ok: true } : error.result;
    }
    db.run("RELEASE tree");
    return { ok: true };
  });
}

function commitAlone(db: Db, commit: TreeCommit, nowMs: number): CommitResult {
  try {
    commitTree(db, commit, nowMs);
    return { ok: true };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return isReplay(db, commit, error.result) ? { ok: true } : error.result;
  }
}

/** A batch that does not follow from itself is a bug of its writer; found before anything is written. */
export function assertGroup(group: readonly TreeCommit[]): void {
  for (const tree of group)
    for (const { segment, expected, row, run_id, header } of tree.runs) {
      const follows = segment.first === expected + 1 && segment.last >= segment.first && segment.last < POS_STRIDE;
      if (!follows || row.last_sequence !== segment.last || (header !== undefined && expected !== 0))
        throw new HoldfastError("internal", `Bug in Holdfast: the batch for run ${run_id} does not fit together`);
    }
}

/** whether the segments of the trees that were accepted are there. */
export function groupLanded(db: Db, group: readonly TreeCommit[], results: readonly CommitResult[]): Landed {
  const runs = group.flatMap((tree, i) => (results[i]?.ok === true ? tree.runs : []));
  const there = runs.filter((run) => isStored(db, run)).length;
  if (there === runs.length) return "all";
  return there === 0 ? "none" : "some";
}

/** RP-56: the very bytes that are there already are success; anything else at that sequence lost the race. */
function isReplay(db: Db, commit: TreeCommit, result: CommitResult): boolean {
  if (result.ok || result.refusal !== "conflict") return false;
  return commit.runs.length > 0 && commit.runs.every((run) => isStored(db, run));
}

function isStored(db: Db, { run_id, segment }: RunCommit): boolean {
  const row = db.get<{ last: number; hash: Uint8Array | string }>(
    `SELECT g.last, g.hash FROM runs r JOIN segments g ON g.pos = r.n * ${POS_STRIDE} + CAST(? AS INTEGER)
      WHERE r.run_id = ?`,
    segment.first,
    bindText(run_id),
  );
  return row !== undefined && row.last === segment.last && readHash(row.hash) === segment.hash;
}

function commitTree(db: Db, commit: TreeCommit, nowMs: number): void {
  const tree = commit.create === undefined ? findTree(db, commit.root_run_id) : undefined;
  if (commit.create !== undefined) createTree(db, commit, nowMs);
  else {
    // A tree without owner was given up; who gave it up may not write either.
    if (tree === undefined || tree.fence !== commit.fence || tree.owner === null)
      throw new Refused({ refusal: "fenced" });
    if (commit.control_version !== undefined && commit.control_version !== tree.control_version)
      throw new Refused({ refusal: "control" });
    for (const run of commit.runs)
      appendRun(db, run, { root: tree.n, s: tree.s, ...(run.run_id === commit.root_run_id ? { tip: tree } : {}) });
  }
  if (commit.bundle !== undefined) insertOnce(db, "bundles", "hash", commit.bundle.hash, commit.bundle.bytes);
  for (const { sha256, bytes } of commit.artifacts) insertOnce(db, "artifacts", "sha256", sha256, bytes);
  if (tree !== undefined && commit.leases_freed !== undefined) freeLeases(db, tree.n, commit.leases_freed);
  for (const id of commit.signals_done) db.run("DELETE FROM signals WHERE signal_id = ?", bindText(id));
  // Last, because what a given-up tree waits for depends on its runs and signals.
  if (tree !== undefined && commit.tree !== undefined) updateTree(db, tree, commit.tree, nowMs);
}

function insertOnce(db: Db, table: string, column: string, hash: string, bytes: Uint8Array): void {
  db.run(`INSERT OR IGNORE INTO ${table} (${column}, bytes) VALUES (?, ?)`, bindHash(hash), bytes);
}

function createTree(db: Db, commit: TreeCommit, nowMs: number): void {
  const create = commit.create;
  const root = commit.runs[0];
  if (create === undefined || root?.header === undefined || root.run_id !== commit.root_run_id)
    throw new HoldfastError("internal", `Bug in Holdfast: tree ${commit.root_run_id} must begin with its root run`);
  const session = db.get<{ s: number }>("SELECT s FROM sessions WHERE session_id = ?", bindText(create.session_id));
  if (session === undefined) throw new Refused({ refusal: "no_session" });
  if (create.key !== undefined) assertKeyFree(db, session.s, create.key);
  const counted = db.run(
    "UPDATE open_runs SET open = open + 1 WHERE s = ? AND open < ?",
    session.s,
    create.max_open_runs,
  );
  if (counted.changes === 0) throw new Refused({ refusal: "index_full" });
  const n = createRoot(db, root, session.s);
  for (const run of commit.runs.slice(1)) appendRun(db, run, { root: n, s: session.s });
  if (create.key !== undefined)
    db.run(
      "INSERT INTO starts (s, key, n, request_hash) VALUES (?, ?, ?, ?)",
      session.s,
      bindText(create.key.key),
      n,
      bindText(create.key.request_hash),
    );
  insertTree(db, n, commit, nowMs);
}

/** The open-run count is taken back by hand when the id is taken: the caller may have no savepoint. */
function createRoot(db: Db, root: RunCommit, s: number): number {
  try {
    return appendRun(db, root, { root: undefined, s });
  } catch (error) {
    if (error instanceof Refused) countOpen(db, s, -1);
    throw error;
  }
}

function assertKeyFree(db: Db, s: number, key: { readonly key: string; readonly request_hash: string }): void {
  const used = keyedStart(db, s, key.key);
  if (used === undefined) return;
  const same_request = used.request_hash === key.request_hash;
  throw new Refused({ refusal: "key_used", run_id: used.run_id, same_request });
}

function keyedStart(db: Db, s: number, key: string): { run_id: string; request_hash: string } | undefined {
  const row = db.get<{ run_id: string | Uint8Array; request_hash: string | Uint8Array }>(
    "SELECT r.run_id, k.request_hash FROM starts k JOIN runs r ON r.n = k.n WHERE k.s = ? AND k.key = ?",
    s,
    bindText(key),
  );
  return row && { run_id: readText(row.run_id), request_hash: readText(row.request_hash) };
}

/** The run a key of a session was used for. */
export function getKeyedStart(db: Db, sessionId: string, key: string): ReturnType<typeof keyedStart> {
  const session = db.get<{ s: number }>("SELECT s FROM sessions WHERE session_id = ?", bindText(sessionId));
  return session && keyedStart(db, session.s, key);
}

/** Where a run belongs; `root` is undefined for the root itself. */
interface Place {
  readonly root: number | undefined;
  readonly s: number;
  /** The run's row where it was read already. */
  readonly tip?: TipRow;
}

/** Appends one batch, creating its run where it has a header. @returns the run's number */
function appendRun(db: Db, run: RunCommit, place: Place): number {
  const n = run.header === undefined ? advanceRun(db, run, place) : insertRun(db, run, run.header, place);
  const { segment } = run;
  db.run(
    "INSERT INTO segments (pos, last, prev, hash, codec, bytes) VALUES (?, ?, ?, ?, ?, ?)",
    n * POS_STRIDE + segment.first,
    segment.last,
    run.header === undefined ? null : bindHash(segment.prev),
    bindHash(segment.hash),
    segment.codec === "json" ? 0 : 1,
    segment.bytes,
  );
  if (run.waits !== undefined) replaceWaits(db, n, place.s, run.run_id, run.waits);
  if (run.snapshot !== undefined) putSnapshot(db, n, run.snapshot);
  return n;
}

function insertRun(db: Db, run: RunCommit, header: RunHeader, place: Place): number {
  const { run_id, root_run_id: _root, session_id: _session, workflow_id, created_at_ms, ...rest } = header;
  const { row } = run;
  const status = STATUS_NUMBERS[row.status];
  const inserted = db.run(
    `INSERT INTO runs (run_id, root, parent, s, workflow_id, status, suspension, wait_count, steps, retries, agents,
        tokens, cost_micros, last_sequence, created_at_ms, updated_at_ms, tip)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING`,
    bindText(run_id),
    place.root ?? null,
    header.parent_run_id === undefined ? null : parentOf(db, header.parent_run_id),
    place.s,
    bindText(workflow_id),
    status,
    row.suspension ?? null,
    row.wait_count,
    row.usage.steps,
    row.usage.retries,
    row.usage.agents,
    row.usage.tokens,
    row.usage.cost_micros,
    row.last_sequence,
    created_at_ms,
    row.updated_at_ms,
    bindHash(run.segment.hash),
  );
  if (inserted.changes === 0) throw new Refused({ refusal: "conflict" });
  db.run("INSERT INTO headers (n, doc) VALUES (?, ?)", inserted.id, JSON.stringify(rest));
  if (place.root === undefined && status >= FIRST_TERMINAL) countOpen(db, place.s, -1);
  return inserted.id;
}

function parentOf(db: Db, runId: string): number | null {
  return db.get<{ n: number }>("SELECT n FROM runs WHERE run_id = ?", bindText(runId))?.n ?? null;
}

interface TipRow {
  readonly n: number;
  readonly root: number | null;
  readonly status: number;
  readonly last_sequence: number;
  readonly tip: Uint8Array | string;
}

const TIP = "SELECT n, root, status, last_sequence, tip FROM runs WHERE run_id = ?";
const ADVANCED = `suspension = ?, wait_count = ?, steps = ?, retries = ?, agents = ?, tokens = ?, cost_micros = ?,
    last_sequence = ?, updated_at_ms = ?, tip = ? WHERE n = ?`;
const ADVANCE = `UPDATE runs SET ${ADVANCED}`;
const ADVANCE_WITH_STATUS = `UPDATE runs SET status = ?, ${ADVANCED}`;

function advanceRun(db: Db, run: RunCommit, place: Place): number {
  const at = place.tip ?? db.get<TipRow>(TIP, bindText(run.run_id));
  // A batch that does not continue the chain was made from another journal than the one that is here.
  if (at === undefined || (at.root ?? at.n) !== place.root || at.last_sequence !== run.expected)
    throw new Refused({ refusal: "conflict" });
  if (readHash(at.tip) !== run.segment.prev) throw new Refused({ refusal: "conflict" });
  const { row } = run;
  const status = STATUS_NUMBERS[row.status];
  // Naming an indexed column rewrites its index entries, so the status is named only when it changes.
  const moved = status !== at.status;
  db.run(
    moved ? ADVANCE_WITH_STATUS : ADVANCE,
    ...(moved ? [status] : []),
    row.suspension ?? null,
    row.wait_count,
    row.usage.steps,
    row.usage.retries,
    row.usage.agents,
    row.usage.tokens,
    row.usage.cost_micros,
    row.last_sequence,
    row.updated_at_ms,
    bindHash(run.segment.hash),
    at.n,
  );
  if (moved) {
    const change = Number(status < FIRST_TERMINAL) - Number(at.status < FIRST_TERMINAL);
    if (at.root === null && change !== 0) countOpen(db, place.s, change);
  }
  return at.n;
}

function countOpen(db: Db, s: number, change: number): void {
  db.run("UPDATE open_runs SET open = open + ? WHERE s = ?", change, s);
}

function putSnapshot(db: Db, n: number, snapshot: SnapshotBlob): void {
  db.run(
    "INSERT OR REPLACE INTO snapshots (n, sequence, codec, bytes) VALUES (?, ?, ?, ?)",
    n,
    snapshot.sequence,
    snapshot.codec === "json" ? 0 : 1,
    snapshot.bytes,
  );
}

export function getSnapshot(db: Db, runId: string): SnapshotBlob | undefined {
  const row = db.get<{ sequence: number; codec: number; bytes: Uint8Array }>(
    "SELECT p.sequence, p.codec, p.bytes FROM runs r JOIN snapshots p ON p.n = r.n WHERE r.run_id = ?",
    bindText(runId),
  );
  return row && { sequence: row.sequence, codec: row.codec === 0 ? "json" : "deflate", bytes: row.bytes };
}

interface SegmentRow {
  readonly pos: number;
  readonly last: number;
  readonly prev: Uint8Array | string | null;
  readonly hash: Uint8Array | string;
  readonly codec: number;
  readonly bytes: Uint8Array;
}

const SEGMENTS_FROM =
  "SELECT pos, last, prev, hash, codec, bytes FROM segments WHERE pos >= ? AND pos < ? ORDER BY pos";
const SEGMENT_BEFORE = "SELECT pos, last, hash FROM segments WHERE pos >= ? AND pos <= ? ORDER BY pos DESC LIMIT 1";

/** Whole segments with events after `since`, until about `maxBytes` are gathered; at least one where there is one. */
export function readSegments(db: Db, runId: string, since: number, maxBytes: number): Segment[] {
  const run = db.get<{ n: number }>("SELECT n FROM runs WHERE run_id = ?", bindText(runId));
  if (run === undefined || since >= POS_STRIDE - 1) return [];
  const base = run.n * POS_STRIDE;
  // The segment that holds `since + 1` may begin before it.
  const holder = db.get<SegmentRow>(SEGMENT_BEFORE, base, base + Math.max(since, 0) + 1);
  if (holder === undefined || holder.last <= since) return [];
  const before = db.get<SegmentRow>(SEGMENT_BEFORE, base, holder.pos - 1);
  let prev = before === undefined ? undefined : readHash(before.hash);
  const segments: Segment[] = [];
  let bytes = 0;
  for (const row of db.iterate<SegmentRow>(SEGMENTS_FROM, holder.pos, base + POS_STRIDE)) {
    if (segments.length > 0 && bytes + row.bytes.byteLength > maxBytes) break;
    const hash = readHash(row.hash);
    segments.push({
      first: row.pos - base,
      last: row.last,
      prev: prev ?? (row.prev === null ? "" : readHash(row.prev)),
      hash,
      codec: row.codec === 0 ? "json" : "deflate",
      bytes: row.bytes,
    });
    prev = hash;
    bytes += row.bytes.byteLength;
  }
  return segments;
}
