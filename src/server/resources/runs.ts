/** The runs of a session: start and list (RP-84). */
import { z } from "@hono/zod-openapi";
import type { Route } from "../routes.ts";
import { ok, route, SESSION } from "../routes.ts";
import {
  cursor,
  limit,
  PublicRun,
  queryBool,
  RunPage,
  startRequest,
  statusList,
  WaitPage,
  waitTypeList,
  workflowId,
} from "../schemas.ts";
import { budgetOf, locationOf, pager, sessionParams as params, shownWait } from "./shown.ts";

const listQuery = z.object({
  status: statusList,
  workflow_id: workflowId.optional(),
  waiting: queryBool.optional(),
  children: queryBool.optional(),
  cursor,
  limit,
});

export const runsRoutes: readonly Route[] = [
  route(
    {
      method: "post",
      path: `${SESSION}/workflow-runs`,
      role: "operator",
      tag: "runs",
      summary: "Start a run",
      about:
        "Durable when it answers. With an Idempotency-Key the same request answers with the same run, also after it has ended, and says Idempotent-Replay: true.",
      params,
      body: startRequest,
      keyed: "store",
      responses: { 202: { description: "The run", schema: PublicRun } },
      errors: ["definition", "input", "preflight", "workflow_monetary_budget_unsupported", "idempotency_key_reused"],
    },
    async (asked) => {
      const {
        context,
        params: { session_id },
        body,
        key,
      } = asked;
      const handle = await context.holdfast.start({
        workflow: `${body.workflow_id}@${body.revision}`,
        session: session_id,
        started_by: asked.decided_by,
        ...(body.args === undefined ? {} : { args: body.args }),
        ...budgetOf(body.budget),
        ...(key === undefined ? {} : { key }),
        ...(context.drives ? {} : { queue: true }),
      });
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
  route(
    {
      method: "get",
      path: `${SESSION}/workflow-runs`,
      role: "observer",
      tag: "runs",
      summary: "Runs, newest first",
      params,
      query: listQuery,
      responses: { 200: { description: "A page", schema: RunPage } },
    },
    async (asked) => {
      const {
        context,
        params: { session_id },
        query,
      } = asked;
      const { range, next } = pager("runs", asked);
      const page = await context.holdfast.runs.list({
        session: session_id,
        ...range,
        ...(query.status === undefined ? {} : { status: query.status }),
        ...(query.workflow_id === undefined ? {} : { workflow_id: query.workflow_id }),
        ...(query.waiting === undefined ? {} : { waiting: query.waiting }),
        ...(query.children === undefined ? {} : { children: query.children }),
      });
      return ok({
        runs: page.runs,
        ...next(page),
      });
    },
  ),
  route(
    {
      method: "get",
      path: `${SESSION}/waits`,
      role: "observer",
      tag: "waits",
      summary: "What waits for somebody, oldest first",
      params,
      query: z.object({ type: waitTypeList, cursor, limit }),
      responses: { 200: { description: "A page; operators also see what is asked", schema: WaitPage } },
    },
    async (asked) => {
      const {
        context,
        params: { session_id },
        query,
        operator,
      } = asked;
      const { range, next } = pager("waits", asked);
      const page = await context.holdfast.waits.list({
        session: session_id,
        ...range,
        ...(query.type === undefined ? {} : { type: query.type }),
      });
      return ok({
        waits: page.waits.map((wait) => shownWait(wait, operator)),
        ...next(page),
      });
    },
  ),
];
