/**
 * The stored format, version 1.
 *
 * One SQLite database in WAL mode. `application_id` says that it is ours, `user_version` which version of this
 * page it follows; a build that does not know the version touches nothing.
 *
 *   sessions   one row a session; `doc` is the record as JSON. `s` is its short number.
 *   open_runs  how many root runs of a session have not ended (RP-76), kept in the same transaction as the
 *              runs; apart from `sessions`, so that a start does not rewrite free metadata.
 *   runs       one row a run: what lists show. `n` is its short number, in order of creation. `root` is the
 *              tree's root and NULL for a root itself. `tip` is the hash of the last segment. Small rows: they
 *              are rewritten by every append.
 *   headers    the immutable part of a run (RunHeader without what `runs` has), as JSON. Apart from `runs`,
 *              so that an append never rewrites arguments.
 *   trees      one row a tree, keyed by its root's `n`: lease, fence, control_version, ledger. `wake_at_ms` is
 *              what the engine asked for; `due_at_ms` is when an unclaimed tree wants a claim: the earlier of
 *              that, an open signal, and work that was left.
 *   segments   the journals. `pos` = n * 2^24 + first sequence: one table in journal order with no
 *              index beside it. Events are bytes, as the engine encoded them. `prev` is stored for the first
 *              segment only; everywhere else it is the hash of the row before.
 *   snapshots  at most one a run, a cache.
 *   bundles, artifacts   bytes by hash, written once.
 *   waits      the open waits of runs; `doc` is the wait as JSON.
 *   signals    what others ask of a tree's holder, in order of arrival.
 *   session_links  the agent sessions in which attempts go on (GD-42), by dispatch id.
 *   resource_leases  what open attempts have claimed of their workspace (GD-53), by dispatch id.
 *   starts     idempotency keys, per session.
 *
 * Hashes are 32 bytes. Times are integer milliseconds. JSON is text (it never holds a NUL, which is escaped in
 * it); other text of outside origin is text, or bytes when it holds a NUL (C21).
 *
 * Index choices: lists are keyset pages over (created_at_ms, run_id), one range per status, so that neither a
 * long history nor a rare status makes a page slow. Leases and due trees have partial indexes, so that what
 * sleeps or has ended costs nothing. Updates name only the columns that changed: SQLite rewrites the index
 * entries of every column that is named.
 */
import type { RunStatus } from "../../domain/run.ts";

/** "Hldf". */
export const APPLICATION_ID = 0x486c6466;
export const SCHEMA_VERSION = 1;

/** Sequences of one run stay below this: `pos` must fit 53 bits with 2^29 runs. */
export const POS_STRIDE = 2 ** 24;

export const STATUS_NUMBERS: { readonly [status in RunStatus]: number } = {
  queued: 0,
  running: 1,
  suspended: 2,
  succeeded: 3,
  failed: 4,
  cancelled: 5,
};

/** Statuses below this are open. */
export const FIRST_TERMINAL = 3;

const BY_NUMBER = new Map(Object.entries(STATUS_NUMBERS).map(([status, number]) => [number, status as RunStatus]));

export function statusOf(number: number): RunStatus {
  return BY_NUMBER.get(number) ?? "failed";
}

/** Came after the first databases of version 1, so it is also made in those: older builds do not look at it. */
export const SESSION_LINKS = `
CREATE TABLE IF NOT EXISTS session_links (
  dispatch_id TEXT PRIMARY KEY,
  root INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  shared INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS session_links_tree ON session_links (root, created_at_ms);
CREATE INDEX IF NOT EXISTS session_links_session ON session_links (session_id, created_at_ms);
`;

export const SCHEMA = `
CREATE TABLE sessions (
  s INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL UNIQUE,
  created_at_ms INTEGER NOT NULL,
  doc TEXT NOT NULL
);
CREATE INDEX sessions_time ON sessions (created_at_ms, session_id);

CREATE TABLE open_runs (s INTEGER PRIMARY KEY, open INTEGER NOT NULL);

CREATE TABLE runs (
  n INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  root INTEGER,
  parent INTEGER,
  s INTEGER NOT NULL,
  workflow_id TEXT NOT NULL,
  status INTEGER NOT NULL,
  suspension TEXT,
  wait_count INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  retries INTEGER NOT NULL,
  agents INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  cost_micros INTEGER,
  last_sequence INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL,
  tip BLOB NOT NULL
);
CREATE INDEX runs_session ON runs (s, status, created_at_ms, run_id) WHERE root IS NULL;
CREATE INDEX runs_children ON runs (s, created_at_ms, run_id) WHERE root IS NOT NULL;
CREATE INDEX runs_tree ON runs (root) WHERE root IS NOT NULL;
CREATE INDEX runs_time ON runs (created_at_ms, run_id);

CREATE TABLE headers (n INTEGER PRIMARY KEY, doc TEXT NOT NULL);

CREATE TABLE trees (
  n INTEGER PRIMARY KEY,
  owner TEXT,
  fence INTEGER NOT NULL,
  lease_expires_at_ms INTEGER,
  control_version INTEGER NOT NULL,
  recoveries INTEGER NOT NULL,
  wake_at_ms INTEGER,
  due_at_ms INTEGER,
  ended INTEGER NOT NULL,
  ledger TEXT
);
CREATE INDEX trees_owner ON trees (owner, lease_expires_at_ms) WHERE owner IS NOT NULL;
CREATE INDEX trees_due ON trees (due_at_ms) WHERE owner IS NULL AND due_at_ms IS NOT NULL;

CREATE TABLE segments (
  pos INTEGER PRIMARY KEY,
  last INTEGER NOT NULL,
  prev BLOB,
  hash BLOB NOT NULL,
  codec INTEGER NOT NULL,
  bytes BLOB NOT NULL
);

CREATE TABLE snapshots (n INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, codec INTEGER NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE bundles (hash BLOB NOT NULL UNIQUE, bytes BLOB NOT NULL);
CREATE TABLE artifacts (sha256 BLOB NOT NULL UNIQUE, bytes BLOB NOT NULL);

CREATE TABLE waits (
  n INTEGER NOT NULL,
  wait_id TEXT NOT NULL,
  s INTEGER NOT NULL,
  type TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  doc TEXT NOT NULL,
  UNIQUE (n, wait_id)
);
CREATE INDEX waits_session ON waits (s, type, since_ms, run_id, wait_id);
CREATE INDEX waits_time ON waits (type, since_ms, run_id, wait_id);

CREATE TABLE signals (
  q INTEGER PRIMARY KEY AUTOINCREMENT,
  signal_id TEXT NOT NULL UNIQUE,
  root INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  payload TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
);
CREATE INDEX signals_root ON signals (root);

-- Nobody is left to hear them; who asked sees that the run has ended.
CREATE TRIGGER tree_ended AFTER UPDATE OF ended ON trees WHEN new.ended = 1 BEGIN
  DELETE FROM signals WHERE root = new.n;
  DELETE FROM resource_leases WHERE root = new.n;
END;

CREATE TABLE resource_leases (
  workspace TEXT NOT NULL,
  resource TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  root INTEGER NOT NULL,
  writes INTEGER NOT NULL,
  PRIMARY KEY (workspace, resource, dispatch_id)
) WITHOUT ROWID;
CREATE INDEX resource_leases_tree ON resource_leases (root, dispatch_id);

${SESSION_LINKS}
CREATE TABLE starts (
  s INTEGER NOT NULL,
  key TEXT NOT NULL,
  n INTEGER NOT NULL,
  request_hash TEXT NOT NULL,
  PRIMARY KEY (s, key)
) WITHOUT ROWID;

PRAGMA application_id = ${APPLICATION_ID};
PRAGMA user_version = ${SCHEMA_VERSION};
`;
