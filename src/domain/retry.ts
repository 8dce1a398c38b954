/**
 * The journal of a retried run (R-2j): what settled in the ended run is copied with its usage, what made it end is
 * left out, so that the program, replayed, asks for exactly that again. Pure; the engine appends what this returns.
 */
import type { EventBase, EventBody, RunEvent } from "./events.ts";
import { type Definition, leafPaths, liesBelow, readAttemptsKey, readRetryKey, splitInstance } from "./plan/index.ts";

export type CopiedEvent = EventBody & Pick<EventBase, "woke">;

interface Visit {
  readonly instance: string;
  readonly visit: number;
  ended?: "succeeded" | "failed" | "cancelled" | "skipped";
  /** Position of the event that ended it. */
  endedAt: number;
  reason?: string;
}

export interface RetryPlan {
  readonly events: readonly CopiedEvent[];
}

/** Events that tell of standing still and of being moved on: a copy has neither. */
const NOT_COPIED: ReadonlySet<EventBody["type"]> = new Set([
  "run_suspended",
  "step_suspended",
  "wait_opened",
  "wait_warned",
  "wait_closed",
  "grant_issued",
  "cancel_requested",
  "repaired",
  "late_result",
  "receipt",
  "handed_off",
  "budget_raised",
  "run_succeeded",
  "run_failed",
  "run_cancelled",
]);

export function retryEvents(events: readonly RunEvent[], definition: Definition): RetryPlan {
  const visits = readVisits(events);
  const doomed = new Set(visits.filter((visit) => isDoomed(visit, visits, events, definition)));
  const dropped = dropAttempts(visits, doomed, events);
  const of = new Map(visits.map((visit) => [`${visit.visit}#${visit.instance}`, visit]));
  const current = new Map<string, Visit>();
  const started = new Set<Visit>();
  const copied: CopiedEvent[] = [];
  let woke: readonly string[] = [];
  for (const event of events) {
    if (event.woke !== undefined) woke = [...woke, ...event.woke.filter((key) => !dropped.has(key))];
    if (event.type === "step_queued" || event.type === "step_skipped")
      current.set(event.step_id, of.get(`${event.visit}#${event.step_id}`) as Visit);
    if (event.type === "phase" && event.name === "retry_reserved" && dropped.has(event.key)) continue;
    const kept = keep(event, current, started, doomed, copied.length === 0 || copied.length === 1);
    for (const body of kept) {
      copied.push(woke.length === 0 ? body : { ...body, woke });
      woke = [];
    }
  }
  return { events: copied };
}

/**
 * A step that its own policy (GD-59) has tried again is asked again from the start of that policy: what went before
 * the attempt that is left out is left out too. Adds those visits to `doomed`, and answers the keys of their retries.
 */
function dropAttempts(visits: readonly Visit[], doomed: Set<Visit>, events: readonly RunEvent[]): Set<string> {
  const dropped = new Set<string>();
  const ends = [...doomed];
  for (const event of [...events].reverse()) {
    if (event.type !== "phase" || event.name !== "retry_reserved") continue;
    const attempts = readAttemptsKey(event.key);
    if (attempts === undefined) continue;
    const { instance, first, retry } = attempts;
    const left = (visit: Visit): boolean => visit.instance === instance && visit.visit >= first;
    // Backwards the last retry comes first: it names the last attempt, and by that the earlier ones are found too.
    if (!ends.some((visit) => left(visit) && visit.visit <= first + retry)) continue;
    dropped.add(event.key);
    ends.push(...visits.filter((visit) => left(visit) && visit.visit < first + retry));
  }
  for (const visit of ends) doomed.add(visit);
  return dropped;
}

function readVisits(events: readonly RunEvent[]): Visit[] {
  const visits: Visit[] = [];
  const current = new Map<string, Visit>();
  for (const [at, event] of events.entries()) {
    if (event.type === "step_queued" || event.type === "step_skipped") {
      const visit: Visit = { instance: event.step_id, visit: event.visit, endedAt: events.length };
      if (event.type === "step_skipped") Object.assign(visit, { ended: "skipped", endedAt: at, reason: event.reason });
      visits.push(visit);
      current.set(event.step_id, visit);
      continue;
    }
    const visit = "step_id" in event && event.step_id !== undefined ? current.get(event.step_id) : undefined;
    if (visit === undefined) continue;
    const ended = { step_completed: "succeeded", step_failed: "failed", step_cancelled: "cancelled" } as const;
    if (event.type === "step_completed" || event.type === "step_failed" || event.type === "step_cancelled")
      Object.assign(visit, { ended: ended[event.type], endedAt: at });
  }
  return visits;
}

/** Whether a visit made the run end, or fell with it: nothing later in the program's past depends on its outcome. */
function isDoomed(visit: Visit, all: readonly Visit[], events: readonly RunEvent[], definition: Definition): boolean {
  if (visit.ended === "succeeded") return false;
  if (visit.ended === "skipped") return visit.reason !== "conditional branch not selected";
  if (all.some((other) => other.instance === visit.instance && other.visit > visit.visit && other.ended !== "skipped"))
    return false;
  const { step, scope } = splitInstance(visit.instance);
  const declared = definition.steps.find(({ id }) => id === step);
  if (visit.ended === "failed" && declared?.failure === "continue_with_error") return false;
  const path = leafPaths(definition.plan).get(step) ?? "";
  return !events.some((event, at) => {
    if (at <= visit.endedAt || event.type !== "phase" || event.name !== "retry_reserved") return false;
    if (readAttemptsKey(event.key)?.instance === visit.instance) return true;
    const retry = readRetryKey(event.key);
    return retry !== undefined && liesBelow(path, retry.path) && liesBelow(scope, retry.scope);
  });
}

function keep(
  event: RunEvent,
  current: ReadonlyMap<string, Visit>,
  started: Set<Visit>,
  doomed: ReadonlySet<Visit>,
  first: boolean,
): readonly EventBody[] {
  const { sequence: _, at_ms: __, woke: ___, ...body } = event;
  if (NOT_COPIED.has(event.type)) return [];
  if (event.type === "run_queued" || event.type === "run_started") return first ? [body] : [];
  if (event.type === "decision")
    return event.key.startsWith("refused:") || event.key.startsWith("cancelled:") ? [] : [body];
  if (event.type === "phase") {
    // The reservation goes with its step, the others with the step they are about.
    if (event.name === "step_reserved" || event.name === "suspension_context_persisted") return [];
    if (event.name === "retry_reserved") return [body];
    const about = current.get(event.instance);
    return about === undefined || doomed.has(about) ? [] : [body];
  }
  const visit = "step_id" in event && event.step_id !== undefined ? current.get(event.step_id) : undefined;
  if (visit === undefined || doomed.has(visit)) return [];
  if (event.type === "step_queued") return [{ type: "phase", name: "step_reserved" }, body];
  if (event.type === "step_started") {
    if (started.has(visit)) return [];
    started.add(visit);
    const { redispatch: _r, grant: _g, ...intent } = event;
    const { sequence: _s, at_ms: _a, woke: _w, ...rest } = intent;
    return [rest];
  }
  return [body];
}
