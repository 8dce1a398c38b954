/** The inbox: what waits for a person, and the ways to answer it (R-9, R-28, R-40). */
import { HoldfastError } from "../domain/errors.ts";
import { nearest } from "../domain/nearest.ts";
import { decideRepair } from "../domain/projections/index.ts";
import { WAIT_TYPES } from "../domain/run.ts";
import type { InboxWait, WaitsApi } from "./api.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";
import { pageLimit, readCursor, writeCursor } from "./cursors.ts";
import { decideApproval, decideInput, decideRepairOf } from "./deciding.ts";
import { shownWait } from "./shown-wait.ts";
import { recordOf, viewOf } from "./views.ts";

function demandTypes(types: readonly string[]): void {
  const wrong = types.find((type) => !WAIT_TYPES.some((known) => known === type));
  if (wrong === undefined) return;
  const meant = nearest(wrong, WAIT_TYPES);
  throw new HoldfastError(
    "usage",
    `Cannot list waits: ${JSON.stringify(wrong)} is no type; ${meant === undefined ? `use ${WAIT_TYPES.join(", ")}` : `did you mean ${meant}?`}`,
  );
}

async function inbox(
  context: AccessContext,
  query: NonNullable<Parameters<WaitsApi["list"]>[0]>,
): ReturnType<WaitsApi["list"]> {
  demandTypes(query.type ?? []);
  const store = needStore(context);
  const session = query.all_sessions === true ? undefined : await sessionOf(context, query.session);
  const limit = pageLimit(query.limit);
  const after = readCursor(query.cursor);
  const waits = await store.listWaits({
    ...(session === undefined ? {} : { session_id: session.session_id }),
    ...(query.type === undefined ? {} : { type: query.type }),
    ...(query.run_id === undefined ? {} : { run_id: query.run_id }),
    limit,
    ...(after === undefined ? {} : { after: { since_ms: after.ms, run_id: after.id, wait_id: after.extra ?? "" } }),
  });
  const shown: InboxWait[] = [];
  for (const wait of waits) {
    const record = await store.getRun(wait.run_id);
    // Ended, and taken away, between the two looks; or decided, and not begun yet.
    if (record === undefined || wait.granted !== undefined) continue;
    const { workspace } = (await store.getSession(record.session_id)) ?? context;
    shown.push({
      ...shownWait(wait, record, workspace),
      workflow_id: record.workflow_id,
      session_id: record.session_id,
    });
  }
  const last = waits.at(-1);
  return {
    waits: shown,
    ...(waits.length === limit && last !== undefined
      ? { next_cursor: writeCursor({ ms: last.since_ms, id: last.run_id, extra: last.wait_id }) }
      : {}),
  };
}

export function waitsApi(context: AccessContext): WaitsApi {
  return {
    list: (query = {}) => inbox(context, query),
    approve: (runId, waitId, request, session) => decideApproval(context, runId, waitId, request, session, "approve"),
    deny: (runId, waitId, request, session) => decideApproval(context, runId, waitId, request, session, "deny"),
    answer: (runId, waitId, request, session) => decideInput(context, runId, waitId, request, session),
    repair: (runId, stepId, request, session) => decideRepairOf(context, runId, stepId, request, session),
    evidence: async (runId, stepId, session) => {
      const { record } = await recordOf(context, runId, session);
      const decided = decideRepair(await viewOf(context, record), stepId);
      if (!decided.ok) throw new HoldfastError(decided.code, decided.reason);
      if (decided.wait?.evidence === undefined)
        throw new HoldfastError("not_possible", `Cannot show evidence: the step "${stepId}" is not in repair`);
      const { evidence, digest } = decided.wait;
      return { ...evidence, ...(digest === undefined ? {} : { digest }) };
    },
  };
}
