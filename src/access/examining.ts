/** `doctor RUN` (GD-73): reads one run and all that is derived from it, changes nothing, whatever it finds. */
import { HoldfastError } from "../domain/errors.ts";
import { parseEvents } from "../domain/journal.ts";
import type { Json } from "../domain/json.ts";
import { type DerivedRows, examineRows, type Finding, JournalExamination } from "../domain/projections/index.ts";
import { isTerminal, type Wait } from "../domain/run.ts";
import { decodeState } from "../domain/snapshot.ts";
import type { RunState } from "../domain/state.ts";
import { hydrateEvents, loadHeader, readJournal, unpackText } from "../engine/index.ts";
import type { RunRecord } from "../ports/index.ts";
import type { RunFindings } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";
import { holderOf } from "./holding.ts";
import { outputCheck } from "./outputs.ts";
import { loadState, recordOf } from "./views.ts";

const MAX_LIMIT = 1_000;
const DEFAULT_LIMIT = 100;
const PAGE = 200;
/** Open waits and children compared one by one. */
const MAX_COMPARED = 2_000;
/** A run that goes on while it is examined is looked at again, so often; then only its journal is judged. */
const TRIES = 3;

export async function examineRun(
  context: AccessContext,
  runId: string,
  limit = DEFAULT_LIMIT,
  session?: string,
): Promise<RunFindings> {
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw new HoldfastError(
      "usage",
      `Cannot examine the run: the limit is not a whole number from 1 to ${MAX_LIMIT}; give one`,
    );
  const { record } = await recordOf(context, runId, session);
  const findings = await examine(context, record);
  return { findings: findings.slice(0, limit), truncated: findings.length > limit };
}

async function examine(context: AccessContext, first: RunRecord): Promise<readonly Finding[]> {
  let record = first;
  let journal: readonly Finding[] = [];
  for (let n = 0; n < TRIES; n++) {
    const seen = await readWhole(context, record);
    journal = seen.findings;
    if (seen.state === undefined) return journal;
    const rows = await derived(context, record, seen.state, seen.snapshot);
    const now = await needStore(context).getRun(record.run_id);
    if (now === undefined || now.last_sequence === record.last_sequence)
      return [...journal, ...examineRows(seen.state, rows)];
    record = now;
  }
  return journal;
}

interface Seen {
  readonly findings: readonly Finding[];
  /** Absent when the journal cannot be followed to its end. */
  readonly state?: RunState;
  readonly snapshot?: DerivedRows["snapshot"];
}

async function readWhole(context: AccessContext, record: RunRecord): Promise<Seen> {
  const store = needStore(context);
  const blob = await store.getSnapshot(record.run_id);
  let examination: JournalExamination | undefined;
  let folded: RunState | undefined;
  try {
    const header = await loadHeader(store, record);
    examination = new JournalExamination(header, await outputCheck(context, header));
    for await (const { text } of readJournal(store, header)) {
      for (const event of await hydrateEvents(store, parseEvents(text))) {
        examination.add(event);
        if (event.sequence === blob?.sequence) folded = examination.state;
      }
    }
    const { findings, state } = examination;
    if (blob === undefined || folded === undefined) return { findings, state };
    return { findings, state, snapshot: { stored: decodeState(header, JSON.parse(unpackText(blob)) as Json), folded } };
  } catch (error) {
    // A store that cannot be asked is no finding about the run.
    if (!HoldfastError.is(error) || error.code === "storage_unavailable") throw error;
    return { findings: [...(examination?.findings ?? []), unreadable(record, examination, error)] };
  }
}

function unreadable(record: RunRecord, examination: JournalExamination | undefined, error: HoldfastError): Finding {
  return {
    code: "journal_unreadable",
    message: `The journal cannot be followed beyond event ${examination?.state.last_sequence ?? 0}: ${error.message}.`,
    guidance: `Prove it with: holdfast verify ${record.run_id}; restore the store from a backup. Nothing was changed.`,
    run_id: record.run_id,
  };
}

async function derived(
  context: AccessContext,
  record: RunRecord,
  state: RunState,
  snapshot: DerivedRows["snapshot"],
): Promise<DerivedRows> {
  const { status, suspension, wait_count, last_sequence } = record;
  return {
    ...{ status, wait_count, last_sequence },
    ...(suspension === undefined ? {} : { suspension }),
    waits: await waitsOf(context, record.run_id),
    held: isTerminal(status) || (await holderOf(context, record.root_run_id)).holder !== "none",
    ...(snapshot === undefined ? {} : { snapshot }),
    ...(await childrenOf(context, record, state)),
  };
}

async function waitsOf(context: AccessContext, run_id: string): Promise<readonly Wait[]> {
  const found: Wait[] = [];
  for (;;) {
    const last = found.at(-1);
    const page = await needStore(context).listWaits({
      run_id,
      limit: PAGE,
      ...(last === undefined ? {} : { after: last }),
    });
    found.push(...page);
    if (page.length < PAGE || found.length >= MAX_COMPARED) return found;
  }
}

/** The runs that say they are its children, and those that its steps name. */
async function childrenOf(
  context: AccessContext,
  record: RunRecord,
  state: RunState,
): Promise<Pick<DerivedRows, "children" | "missing">> {
  const store = needStore(context);
  const runs = new Map(
    (await store.listRuns({ parent_run_id: record.run_id, children: true, limit: PAGE })).map((run) => [
      run.run_id,
      run,
    ]),
  );
  const linked = [...state.steps.values()]
    .flatMap(({ child_run_id }) => (child_run_id === undefined ? [] : [child_run_id]))
    .slice(0, MAX_COMPARED);
  const missing: string[] = [];
  for (const id of linked) {
    const run = runs.get(id) ?? (await store.getRun(id));
    if (run === undefined) missing.push(id);
    else runs.set(id, run);
  }
  const children: { run_id: string; parent_step_id?: string; output?: Json }[] = [];
  for (const run of runs.values()) {
    const output = run.status === "succeeded" ? (await loadState(store, run)).output : undefined;
    children.push({
      run_id: run.run_id,
      ...(run.parent_step_id === undefined ? {} : { parent_step_id: run.parent_step_id }),
      ...(output === undefined ? {} : { output }),
    });
  }
  return { children, missing };
}
