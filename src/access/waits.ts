/** Answering what waits: the first decision stands, and it is bound to what was shown. */
import { HoldfastError } from "../domain/errors.ts";
import { type Json, JsonError, normalizeJson } from "../domain/json.ts";
import { type Allowance as Decided, decideAnswer, decideApprove, decideDeny, decideRepair, type RunView } from "../domain/projections/index.ts";
import { compileSchema, findCredential } from "../domain/plan/index.ts";
import type { Wait } from "../domain/run.ts";
import type { DecisionRequest, Resolution, Verb, WaitsApi } from "./api.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";
import { readCursor, writeCursor } from "./cursors.ts";
import { demand, verb } from "./runs.ts";
import { recordOf, viewOf } from "./views.ts";

function waitIn(decided: Decided): Wait {
  if (!decided.ok) throw new HoldfastError(decided.code, decided.reason);
  if (decided.wait === undefined) throw new HoldfastError("not_possible", "Cannot decide: nothing waits for a decision");
  return decided.wait;
}

async function decision(
  context: AccessContext,
  runId: string,
  waitId: string | undefined,
  request: DecisionRequest,
  session: string | undefined,
  kind: "approve" | "deny",
): Promise<Verb> {
  const decide = kind === "approve" ? decideApprove : decideDeny;
  const check = (view: RunView): Decided => decide(view, waitId, request.digest);
  const { record } = await recordOf(context, runId, session);
  const wait = waitIn(check(await viewOf(context, record)));
  const done = await verb(context, runId, session, {
    decide: check,
    kind,
    payload: () => ({
      wait_id: wait.wait_id,
      decided_by: request.decided_by,
      ...(request.reason === undefined ? {} : { reason: request.reason }),
      ...(request.digest === undefined ? {} : { digest: request.digest }),
    }),
  });
  return done;
}

/** GD-49: what does not fit is refused with its place, and the wait stays as it is. */
async function answer(
  context: AccessContext,
  runId: string,
  waitId: string | undefined,
  request: { value: unknown; decided_by: string; digest?: string },
  session: string | undefined,
): Promise<Verb> {
  const check = (view: RunView): Decided => decideAnswer(view, waitId, request.digest);
  const { record } = await recordOf(context, runId, session);
  const wait = waitIn(check(await viewOf(context, record)));
  const value = readOutput(request.value);
  const fits = compileSchema((wait.schema ?? {}) as Json).validate(value);
  if (!fits.ok)
    throw new HoldfastError("input", `Cannot answer: the value does not fit at ${fits.path || "/"}: ${fits.message}; correct it and answer again`, {
      details: { path: fits.path },
    });
  const leak = findCredential(value, "args");
  if (leak !== undefined)
    throw new HoldfastError("input", "Cannot answer: the value holds what looks like a credential; pass a secret handle instead");
  return verb(context, runId, session, {
    decide: check,
    kind: "answer",
    payload: () => ({
      wait_id: wait.wait_id,
      value,
      decided_by: request.decided_by,
      ...(request.digest === undefined ? {} : { digest: request.digest }),
    }),
  });
}

async function repair(
  context: AccessContext,
  runId: string,
  stepId: string,
  request: Resolution & { decided_by: string; digest?: string },
  session: string | undefined,
): Promise<Verb> {
  const check = (view: RunView): Decided => decideRepair(view, stepId, request.digest);
  const { record } = await recordOf(context, runId, session);
  const wait = waitIn(check(await viewOf(context, record)));
  const output = request.resolution === "succeeded" ? { output: readOutput(request.output) } : {};
  const done = await verb(context, runId, session, {
    decide: check,
    kind: "repair",
    payload: () => ({
      wait_id: wait.wait_id,
      resolution: request.resolution,
      decided_by: request.decided_by,
      ...output,
      ...("message" in request ? { message: request.message } : {}),
      ...("reason" in request ? { reason: request.reason } : {}),
    }),
  });
  const still = done.run.waits.find((open) => open.wait_id === wait.wait_id);
  if (still !== undefined && !done.pending)
    throw new HoldfastError("input", `Cannot repair "${stepId}": the output does not fit what the step must give; correct it and try again`);
  return done;
}

function readOutput(value: unknown): Json {
  try {
    return normalizeJson(value);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new HoldfastError("input", `Cannot use this value: it is not JSON at ${error.path}: ${error.reason}`);
  }
}

export function waitsApi(context: AccessContext): WaitsApi {
  return {
    list: async (query = {}) => {
      const store = needStore(context);
      const session = query.all_sessions === true ? undefined : await sessionOf(context, query.session);
      const limit = Math.min(200, Math.max(1, query.limit ?? 50));
      const after = readCursor(query.cursor);
      const waits = await store.listWaits({
        ...(session === undefined ? {} : { session_id: session.session_id }),
        ...(query.type === undefined ? {} : { type: query.type }),
        ...(query.run_id === undefined ? {} : { run_id: query.run_id }),
        limit,
        ...(after === undefined ? {} : { after: { since_ms: after.ms, run_id: after.id, wait_id: after.extra ?? "" } }),
      });
      const named: (Wait & { workflow_id: string })[] = [];
      for (const wait of waits) named.push({ ...wait, workflow_id: (await store.getRun(wait.run_id))?.workflow_id ?? "" });
      const last = waits.at(-1);
      return {
        waits: named,
        ...(waits.length === limit && last !== undefined ? { next_cursor: writeCursor({ ms: last.since_ms, id: last.run_id, extra: last.wait_id }) } : {}),
      };
    },
    approve: (runId, waitId, request, session) => decision(context, runId, waitId, request, session, "approve"),
    deny: (runId, waitId, request, session) => decision(context, runId, waitId, request, session, "deny"),
    answer: (runId, waitId, request, session) => answer(context, runId, waitId, request, session),
    repair: (runId, stepId, request, session) => repair(context, runId, stepId, request, session),
    evidence: async (runId, stepId, session) => {
      const { record } = await recordOf(context, runId, session);
      const decided = decideRepair(await viewOf(context, record), stepId);
      demand(decided);
      const wait = waitIn(decided);
      if (wait.evidence === undefined) throw new HoldfastError("not_possible", `Cannot show evidence: the step "${stepId}" is not in repair`);
      return wait.evidence;
    },
  };
}
