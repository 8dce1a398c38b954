/** What may be asked of runs, checked and answered in one place (DESIGN §9). */
import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import type { Json } from "../domain/json.ts";
import { type Bundle, checkCeilings, definitionKey, readBudgetRequest } from "../domain/plan/index.ts";
import {
  type Allowance as Decided,
  decideCancel,
  decidePause,
  decideRaiseBudget,
  decideRestart,
  decideResume,
  decideRetry,
  isGoing,
  operatorEvent,
  operatorRun,
  publicEvent,
  publicRun,
  type RunView,
  runSummary,
  stepDetail,
} from "../domain/projections/index.ts";
import { BUDGET_FIELDS, type Budgets, isTerminal } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import { exportLines, exportSnapshot, importJournal, loadHeader, readJournal } from "../engine/index.ts";
import type { RunRecord } from "../ports/index.ts";
import type { ListQuery, PublicRun, Run, RunHandle, RunsApi, Verb } from "./api.ts";
import { attemptsPage } from "./attempts.ts";
import { type AccessContext, ceilingsFor, needEngine, needStore, sessionOf } from "./context.ts";
import { pageLimit, readCursor, writeCursor } from "./cursors.ts";
import { driveRun } from "./driving.ts";
import { followed, followedPublic, operatorEvents, pageOf } from "./events.ts";
import { examineRun } from "./examining.ts";
import { findRun } from "./finding.ts";
import { artifactOf, journalLines, stepsPage } from "./history.ts";
import { preflightError, refusedToday } from "./preflight.ts";
import { whyRun } from "./reasons.ts";
import { shownWaits } from "./shown-wait.ts";
import { create, rootOf, type Started, tightened } from "./starting.ts";
import { loadState, readEvents, recordOf, viewOf } from "./views.ts";

/** Who makes a new run from an old one. */
type Starter = { readonly started_by?: string };

export function demand(decided: Decided): void {
  if (!decided.ok)
    throw new HoldfastError(
      decided.code,
      decided.reason,
      decided.details === undefined ? {} : { details: decided.details },
    );
}

async function bundleOf(context: AccessContext, record: RunRecord): Promise<Bundle> {
  return needEngine(context).bundleOf(record.bundle_hash);
}

async function shown(
  context: AccessContext,
  record: RunRecord,
  view: RunView,
): Promise<Parameters<typeof operatorRun>> {
  const bundle = await bundleOf(context, record);
  const definition = bundle.definitions[definitionKey(record.workflow_id, record.workflow_revision)] ?? rootOf(bundle);
  return [view, definition, record.usage];
}

export async function inspectRun(context: AccessContext, runId: string, session?: string): Promise<Run> {
  const { record, owner } = await recordOf(context, runId, session);
  const view = await viewOf(context, record);
  const run = operatorRun(...(await shown(context, record, view)));
  return { ...run, waits: shownWaits(view, owner.workspace) };
}

export async function getRun(context: AccessContext, runId: string, session?: string): Promise<PublicRun> {
  const { record } = await recordOf(context, runId, session);
  return publicRun(...(await shown(context, record, await viewOf(context, record))));
}

async function listRuns(context: AccessContext, query: ListQuery = {}): Promise<Awaited<ReturnType<RunsApi["list"]>>> {
  const session = await sessionOf(context, query.session);
  const limit = pageLimit(query.limit, 20);
  const before = readCursor(query.cursor);
  const records = await needStore(context).listRuns({
    session_id: session.session_id,
    ...(query.status === undefined ? {} : { status: query.status }),
    ...(query.workflow_id === undefined ? {} : { workflow_id: query.workflow_id }),
    ...(query.waiting === undefined ? {} : { waiting: query.waiting }),
    ...(query.children === undefined ? {} : { children: query.children }),
    ...(query.parent_run_id === undefined ? {} : { parent_run_id: query.parent_run_id }),
    limit,
    ...(before === undefined ? {} : { before: { created_at_ms: before.ms, run_id: before.id } }),
  });
  const last = records.at(-1);
  const more = records.length === limit && last !== undefined;
  return {
    runs: records.map(runSummary),
    ...(more ? { next_cursor: writeCursor({ ms: last.created_at_ms, id: last.run_id }) } : {}),
  };
}

async function stepOf(
  context: AccessContext,
  runId: string,
  stepId: string,
  session?: string,
): ReturnType<RunsApi["step"]> {
  const { record } = await recordOf(context, runId, session);
  const { state } = await viewOf(context, record);
  const step = state.steps.get(stepId);
  if (step === undefined)
    throw new HoldfastError(
      "not_found",
      `Cannot find the step "${stepId}" in the run ${runId}; see: holdfast show ${runId} --steps`,
    );
  const events: RunEvent[] = [];
  for await (const event of readEvents(needStore(context), record.run_id, 0)) {
    const about = "step_id" in event ? event.step_id : "instance" in event ? event.instance : undefined;
    if (about === stepId) events.push(event);
  }
  return stepDetail(record.run_id, events, step);
}

async function outputOf(context: AccessContext, runId: string, session?: string): Promise<Json> {
  const run = await inspectRun(context, runId, session);
  if (run.status === "succeeded") return run.output ?? null;
  if (isTerminal(run.status))
    throw new HoldfastError(
      "terminal",
      `Cannot show an output: the run ${runId} ended as ${run.status}; see: holdfast show ${runId}`,
    );
  throw new HoldfastError(
    "not_possible",
    `Cannot show an output: the run ${runId} is ${run.status}; follow it with: holdfast watch ${runId}`,
  );
}

/** Sends a signal where the decision allows it, and answers with the run as it then is. */
export async function verb(
  context: AccessContext,
  runId: string,
  session: string | undefined,
  act: {
    decide: (view: RunView) => Decided;
    kind: Parameters<ReturnType<typeof needEngine>["signal"]>[1];
    payload: (view: RunView) => Json;
    waitMs?: number;
  },
): Promise<Verb> {
  const { record } = await recordOf(context, runId, session);
  const view = await viewOf(context, record);
  demand(act.decide(view));
  const signal_id = context.ids.uuid();
  const taken = await needEngine(context).signal(
    { root_run_id: record.root_run_id, run_id: record.run_id },
    act.kind,
    act.payload(view),
    act.waitMs,
    signal_id,
  );
  return { run: await inspectRun(context, runId, session), pending: !taken, ...(taken ? {} : { signal_id }) };
}

async function cancelRun(
  context: AccessContext,
  runId: string,
  options: { reason?: string; decided_by?: string; wait_ms?: number } = {},
  session?: string,
): Promise<Verb> {
  const { record } = await recordOf(context, runId, session);
  // RP-65: cancelling again answers the same and adds nothing.
  if (record.status === "cancelled") return { run: await inspectRun(context, runId, session), pending: false };
  const done = await verb(context, runId, session, {
    decide: decideCancel,
    kind: "cancel",
    payload: () => ({
      ...(options.reason === undefined ? {} : { reason: options.reason }),
      decided_by: options.decided_by ?? "unknown",
    }),
    ...(options.wait_ms === undefined ? {} : { waitMs: options.wait_ms }),
  });
  // its end came first, while the cancel was on its way. Whoever asked is told as if they had come later.
  if (done.run.status === "succeeded")
    demand(decideCancel(await viewOf(context, (await recordOf(context, runId, session)).record)));
  return done;
}

async function pauseRun(
  context: AccessContext,
  runId: string,
  options: { reason?: string; decided_by?: string } = {},
  session?: string,
): Promise<Verb> {
  return verb(context, runId, session, {
    decide: decidePause,
    kind: "pause",
    payload: () => ({
      ...(options.reason === undefined ? {} : { reason: options.reason }),
      decided_by: options.decided_by ?? "unknown",
    }),
  });
}

/** RP-63, R-17: refused with no write, or taken on in this process. It returns once the run goes; `drive` follows it. */
async function resumeRun(context: AccessContext, runId: string, session?: string): Promise<Verb> {
  let { record } = await recordOf(context, runId, session);
  const engine = needEngine(context);
  const lost = record.status === "running" && engine.holds(record.root_run_id) === undefined;
  if (lost) {
    // Its process may have died: claiming it tells, and marks what was left open (RP-61).
    await engine.attach(record.root_run_id);
    await engine.holds(record.root_run_id)?.journal.barrier();
    record = (await recordOf(context, runId, session)).record;
  }
  try {
    const view = await viewOf(context, record);
    const decided = decideResume(view);
    if (isGoing(view)) {
      if (lost) engine.holds(record.root_run_id)?.settleDown();
      return { run: await inspectRun(context, runId, session), pending: false };
    }
    // What was interrupted now says what it waits for: that is as far as this goes.
    if (!decided.ok && lost && record.status === "suspended") {
      engine.holds(record.root_run_id)?.settleDown();
      return { run: await inspectRun(context, runId, session), pending: false };
    }
    demand(decided);
    await demandAuthority(context, record);
  } catch (error) {
    // Claimed to be looked at, not to be kept: whoever may go on with it claims it anew.
    engine.holds(record.root_run_id)?.settleDown();
    throw error;
  }
  const tree = await engine.attach(record.root_run_id);
  if (tree === undefined)
    throw new HoldfastError(
      "conflict",
      `Cannot resume the run ${runId}: another process holds it; follow it with: holdfast watch ${runId}`,
    );
  await engine.go(tree, "explicit");
  await tree.journal.barrier();
  return { run: await inspectRun(context, runId, session), pending: false };
}

/** RP-63: today's ceilings, capabilities, policy and posture count, and a refusal writes nothing (SC-40). */
async function demandAuthority(context: AccessContext, record: RunRecord): Promise<void> {
  const refused = await refusedToday(context, record, await bundleOf(context, record));
  if (refused !== undefined) throw refused;
}

/** RP-64: a fresh run from the pinned bundle, the tightened budgets and the validated arguments; authority is today's. */
async function restartRun(
  context: AccessContext,
  runId: string,
  session: string | undefined,
  origin: "explicit" | "automatic",
  key: string | undefined,
  by: Starter,
): Promise<{ run_id: string; replayed: boolean }> {
  const { record, owner } = await recordOf(context, runId, session);
  const bundle = await bundleOf(context, record);
  if (origin === "automatic") {
    if (bundle.root_invocation_policy.automatic !== true)
      throw preflightError(
        "invocation",
        `Cannot restart "${bundle.root_id}": its invocation_policy does not allow automatic starts`,
      );
    if (!owner.orchestration_opt_in)
      throw preflightError("opt_in", "Cannot restart: the session has no opt-in for runs that a model starts");
  }
  const view = await viewOf(context, record);
  demand(decideRestart(view));
  const restricted = origin === "automatic" || !context.trusted();
  return create(
    context,
    owner,
    { workflow: bundle.root_id, args: view.state.header.args, origin, ...(key === undefined ? {} : { key }), ...by },
    tightened(bundle, undefined, restricted, context),
    {
      restricted,
      costAsked: rootOf(bundle).budgets.max_cost_micros !== undefined,
      made_from: { run_id: runId, how: "restart" },
    },
  );
}

/** Higher limits for a run tree (interfaces §3): checked here against what is set, spent and allowed. */
async function raiseBudget(
  context: AccessContext,
  runId: string,
  budget: Partial<Budgets>,
  options: { decided_by?: string } = {},
  session?: string,
): Promise<Verb> {
  const read = readBudgetRequest(budget as Json);
  if (!read.ok) throw new HoldfastError("input", read.message, { details: { field: read.field } });
  const wanted = read.requested;
  if (Object.keys(wanted).length === 0)
    throw new HoldfastError("usage", "Cannot raise the budget: no limit is given; name at least one");
  return verb(context, runId, session, {
    decide: (view) => {
      const allowed = decideRaiseBudget(view);
      if (!allowed.ok) return allowed;
      const restricted = view.state.header.origin === "automatic" || !context.trusted();
      for (const field of BUDGET_FIELDS) {
        const value = wanted[field];
        if (value !== undefined && value <= (view.state.budget[field] ?? Number.POSITIVE_INFINITY))
          return {
            ok: false,
            code: "not_possible",
            reason: `Cannot raise ${field} to ${value}: it is ${view.state.budget[field] ?? "not limited"} now; give more`,
          };
      }
      const [above] = checkCeilings({ ...view.state.budget, ...wanted }, ceilingsFor(context, restricted));
      return above === undefined ? { ok: true } : { ok: false, code: "preflight", reason: above.message };
    },
    kind: "budget",
    payload: () => ({ budget: { ...wanted }, decided_by: options.decided_by ?? "unknown" }),
  });
}

/** R-2j: a new run that begins with what settled in a failed one and goes on at its failed steps. */
async function retryRun(
  context: AccessContext,
  runId: string,
  stepId: string | undefined,
  session: string | undefined,
  by: Starter,
): Promise<Started> {
  const { record, owner } = await recordOf(context, runId, session);
  const view = await viewOf(context, record);
  demand(decideRetry(view));
  const step = stepId === undefined ? undefined : view.state.steps.get(stepId);
  if (stepId !== undefined && step?.status !== "failed")
    throw new HoldfastError(
      "not_possible",
      `Cannot retry the step "${stepId}": it is ${step?.status ?? "unknown"} and only a failed step is retried`,
    );
  const bundle = await bundleOf(context, record);
  const restricted = !context.trusted();
  return create(
    context,
    owner,
    { workflow: bundle.root_id, args: view.state.header.args, ...by },
    { bundle, budget: view.state.budget },
    {
      restricted,
      costAsked: rootOf(bundle).budgets.max_cost_micros !== undefined,
      made_from: { run_id: runId, how: "retry" },
    },
  );
}

async function verifyRun(context: AccessContext, runId: string, session?: string): ReturnType<RunsApi["verify"]> {
  const { record } = await recordOf(context, runId, session);
  let segments = 0;
  let events = 0;
  try {
    const header = await loadHeader(needStore(context), record);
    for await (const { segment } of readJournal(needStore(context), header)) {
      segments++;
      events = segment.last;
    }
  } catch (error) {
    if (!HoldfastError.is(error)) throw error;
    return { ok: false, segments, events, broken: error.message };
  }
  if (events !== record.last_sequence)
    return {
      ok: false,
      segments,
      events,
      broken: `the journal ends at ${events}, the run's row says ${record.last_sequence}`,
    };
  return { ok: true, segments, events };
}

export function handleOf(
  context: AccessContext,
  { run_id, replayed, ended }: Started,
  session: string | undefined,
): RunHandle {
  return {
    run_id,
    replayed,
    result: async () => {
      // What goes wrong meanwhile is dealt with below, from what is durable.
      await needEngine(context)
        .idle(run_id)
        .catch(() => undefined);
      const state = ended?.();
      if (state !== undefined && !hasChildren(state)) return resultOf(context, state);
      await driveRun(context, run_id);
      return inspectRun(context, run_id, session);
    },
    events: (options = {}) => operatorEvents(context, run_id, options.since ?? 0, options.signal),
  };
}

/** A root's usage is its tree's: with children it is read from the row. */
function hasChildren(state: RunState): boolean {
  return state.steps.some((step) => step.child_run_id !== undefined);
}

async function resultOf(context: AccessContext, state: RunState): Promise<Run> {
  const { header } = state;
  const bundle = await needEngine(context).bundleOf(header.bundle_hash);
  const definition = bundle.definitions[definitionKey(header.workflow_id, header.workflow_revision)] ?? rootOf(bundle);
  return operatorRun({ state, root: state, tree: [state], now_ms: context.clock.now() }, definition, state.usage);
}

async function exportRun(
  context: AccessContext,
  runId: string,
  tree: boolean,
  session?: string,
): ReturnType<RunsApi["export"]> {
  const { record } = await recordOf(context, runId, session);
  const store = needStore(context);
  const members = tree ? await store.treeRuns(record.root_run_id) : [record];
  const bundle = (await bundleOf(context, record)) as unknown as Json;
  async function* lines(): AsyncGenerator<string> {
    for (const [i, member] of members.entries()) yield* exportLines(store, member, i === 0 ? bundle : undefined);
  }
  return { lines: lines(), snapshot: exportSnapshot(await loadState(store, record)) };
}

export function runsApi(context: AccessContext): RunsApi {
  return {
    list: (query) => listRuns(context, query),
    find: (ref, session) => findRun(context, ref, session),
    get: (runId, session) => getRun(context, runId, session),
    inspect: (runId, session) => inspectRun(context, runId, session),
    step: (runId, stepId, session) => stepOf(context, runId, stepId, session),
    events: async (runId, query = {}, session) =>
      (await pageOf(context, runId, query, session)).map((e) => operatorEvent(runId, e)),
    publicEvents: async (runId, query = {}, session) =>
      (await pageOf(context, runId, query, session)).map((e) => publicEvent(runId, e)),
    follow: (runId, options = {}, session) => followed(context, runId, options.since ?? 0, options.signal, session),
    followPublic: (runId, options = {}, session) =>
      followedPublic(context, runId, options.since ?? 0, options.signal, session),
    steps: (runId, query, session) => stepsPage(context, runId, query, session),
    journal: (runId, options, session) => journalLines(context, runId, options?.since ?? 0, session),
    artifact: (runId, sha256, session) => artifactOf(context, runId, sha256, session),
    output: (runId, session) => outputOf(context, runId, session),
    why: (runId, session, options) => whyRun(context, runId, session, options),
    drive: async (runId, options = {}, session) => {
      await recordOf(context, runId, session);
      await driveRun(context, runId, options);
      return inspectRun(context, runId, session);
    },
    cancel: (runId, options, session) => cancelRun(context, runId, options, session),
    pause: (runId, options, session) => pauseRun(context, runId, options, session),
    resume: (runId, _options, session) => resumeRun(context, runId, session),
    raiseBudget: (runId, budget, options, session) => raiseBudget(context, runId, budget, options, session),
    restart: async (runId, session, origin = "explicit", key, by = {}) => {
      const { run_id, replayed } = await restartRun(context, runId, session, origin, key, by);
      return handleOf(context, { run_id, replayed }, session);
    },
    retry: async (runId, stepId, session, by = {}) =>
      handleOf(context, await retryRun(context, runId, stepId, session, by), session),
    attempts: (runId, query, session) => attemptsPage(context, runId, query, session),
    doctor: (runId, limit, session) => examineRun(context, runId, limit, session),
    verify: (runId, session) => verifyRun(context, runId, session),
    export: (runId, options, session) => exportRun(context, runId, options?.tree ?? false, session),
    import: async (lines, session) =>
      importJournal(needStore(context), lines, (await sessionOf(context, session)).session_id),
    bundle: async (runId, session) => bundleOf(context, (await recordOf(context, runId, session)).record),
  };
}
