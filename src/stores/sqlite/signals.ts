/** Signals: what others ask of whoever holds a tree. They wait in order of arrival until it has acted. */
import { HoldfastError } from "../../domain/errors.ts";
import type { Json } from "../../domain/json.ts";
import type { Signal, SignalKind } from "../../ports/index.ts";
import { bindText, type Db, readText } from "./driver.ts";
import { findTree } from "./trees.ts";

const MOST_AT_ONCE = 1_000;

/**
 * Stores a signal; the same `signal_id` again changes nothing. An unclaimed tree becomes due.
 * @throws HoldfastError `not_found` for an unknown tree, `terminal` for one whose runs have all ended
 */
export function putSignal(db: Db, signal: Signal, raisesControl: boolean, nowMs: number): { control_version: number } {
  const tree = findTree(db, signal.root_run_id);
  const act = `${signal.kind} run ${signal.run_id}`;
  if (tree === undefined) throw new HoldfastError("not_found", `Cannot ${act}: there is no such run; check its id`);
  if (tree.ended === 1) throw new HoldfastError("terminal", `Cannot ${act}: it has ended; nothing was changed`);
  const stored = db.run(
    `INSERT INTO signals (signal_id, root, run_id, kind, payload, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT (signal_id) DO NOTHING`,
    bindText(signal.signal_id),
    tree.n,
    bindText(signal.run_id),
    signal.kind,
    JSON.stringify(signal.payload),
    signal.created_at_ms,
  );
  if (stored.changes === 0) return { control_version: tree.control_version };
  const control_version = tree.control_version + (raisesControl ? 1 : 0);
  db.run(
    "UPDATE trees SET control_version = ?, due_at_ms = min(coalesce(due_at_ms, ?), ?) WHERE n = ?",
    control_version,
    nowMs,
    nowMs,
    tree.n,
  );
  return { control_version };
}

interface SignalRow {
  readonly signal_id: string | Uint8Array;
  readonly root_run_id: string | Uint8Array;
  readonly run_id: string | Uint8Array;
  readonly kind: string;
  readonly payload: string;
  readonly created_at_ms: number;
}

const COLUMNS = "g.signal_id, r.run_id AS root_run_id, g.run_id, g.kind, g.payload, g.created_at_ms";

/** Oldest first, at most 1,000. */
export function listSignals(db: Db, of: { readonly owner: string } | { readonly root_run_id: string }): Signal[] {
  // CROSS JOIN keeps the order of the tables: open signals are few, trees that an owner holds may be many.
  const rows =
    "owner" in of
      ? db.all<SignalRow>(
          `SELECT ${COLUMNS} FROM signals g CROSS JOIN trees t ON t.n = g.root CROSS JOIN runs r ON r.n = g.root
            WHERE t.owner = ? ORDER BY g.q LIMIT ${MOST_AT_ONCE}`,
          bindText(of.owner),
        )
      : db.all<SignalRow>(
          `SELECT ${COLUMNS} FROM runs r JOIN signals g ON g.root = r.n
            WHERE r.run_id = ? ORDER BY g.q LIMIT ${MOST_AT_ONCE}`,
          bindText(of.root_run_id),
        );
  return rows.map((row) => ({
    signal_id: readText(row.signal_id),
    root_run_id: readText(row.root_run_id),
    run_id: readText(row.run_id),
    kind: row.kind as SignalKind,
    payload: JSON.parse(row.payload) as Json,
    created_at_ms: row.created_at_ms,
  }));
}

export function signalExists(db: Db, signalId: string): boolean {
  return db.get("SELECT 1 FROM signals WHERE signal_id = ?", bindText(signalId)) !== undefined;
}

export function deleteSignals(db: Db, signalIds: readonly string[]): void {
  for (const id of signalIds) db.run("DELETE FROM signals WHERE signal_id = ?", bindText(id));
}
