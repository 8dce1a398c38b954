/** What a run's history holds beyond its events: its steps by pages, its journal as stored, its large values. */
import { HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import { publicStep } from "../domain/projections/run.ts";
import type { StepStatus } from "../domain/run.ts";
import type { StepState } from "../domain/state.ts";
import { loadHeader, readJournal } from "../engine/index.ts";
import type { JournalLine, StepRow } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";
import { pageLimit, readCursor, writeCursor } from "./cursors.ts";
import { recordOf, viewOf } from "./views.ts";

/** One page of the steps, by instance id: a place that stays where it is while the run goes on. */
export async function stepsPage(
  context: AccessContext,
  runId: string,
  query: { readonly status?: readonly StepStatus[]; readonly limit?: number; readonly cursor?: string } = {},
  session?: string,
): Promise<{ readonly steps: readonly StepRow[]; readonly next_cursor?: string }> {
  const { record } = await recordOf(context, runId, session);
  const { state } = await viewOf(context, record);
  const after = readCursor(query.cursor)?.id;
  const limit = pageLimit(query.limit);
  const wanted = [...state.steps.values()]
    .filter(
      (step) =>
        (query.status === undefined || query.status.includes(step.status)) && (after === undefined || step.id > after),
    )
    .sort((a, b) => (a.id < b.id ? -1 : 1));
  const page = wanted.slice(0, limit);
  const last = page.at(-1);
  return {
    steps: page.map(stepRow),
    ...(wanted.length > page.length && last !== undefined ? { next_cursor: writeCursor({ ms: 0, id: last.id }) } : {}),
  };
}

function stepRow(step: StepState): StepRow {
  return { ...publicStep(step), ...(step.started_at_ms === undefined ? {} : { started_at_ms: step.started_at_ms }) };
}

/** The journal as it is stored: each segment's event lines, then its own line with the hash that ends it. */
export async function* journalLines(
  context: AccessContext,
  runId: string,
  since: number,
  session?: string,
): AsyncGenerator<JournalLine> {
  const { record } = await recordOf(context, runId, session);
  const header = await loadHeader(needStore(context), record);
  for await (const { segment, text } of readJournal(needStore(context), header)) {
    if (segment.last <= since) continue;
    yield {
      text: text.endsWith("\n") ? text.slice(0, -1) : text,
      segment: { first: segment.first, last: segment.last, prev: segment.prev, hash: segment.hash },
    };
  }
}

/**
 * The bytes of a value stored beside this run's journal. Another run's value is not found, whoever knows its hash:
 * a hash is no permission.
 */
export async function artifactOf(
  context: AccessContext,
  runId: string,
  sha256: string,
  session?: string,
): Promise<Uint8Array> {
  const { record } = await recordOf(context, runId, session);
  const store = needStore(context);
  const missing = new HoldfastError(
    "not_found",
    `Cannot find the value ${sha256} in the run ${runId}; see its journal for the values it has`,
  );
  if (!/^[0-9a-f]{64}$/.test(sha256)) throw missing;
  if (record.args_hash !== sha256 && !(await mentions(context, record, sha256))) throw missing;
  const bytes = await store.getArtifact(sha256);
  if (bytes === undefined) throw missing;
  return bytes;
}

async function mentions(
  context: AccessContext,
  record: Awaited<ReturnType<typeof recordOf>>["record"],
  sha256: string,
): Promise<boolean> {
  const header = await loadHeader(needStore(context), record);
  for await (const { text } of readJournal(needStore(context), header)) {
    if (!text.includes(`"${sha256}"`)) continue;
    for (const line of text.split("\n"))
      if (line.includes(sha256) && refers(JSON.parse(line) as Json, sha256)) return true;
  }
  return false;
}

/** Only a `<field>_ref` of the event or of its wait is a reference; a value that merely holds the hash is not. */
function refers(event: Json, sha256: string): boolean {
  const at = (object: Json | undefined): boolean =>
    typeof object === "object" &&
    object !== null &&
    !Array.isArray(object) &&
    Object.entries(object as JsonObject).some(
      ([key, value]) => key.endsWith("_ref") && (value as { sha256?: unknown } | null)?.sha256 === sha256,
    );
  return at(event) || at((event as { wait?: Json }).wait);
}
