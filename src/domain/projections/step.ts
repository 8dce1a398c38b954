/** One step in full, for the operator: its tries are the fold of its events, so nothing of them is kept in the state. */
import type { RunEvent } from "../events.ts";
import { dispatchId } from "../journal.ts";
import type { Json } from "../json.ts";
import type { Failure } from "../run.ts";
import type { StepState } from "../state.ts";
import type { StepDetail } from "./types.ts";
import { fullFailure } from "./values.ts";

type Shown = StepDetail["tries"][number];
type Try = { -readonly [field in keyof Shown]: Shown[field] };

/**
 * @param events the run's events in order; those of other steps are passed over
 * @param step the step as the run's state has it
 */
export function stepDetail(run_id: string, events: Iterable<RunEvent>, step: StepState): StepDetail {
  const tries: Try[] = [];
  let input: Json | undefined;
  for (const event of events) {
    if (!("step_id" in event) || event.step_id !== step.id) continue;
    if (event.type === "step_started" && event.input !== undefined) input = event.input;
    foldTry(tries, run_id, event);
  }
  return {
    id: step.id,
    status: step.status,
    attempts: step.attempts,
    input_hash: step.input_hash,
    ...(step.tool === undefined ? {} : { tool: step.tool }),
    ...(step.side_effect === undefined ? {} : { side_effect: step.side_effect }),
    ...(input === undefined ? {} : { input }),
    ...(step.output === undefined ? {} : { output: step.output }),
    ...(step.failure === undefined ? {} : { failure: fullFailure(step.failure) }),
    ...(step.child_run_id === undefined ? {} : { child_run_id: step.child_run_id }),
    tries,
  };
}

type StepEvent = Extract<RunEvent, { step_id: string }>;

function foldTry(tries: Try[], run_id: string, event: StepEvent): void {
  const last = tries.at(-1);
  const open = last !== undefined && last.ended_at_ms === undefined ? last : undefined;
  switch (event.type) {
    case "step_started":
      // after a wait or a crash the same attempt goes on.
      if (open?.attempt === event.attempt) {
        delete open.outcome;
        open.redispatches = Math.max(open.redispatches, event.redispatch ?? 0);
      } else tries.push(newTry(run_id, event));
      return;
    case "receipt":
      if (open !== undefined) open.receipt = event.receipt;
      return;
    case "step_suspended":
    case "wait_opened":
      if (open !== undefined) open.outcome = "suspended";
      return;
    case "repaired":
      // The attempt is given up as it stands; the next one has a new number.
      if (open !== undefined && event.resolution === "retry") open.ended_at_ms = event.at_ms;
      return;
    case "step_completed":
      return end(open, event.at_ms, "succeeded");
    case "step_cancelled":
      return end(open, event.at_ms, "cancelled");
    case "step_failed":
      return end(open, event.at_ms, "failed", event.failure, event.detail);
    default:
      return;
  }
}

function newTry(run_id: string, event: Extract<StepEvent, { type: "step_started" }>): Try {
  return {
    attempt: event.attempt,
    dispatch_id: dispatchId(run_id, event.step_id, event.attempt),
    started_at_ms: event.at_ms,
    redispatches: event.redispatch ?? 0,
  };
}

/** A step may also settle with no try open: refused by its budget, or never entered (RP-51). */
function end(
  open: Try | undefined,
  atMs: number,
  outcome: NonNullable<Try["outcome"]>,
  failure?: Failure,
  detail?: string,
): void {
  if (open === undefined) return;
  open.ended_at_ms = atMs;
  open.outcome = outcome;
  if (failure !== undefined) open.failure = fullFailure(failure);
  if (detail !== undefined) open.detail = detail;
}
