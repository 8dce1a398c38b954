/** Sessions as callers see them. */
import { HoldfastError } from "../domain/errors.ts";
import type { SessionRecord } from "../ports/index.ts";
import type { SessionsApi, SessionView } from "./api.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";
import { pageLimit, readCursor, writeCursor } from "./cursors.ts";

const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/i;

function demandName(act: string, name: string): void {
  if (!NAME.test(name))
    throw new HoldfastError(
      "usage",
      `Cannot ${act} the session ${JSON.stringify(name.slice(0, 64))}: a name is 1 to 64 letters, digits, dots, hyphens or underscores`,
    );
}

export function sessionsApi(context: AccessContext): SessionsApi {
  const counted = async (session: SessionRecord): Promise<SessionView> => ({
    ...session,
    active_runs: await needStore(context).openRuns(session.session_id),
    trusted: context.trusted(),
  });
  return {
    list: async () => Promise.all((await needStore(context).listSessions({ limit: 200 })).map(counted)),
    page: async (query = {}) => {
      const limit = pageLimit(query.limit);
      const after = readCursor(query.cursor);
      const found = await needStore(context).listSessions({
        limit,
        ...(after === undefined ? {} : { after_ms: after.ms, after_id: after.id }),
      });
      const last = found.at(-1);
      return {
        sessions: await Promise.all(found.map(counted)),
        ...(found.length === limit && last !== undefined
          ? { next_cursor: writeCursor({ ms: last.created_at_ms, id: last.session_id }) }
          : {}),
      };
    },
    create: async (request) => {
      demandName("create", request.name);
      const now = context.clock.now();
      const session: SessionRecord = {
        session_id: context.ids.uuid(),
        name: request.name,
        workspace: context.workspace,
        posture: request.posture ?? "ask",
        orchestration_opt_in: request.orchestration_opt_in ?? false,
        metadata: request.metadata ?? {},
        created_at_ms: now,
        updated_at_ms: now,
      };
      await needStore(context).createSession(session);
      return session;
    },
    get: async (idOrName) => counted(await sessionOf(context, idOrName)),
    update: async (idOrName, patch) => {
      const session = await sessionOf(context, idOrName);
      if (patch.name !== undefined) demandName("rename", patch.name);
      const updated = await needStore(context).updateSession(session.session_id, patch, context.clock.now());
      if (updated === undefined)
        throw new HoldfastError("not_found", `Cannot change the session "${idOrName}": it is gone`);
      return updated;
    },
  };
}
