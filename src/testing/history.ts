/** Reads a run tree as the rules want it: every journal through its hash chain. */

import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { parseEvents } from "../domain/journal.ts";
import { hydrateEvents, loadHeader, readJournal } from "../engine/index.ts";
import type { RunRecord, RunStore } from "../ports/index.ts";
import { EffectLedger } from "./effects.ts";
import type { TreeHistory } from "./rules.ts";

/** @throws HoldfastError `storage` naming the segment that was altered */
export async function eventsOf(store: RunStore, record: RunRecord): Promise<readonly RunEvent[]> {
  const events: RunEvent[] = [];
  const header = await loadHeader(store, record);
  for await (const { text } of readJournal(store, header))
    events.push(...(await hydrateEvents(store, parseEvents(text))));
  return events;
}

/** @throws HoldfastError `not_found`, `storage` */
export async function readHistory(
  store: RunStore,
  rootRunId: string,
  effects = new EffectLedger(),
): Promise<TreeHistory> {
  const tree = await store.getTree(rootRunId);
  if (tree === undefined)
    throw new HoldfastError("not_found", `Cannot read the run tree ${rootRunId}: there is none; check the id`);
  const runs: { record: RunRecord; events: readonly RunEvent[] }[] = [];
  for (const record of await store.treeRuns(rootRunId))
    runs.push({ record: { ...record, ...(await loadHeader(store, record)) }, events: await eventsOf(store, record) });
  return { tree, runs, effects };
}
