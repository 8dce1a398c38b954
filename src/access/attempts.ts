/** The attempts of a run by pages, folded from its journal (GD-72: bounded, in a stable order, nothing is changed). */
import { AttemptFold, type AttemptSummary } from "../domain/projections/index.ts";
import type { AttemptQuery } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";
import { pageLimit, readCursor, writeCursor } from "./cursors.ts";
import { readEvents, recordOf } from "./views.ts";

/** Attempts looked through for one page where only some are wanted: a page may be short and still have a next. */
const WINDOW = 1_000;
/** Events read for one page; an attempt whose end lies behind them is shown as it stands there. */
const MAX_EVENTS = 50_000;

export async function attemptsPage(
  context: AccessContext,
  runId: string,
  query: AttemptQuery = {},
  session?: string,
): Promise<{ readonly attempts: readonly AttemptSummary[]; readonly next_cursor?: string }> {
  const { record } = await recordOf(context, runId, session);
  const limit = pageLimit(query.limit);
  const window = query.status === undefined ? limit : WINDOW;
  const fold = new AttemptFold(record.run_id);
  let read = 0;
  for await (const event of readEvents(needStore(context), record.run_id, readCursor(query.cursor)?.ms ?? 0)) {
    fold.add(event);
    // One behind the window tells that there is more; what is settled does not change any more.
    if (++read >= MAX_EVENTS || (fold.size > window && fold.settled(window))) break;
  }
  const all = fold.attempts;
  const looked = all.slice(0, window);
  const wanted = looked.filter(({ status }) => query.status === undefined || query.status.includes(status));
  const page = wanted.slice(0, limit);
  const more = wanted.length > page.length || all.length > looked.length || read >= MAX_EVENTS;
  const last = wanted.length > page.length ? page.at(-1) : looked.at(-1);
  const links = await needStore(context).sessionLinks({ root_run_id: record.root_run_id });
  const sessions = new Map(links.map(({ dispatch_id, session_id }) => [dispatch_id, session_id]));
  return {
    attempts: page.map(({ sequence: _, ...attempt }) => {
      const session_id = sessions.get(attempt.dispatch_id);
      return { ...attempt, ...(session_id === undefined ? {} : { session_id }) };
    }),
    ...(more && last !== undefined ? { next_cursor: writeCursor({ ms: last.sequence, id: record.run_id }) } : {}),
  };
}
