/** Open waits as rows, so that an inbox is one page of an index however many runs there are. */
import { WAIT_TYPES, type Wait, type WaitType } from "../../domain/run.ts";
import type { WaitQuery } from "../../ports/index.ts";
import { bindText, type Db, readText, type Value } from "./driver.ts";
import { pageSize, sessionNumber } from "./sessions.ts";

/** Makes the rows of a run exactly `waits`; those that did not change are left alone. */
export function replaceWaits(db: Db, n: number, s: number, runId: string, waits: readonly Wait[]): void {
  const rows = db.all<{ wait_id: string | Uint8Array; doc: string }>("SELECT wait_id, doc FROM waits WHERE n = ?", n);
  const stored = new Map(rows.map((row) => [readText(row.wait_id), row.doc]));
  for (const wait of waits) {
    const doc = JSON.stringify(wait);
    const before = stored.get(wait.wait_id);
    stored.delete(wait.wait_id);
    if (before === doc) continue;
    db.run(
      `INSERT INTO waits (n, wait_id, s, type, since_ms, run_id, doc) VALUES (?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (n, wait_id) DO UPDATE SET type = excluded.type, since_ms = excluded.since_ms, doc = excluded.doc`,
      n,
      bindText(wait.wait_id),
      s,
      wait.type,
      wait.since_ms,
      bindText(runId),
      doc,
    );
  }
  for (const gone of stored.keys()) db.run("DELETE FROM waits WHERE n = ? AND wait_id = ?", n, bindText(gone));
}

interface WaitRow {
  readonly since_ms: number;
  readonly run_id: string | Uint8Array;
  readonly wait_id: string | Uint8Array;
  readonly doc: string;
}

/** Oldest first. */
export function listWaits(db: Db, query: WaitQuery): Wait[] {
  const limit = pageSize(query.limit);
  const { after } = query;
  const position: readonly Value[] = [
    after?.since_ms ?? -1,
    after === undefined ? "" : bindText(after.run_id),
    after === undefined ? "" : bindText(after.wait_id),
    limit,
  ];
  const s = query.session_id === undefined ? null : sessionNumber(db, query.session_id);
  if (s === undefined) return [];
  const narrow = query.run_id !== undefined || query.root_run_id !== undefined;
  const rows = narrow ? waitsOfTree(db, query, s, position) : waitsByType(db, query.type ?? WAIT_TYPES, s, position);
  rows.sort((a, b) => a.since_ms - b.since_ms || compare(a.run_id, b.run_id) || compare(a.wait_id, b.wait_id));
  return rows.slice(0, limit).map((row) => JSON.parse(row.doc) as Wait);
}

function compare(a: string | Uint8Array, b: string | Uint8Array): number {
  return Buffer.compare(Buffer.from(readText(a)), Buffer.from(readText(b)));
}

const SELECT = "SELECT since_ms, run_id, wait_id, doc FROM waits";
const PAGE = "(since_ms, run_id, wait_id) > (?, ?, ?) ORDER BY since_ms, run_id, wait_id LIMIT ?";

/** One index range per type is read, so that a few approvals among very many timers are found at once. */
function waitsByType(db: Db, types: readonly WaitType[], s: number | null, position: readonly Value[]): WaitRow[] {
  return [...new Set(types)].flatMap((type) =>
    s === null
      ? db.all<WaitRow>(`${SELECT} WHERE type = ? AND ${PAGE}`, type, ...position)
      : db.all<WaitRow>(`${SELECT} WHERE s = ? AND type = ? AND ${PAGE}`, s, type, ...position),
  );
}

const OF_RUN = "n = (SELECT n FROM runs WHERE run_id = ?)";
const OF_TREE = `n IN (SELECT n FROM runs WHERE run_id = ?
  UNION ALL SELECT n FROM runs WHERE root = (SELECT n FROM runs WHERE run_id = ?))`;

function waitsOfTree(db: Db, query: WaitQuery, s: number | null, position: readonly Value[]): WaitRow[] {
  const where: string[] = [];
  const values: Value[] = [];
  if (query.run_id !== undefined) {
    where.push(OF_RUN);
    values.push(bindText(query.run_id));
  }
  if (query.root_run_id !== undefined) {
    where.push(OF_TREE);
    values.push(bindText(query.root_run_id), bindText(query.root_run_id));
  }
  if (s !== null) {
    where.push("s = ?");
    values.push(s);
  }
  if (query.type !== undefined) {
    where.push("type IN (SELECT value FROM json_each(?))");
    values.push(JSON.stringify(query.type));
  }
  return db.all<WaitRow>(`${SELECT} WHERE ${where.join(" AND ")} AND ${PAGE}`, ...values, ...position);
}
