/** Moving a run to where nothing but a person can move it, and following it wherever it is moved (interfaces §2). */
import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { endsByItself, isLetGo, isTerminal } from "../domain/run.ts";
import { isTerminalEvent } from "../domain/state.ts";
import type { RunRecord } from "../ports/index.ts";
import { type AccessContext, needEngine, needStore } from "./context.ts";
import { readEvents } from "./views.ts";

/** How long to wait for a change that nobody told us of. */
const POLL_MS = 250;

export interface DriveOptions {
  readonly signal?: AbortSignal;
}

/**
 * Drives the run's tree in this process when nobody else does, else follows it; waits for timers, retries and
 * leases. Resolves when the run has ended, stands still for a person, or `signal` aborts.
 */
export async function driveRun(context: AccessContext, runId: string, options: DriveOptions = {}): Promise<void> {
  const engine = needEngine(context);
  const store = needStore(context);
  let failures = 0;
  while (options.signal?.aborted !== true) {
    const record = await store.getRun(runId);
    if (record === undefined) throw new HoldfastError("not_found", `Cannot follow the run "${runId}": it is gone`);
    if (isTerminal(record.status)) return;
    const held = engine.holds(record.root_run_id);
    if (held !== undefined) {
      try {
        await settledOrAborted(context, record, options.signal);
      } catch (error) {
        // The tree was poisoned: what is durable is loaded anew, a few times, before the caller hears of it.
        if (!HoldfastError.is(error) || error.code !== "storage_unavailable" || ++failures > 3) throw error;
      }
      continue;
    }
    if (record.status === "suspended") {
      const due = await nextTimeMs(context, record);
      if (due === undefined) return;
      await waitUntil(context, due, options.signal);
      if (isAborted(options.signal)) return;
      const tree = await engine.attach(record.root_run_id);
      if (tree === undefined) await waitUntil(context, context.clock.now() + POLL_MS, options.signal);
      else await engine.go(tree, tree.state(tree.rootRunId).waits.some(isLetGo) ? "auto" : "woken");
      continue;
    }
    const tree = await engine.attach(record.root_run_id);
    if (tree === undefined) {
      await changed(context, runId, options.signal);
      continue;
    }
    await engine.go(tree, "auto");
    if (engine.holds(record.root_run_id) === tree && tree.runs.size === 0) await engine.idle(record.root_run_id);
  }
}

/** Until the tree is let go here, or the run itself has ended or is suspended while the rest of its tree goes on. */
async function settledOrAborted(
  context: AccessContext,
  record: RunRecord,
  signal: AbortSignal | undefined,
): Promise<void> {
  const engine = needEngine(context);
  const aborted = new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve(), { once: true }));
  let unsubscribe: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    unsubscribe = engine.subscribe(record.run_id, (_, state) => {
      if (isTerminal(state.status)) resolve();
    });
  });
  try {
    await Promise.race([engine.idle(record.root_run_id), ended, aborted]);
  } finally {
    unsubscribe();
  }
}

/** Asked anew after every wait, which the type checker cannot know. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted ?? false;
}

/** When time alone moves a suspended run on; undefined when something else has to. */
async function nextTimeMs(context: AccessContext, record: RunRecord): Promise<number | undefined> {
  const waits = await needStore(context).listWaits({ root_run_id: record.root_run_id, limit: 200 });
  if (waits.length === 0 || !waits.every(endsByItself)) return undefined;
  const due = waits.map((wait) => wait.due_at_ms).filter((at): at is number => at !== undefined);
  return due.length === 0 ? undefined : Math.min(...due);
}

function waitUntil(context: AccessContext, atMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      timer.cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = context.clock.at(atMs, done);
    signal?.addEventListener("abort", done, { once: true });
    if (signal?.aborted === true) done();
  });
}

/** Resolves when something of the run may have changed: a commit here, a change in the store, or the poll. */
function changed(context: AccessContext, runId: string, signal: AbortSignal | undefined): Promise<void> {
  const engine = needEngine(context);
  return new Promise((resolve) => {
    const done = (): void => {
      timer.cancel();
      unsubscribe();
      unwatch();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const unsubscribe = engine.subscribe(runId, done);
    const unwatch = needStore(context).watch(done);
    const timer = context.clock.at(context.clock.now() + POLL_MS, done);
    signal?.addEventListener("abort", done, { once: true });
  });
}

/**
 * Committed events after `since`, each once and in order, until the terminal one (RP-86, RP-87). It only ever reads
 * the journal: what is told here cannot be lost or repeated, whoever writes it.
 */
export async function* followEvents(
  context: AccessContext,
  runId: string,
  since: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<RunEvent> {
  const store = needStore(context);
  let last = since;
  while (signal?.aborted !== true) {
    const woken = changed(context, runId, signal);
    let some = false;
    for await (const event of readEvents(store, runId, last)) {
      some = true;
      last = event.sequence;
      yield event;
      if (isTerminalEvent(event.type)) return;
      if (isAborted(signal)) return;
    }
    if (!some && (await hasEnded(context, runId, last))) return;
    if (!some) await woken;
  }
}

async function hasEnded(context: AccessContext, runId: string, last: number): Promise<boolean> {
  const record = await needStore(context).getRun(runId);
  return record === undefined || (isTerminal(record.status) && record.last_sequence <= last);
}
