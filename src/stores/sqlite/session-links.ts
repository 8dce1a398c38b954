/**
 * Execution-session links (GD-42): which agent session the work of an attempt goes on in. Rows beside the journal, as
 * they are no fact of the run: who did the work may be looked up, and changes nothing of what was done.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { SessionLink } from "../../ports/index.ts";
import { bindText, type Db, readText } from "./driver.ts";
import { SESSION_LINKS } from "./schema.ts";
import { findTree } from "./trees.ts";

const MOST = 1_000;

interface Row {
  readonly dispatch_id: string | Uint8Array;
  readonly root_run_id: string | Uint8Array;
  readonly run_id: string | Uint8Array;
  readonly step_id: string | Uint8Array;
  readonly attempt: number;
  readonly session_id: string | Uint8Array;
  readonly shared: number;
  readonly created_at_ms: number;
}

const SELECT = `SELECT l.dispatch_id, r.run_id AS root_run_id, l.run_id, l.step_id, l.attempt, l.session_id, l.shared,
    l.created_at_ms FROM session_links l JOIN runs r ON r.n = l.root`;

function refuse(link: SessionLink, why: string): never {
  throw new HoldfastError(
    "conflict",
    `Cannot link the step "${link.step_id}" to the session ${link.session_id}: ${why}; the link that is stored stands`,
  );
}

/** To be called in a write transaction. */
export function linkSession(db: Db, fence: number, link: SessionLink): void {
  const tree = findTree(db, link.root_run_id);
  if (tree === undefined || tree.owner === null || tree.fence !== fence || tree.ended === 1)
    refuse(link, "another process has taken the run over");
  db.exec(SESSION_LINKS);
  const [own] = db.all<Row>(`${SELECT} WHERE l.dispatch_id = ?`, link.dispatch_id);
  if (own !== undefined) {
    if (readText(own.session_id) === link.session_id && (own.shared === 1) === link.shared) return;
    refuse(link, "this attempt has another one");
  }
  const others = "SELECT 1 FROM session_links WHERE session_id = ? AND (shared = 0 OR ? = 0) LIMIT 1";
  if (db.get(others, bindText(link.session_id), Number(link.shared)) !== undefined)
    refuse(link, "another attempt has this one for itself");
  db.run(
    `INSERT INTO session_links (dispatch_id, root, run_id, step_id, attempt, session_id, shared, created_at_ms)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
    link.dispatch_id,
    tree.n,
    bindText(link.run_id),
    bindText(link.step_id),
    link.attempt,
    bindText(link.session_id),
    Number(link.shared),
    link.created_at_ms,
  );
}

/** A database that was made before there were links, and is only read, has none. */
function hasTable(db: Db): boolean {
  return db.get("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'session_links'") !== undefined;
}

export function sessionLinks(db: Db, of: { root_run_id: string } | { session_id: string }): SessionLink[] {
  if (!hasTable(db)) return [];
  const [where, value] = "session_id" in of ? ["l.session_id = ?", of.session_id] : ["r.run_id = ?", of.root_run_id];
  return db
    .all<Row>(`${SELECT} WHERE ${where} ORDER BY l.created_at_ms, l.dispatch_id LIMIT ${MOST}`, bindText(value))
    .map(({ dispatch_id, root_run_id, run_id, step_id, attempt, session_id, shared, created_at_ms }) => ({
      root_run_id: readText(root_run_id),
      run_id: readText(run_id),
      step_id: readText(step_id),
      attempt,
      dispatch_id: readText(dispatch_id),
      session_id: readText(session_id),
      shared: shared === 1,
      created_at_ms,
    }));
}
