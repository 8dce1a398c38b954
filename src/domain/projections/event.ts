/** Journal events as they are shown: the public form without outputs and reasons (RP-73), and the operator's whole. */
import { type EventType, PUBLIC_PHASES, RP_EVENT_TYPES, type RunEvent } from "../events.ts";
import type { Json } from "../json.ts";
import type { OperatorEvent, PublicEvent } from "./types.ts";
import { publicFailure, rfc3339 } from "./values.ts";

const RP_TYPES: ReadonlySet<EventType> = new Set(RP_EVENT_TYPES);
const PHASES: ReadonlySet<string> = new Set(PUBLIC_PHASES);
/** What every phase and every event type beyond RP's 14 is called in public, unless RP-73 lists its name. */
const PROGRESSED = "workflow_progressed";

/** RP-73, R-22: every sequence is kept, so a reader never sees a gap. */
export function publicEvent(run_id: string, event: RunEvent): PublicEvent {
  const step_id = stepOf(event);
  return {
    run_id,
    sequence: event.sequence,
    at: rfc3339(event.at_ms),
    ...(step_id === undefined ? {} : { step_id }),
    ...kindOf(event),
  };
}

function kindOf(event: RunEvent): Pick<PublicEvent, "type" | "name" | "failure"> {
  if (event.type === "phase") return { type: "phase", name: PHASES.has(event.name) ? event.name : PROGRESSED };
  if (!RP_TYPES.has(event.type)) return { type: "phase", name: PROGRESSED };
  if (event.type === "step_failed" || event.type === "run_failed")
    return { type: event.type, failure: publicFailure(event.failure) };
  return { type: event.type };
}

function stepOf(event: RunEvent): string | undefined {
  if ("step_id" in event) return event.step_id;
  return "instance" in event ? event.instance : undefined;
}

/** The event as it was written, its time in RFC 3339 as `at`. */
export function operatorEvent(run_id: string, event: RunEvent): OperatorEvent {
  const { sequence, at_ms, type, ...payload } = event;
  return { run_id, sequence, at: rfc3339(at_ms), type, ...(payload as unknown as { readonly [field: string]: Json }) };
}
