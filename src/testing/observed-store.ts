/**
 * Watches what a process asks of the store: what only shows at the moment of the write, and never in a journal
 * afterwards. Every look at the store is begun in the same turn as the write, so nothing gets in between.
 */
import type { RunEvent } from "../domain/events.ts";
import { parseEvents } from "../domain/journal.ts";
import { unpackText } from "../engine/index.ts";
import type { Claim, RunStore, SessionStore, TreeCommit, TreeRecord } from "../ports/index.ts";
import type { Violation } from "./rules.ts";

export interface StoreObserver {
  readonly violate: (violation: Violation) => void;
  /** Another process may want to know. */
  readonly announce: () => void;
  /** A run is in this process's hands. */
  readonly onRun: (runId: string) => void;
  readonly watch: (onChange: () => void) => () => void;
}

export function observedStore(raw: RunStore & SessionStore, observer: StoreObserver): RunStore & SessionStore {
  const claimed = async (claims: readonly Claim[]): Promise<void> => {
    for (const claim of claims) for (const run of await raw.treeRuns(claim.root_run_id)) observer.onRun(run.run_id);
  };
  const replaced: Partial<RunStore> = {
    async commit(group) {
      const before = group.map((commit) => (commit.create === undefined ? raw.getTree(commit.root_run_id) : undefined));
      const written = raw.commit(group);
      for (const commit of group)
        for (const run of commit.runs) if (run.header !== undefined) observer.onRun(run.run_id);
      const results = await written;
      for (const [i, commit] of group.entries()) {
        if (results[i]?.ok !== true) continue;
        const tree = await before[i];
        if (tree !== undefined) checkCommit(commit, tree, observer);
        const freed = commit.leases_freed !== undefined;
        if (commit.tree?.release === true || commit.tree?.ended === true || freed || commit.create?.claim === undefined)
          observer.announce();
      }
      return results;
    },
    async claim(root, by) {
      const claim = await raw.claim(root, by);
      if (claim !== undefined) await claimed([claim]);
      return claim;
    },
    async claimDue(by) {
      const claims = await raw.claimDue(by);
      await claimed(claims);
      return claims;
    },
    async putSignal(signal, raises) {
      const put = await raw.putSignal(signal, raises);
      observer.announce();
      return put;
    },
    async release(root, fence) {
      await raw.release(root, fence);
      observer.announce();
    },
    async deleteSignals(ids) {
      await raw.deleteSignals(ids);
      observer.announce();
    },
    watch: observer.watch,
    close: async () => undefined,
  };
  return new Proxy(raw, {
    get(target, key) {
      const own: unknown = Reflect.get(replaced, key);
      if (own !== undefined) return own;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

function checkCommit(commit: TreeCommit, tree: TreeRecord, observer: StoreObserver): void {
  const at = { run_id: commit.root_run_id, sequence: commit.runs[0]?.segment.first ?? 0 };
  if (commit.fence !== tree.fence)
    observer.violate({
      ...at,
      rule: "stale_fence_is_refused",
      cites: "R-1, DESIGN §7",
      why: `a write under fence ${commit.fence} was taken while the fence was ${tree.fence}`,
    });
  if (commit.control_version !== undefined && commit.control_version !== tree.control_version)
    observer.violate({
      ...at,
      rule: "control_version_is_checked",
      cites: "R-1",
      why: `an intent that saw control_version ${commit.control_version} was taken while it was ${tree.control_version}`,
    });
  const open = commit.control_version === undefined ? intentOf(commit) : undefined;
  if (open !== undefined)
    observer.violate({
      ...at,
      sequence: open.sequence,
      event: open.type,
      rule: "control_version_is_checked",
      cites: "R-1",
      why: "an intent that is not read_only was committed without the control_version its writer saw",
    });
}

/** An intent to do more than read, other than one that only asks or is refused in the same append. */
function intentOf(commit: TreeCommit): RunEvent | undefined {
  for (const run of commit.runs) {
    const events = parseEvents(unpackText(run.segment));
    for (const event of events) {
      if (event.type !== "step_started" || event.tool === undefined || event.side_effect === "read_only") continue;
      const after = events.find(
        (later) => later.sequence > event.sequence && "step_id" in later && later.step_id === event.step_id,
      );
      if (after === undefined) return event;
    }
  }
  return undefined;
}
