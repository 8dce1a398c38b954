/**
 * Resource leases (GD-53): what an attempt has claimed of its workspace, across runs. A row belongs to the tree and
 * the dispatch id; it goes with that attempt's settlement or with its tree, never by time.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { ResourceClaim } from "../../ports/index.ts";
import { bindText, type Db, type Value } from "./driver.ts";
import { findTree } from "./trees.ts";

/** One claim a resource, the writing one where both are made, in byte order of the resource. */
function distinct(claims: readonly ResourceClaim[]): { readonly resource: Value; readonly writes: number }[] {
  const writes = new Map<string, number>();
  for (const { resource, access } of claims)
    writes.set(resource, Math.max(writes.get(resource) ?? 0, access === "write" ? 1 : 0));
  return [...writes]
    .sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
    .map(([resource, write]) => ({ resource: bindText(resource), writes: write }));
}

/** Sessions of one workspace share what may be claimed in it. */
function workspaceOf(db: Db, s: number): Value {
  const row = db.get<{ doc: string }>("SELECT doc FROM sessions WHERE s = ?", s);
  return bindText((JSON.parse(row?.doc ?? "{}") as { workspace?: string }).workspace ?? "");
}

const TAKEN = `SELECT 1 FROM resource_leases
  WHERE workspace = ? AND resource = ? AND dispatch_id <> ? AND (writes = 1 OR ? = 1) LIMIT 1`;

interface Wanted {
  readonly root: number;
  readonly workspace: Value;
  readonly claims: ReturnType<typeof distinct>;
}

function wanted(db: Db, rootRunId: string, fence: number, claims: readonly ResourceClaim[]): Wanted {
  const tree = findTree(db, rootRunId);
  if (tree === undefined || tree.owner === null || tree.fence !== fence || tree.ended === 1)
    throw new HoldfastError(
      "conflict",
      `Cannot claim resources for the run ${rootRunId}: another process has taken it over`,
    );
  return { root: tree.n, workspace: workspaceOf(db, tree.s), claims: distinct(claims) };
}

/** Whether others leave all of it free now. A look that takes no lock: most waits look in vain. */
export function mayAcquire(
  db: Db,
  rootRunId: string,
  fence: number,
  dispatchId: string,
  claims: readonly ResourceClaim[],
): boolean {
  return isFree(db, wanted(db, rootRunId, fence, claims), dispatchId);
}

function isFree(db: Db, { workspace, claims }: Wanted, dispatchId: string): boolean {
  return claims.every(({ resource, writes }) => db.get(TAKEN, workspace, resource, dispatchId, writes) === undefined);
}

/** All or nothing; again for the same dispatch id is no change. To be called in a write transaction. */
export function acquireLeases(
  db: Db,
  rootRunId: string,
  fence: number,
  dispatchId: string,
  claims: readonly ResourceClaim[],
): boolean {
  const want = wanted(db, rootRunId, fence, claims);
  if (!isFree(db, want, dispatchId)) return false;
  freeLeases(db, want.root, [dispatchId]);
  for (const { resource, writes } of want.claims)
    db.run(
      "INSERT INTO resource_leases (workspace, resource, dispatch_id, root, writes) VALUES (?, ?, ?, ?, ?)",
      want.workspace,
      resource,
      dispatchId,
      want.root,
      writes,
    );
  return true;
}

export function freeLeases(db: Db, root: number, dispatchIds: readonly string[]): void {
  for (const id of dispatchIds) db.run("DELETE FROM resource_leases WHERE root = ? AND dispatch_id = ?", root, id);
}
