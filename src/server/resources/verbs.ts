/** What moves a run: cancel, pause, resume, restart, retry, more budget. */
import type { Verb } from "../../access/api.ts";
import type { Answer, Route } from "../routes.ts";
import { RUN, route } from "../routes.ts";
import { budgetRequest, emptyRequest, Pending, PublicRun, reasonRequest, retryRequest } from "../schemas.ts";
import { budgetOf, locationOf, type RunAsked, runParams } from "./shown.ts";

/** The run as it now is, or what waits for its holder. */
export async function verbAnswer(
  { context, params: { session_id, run_id } }: RunAsked,
  verb: Verb,
  status = 200,
): Promise<Answer> {
  if (verb.pending)
    return {
      status: 202,
      json: { pending: true, run_id, ...(verb.signal_id === undefined ? {} : { signal_id: verb.signal_id }) },
      // It is kept and will be taken: under the same key it is not asked for a second time.
      about: run_id,
    };
  return { status, json: await context.holdfast.runs.get(run_id, session_id), about: run_id };
}

/** A request that was answered before is answered with the run as it is now. */
export function replayRun(status: number) {
  return async ({ context, params: { session_id } }: RunAsked, about: string): Promise<Answer> => ({
    status,
    json: await context.holdfast.runs.get(about, session_id),
    about,
  });
}

const PENDING = { 202: { description: "No lease holder has taken it yet; it will be", schema: Pending } };
const THE_RUN = { description: "The run", schema: PublicRun };

function resume(path: string): Route {
  return route(
    {
      method: "post",
      path,
      role: "operator",
      tag: "runs",
      summary: "Go on from where the run stands",
      about: "A run that goes already is answered as it is.",
      params: runParams,
      body: emptyRequest,
      bodyOptional: true,
      keyed: "memory",
      replay: replayRun(202),
      responses: { 202: THE_RUN },
      errors: ["not_possible", "terminal", "conflict", "nondeterminism"],
    },
    async (asked) =>
      verbAnswer(
        asked,
        await asked.context.holdfast.runs.resume(
          asked.params.run_id,
          { decided_by: asked.decided_by },
          asked.params.session_id,
        ),
        202,
      ),
  );
}

function withReason({ decided_by, body: { reason } }: { decided_by: string; body: { reason?: string | undefined } }) {
  return { decided_by, ...(reason === undefined ? {} : { reason }) };
}

export const verbRoutes: readonly Route[] = [
  route(
    {
      method: "post",
      path: `${RUN}/cancel`,
      role: "operator",
      tag: "runs",
      summary: "End the run for good",
      about: "A second cancel of the same run answers the same.",
      params: runParams,
      body: reasonRequest,
      bodyOptional: true,
      keyed: "memory",
      replay: replayRun(200),
      responses: { 200: THE_RUN, ...PENDING },
      errors: ["terminal"],
    },
    async (asked) => {
      const { run_id, session_id } = asked.params;
      return verbAnswer(asked, await asked.context.holdfast.runs.cancel(run_id, withReason(asked), session_id));
    },
  ),
  route(
    {
      method: "post",
      path: `${RUN}/pause`,
      role: "operator",
      tag: "runs",
      summary: "Stop dispatching; nothing is lost",
      params: runParams,
      body: reasonRequest,
      bodyOptional: true,
      keyed: "memory",
      replay: replayRun(200),
      responses: { 200: THE_RUN, ...PENDING },
      errors: ["terminal", "not_possible"],
    },
    async (asked) => {
      const { run_id, session_id } = asked.params;
      return verbAnswer(asked, await asked.context.holdfast.runs.pause(run_id, withReason(asked), session_id));
    },
  ),
  route(
    {
      method: "patch",
      path: `${RUN}/budget`,
      role: "operator",
      tag: "runs",
      summary: "Raise limits of the run",
      params: runParams,
      body: budgetRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: { 200: THE_RUN, ...PENDING },
      errors: ["input", "not_possible", "terminal", "preflight"],
    },
    async (asked) => {
      const { run_id, session_id } = asked.params;
      const { budget = {} } = budgetOf(asked.body);
      return verbAnswer(
        asked,
        await asked.context.holdfast.runs.raiseBudget(run_id, budget, { decided_by: asked.decided_by }, session_id),
      );
    },
  ),
  route(
    {
      method: "post",
      path: `${RUN}/retry`,
      role: "operator",
      tag: "runs",
      summary: "A new run from the failed steps of one that has ended",
      params: runParams,
      body: retryRequest,
      bodyOptional: true,
      keyed: "memory",
      replay: replayRun(202),
      responses: { 202: { description: "The new run", schema: PublicRun } },
      errors: ["not_possible", "terminal", "preflight"],
    },
    async (asked) => {
      const {
        context,
        params: { run_id, session_id },
      } = asked;
      const handle = await context.holdfast.runs.retry(run_id, asked.body.step_id, session_id, {
        started_by: asked.decided_by,
      });
      return {
        status: 202,
        json: await context.holdfast.runs.get(handle.run_id, session_id),
        headers: locationOf(asked, session_id, handle.run_id),
        about: handle.run_id,
      };
    },
  ),
  resume(`${RUN}/resume`),
  resume(`${RUN}/continue`),
  route(
    {
      method: "post",
      path: `${RUN}/restart`,
      role: "operator",
      tag: "runs",
      summary: "A new run with the old definitions and arguments",
      params: runParams,
      body: emptyRequest,
      bodyOptional: true,
      keyed: "store",
      responses: { 202: { description: "The new run", schema: PublicRun } },
      errors: ["terminal", "preflight", "idempotency_key_reused"],
    },
    async (asked) => {
      const {
        context,
        params: { run_id, session_id },
        key,
      } = asked;
      // A blank can stand in no caller's key, so a restart's never meets a start's.
      const handle = await context.holdfast.runs.restart(
        run_id,
        session_id,
        "explicit",
        key === undefined ? undefined : `restart ${run_id} ${key}`,
        { started_by: asked.decided_by },
      );
      return {
        status: 202,
        json: await context.holdfast.runs.get(handle.run_id, session_id),
        headers: {
          ...locationOf(asked, session_id, handle.run_id),
          ...(handle.replayed ? { "Idempotent-Replay": "true" } : {}),
        },
      };
    },
  ),
];
