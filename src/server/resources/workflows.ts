/** The catalog: what may be started, what it looks like, what is wrong with it. */
import { z } from "@hono/zod-openapi";
import type { WorkflowEntry as Entry } from "../../access/api.ts";
import { refusal } from "../problem.ts";
import type { Route } from "../routes.ts";
import { ok, route, SESSION } from "../routes.ts";
import {
  CheckResult,
  checkRequestBody,
  emptyRequest,
  kindQuery,
  Preview,
  previewRequest,
  queryInt,
  Reloaded,
  sessionRef,
  stateQuery,
  WorkflowPage,
  WorkflowShown,
  workflowId,
} from "../schemas.ts";
import { budgetOf } from "./shown.ts";

const params = z.object({ session_id: sessionRef });
const one = z.object({ session_id: sessionRef, workflow_id: workflowId });
const revision = queryInt(1, Number.MAX_SAFE_INTEGER).optional();

/** Paths, and messages that hold them, are for operators: others learn that an entry is broken, not where it lies. */
function shown(entry: Entry, operator: boolean): Entry {
  if (operator) return entry;
  const { path: _, diagnostics: __, ...rest } = entry;
  return { ...rest, diagnostics: [] };
}

const ENDINGS = { yaml: ".yaml", json: ".json", toml: ".toml", lua: ".lua", ts: ".ts" } as const;

export const workflowRoutes: readonly Route[] = [
  route(
    {
      method: "get",
      path: `${SESSION}/workflows`,
      role: "observer",
      tag: "workflows",
      summary: "The catalog, with what is broken or shadowed",
      params,
      query: z.object({ kind: kindQuery, state: stateQuery }),
      responses: { 200: { description: "All entries", schema: WorkflowPage } },
    },
    async ({ context, params: { session_id }, query, operator }) => {
      await context.holdfast.sessions.get(session_id);
      const { workflows, publication_revision } = await context.holdfast.workflows.publication();
      const wanted = workflows.filter(
        (entry) =>
          (query.kind === undefined || entry.kind === query.kind) &&
          (query.state === undefined || entry.state === query.state),
      );
      return ok({ workflows: wanted.map((entry) => shown(entry, operator)), publication_revision });
    },
  ),
  route(
    {
      method: "get",
      path: `${SESSION}/workflows/{workflow_id}`,
      role: "observer",
      tag: "workflows",
      summary: "One workflow with its public plan",
      about: "Operators also get `source_text`, the file as it was read.",
      params: one,
      query: z.object({ revision }),
      responses: { 200: { description: "The entry", schema: WorkflowShown } },
    },
    async ({ context, params: { session_id, workflow_id }, query, operator }) => {
      await context.holdfast.sessions.get(session_id);
      const ref = query.revision === undefined ? workflow_id : `${workflow_id}@${query.revision}`;
      const { entry, plan, source } = await context.holdfast.workflows.show(ref);
      return ok({
        ...shown(entry, operator),
        ...(plan === undefined ? {} : { plan }),
        ...(operator ? { source_text: source } : {}),
      });
    },
  ),
  route(
    {
      method: "post",
      path: `${SESSION}/workflows/check`,
      role: "operator",
      tag: "workflows",
      summary: "What is wrong with a definition's text",
      params,
      body: checkRequestBody,
      responses: { 200: { description: "Also for a text with mistakes", schema: CheckResult } },
    },
    async ({ context, params: { session_id }, body }) => {
      await context.holdfast.sessions.get(session_id);
      const ending = ENDINGS[body.format];
      const name = body.file_name ?? `workflow${ending}`;
      if (!name.toLowerCase().endsWith(ending) && !(ending === ".yaml" && name.toLowerCase().endsWith(".yml")))
        throw refusal(
          "usage",
          `Cannot check ${JSON.stringify(name)} as ${body.format}: its name ends otherwise; use a name that ends in ${ending}`,
        );
      const diagnostics = await context.holdfast.workflows.check(body.source, name);
      return ok({ ok: !diagnostics.some((each) => each.severity === "error"), diagnostics });
    },
  ),
  route(
    {
      method: "post",
      path: `${SESSION}/workflows/{workflow_id}/preview`,
      role: "operator",
      tag: "workflows",
      summary: "What a start would run, without starting it",
      params: one,
      body: previewRequest,
      bodyOptional: true,
      responses: { 200: { description: "Steps, permissions, bounds; refusals are inside", schema: Preview } },
      errors: ["definition", "input"],
    },
    async ({ context, params: { session_id, workflow_id }, body }) => {
      await context.holdfast.sessions.get(session_id);
      const ref = body.revision === undefined ? workflow_id : `${workflow_id}@${body.revision}`;
      return ok(
        await context.holdfast.workflows.preview(ref, {
          session: session_id,
          ...(body.args === undefined ? {} : { args: body.args }),
          ...budgetOf(body.budget),
        }),
      );
    },
  ),
  route(
    {
      method: "post",
      path: `${SESSION}/workflows/reload`,
      role: "operator",
      tag: "workflows",
      summary: "Look at the definition files again",
      params,
      body: emptyRequest,
      bodyOptional: true,
      responses: { 200: { description: "The publication now in force", schema: Reloaded } },
    },
    async ({ context, params: { session_id } }) => {
      await context.holdfast.sessions.get(session_id);
      return ok(await context.holdfast.workflows.reload());
    },
  ),
];
