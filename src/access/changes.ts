/** What changes, as it changes: this process's commits for figures, and a session's runs for live views (GD-72). */
import type { RunRecord } from "../ports/index.ts";
import type { Committed, RunChange } from "./api.ts";
import { type AccessContext, needEngine, needStore, sessionOf } from "./context.ts";

/** How often runs of other processes are looked through at most, ms. */
const LOOK_EVERY_MS = 500;
/** Pages of open runs looked through: what lies behind is told when it changes here, or read by lists. */
const MAX_PAGES = 10;
const PAGE = 200;
const OPEN = ["queued", "running", "suspended"] as const;

export function observed(context: AccessContext, listener: (committed: Committed) => void): () => void {
  return needEngine(context).observe((events, { header, status, waits }) =>
    listener({
      run_id: header.run_id,
      root_run_id: header.root_run_id,
      session_id: header.session_id,
      workflow_id: header.workflow_id,
      workflow_revision: header.workflow_revision,
      status,
      ...(status === "suspended" && waits[0] !== undefined ? { suspension: waits[0].type } : {}),
      events,
    }),
  );
}

/**
 * Runs of the session with their newest sequence, each told once for each look in which it moved. Bounded: a reader
 * that is slow finds only the newest sequence of each run, never a queue of what it missed.
 */
export async function* changesOf(
  context: AccessContext,
  signal: AbortSignal | undefined,
  session: string | undefined,
): AsyncGenerator<RunChange> {
  const { session_id } = await sessionOf(context, session);
  const told = new Map<string, number>(
    (await openRuns(context, session_id)).map((run) => [run.run_id, run.last_sequence]),
  );
  const fresh = new Map<string, RunChange>();
  const waker = new Waker();
  const unobserve = observed(context, ({ run_id, session_id: owner, events }) => {
    const last = events.at(-1);
    if (owner !== session_id || last === undefined) return;
    fresh.set(run_id, { version: 3, run_id, event_sequence: last.sequence, changed_at_ms: last.at_ms });
    waker.wake();
  });
  // Set by the store's word, so that a session where nothing happens is not looked through.
  let stirred = false;
  const unwatch = needStore(context).watch(() => {
    stirred = true;
    waker.wake();
  });
  signal?.addEventListener("abort", waker.wake, { once: true });
  let looked = context.clock.monotonic();
  try {
    while (signal?.aborted !== true) {
      if (stirred && context.clock.monotonic() - looked >= LOOK_EVERY_MS) {
        stirred = false;
        for (const change of await movedElsewhere(context, session_id, told))
          if (!fresh.has(change.run_id)) fresh.set(change.run_id, change);
        looked = context.clock.monotonic();
      }
      const [next] = fresh.values();
      if (next === undefined) {
        await waker.wait(context, LOOK_EVERY_MS);
        continue;
      }
      fresh.delete(next.run_id);
      if ((told.get(next.run_id) ?? 0) >= next.event_sequence) continue;
      told.set(next.run_id, next.event_sequence);
      yield next;
    }
  } finally {
    unobserve();
    unwatch();
    signal?.removeEventListener("abort", waker.wake);
  }
}

async function openRuns(context: AccessContext, session_id: string): Promise<RunRecord[]> {
  const store = needStore(context);
  const found: RunRecord[] = [];
  let before: { readonly created_at_ms: number; readonly run_id: string } | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const runs = await store.listRuns({
      session_id,
      status: OPEN,
      children: true,
      limit: PAGE,
      ...(before === undefined ? {} : { before }),
    });
    found.push(...runs);
    const last = runs.at(-1);
    if (runs.length < PAGE || last === undefined) break;
    before = { created_at_ms: last.created_at_ms, run_id: last.run_id };
  }
  return found;
}

/** Open runs that are further than was told, new ones among them, and those that have ended since. */
async function movedElsewhere(
  context: AccessContext,
  session_id: string,
  told: Map<string, number>,
): Promise<RunChange[]> {
  const open = await openRuns(context, session_id);
  const known = new Set(open.map((run) => run.run_id));
  const newest = await needStore(context).listRuns({ session_id, children: true, limit: PAGE });
  for (const run of newest) {
    if (known.has(run.run_id)) continue;
    known.add(run.run_id);
    // A run that had ended before anybody looked is history, not a change.
    if (told.has(run.run_id) || run.updated_at_ms > context.clock.now() - 4 * LOOK_EVERY_MS) open.push(run);
  }
  for (const run_id of told.keys()) {
    if (known.has(run_id)) continue;
    const run = await needStore(context).getRun(run_id);
    if (run === undefined) told.delete(run_id);
    else open.push(run);
  }
  const moved = open.filter((run) => (told.get(run.run_id) ?? 0) < run.last_sequence);
  for (const run of open)
    if (!moved.includes(run) && !OPEN.some((status) => status === run.status) && !newest.includes(run))
      told.delete(run.run_id);
  return moved.map((run) => ({
    version: 3,
    run_id: run.run_id,
    event_sequence: run.last_sequence,
    changed_at_ms: run.updated_at_ms,
  }));
}

/** Waits for a word or for time, whichever comes first; a word that came before the wait is not lost. */
class Waker {
  #woken = false;
  #resolve: (() => void) | undefined;

  readonly wake = (): void => {
    this.#woken = true;
    this.#resolve?.();
  };

  async wait(context: AccessContext, atMostMs: number): Promise<void> {
    if (!this.#woken)
      await new Promise<void>((resolve) => {
        const timer = context.clock.at(context.clock.now() + atMostMs, resolve);
        this.#resolve = () => {
          timer.cancel();
          resolve();
        };
      });
    this.#woken = false;
    this.#resolve = undefined;
  }
}
