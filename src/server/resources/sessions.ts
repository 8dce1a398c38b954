/** Sessions: list, make, look at, change. The workspace is the server's own, never the caller's to choose. */
import { createHash, randomBytes } from "node:crypto";
import { z } from "@hono/zod-openapi";
import { type SessionView, sessionDoc } from "../../access/index.ts";
import { HoldfastError } from "../../domain/errors.ts";
import type { JsonObject } from "../../domain/json.ts";
import type { Answer, Asked, Route } from "../routes.ts";
import { BASE, ok, route, SESSION } from "../routes.ts";
import { cursor, limit, Session, SessionPage, sessionCreate, sessionPatch, sessionRef } from "../schemas.ts";
import { stream } from "../sse.ts";
import { pager } from "./shown.ts";

const params = z.object({ session_id: sessionRef });

function shown({ operator }: Pick<Asked, "operator">, session: SessionView): ReturnType<typeof sessionDoc> {
  return sessionDoc(session, { operator });
}

export const sessionRoutes: readonly Route[] = [
  route(
    {
      method: "get",
      path: `${BASE}/sessions`,
      role: "observer",
      tag: "sessions",
      summary: "The sessions, oldest first",
      query: z.object({ cursor, limit }),
      responses: { 200: { description: "A page", schema: SessionPage } },
    },
    async (asked) => {
      const { range, next } = pager("sessions", asked);
      const page = await asked.context.holdfast.sessions.page(range);
      return ok({
        sessions: page.sessions.map((session) => shown(asked, session)),
        ...next(page),
      });
    },
  ),
  route(
    {
      method: "post",
      path: `${BASE}/sessions`,
      role: "operator",
      tag: "sessions",
      summary: "A new session",
      body: sessionCreate,
      bodyOptional: true,
      keyed: "memory",
      responses: { 201: { description: "The session", schema: Session } },
      errors: ["conflict"],
      replay: (asked, about) => answerOf(asked, 201, about),
    },
    async (asked) => {
      const { context, body, key } = asked;
      // A name made from the key is the same for the same request, so that a repeat after a crash finds the first.
      const made = `s-${key === undefined ? randomBytes(8).toString("hex") : createHash("sha256").update(key).digest("hex").slice(0, 16)}`;
      const name = body.name ?? made;
      const { posture, orchestration_opt_in, metadata } = body;
      try {
        const created = await context.holdfast.sessions.create({
          name,
          ...(posture === undefined ? {} : { posture }),
          ...(orchestration_opt_in === undefined ? {} : { orchestration_opt_in }),
          ...(metadata === undefined ? {} : { metadata: metadata as JsonObject }),
        });
        return await answerOf(asked, 201, created.session_id);
      } catch (error) {
        if (body.name === undefined && key !== undefined && HoldfastError.is(error) && error.code === "conflict")
          return await answerOf(asked, 201, name);
        throw error;
      }
    },
  ),
  route(
    {
      method: "get",
      path: SESSION,
      role: "observer",
      tag: "sessions",
      summary: "One session",
      params,
      responses: { 200: { description: "The session", schema: Session } },
    },
    async (asked) => ok(shown(asked, await asked.context.holdfast.sessions.get(asked.params.session_id))),
  ),
  route(
    {
      method: "patch",
      path: SESSION,
      role: "operator",
      tag: "sessions",
      summary: "Change a session",
      about: "Only the fields given change. `metadata` is merged key by key; null removes a key.",
      params,
      body: sessionPatch,
      keyed: "memory",
      responses: { 200: { description: "The session", schema: Session } },
      errors: ["conflict"],
      replay: (asked, about) => answerOf(asked, 200, about),
    },
    async (asked) => {
      const { name, posture, orchestration_opt_in, metadata } = asked.body;
      const { session_id } = await asked.context.holdfast.sessions.update(asked.params.session_id, {
        ...(name === undefined ? {} : { name }),
        ...(posture === undefined ? {} : { posture }),
        ...(orchestration_opt_in === undefined ? {} : { orchestration_opt_in }),
        ...(metadata === undefined ? {} : { metadata: metadata as JsonObject }),
      });
      return answerOf(asked, 200, session_id);
    },
  ),
  route(
    {
      method: "get",
      path: `${SESSION}/events`,
      role: "observer",
      tag: "sessions",
      summary: "Changes of any run of the session, as they happen",
      about:
        "An event stream of {version: 3, run_id, event_sequence, changed_at_ms}: next → read on, seen → ignore, gap → read the run's events. It has no history: read the list first.",
      params,
      responses: { 200: { description: "An event stream", type: "text/event-stream" } },
      errors: ["rate_limited"],
    },
    async ({ context, params: { session_id }, request }) => {
      // Before the stream begins, so that an unknown session is a plain 404.
      await context.holdfast.sessions.get(session_id);
      return stream(context, request, async function* (signal) {
        for await (const change of context.holdfast.changes({ signal }, session_id))
          yield { event: "change", data: change };
      });
    },
  ),
];

async function answerOf(asked: Asked, status: number, session: string): Promise<Answer> {
  const found = await asked.context.holdfast.sessions.get(session);
  return { status, json: shown(asked, found), about: found.session_id };
}
