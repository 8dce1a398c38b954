/** The attempts of a run by pages, folded from its journal (GD-72: bounded, in a stable order, nothing is changed). */
import { type AttemptSummary, AttemptFold, type FoldedAttempt } from "../domain/projections/index.ts";
import type { AttemptQuery } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";
import { readCursor, writeCursor } from "./cursors.ts";
import { readEvents, recordOf } from "./views.ts";

/** Events read for one page: a page may be short, its cursor goes on behind what was read. */
const MAX_EVENTS = 20_000;
/** How far an attempt's own events are followed beyond the page before it is shown as open. */
const MAX_TAIL = 20_000;

export async function attemptsPage(
  context: AccessContext,
  runId: string,
  query: AttemptQuery = {},
  session?: string,
): Promise<{ readonly attempts: readonly AttemptSummary[]; readonly next_cursor?: string }> {
  const { record } = await recordOf(context, runId, session);
  const limit = Math.min(200, Math.max(1, query.limit ?? 50));
  const since = readCursor(query.cursor)?.ms ?? 0;
  const wanted = ({ status }: FoldedAttempt): boolean => query.status === undefined || query.status.includes(status);
  const fold = new AttemptFold(record.run_id);
  let read = 0;
  let last = since;
  let ended = true;
  for await (const event of readEvents(needStore(context), record.run_id, since)) {
    fold.add(event);
    last = event.sequence;
    read++;
    // One more than a page, all settled: nothing that comes later changes what is shown.
    if (event.type.startsWith("step_") && fold.attempts.length > limit && settledWithin(fold.attempts, wanted, limit)) {
      ended = false;
      break;
    }
    if (read >= MAX_EVENTS + MAX_TAIL) {
      ended = record.last_sequence <= last;
      break;
    }
  }
  const shown = fold.attempts.filter(wanted);
  const page = shown.slice(0, limit);
  const place = shown.length > page.length ? page.at(-1)?.sequence : ended ? undefined : lastPlace(fold.attempts, last);
  return {
    attempts: page.map(({ sequence: _, ...attempt }) => attempt),
    ...(place === undefined ? {} : { next_cursor: writeCursor({ ms: place, id: record.run_id }) }),
  };
}

/** Whether the first `limit` wanted ones are there with one behind them, and no earlier one can still change. */
function settledWithin(attempts: readonly FoldedAttempt[], wanted: (attempt: FoldedAttempt) => boolean, limit: number): boolean {
  let found = 0;
  for (const attempt of attempts) {
    if (attempt.terminal_at_ms === undefined) return false;
    if (wanted(attempt) && ++found > limit) return true;
  }
  return false;
}

/** Where the next page begins when this one was cut by what may be read: behind all that is known to its end. */
function lastPlace(attempts: readonly FoldedAttempt[], read: number): number {
  const open = attempts.find((attempt) => attempt.terminal_at_ms === undefined);
  return open === undefined ? read : Math.max(open.sequence, read - MAX_TAIL);
}
