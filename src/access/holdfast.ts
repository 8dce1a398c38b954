/** Puts the operations together: the one door for callers (DESIGN §9). */
import { HoldfastError } from "../domain/errors.ts";
import type { Holdfast } from "./api.ts";
import { changesOf, observed } from "./changes.ts";
import { type AccessContext, needStore } from "./context.ts";
import { installation } from "./installation.ts";
import { recoverRuns } from "./recovering.ts";
import { handleOf, runsApi } from "./runs.ts";
import { sessionsApi } from "./sessions.ts";
import { startRun } from "./starting.ts";
import { waitsApi } from "./waits.ts";
import { createTools } from "./workflow-tools.ts";
import { workflowsApi } from "./workflows.ts";

/** All but the HTTP interface, which the composition root adds: rooms above are not known here. */
export function createAccess(context: AccessContext, close: () => Promise<void>): Omit<Holdfast, "handler"> {
  let closing: Promise<void> | undefined;
  const open = <T>(act: () => Promise<T>): Promise<T> => {
    if (closing !== undefined)
      return Promise.reject(
        new HoldfastError("server_unavailable", "Cannot do this: Holdfast is closed; open it again"),
      );
    return act();
  };
  const shut = (): Promise<void> => {
    closing ??= close();
    return closing;
  };
  return {
    start: (request) =>
      open(async () => {
        return handleOf(context, await startRun(context, request), request.session);
      }),
    run: (request) =>
      open(async () => {
        return handleOf(context, await startRun(context, request), request.session).result();
      }),
    runs: runsApi(context),
    waits: waitsApi(context),
    workflows: workflowsApi(context),
    sessions: sessionsApi(context),
    toolList: () => context.tools.list(),
    tools: (options) => createTools(context, options),
    observe: (listener) => observed(context, listener),
    changes: (options = {}, session) => changesOf(context, options.signal, session),
    storeInfo: () => needStore(context).info(),
    doctor: () => installation(context),
    recover: () => open(() => recoverRuns(context)),
    close: shut,
    [Symbol.asyncDispose]: shut,
  };
}
