/** Reading runs: one, a tree, or a page of a list. A list never reads a journal, nor more rows than its pages. */
import type { RunHeader, RunStatus, WaitType } from "../../domain/run.ts";
import { RUN_STATUSES } from "../../domain/run.ts";
import type { RunQuery, RunRecord } from "../../ports/index.ts";
import { bindText, type Db, readText, type Value } from "./driver.ts";
import { STATUS_NUMBERS, statusOf } from "./schema.ts";
import { pageSize, sessionNumber } from "./sessions.ts";

interface RecordRow {
  readonly run_id: string | Uint8Array;
  readonly root_run_id: string | Uint8Array | null;
  readonly session_id: string | Uint8Array;
  readonly workflow_id: string | Uint8Array;
  readonly status: number;
  readonly suspension: string | null;
  readonly wait_count: number;
  readonly steps: number;
  readonly retries: number;
  readonly agents: number;
  readonly tokens: number;
  readonly cost_micros: number | null;
  readonly last_sequence: number;
  readonly created_at_ms: number;
  readonly updated_at_ms: number;
  readonly doc: string;
}

const RECORD = `SELECT r.run_id, q.run_id AS root_run_id, x.session_id, r.workflow_id, r.status, r.suspension, r.wait_count,
    r.steps, r.retries, r.agents, r.tokens, r.cost_micros, r.last_sequence, r.created_at_ms, r.updated_at_ms, h.doc
  FROM runs r JOIN headers h ON h.n = r.n JOIN sessions x ON x.s = r.s LEFT JOIN runs q ON q.n = r.root`;

export function getRun(db: Db, runId: string): RunRecord | undefined {
  const row = db.get<RecordRow>(`${RECORD} WHERE r.run_id = ?`, bindText(runId));
  return row && toRecord(row);
}

/** Parents before children: a parent has the smaller depth, and runs are numbered as they were created. */
export function treeRuns(db: Db, rootRunId: string): RunRecord[] {
  const rows = db.all<RecordRow>(
    `${RECORD} WHERE r.n IN (SELECT n FROM runs WHERE run_id = ?
      UNION ALL SELECT n FROM runs WHERE root = (SELECT n FROM runs WHERE run_id = ?)) ORDER BY r.n`,
    bindText(rootRunId),
    bindText(rootRunId),
  );
  return rows.map(toRecord).sort((a, b) => a.depth - b.depth);
}

function toRecord(row: RecordRow): RunRecord {
  const header = JSON.parse(row.doc) as Omit<
    RunHeader,
    "run_id" | "root_run_id" | "session_id" | "workflow_id" | "created_at_ms"
  >;
  const run_id = readText(row.run_id);
  return {
    ...header,
    run_id,
    root_run_id: row.root_run_id === null ? run_id : readText(row.root_run_id),
    session_id: readText(row.session_id),
    workflow_id: readText(row.workflow_id),
    created_at_ms: row.created_at_ms,
    status: statusOf(row.status),
    ...(row.suspension === null ? {} : { suspension: row.suspension as WaitType }),
    wait_count: row.wait_count,
    usage: {
      steps: row.steps,
      retries: row.retries,
      agents: row.agents,
      tokens: row.tokens,
      cost_micros: row.cost_micros,
    },
    last_sequence: row.last_sequence,
    updated_at_ms: row.updated_at_ms,
  };
}

interface KeyRow {
  readonly n: number;
  readonly created_at_ms: number;
  readonly run_id: string | Uint8Array;
}

/** Newest first. */
export function listRuns(db: Db, query: RunQuery): RunRecord[] {
  const limit = pageSize(query.limit);
  const s = query.session_id === undefined ? null : sessionNumber(db, query.session_id);
  if (s === undefined) return [];
  const keys = [...new Map(matchingKeys(db, query, s, limit).map((key) => [key.n, key])).values()];
  keys.sort((a, b) => b.created_at_ms - a.created_at_ms || compareIds(b.run_id, a.run_id));
  const records = keys.slice(0, limit).map(({ n }) => db.get<RecordRow>(`${RECORD} WHERE r.n = ?`, n));
  return records.flatMap((row) => (row === undefined ? [] : [toRecord(row)]));
}

function compareIds(a: string | Uint8Array, b: string | Uint8Array): number {
  return Buffer.compare(Buffer.from(readText(a)), Buffer.from(readText(b)));
}

/** Chosen so that every list without a search is one range of an index per status. */
function matchingKeys(db: Db, query: RunQuery, s: number | null, limit: number): KeyRow[] {
  if (query.id_suffix !== undefined) return keysBySuffix(db, query, s, limit, query.id_suffix);
  const statuses = [...new Set(query.status ?? RUN_STATUSES)];
  if (query.parent_run_id !== undefined) {
    const parent = db.get<{ n: number; root: number | null }>(
      "SELECT n, root FROM runs WHERE run_id = ?",
      bindText(query.parent_run_id),
    );
    if (parent === undefined) return [];
    const own = "root = ? AND parent = ? AND (? IS NULL OR s = ?)";
    return page(db, own, [parent.root ?? parent.n, parent.n, s, s], query, limit, statuses);
  }
  if (s === null) {
    const roots = query.children === true ? "1" : "root IS NULL";
    return page(db, roots, [], query, limit, statuses);
  }
  const keys = statuses.flatMap((status) =>
    page(db, "root IS NULL AND s = ? AND status = ?", [s, STATUS_NUMBERS[status]], query, limit),
  );
  if (query.children === true) keys.push(...page(db, "root IS NOT NULL AND s = ?", [s], query, limit, statuses));
  return keys;
}

/** An exact id is one look-up and wins alone; a suffix reads the ids of the session, newest first. */
function keysBySuffix(db: Db, query: RunQuery, s: number | null, limit: number, suffix: string): KeyRow[] {
  const statuses = [...new Set(query.status ?? RUN_STATUSES)];
  const scope = `${query.children === true ? "1" : "root IS NULL"} AND (? IS NULL OR s = ?)`;
  const exact = page(db, `run_id = ? AND ${scope}`, [bindText(suffix), s, s], query, limit, statuses);
  if (exact.length > 0 || suffix === "") return exact;
  const ends = "substr(run_id, -?) = ?";
  return page(db, `${ends} AND ${scope}`, [[...suffix].length, bindText(suffix), s, s], query, limit, statuses);
}

function page(
  db: Db,
  where: string,
  values: readonly Value[],
  query: RunQuery,
  limit: number,
  statuses?: readonly RunStatus[],
): KeyRow[] {
  const conditions = [where];
  const bound = [...values];
  if (query.before !== undefined) {
    conditions.push("(created_at_ms, run_id) < (?, ?)");
    bound.push(query.before.created_at_ms, bindText(query.before.run_id));
  }
  if (query.workflow_id !== undefined) {
    conditions.push("workflow_id = ?");
    bound.push(bindText(query.workflow_id));
  }
  if (query.waiting === true) conditions.push("wait_count > 0");
  if (statuses !== undefined && statuses.length < RUN_STATUSES.length) {
    conditions.push("(1 << status) & CAST(? AS INTEGER)");
    bound.push(statuses.reduce((mask, status) => mask | (1 << STATUS_NUMBERS[status]), 0));
  }
  return db.all<KeyRow>(
    `SELECT n, created_at_ms, run_id FROM runs WHERE ${conditions.join(" AND ")}
      ORDER BY created_at_ms DESC, run_id DESC LIMIT ?`,
    ...bound,
    limit,
  );
}
