/**
 * From the store back into memory: journals are read in order and checked against their hash chain, states are
 * folded, programs replayed to their frontier. Nothing here writes but `markInterrupted`.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { EventBody } from "../../domain/events.ts";
import { genesisHash, parseEvents, segmentHash } from "../../domain/journal.ts";
import { addUsage, foldLedger, type Ledger } from "../../domain/ledger.ts";
import { openSteps } from "../../domain/questions.ts";
import { isTerminal, type RunHeader } from "../../domain/run.ts";
import { evolve, initialState, type RunState } from "../../domain/state.ts";
import type { RunRecord, RunStore, Segment } from "../../ports/index.ts";
import { canBeAsked } from "../dispatch/owners.ts";
import { type Recorded, Recording } from "../replay.ts";
import { hydrateEvents, readArtifact, unpackText } from "../values.ts";
import type { TreeExecutor } from "./executor.ts";
import { newWait, repairWaitFor } from "./waiting.ts";

/** Stored bytes read at a time. */
const PAGE_BYTES = 1024 * 1024;

export interface LoadedRun {
  readonly state: RunState;
  readonly tip: string;
  readonly recorded: Recorded;
}

export async function loadHeader(store: RunStore, record: RunRecord): Promise<RunHeader> {
  if (record.args !== undefined) return record;
  return { ...record, args: await readArtifact(store, record.args_hash) };
}

/** Every segment of a journal in order, its chain checked. @throws HoldfastError `storage` naming the broken segment */
export async function* readJournal(
  store: RunStore,
  header: RunHeader,
): AsyncGenerator<{ readonly segment: Segment; readonly text: string }> {
  let tip = genesisHash(header);
  let last = 0;
  for (;;) {
    const segments = await store.readSegments(header.run_id, last, PAGE_BYTES);
    if (segments.length === 0) return;
    for (const segment of segments) {
      const text = unpackText(segment);
      if (segment.first !== last + 1 || segment.prev !== tip || segmentHash(tip, text) !== segment.hash)
        throw new HoldfastError(
          "storage",
          `Cannot read the journal of ${header.run_id}: the segment of events ${segment.first} to ${segment.last} was altered`,
          { details: { run_id: header.run_id, first: segment.first, last: segment.last } },
        );
      yield { segment, text };
      tip = segment.hash;
      last = segment.last;
    }
  }
}

export async function loadRun(store: RunStore, record: RunRecord): Promise<LoadedRun> {
  const header = await loadHeader(store, record);
  const recording = new Recording();
  let state = initialState(header);
  let tip = genesisHash(header);
  for await (const { segment, text } of readJournal(store, header)) {
    for (const event of await hydrateEvents(store, parseEvents(text))) {
      state = evolve(state, event);
      recording.add(event);
    }
    tip = segment.hash;
  }
  if (state.last_sequence === 0)
    throw new HoldfastError("storage", `Cannot read the journal of ${record.run_id}: it has no events`);
  return { state, tip, recorded: recording.recorded };
}

/** The tree's ledger: open runs by their journals, ended children by their rows. */
export function treeLedger(
  loaded: ReadonlyMap<string, LoadedRun>,
  ended: readonly RunRecord[],
  rootId: string,
): Ledger {
  const root = loaded.get(rootId);
  if (root === undefined) throw new HoldfastError("storage", `Cannot load the run ${rootId}: its root is missing`);
  let ledger = foldLedger(
    root.state,
    [...loaded.values()].map((run) => run.state),
  );
  for (const record of ended) ledger = { ...ledger, spent: addUsage(ledger.spent, record.usage) };
  return ledger;
}

/**
 * RP-61 with R-17: what was queued or running when its process ended is suspended. It calls nothing outside. A
 * mutation that nobody can be asked about becomes a repair; everything else waits for recovery.
 */
export function markInterrupted(
  tree: TreeExecutor,
  reason: string,
  also: { readonly queued?: boolean } = {},
): string[] {
  const changed: string[] = [];
  // Children first, so that a parent knows whether its child waits for a person.
  for (const run of [...tree.journal.runs.values()].reverse()) {
    const { state, header } = run;
    if (state.status !== "running" && !(state.status === "queued" && also.queued === true)) continue;
    const events: EventBody[] = [];
    let asks = state.waits.some((wait) => wait.granted === undefined && wait.type !== "child");
    for (const step of openSteps(state, ["queued", "running"])) {
      const child = step.child_run_id === undefined ? undefined : tree.journal.runs.get(step.child_run_id)?.state;
      const wait = interruptedWait(tree, header.run_id, step, child);
      if (wait !== undefined) asks = true;
      events.push({
        type: "step_suspended",
        step_id: step.id,
        reason,
        ...(wait === undefined
          ? {}
          : {
              wait: {
                ...newWait(tree, header.run_id, wait, step.id),
                wait_id: `w-${state.last_sequence + events.length + 1}`,
              },
            }),
      });
    }
    const recovery = asks
      ? {}
      : {
          wait: {
            ...newWait(tree, header.run_id, { type: "recovery", reason }),
            wait_id: `w-${state.last_sequence + events.length + 1}`,
          },
        };
    events.push({ type: "run_suspended", reason, ...recovery });
    tree.append(header.run_id, events);
    changed.push(header.run_id);
  }
  return changed.reverse();
}

function interruptedWait(
  tree: TreeExecutor,
  runId: string,
  step: ReturnType<typeof openSteps>[number],
  child: RunState | undefined,
): Parameters<typeof newWait>[2] | undefined {
  if (child !== undefined && !isTerminal(child.status)) {
    const waits = child.waits.filter((wait) => wait.type !== "recovery");
    if (waits.length === 0 || child.waits.some((wait) => wait.type === "recovery")) return undefined;
    return { type: "child", child_run_id: child.header.run_id, reason: waits[0]?.type ?? "child" };
  }
  if (step.status !== "running" || step.side_effect !== "mutating") return undefined;
  const tool = step.tool === undefined ? undefined : tree.ports.tools.describe(step.tool);
  if (canBeAsked(tool, step)) return undefined;
  return repairWaitFor(tree, runId, step.id, step.tool ?? step.id, "its process ended before it answered");
}

/** Puts every open program in memory and replays it to its frontier; nothing is appended. @throws `nondeterminism` */
export async function revive(tree: TreeExecutor, loaded: ReadonlyMap<string, LoadedRun>): Promise<void> {
  for (const [runId, run] of loaded) {
    if (isTerminal(tree.state(runId).status) || tree.runs.has(runId)) continue;
    const active = tree.activate(run.state.header, run.recorded);
    await active.host.start();
    const unasked = active.nondeterminism === undefined ? active.host.unasked() : undefined;
    const message =
      active.nondeterminism ??
      (unasked === undefined ? undefined : `the program no longer asks for "${unasked}", which is open`);
    if (message !== undefined)
      throw new HoldfastError(
        "nondeterminism",
        `Cannot go on with the run ${runId}: ${message}; restore the program that started it, or restart it as a new run`,
        { details: { run_id: runId } },
      );
  }
}

/** a program that asks for something else than was recorded is suspended with that reason, in one event. */
export function suspendForNondeterminism(tree: TreeExecutor, error: unknown): void {
  if (!HoldfastError.is(error) || error.code !== "nondeterminism") return;
  const runId = (error.details as { run_id?: string } | undefined)?.run_id;
  if (runId === undefined) return;
  const state = tree.state(runId);
  if (isTerminal(state.status) || state.waits.some((wait) => wait.reason?.startsWith(NONDETERMINISM) === true)) return;
  const reason = `${NONDETERMINISM}: ${error.message}`;
  tree.append(runId, [{ type: "run_suspended", reason, wait: newWait(tree, runId, { type: "recovery", reason }) }]);
}

const NONDETERMINISM = "nondeterminism";
