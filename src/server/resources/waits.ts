/** What a run waits for, and the answers of a person: never a model's, and bound to what was shown. */
import { z } from "@hono/zod-openapi";
import { refusal } from "../problem.ts";
import type { Route } from "../routes.ts";
import { ok, RUN, route } from "../routes.ts";
import { answerRequest, decisionRequest, Pending, PublicRun, repairRequest, sha256, WaitPage } from "../schemas.ts";
import { type RunAsked, runParams } from "./shown.ts";
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
      about:
        "`digest` is that of the wait as it was shown. The same decision again has the same answer; the opposite one, a wait that is over, a cancelled run and another digest are `conflict`, the last with the new digest in `details`.",
      params: waitParams,
      body: decisionRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: {
        200: { description: "The run", schema: PublicRun },
        202: { description: "No lease holder has taken it yet; it will be", schema: Pending },
      },
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
    {
      method: "get",
      path: `${RUN}/waits`,
      role: "observer",
      tag: "waits",
      summary: "What the run waits for",
      params: runParams,
      responses: { 200: { description: "All, oldest first", schema: WaitPage } },
    },
    async ({ context, params: { session_id, run_id }, operator }) => {
      const { waits } = operator
        ? await context.holdfast.runs.inspect(run_id, session_id)
        : await context.holdfast.runs.get(run_id, session_id);
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
      about: "`digest`, where it is given, binds the answer to what was shown; another one is `conflict`.",
      params: waitParams,
      body: answerRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: {
        200: { description: "The run", schema: PublicRun },
        202: { description: "No lease holder has taken it yet; it will be", schema: Pending },
      },
      errors: ["input", "conflict", "terminal", "not_possible"],
    },
    async (asked) => {
      const { run_id, wait_id, session_id } = asked.params;
      const { value, digest } = asked.body;
      return verbAnswer(
        asked,
        await asked.context.holdfast.waits.answer(
          run_id,
          wait_id,
          { value, decided_by: asked.decided_by, ...(digest === undefined ? {} : { digest }) },
          session_id,
        ),
      );
    },
  ),
  route(
    {
      method: "post",
      path: `${RUN}/attempts/{dispatch_id}/repair`,
      role: "operator",
      tag: "waits",
      summary: "Say what became of a step whose outcome is unknown",
      about:
        "Of one exact attempt (GD-74): `evidence.dispatch_id` of the wait. Nothing is sent but by `retry`, as a new attempt under a new id.",
      params: runParams.extend({ dispatch_id: sha256 }),
      body: repairRequest,
      keyed: "memory",
      replay: replayRun(200),
      responses: {
        200: { description: "The run", schema: PublicRun },
        202: { description: "No lease holder has taken it yet; it will be", schema: Pending },
      },
      errors: ["conflict", "terminal", "not_possible", "input"],
    },
    async (asked) => {
      const { run_id, dispatch_id, session_id } = asked.params;
      const step = await stepOf(asked, dispatch_id);
      if (step === undefined)
        throw refusal("not_found", "Cannot repair this attempt: the run has none with that id; see the run's attempts");
      const request = { ...asked.body, decided_by: asked.decided_by, dispatch_id };
      return verbAnswer(asked, await asked.context.holdfast.waits.repair(run_id, step, request, session_id));
    },
  ),
];

/** Pages of attempts that are looked through for one that waits for nothing any more. */
const MAX_PAGES = 50;

/** The step that an attempt is of: mostly one that waits, else one whose repair is sent again. */
async function stepOf(
  { context, params: { run_id, session_id } }: RunAsked,
  dispatch_id: string,
): Promise<string | undefined> {
  const { runs } = context.holdfast;
  const { waits } = await runs.inspect(run_id, session_id);
  const open = waits.find((wait) => wait.evidence?.dispatch_id === dispatch_id)?.step_id;
  if (open !== undefined) return open;
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const { attempts, next_cursor } = await runs.attempts(
      run_id,
      { limit: 200, ...(cursor === undefined ? {} : { cursor }) },
      session_id,
    );
    const found = attempts.find((attempt) => attempt.dispatch_id === dispatch_id);
    if (found !== undefined || next_cursor === undefined) return found?.step_id;
    cursor = next_cursor;
  }
  return undefined;
}
