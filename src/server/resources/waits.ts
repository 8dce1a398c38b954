/** What a run waits for, and the answers of a person: never a model's, and bound to what was shown. */
import { z } from "@hono/zod-openapi";
import { refusal } from "../problem.ts";
import type { Route } from "../routes.ts";
import { ok, route, RUN } from "../routes.ts";
import { answerRequest, decisionRequest, Pending, PublicRun, repairRequest, sha256, WaitPage } from "../schemas.ts";
import { runParams } from "./shown.ts";
import { replayRun, verbAnswer } from "./verbs.ts";

const waitParams = runParams.extend({ wait_id: z.string().regex(/^[A-Za-z0-9_-]{1,128}$/) });

function decision(kind: "approve" | "deny"): Route {
  return route(
    {
      method: "post",
      path: `${RUN}/waits/{wait_id}/${kind}`,
      role: "operator",
      tag: "waits",
      summary: kind === "approve" ? "Allow what is asked" : "Refuse what is asked",
      about: "`digest` is that of the wait as it was shown. The same decision again has the same answer.",
      params: waitParams,
      body: decisionRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: { 200: { description: "The run", schema: PublicRun }, 202: { description: "No lease holder has taken it yet; it will be", schema: Pending } },
      errors: ["conflict", "terminal", "not_possible"],
    },
    async (asked) => {
      const { run_id, wait_id, session_id } = asked.params;
      const { digest, reason } = asked.body;
      const request = { decided_by: asked.decided_by, digest, ...(reason === undefined ? {} : { reason }) };
      return verbAnswer(asked, await asked.context.holdfast.waits[kind](run_id, wait_id, request, session_id));
    },
  );
}

export const waitRoutes: readonly Route[] = [
  route(
    { method: "get", path: `${RUN}/waits`, role: "observer", tag: "waits", summary: "What the run waits for", params: runParams, responses: { 200: { description: "All, oldest first", schema: WaitPage } } },
    async ({ context, params: { session_id, run_id }, operator }) => {
      const { waits } = operator ? await context.holdfast.runs.inspect(run_id, session_id) : await context.holdfast.runs.get(run_id, session_id);
      return ok({ waits });
    },
  ),
  decision("approve"),
  decision("deny"),
  route(
    {
      method: "post",
      path: `${RUN}/waits/{wait_id}/answer`,
      role: "operator",
      tag: "waits",
      summary: "Give what an input step asks for",
      params: waitParams,
      body: answerRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: { 200: { description: "The run", schema: PublicRun }, 202: { description: "No lease holder has taken it yet; it will be", schema: Pending } },
      errors: ["input", "conflict", "terminal", "not_possible"],
    },
    async (asked) => {
      const { run_id, wait_id, session_id } = asked.params;
      return verbAnswer(asked, await asked.context.holdfast.waits.answer(run_id, wait_id, { value: asked.body.value, decided_by: asked.decided_by }, session_id));
    },
  ),
  route(
    {
      method: "post",
      path: `${RUN}/attempts/{dispatch_id}/repair`,
      role: "operator",
      tag: "waits",
      summary: "Say what became of a step whose outcome is unknown",
      params: runParams.extend({ dispatch_id: sha256 }),
      body: repairRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: { 200: { description: "The run", schema: PublicRun }, 202: { description: "No lease holder has taken it yet; it will be", schema: Pending } },
      errors: ["conflict", "terminal", "not_possible", "input"],
    },
    async (asked) => {
      const { run_id, dispatch_id, session_id } = asked.params;
      const { holdfast } = asked.context;
      const { waits } = await holdfast.runs.inspect(run_id, session_id);
      const wait = waits.find((open) => open.evidence?.dispatch_id === dispatch_id);
      if (wait?.step_id === undefined) throw refusal("not_possible", "Cannot repair this attempt: it does not wait for a repair; see the run's waits");
      return verbAnswer(asked, await holdfast.waits.repair(run_id, wait.step_id, { ...asked.body, decided_by: asked.decided_by }, session_id));
    },
  ),
];
