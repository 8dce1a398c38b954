/**
 * Why a run stands where it does, with what is known beside its journal: who drives it, and what it waits for within
 * that process. Where another process drives it, its journal tells the same as far as it goes (DESIGN §6).
 */
import { type Why, type WhyExtra, why } from "../domain/projections/index.ts";
import { openSteps } from "../domain/questions.ts";
import { isTerminal } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import { ENGINE_VERSION, standing } from "../engine/index.ts";
import type { RunRecord } from "../ports/index.ts";
import { type AccessContext, needEngine, needStore } from "./context.ts";
import { holderOf } from "./holding.ts";
import { loadState, readEvents, recordOf, viewOf } from "./views.ts";

/** Newest events that are looked through for a retry that is not due yet. */
const TAIL = 500;
/** Running members of the tree whose steps are counted against its concurrency. */
const MAX_MEMBERS = 50;

export async function whyRun(
  context: AccessContext,
  runId: string,
  session?: string,
  options: { readonly public?: boolean } = {},
): Promise<Why> {
  const { record } = await recordOf(context, runId, session);
  const view = await viewOf(context, record);
  const holder = await holderOf(context, record.root_run_id);
  const extra: WhyExtra = {
    ...holder,
    ...(await waitingFor(context, record, view.state, view.root, holder.holder)),
    ...troubleOf(context, record),
    trusted: context.trusted(),
    supported: record.engine_version <= ENGINE_VERSION,
  };
  return why(view, extra, options);
}

/** What the store said when this process had to let go of the run (C34): known here, since it could not be written. */
function troubleOf(context: AccessContext, record: RunRecord): Pick<WhyExtra, "store_trouble"> {
  const engine = needEngine(context);
  const trouble = engine.holds(record.root_run_id) === undefined ? engine.troubleOf(record.root_run_id) : undefined;
  const ofStore = trouble?.code === "storage" || trouble?.code === "storage_unavailable";
  if (trouble === undefined || !ofStore) return {};
  return { store_trouble: { message: trouble.message, again_at_ms: trouble.again_at_ms } };
}

type Within = Pick<WhyExtra, "waiting_for_permit" | "waiting_for_room" | "retry_due_at_ms">;

async function waitingFor(
  context: AccessContext,
  record: RunRecord,
  state: RunState,
  root: RunState,
  holder: WhyExtra["holder"],
): Promise<Within> {
  if (state.status !== "running" || holder === "none") return {};
  const tree = needEngine(context).holds(record.root_run_id);
  if (tree !== undefined) return standing(tree, record.run_id);
  const retry_due_at_ms = await retryDue(context, state);
  return {
    ...(await queuedBehind(context, record, state, root)),
    ...(retry_due_at_ms === undefined ? {} : { retry_due_at_ms }),
  };
}

/** Steps that are queued while the tree has as many at work as it may, or while reservations use its tokens or money up. */
async function queuedBehind(
  context: AccessContext,
  record: RunRecord,
  state: RunState,
  root: RunState,
): Promise<Within> {
  const queued = openSteps(state, ["queued"]).map(({ id }) => id);
  if (queued.length === 0) return {};
  const members = await running(context, record, state);
  const atWork = members
    .flatMap((member) => openSteps(member, ["running"]))
    .filter((step) => step.child_run_id === undefined);
  if (atWork.length >= root.budget.max_concurrency) return { waiting_for_permit: queued };
  const limited = root.budget.max_tokens !== undefined || root.budget.max_cost_micros !== undefined;
  return limited && members.some((member) => member.reservations.size > 0) ? { waiting_for_room: queued } : {};
}

async function running(context: AccessContext, record: RunRecord, state: RunState): Promise<readonly RunState[]> {
  const store = needStore(context);
  const members = (await store.treeRuns(record.root_run_id)).filter(
    (run) => run.run_id !== record.run_id && !isTerminal(run.status),
  );
  const states = [state];
  for (const member of members.slice(0, MAX_MEMBERS)) states.push(await loadState(store, member));
  return states;
}

/** The earliest delayed retry that has not been delivered. */
async function retryDue(context: AccessContext, state: RunState): Promise<number | undefined> {
  if (state.usage.retries === 0) return undefined;
  const due = new Map<string, number>();
  for await (const event of readEvents(
    needStore(context),
    state.header.run_id,
    Math.max(0, state.last_sequence - TAIL),
  )) {
    for (const key of event.woke ?? []) due.delete(key);
    if (event.type === "phase" && event.name === "retry_reserved") due.set(event.key, event.due_at_ms);
  }
  const ahead = [...due.values()].filter((at) => at > context.clock.now());
  return ahead.length === 0 ? undefined : Math.min(...ahead);
}
