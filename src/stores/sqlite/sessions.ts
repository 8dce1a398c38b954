/** Sessions: the isolation boundary, their free metadata, and how many runs they have open. */
import { HoldfastError } from "../../domain/errors.ts";
import { type Json, setOwn } from "../../domain/json.ts";
import type { SessionPatch, SessionRecord } from "../../ports/index.ts";
import { bindText, type Db } from "./driver.ts";
import { FIRST_TERMINAL } from "./schema.ts";

const LARGEST_PAGE = 200;

/** A page's size within 1..200. */
export function pageSize(limit: number): number {
  return Math.max(1, Math.min(LARGEST_PAGE, Math.floor(limit) || 1));
}

export function sessionNumber(db: Db, sessionId: string): number | undefined {
  return db.get<{ s: number }>("SELECT s FROM sessions WHERE session_id = ?", bindText(sessionId))?.s;
}

export function createSession(db: Db, session: SessionRecord): void {
  const { changes, id } = db.run(
    "INSERT INTO sessions (session_id, name, created_at_ms, doc) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
    bindText(session.session_id),
    bindText(session.name),
    session.created_at_ms,
    JSON.stringify(session),
  );
  if (changes === 0) throw taken(session.name);
  db.run("INSERT INTO open_runs (s, open) VALUES (?, 0)", id);
}

function taken(name: string): HoldfastError {
  return new HoldfastError("conflict", `Cannot name the session "${name}": that name is taken; choose another`);
}

interface SessionRow {
  readonly s: number;
  readonly doc: string;
}

function findSession(db: Db, sessionId: string): SessionRow | undefined {
  return db.get<SessionRow>("SELECT s, doc FROM sessions WHERE session_id = ?", bindText(sessionId));
}

/** By id, else by name: an id can never be hidden by another session's name. */
export function getSession(db: Db, idOrName: string): SessionRecord | undefined {
  const row =
    findSession(db, idOrName) ?? db.get<SessionRow>("SELECT s, doc FROM sessions WHERE name = ?", bindText(idOrName));
  return row && parseSession(row);
}

function parseSession(row: SessionRow): SessionRecord {
  return JSON.parse(row.doc) as SessionRecord;
}

export function listSessions(
  db: Db,
  page: { readonly limit: number; readonly after_ms?: number; readonly after_id?: string },
): SessionRecord[] {
  const rows = db.all<SessionRow>(
    `SELECT s, doc FROM sessions WHERE (created_at_ms, session_id) > (?, ?)
      ORDER BY created_at_ms, session_id LIMIT ?`,
    page.after_ms ?? -1,
    bindText(page.after_id ?? ""),
    pageSize(page.limit),
  );
  return rows.map(parseSession);
}

/** RP-77: reads and writes in one transaction, so that no concurrent change of another field is lost. */
export function updateSession(
  db: Db,
  sessionId: string,
  patch: SessionPatch,
  nowMs: number,
): SessionRecord | undefined {
  const row = findSession(db, sessionId);
  if (row === undefined) return undefined;
  const { metadata, ...fields } = patch;
  const before = parseSession(row);
  const session: SessionRecord = {
    ...before,
    ...fields,
    metadata: mergeMetadata(before.metadata, metadata ?? {}),
    updated_at_ms: nowMs,
  };
  const changed = db.run(
    "UPDATE OR IGNORE sessions SET name = ?, doc = ? WHERE s = ?",
    bindText(session.name),
    JSON.stringify(session),
    row.s,
  );
  if (changed.changes === 0) throw taken(session.name);
  // an intent that was prepared under the old posture is refused; its holder looks again.
  if (session.posture !== before.posture)
    db.run(
      `UPDATE trees SET control_version = control_version + 1
        WHERE ended = 0 AND n IN (SELECT n FROM runs WHERE root IS NULL AND s = ? AND status < ${FIRST_TERMINAL})`,
      row.s,
    );
  return session;
}

function mergeMetadata(before: SessionRecord["metadata"], patch: SessionRecord["metadata"]): SessionRecord["metadata"] {
  const merged = new Map<string, Json>(Object.entries(before));
  for (const [key, value] of Object.entries(patch))
    if (value === null) merged.delete(key);
    else merged.set(key, value);
  const metadata: Record<string, Json> = {};
  for (const [key, value] of merged) setOwn(metadata, key, value);
  return metadata;
}

export function openRuns(db: Db, sessionId: string): number {
  const row = db.get<{ open: number }>(
    "SELECT o.open FROM sessions x JOIN open_runs o ON o.s = x.s WHERE x.session_id = ?",
    bindText(sessionId),
  );
  return row?.open ?? 0;
}
