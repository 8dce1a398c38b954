/**
 * A run made from one that has ended (R-2j): its journal begins with what settled there. Children go the same way
 * when the parent's replay asks for them again, so nothing that settled below a failed workflow step is repeated.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { RunEvent } from "../../domain/events.ts";
import { parseEvents } from "../../domain/journal.ts";
import type { Definition } from "../../domain/plan/index.ts";
import { type CopiedEvent, retryEvents } from "../../domain/retry.ts";
import { isTerminal, type RunHeader } from "../../domain/run.ts";
import type { RunStore } from "../../ports/index.ts";
import { type Recorded, Recording } from "../replay.ts";
import { hydrateEvents } from "../values.ts";
import type { TreeExecutor } from "./executor.ts";
import { loadHeader, readJournal } from "./loading.ts";

export interface Copied {
  readonly events: readonly CopiedEvent[];
  readonly recorded: Recorded;
}

/** What a new run takes over from an ended one. */
export async function copyOf(
  store: RunStore,
  runId: string,
  definition: Definition,
): Promise<Copied & { readonly header: RunHeader }> {
  const record = await store.getRun(runId);
  if (record === undefined) throw new HoldfastError("not_found", `Cannot retry the run ${runId}: it is gone`);
  const header = await loadHeader(store, record);
  const events: RunEvent[] = [];
  for await (const { text } of readJournal(store, header))
    events.push(...(await hydrateEvents(store, parseEvents(text))));
  const plan = retryEvents(events, definition);
  const recording = new Recording();
  for (const [i, event] of plan.events.entries()) recording.add({ ...event, sequence: i + 1, at_ms: 0 });
  return { header, events: plan.events, recorded: recording.recorded };
}

/** The ended child that a step of a retried run had, if this is the first time the step is asked for again. */
export async function childToCopy(
  tree: TreeExecutor,
  parent: RunHeader,
  instance: string,
): Promise<string | undefined> {
  if (parent.made_from?.how !== "retry") return undefined;
  const { store } = tree.ports;
  const children = await store.treeRuns(await rootOf(store, parent.made_from.run_id));
  const old = children
    .filter((run) => run.parent_run_id === parent.made_from?.run_id && run.parent_step_id === instance)
    .at(-1);
  if (old === undefined || !isTerminal(old.status) || old.status === "succeeded") return undefined;
  const taken = [...tree.journal.runs.values()].some((run) => run.header.made_from?.run_id === old.run_id);
  return taken ? undefined : old.run_id;
}

async function rootOf(store: RunStore, runId: string): Promise<string> {
  return (await store.getRun(runId))?.root_run_id ?? runId;
}
