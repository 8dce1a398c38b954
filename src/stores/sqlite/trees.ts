/**
 * The rows of run trees: their leases, when they want to be claimed, and what claims them. Times are the
 * store's wall clock. The rule for `due_at_ms` of an unclaimed tree is in `dueAt`.
 */
import type { Json } from "../../domain/json.ts";
import type { Claim, TreeCommit, TreeRecord, TreeUpdate } from "../../ports/index.ts";
import { bindText, type Db, readText } from "./driver.ts";

/** A tree as the checks of a commit or a claim see it. */
export interface TreeRow {
  readonly n: number;
  readonly s: number;
  readonly owner: string | Uint8Array | null;
  readonly fence: number;
  readonly lease_expires_at_ms: number | null;
  readonly control_version: number;
  readonly recoveries: number;
  readonly wake_at_ms: number | null;
  readonly ended: number;
  /** The root run's own row, for an append to it. */
  readonly root: number | null;
  readonly status: number;
  readonly last_sequence: number;
  readonly tip: Uint8Array | string;
}

const TREE_COLUMNS =
  "t.n, r.s, t.owner, t.fence, t.lease_expires_at_ms, t.control_version, t.recoveries, t.wake_at_ms, t.ended, r.root, r.status, r.last_sequence, r.tip";

export function findTree(db: Db, rootRunId: string): TreeRow | undefined {
  return db.get<TreeRow>(
    `SELECT ${TREE_COLUMNS} FROM runs r JOIN trees t ON t.n = r.n WHERE r.run_id = ?`,
    bindText(rootRunId),
  );
}

export function getTree(db: Db, rootRunId: string): TreeRecord | undefined {
  const row = db.get<TreeRow & { ledger: string | null; session_id: string | Uint8Array }>(
    `SELECT ${TREE_COLUMNS}, t.ledger, x.session_id
      FROM runs r JOIN trees t ON t.n = r.n JOIN sessions x ON x.s = r.s WHERE r.run_id = ?`,
    bindText(rootRunId),
  );
  if (row === undefined) return undefined;
  return {
    root_run_id: rootRunId,
    session_id: readText(row.session_id),
    ...(row.owner === null ? {} : { owner: readText(row.owner) }),
    fence: row.fence,
    ...(row.lease_expires_at_ms === null ? {} : { lease_expires_at_ms: row.lease_expires_at_ms }),
    control_version: row.control_version,
    recoveries: row.recoveries,
    ...(row.ledger === null ? {} : { ledger: JSON.parse(row.ledger) as Json }),
    ...(row.wake_at_ms === null ? {} : { wake_at_ms: row.wake_at_ms }),
    ended: row.ended === 1,
  };
}

export function insertTree(db: Db, n: number, commit: TreeCommit, nowMs: number): void {
  const update = commit.tree ?? {};
  const free = update.ended === true || update.release === true;
  const claim = free ? undefined : commit.create?.claim;
  // A new tree that nobody holds wants a worker process at once, unless it was told when.
  const due = update.ended === true || claim !== undefined ? null : dueAt(db, n, null, update, nowMs);
  db.run(
    `INSERT INTO trees (n, owner, fence, lease_expires_at_ms, control_version, recoveries, wake_at_ms, due_at_ms,
        ended, ledger) VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, ?)`,
    n,
    claim === undefined ? null : bindText(claim.owner),
    commit.fence,
    claim?.lease_expires_at_ms ?? null,
    update.recoveries ?? 0,
    update.wake_at_ms ?? null,
    due,
    update.ended === true ? 1 : 0,
    update.ledger === undefined ? null : JSON.stringify(update.ledger),
  );
}

/** Applies a holder's update: an end or a release frees the tree in the same transaction. */
export function updateTree(db: Db, tree: TreeRow, update: TreeUpdate, nowMs: number): void {
  const ended = update.ended === true;
  const wake = update.wake_at_ms === undefined ? tree.wake_at_ms : update.wake_at_ms;
  const ledger = update.ledger === undefined ? null : JSON.stringify(update.ledger);
  const values = [ended ? null : wake, update.recoveries ?? tree.recoveries, ledger] as const;
  if (!ended && update.release !== true) {
    db.run(
      "UPDATE trees SET wake_at_ms = ?, recoveries = ?, ledger = coalesce(?, ledger) WHERE n = ?",
      ...values,
      tree.n,
    );
    return;
  }
  const due = ended ? null : dueAt(db, tree.n, tree.wake_at_ms, update, nowMs);
  db.run(
    `UPDATE trees SET wake_at_ms = ?, recoveries = ?, ledger = coalesce(?, ledger), owner = NULL,
        lease_expires_at_ms = NULL, due_at_ms = ?${ended ? ", ended = 1" : ""} WHERE n = ?`,
    ...values,
    due,
    tree.n,
  );
}

/** Gives up a lease, if it is still this one. @returns whether it was */
export function releaseTree(db: Db, rootRunId: string, fence: number, nowMs: number): boolean {
  const tree = findTree(db, rootRunId);
  if (tree === undefined || tree.fence !== fence || tree.owner === null) return false;
  db.run(
    "UPDATE trees SET owner = NULL, lease_expires_at_ms = NULL, due_at_ms = ? WHERE n = ?",
    dueAt(db, tree.n, tree.wake_at_ms, {}, nowMs),
    tree.n,
  );
  return true;
}

/**
 * When a tree that is being given up wants to be claimed again: now when a signal is open; else when the holder
 * said; else, when the holder said nothing, now if a run of it is queued or running (work was left, as at a
 * shutdown), and otherwise at the time it was told before.
 */
function dueAt(db: Db, n: number, wakeAtMs: number | null, update: TreeUpdate, nowMs: number): number | null {
  if (db.get("SELECT 1 FROM signals WHERE root = ? LIMIT 1", n) !== undefined) return nowMs;
  if (update.wake_at_ms !== undefined) return update.wake_at_ms;
  const left =
    db.get("SELECT 1 FROM runs WHERE n = ? AND status < 2", n) ??
    db.get("SELECT 1 FROM runs WHERE root = ? AND status < 2 LIMIT 1", n);
  return left === undefined ? wakeAtMs : nowMs;
}

export interface Claimer {
  readonly owner: string;
  readonly leaseMs: number;
  readonly graceMs: number;
}

const LEASES = "SELECT DISTINCT dispatch_id FROM resource_leases WHERE root = ?";

/** Claims the tree if it may be: to be called in a write transaction. `isDead` answers from what is known. */
export function claimTree(
  db: Db,
  rootRunId: string,
  by: Claimer,
  nowMs: number,
  isDead: (owner: string) => boolean,
): Claim | undefined {
  const tree = findTree(db, rootRunId);
  if (tree === undefined || tree.ended === 1) return undefined;
  const previous = tree.owner === null ? undefined : readText(tree.owner);
  const mine = previous === by.owner;
  const late = (tree.lease_expires_at_ms ?? 0) + by.graceMs <= nowMs;
  if (previous !== undefined && !mine && !late && !isDead(previous)) return undefined;
  const leases = db.all<{ dispatch_id: string | Uint8Array }>(LEASES, tree.n).map((row) => readText(row.dispatch_id));
  const claim: Claim = {
    root_run_id: rootRunId,
    fence: tree.fence + 1,
    control_version: tree.control_version,
    lease_expires_at_ms: nowMs + by.leaseMs,
    // counted here, because an owner that dies before its first commit must be counted too.
    recoveries: tree.recoveries + (previous === undefined || mine ? 0 : 1),
    taken_over: previous !== undefined,
    ...(leases.length === 0 ? {} : { leases }),
  };
  db.run(
    "UPDATE trees SET owner = ?, fence = ?, lease_expires_at_ms = ?, recoveries = ? WHERE n = ?",
    bindText(by.owner),
    claim.fence,
    claim.lease_expires_at_ms,
    claim.recoveries,
    tree.n,
  );
  return claim;
}

interface DueRow {
  readonly run_id: string | Uint8Array;
  readonly at_ms: number;
}

/**
 * Trees that want a claim, earliest first, at most `limit`: unclaimed and due, late, or of a dead owner. Each
 * part is a range of an index, so it costs the same however many trees sleep (W6).
 */
export function dueTrees(
  db: Db,
  by: Claimer & { readonly limit: number },
  nowMs: number,
  isDead: (owner: string) => boolean,
): string[] {
  const due = db.all<DueRow>(
    `SELECT r.run_id, t.due_at_ms AS at_ms FROM trees t JOIN runs r ON r.n = t.n
      WHERE t.owner IS NULL AND t.due_at_ms <= ? ORDER BY t.due_at_ms LIMIT ?`,
    nowMs,
    by.limit,
  );
  for (const owner of owners(db)) {
    if (owner === by.owner) continue;
    const until = isDead(owner) ? Number.MAX_SAFE_INTEGER : nowMs - by.graceMs;
    const left = db.all<DueRow>(
      `SELECT r.run_id, t.lease_expires_at_ms AS at_ms FROM trees t JOIN runs r ON r.n = t.n
        WHERE t.owner = ? AND t.lease_expires_at_ms <= ? ORDER BY t.lease_expires_at_ms LIMIT ?`,
      bindText(owner),
      until,
      by.limit,
    );
    due.push(...left);
  }
  due.sort((a, b) => a.at_ms - b.at_ms);
  return due.slice(0, by.limit).map((row) => readText(row.run_id));
}

/** More owners than this at one store are not looked through at once. */
const MAX_OWNERS = 1_000;

/** Owners that hold trees: one index step each, however many trees they hold. */
export function owners(db: Db): string[] {
  const found: string[] = [];
  let row = db.get<{ owner: string | Uint8Array }>(
    "SELECT owner FROM trees WHERE owner IS NOT NULL ORDER BY owner LIMIT 1",
  );
  while (row !== undefined && found.length < MAX_OWNERS) {
    found.push(readText(row.owner));
    row = db.get("SELECT owner FROM trees WHERE owner > ? ORDER BY owner LIMIT 1", row.owner);
  }
  return found;
}

export function holdsTrees(db: Db, owner: string): boolean {
  return db.get("SELECT 1 FROM trees WHERE owner = ? LIMIT 1", bindText(owner)) !== undefined;
}

export function heldTrees(db: Db, owner: string): { root_run_id: string; control_version: number }[] {
  const rows = db.all<{ run_id: string | Uint8Array; control_version: number }>(
    "SELECT r.run_id, t.control_version FROM trees t JOIN runs r ON r.n = t.n WHERE t.owner = ?",
    bindText(owner),
  );
  return rows.map((row) => ({ root_run_id: readText(row.run_id), control_version: row.control_version }));
}

export function renewLeases(db: Db, owner: string, untilMs: number): void {
  db.run("UPDATE trees SET lease_expires_at_ms = ? WHERE owner = ?", untilMs, bindText(owner));
}

export function nextWakeMs(db: Db): number | undefined {
  const row = db.get<{ at_ms: number | null }>(
    "SELECT min(due_at_ms) AS at_ms FROM trees WHERE owner IS NULL AND due_at_ms IS NOT NULL",
  );
  return row?.at_ms ?? undefined;
}
