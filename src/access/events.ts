/** A run's events, as pages and as they come, for operators and for the public. */
import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { operatorEvent, publicEvent } from "../domain/projections/index.ts";
import type { OperatorEvent, PublicEvent } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";
import { followEvents } from "./driving.ts";
import { readEvents, recordOf } from "./views.ts";

/** Events of one page. */
const MAX_EVENTS = 1_000;

/** Events after `since`, in the form in which they are stored. */
export async function pageOf(
  context: AccessContext,
  runId: string,
  query: { since?: number; limit?: number },
  session?: string,
): Promise<RunEvent[]> {
  const { record } = await recordOf(context, runId, session);
  const { since = 0, limit = MAX_EVENTS } = query;
  if (!Number.isSafeInteger(since) || since < 0)
    throw new HoldfastError("usage", "Cannot read events: `since` is not a sequence; give a whole number from 0");
  const events: RunEvent[] = [];
  for await (const event of readEvents(needStore(context), record.run_id, since)) {
    if (events.length >= Math.min(limit, MAX_EVENTS)) break;
    events.push(event);
  }
  return events;
}

/** Events as they come, until the run has ended; of a run that the caller may see. */
export async function* operatorEvents(
  context: AccessContext,
  runId: string,
  since: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<OperatorEvent> {
  for await (const event of followEvents(context, runId, since, signal)) yield operatorEvent(runId, event);
}

export async function* followed(
  context: AccessContext,
  runId: string,
  since: number,
  signal: AbortSignal | undefined,
  session: string | undefined,
): AsyncGenerator<OperatorEvent> {
  await recordOf(context, runId, session);
  yield* operatorEvents(context, runId, since, signal);
}

export async function* followedPublic(
  context: AccessContext,
  runId: string,
  since: number,
  signal: AbortSignal | undefined,
  session: string | undefined,
): AsyncGenerator<PublicEvent> {
  await recordOf(context, runId, session);
  for await (const event of followEvents(context, runId, since, signal)) yield publicEvent(runId, event);
}
