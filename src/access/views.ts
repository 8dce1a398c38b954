/** Reading runs: what is durable, as states and views (DESIGN §4 "Reading"). A run is its snapshot plus its tail. */
import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { parseEvents } from "../domain/journal.ts";
import type { Json } from "../domain/json.ts";
import type { RunView } from "../domain/projections/index.ts";
import { isTerminal } from "../domain/run.ts";
import { decodeState } from "../domain/snapshot.ts";
import { evolve, initialState, type RunState } from "../domain/state.ts";
import { hydrateEvents, loadHeader, unpackText } from "../engine/index.ts";
import type { RunRecord, RunStore, SessionRecord } from "../ports/index.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";
import { holderOf } from "./holding.ts";

const PAGE_BYTES = 1024 * 1024;
/** Members of a tree that a view looks at beside the run and its root: those that wait for a person. */
const MAX_WAITING = 200;

/** The run, if it is the session's; another session's is not found, like one that is missing (RP-79). */
export async function recordOf(
  context: AccessContext,
  runId: string,
  session: string | undefined,
): Promise<{ record: RunRecord; owner: SessionRecord }> {
  const owner = await sessionOf(context, session);
  const record = await needStore(context).getRun(runId);
  if (record === undefined || record.session_id !== owner.session_id)
    throw new HoldfastError(
      "not_found",
      `Cannot find the run "${runId}" in the session "${owner.name}"; see: holdfast list`,
    );
  return { record, owner };
}

export async function loadState(store: RunStore, record: RunRecord): Promise<RunState> {
  const header = await loadHeader(store, record);
  const snapshot = await store.getSnapshot(record.run_id);
  let state =
    snapshot === undefined ? initialState(header) : decodeState(header, JSON.parse(unpackText(snapshot)) as Json);
  for await (const event of readEvents(store, record.run_id, state.last_sequence)) state = evolve(state, event);
  return state;
}

/** Committed events after `since`, in order, by pages. */
export async function* readEvents(store: RunStore, runId: string, since: number): AsyncGenerator<RunEvent> {
  let last = since;
  for (;;) {
    const segments = await store.readSegments(runId, last, PAGE_BYTES);
    if (segments.length === 0) return;
    for (const segment of segments) {
      const events = parseEvents(unpackText(segment)).filter((event) => event.sequence > last);
      yield* await hydrateEvents(store, events);
      last = segment.last;
    }
  }
}

export async function viewOf(context: AccessContext, record: RunRecord): Promise<RunView> {
  const store = needStore(context);
  const state = await loadState(store, record);
  const tree: RunState[] = [state];
  let root = state;
  if (record.run_id !== record.root_run_id) {
    const rootRecord = await store.getRun(record.root_run_id);
    if (rootRecord === undefined)
      throw new HoldfastError("storage", `Cannot read the run ${record.run_id}: its root is missing`);
    root = await loadState(store, rootRecord);
    tree.push(root);
  }
  if (!isTerminal(root.status)) {
    const known = new Set(tree.map((run) => run.header.run_id));
    for (const wait of await store.listWaits({ root_run_id: record.root_run_id, limit: MAX_WAITING })) {
      if (known.has(wait.run_id)) continue;
      known.add(wait.run_id);
      const member = await store.getRun(wait.run_id);
      if (member !== undefined) tree.push(await loadState(store, member));
    }
  }
  // Asked only where it matters: most runs that are looked at have ended or stand still.
  const unheld = root.status === "running" && (await holderOf(context, record.root_run_id)).holder === "none";
  return { state, root, tree, now_ms: context.clock.now(), ...(unheld ? { unheld } : {}) };
}
