/** Sessions as callers see them. */
import { HoldfastError } from "../domain/errors.ts";
import type { SessionRecord } from "../ports/index.ts";
import type { SessionsApi } from "./api.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";

const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/i;

export function sessionsApi(context: AccessContext): SessionsApi {
  const counted = async (session: SessionRecord): Promise<SessionRecord & { active_runs: number }> => ({
    ...session,
    active_runs: await needStore(context).openRuns(session.session_id),
  });
  return {
    list: async () => Promise.all((await needStore(context).listSessions({ limit: 200 })).map(counted)),
    create: async (request) => {
      if (!NAME.test(request.name))
        throw new HoldfastError("usage", `Cannot create the session "${request.name}": a name is 1 to 64 letters, digits, dots, hyphens or underscores`);
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
      const updated = await needStore(context).updateSession(session.session_id, patch, context.clock.now());
      if (updated === undefined) throw new HoldfastError("not_found", `Cannot change the session "${idOrName}": it is gone`);
      return updated;
    },
  };
}
