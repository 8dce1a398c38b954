/** How a wait ended, as the journal has it: by whom, when, and with what. */
import type { RunEvent } from "../domain/events.ts";
import type { Json } from "../domain/json.ts";
import type { Wait } from "../domain/run.ts";
import { type AccessContext, needStore } from "./context.ts";
import { readEvents } from "./views.ts";

export interface Closing {
  readonly wait: Wait;
  readonly how:
    | "approved"
    | "denied"
    | "expired"
    | "answered"
    | `repaired as ${"succeeded" | "failed" | "cancelled" | "retry"}`
    | "stopped";
  readonly decided_by?: string;
  readonly at_ms: number;
  /** The answer, or the output that a repair gave. */
  readonly value?: Json;
}

/** Undefined while it is open, and for what is no wait of the run. A wait's id is the sequence that opened it. */
export async function closingOf(context: AccessContext, runId: string, waitId: string): Promise<Closing | undefined> {
  const sequence = Number(/^w-([1-9]\d{0,14})$/.exec(waitId)?.[1] ?? Number.NaN);
  if (Number.isNaN(sequence)) return undefined;
  let wait: Wait | undefined;
  let repaired: Closing | undefined;
  for await (const event of readEvents(needStore(context), runId, sequence - 1)) {
    if (wait === undefined) {
      const opened = "wait" in event ? event.wait : undefined;
      if (opened?.wait_id !== waitId) return undefined;
      wait = opened;
      continue;
    }
    if (repaired !== undefined) {
      // What a repair gave as the output is in the settlement that follows it.
      if (event.type === "run_started") continue;
      return event.type === "step_completed" && event.step_id === wait.step_id
        ? { ...repaired, value: event.output }
        : repaired;
    }
    const closing = closedBy(event, wait);
    if (closing === undefined) continue;
    if (!closing.how.startsWith("repaired")) return closing;
    repaired = closing;
  }
  return repaired;
}

function closedBy(event: RunEvent, wait: Wait): Closing | undefined {
  const { at_ms } = event;
  switch (event.type) {
    case "grant_issued":
      return event.wait_id === wait.wait_id
        ? { wait, how: "approved", decided_by: event.decision.decided_by, at_ms }
        : undefined;
    case "repaired":
      if (event.wait_id !== wait.wait_id) return undefined;
      return { wait, how: `repaired as ${event.resolution}`, decided_by: event.decided_by, at_ms };
    case "wait_closed":
      return event.wait_id === wait.wait_id ? closed(event, wait) : undefined;
    case "step_completed":
    case "step_failed":
    case "step_cancelled":
      return event.step_id === wait.step_id ? { wait, how: "stopped", at_ms } : undefined;
    case "run_succeeded":
    case "run_failed":
    case "run_cancelled":
      return { wait, how: "stopped", at_ms };
    default:
      return undefined;
  }
}

function closed(event: Extract<RunEvent, { type: "wait_closed" }>, wait: Wait): Closing {
  const { at_ms, by, decision, value } = event;
  if (by === "answer")
    return {
      wait,
      how: "answered",
      at_ms,
      ...(event.decided_by === undefined ? {} : { decided_by: event.decided_by }),
      value: value ?? null,
    };
  if (decision === undefined) return { wait, how: "stopped", at_ms };
  return { wait, how: decision.decision, decided_by: decision.decided_by, at_ms };
}

/** The wait that the newest repair of a step ended. */
export async function repairedWait(context: AccessContext, runId: string, stepId: string): Promise<string | undefined> {
  let found: string | undefined;
  for await (const event of readEvents(needStore(context), runId, 0))
    if (event.type === "repaired" && event.step_id === stepId) found = event.wait_id;
  return found;
}
