/**
 * The journal's events (DESIGN §4, R-22). An event is stored as one canonical JSON line; `run_id` belongs to
 * the journal and is not repeated. Names are RP's; payload fields beyond RP's carry what replay needs.
 *
 * Rules that replay relies on:
 * - `visit` counts how often the program entered a place; (step instance, visit) finds a recorded outcome.
 * - `woke` lists retry delays delivered to the program just before this event: their due time is known from
 *   `retry_reserved`, and that they were *delivered* matters only once something was recorded after it.
 * - A `step_started` that is followed by `step_suspended` is no intent.
 */
import type { Json } from "./json.ts";
import type { Decision, Failure, SideEffect, StopReason, Wait } from "./run.ts";

export interface EventBase {
  /** 1, 2, 3 … without a gap. */
  readonly sequence: number;
  readonly at_ms: number;
  readonly woke?: readonly string[];
}

/** Public phase names (RP-73); any other is published as `workflow_progressed`. */
export const PUBLIC_PHASES = [
  "retry_reserved",
  "step_reserved",
  "agent_reserved",
  "agent_usage_recorded",
  "suspension_context_persisted",
] as const;

export type PhaseBody =
  /** One step of the tree's budget is consumed (RP-26); the `step_queued` after it is in the same append. */
  | { readonly type: "phase"; readonly name: "step_reserved" }
  /** One retry is consumed; `key` names the retry node's visit, `due_at_ms` when the next attempt may go (R-2d). */
  | {
      readonly type: "phase";
      readonly name: "retry_reserved";
      readonly key: string;
      readonly due_at_ms: number;
    }
  /** One agent is consumed, tokens and money are reserved. */
  | {
      readonly type: "phase";
      readonly name: "agent_reserved";
      readonly instance: string;
      readonly tokens?: number;
      readonly cost_micros?: number;
    }
  /** The reservation of `instance` is settled: spent is booked, the rest is freed (RP-27). `null`: not measured. */
  | {
      readonly type: "phase";
      readonly name: "agent_usage_recorded";
      readonly instance: string;
      readonly tokens: number;
      readonly cost_micros: number | null;
      readonly estimated?: true;
    }
  | { readonly type: "phase"; readonly name: "suspension_context_persisted"; readonly instance: string };

/** The intent: what will be dispatched, written before it is (DESIGN §4). */
export interface StepStarted {
  readonly type: "step_started";
  readonly step_id: string;
  readonly attempt: number;
  readonly side_effect: SideEffect;
  readonly input_hash: string;
  /** Resolved input, secret handles still handles. */
  readonly input?: Json;
  readonly tool?: string;
  /** What the tool's owner planned for it (GD-13); only where the owner plans. */
  readonly intent?: Json;
  /** How often recovery has sent this attempt again. */
  readonly redispatch?: number;
  /** The wait whose grant this dispatch consumes. */
  readonly grant?: string;
}

export type EventBody =
  | { readonly type: "run_queued" }
  | { readonly type: "run_started" }
  | PhaseBody
  | { readonly type: "step_queued"; readonly step_id: string; readonly visit: number }
  | StepStarted
  | {
      readonly type: "step_suspended";
      readonly step_id: string;
      readonly reason: string;
      /** Absent for recovery, which is a wait of the run and not of one step. */
      readonly wait?: Wait;
    }
  | { readonly type: "step_completed"; readonly step_id: string; readonly output: Json }
  | {
      readonly type: "step_failed";
      readonly step_id: string;
      readonly failure: Failure;
      /** For leaves that were never entered (RP-51). */
      readonly visit?: number;
      /** What the tool itself said: for the operator only, never part of a failure message (RP-41). */
      readonly detail?: string;
    }
  | {
      readonly type: "step_cancelled";
      readonly step_id: string;
      readonly visit?: number;
      /** On the first of a fail-fast group: the program's key of that cancellation. */
      readonly by?: string;
    }
  | { readonly type: "step_skipped"; readonly step_id: string; readonly visit: number; readonly reason: string }
  | { readonly type: "run_suspended"; readonly reason: string; readonly wait?: Wait }
  | { readonly type: "run_succeeded"; readonly output: Json }
  | { readonly type: "run_failed"; readonly failure: Failure }
  | {
      readonly type: "run_cancelled";
      readonly reason?: string;
      readonly decided_by?: string;
      /** When the cancel that ended it was asked for. */
      readonly requested_at_ms?: number;
    }
  // Beyond RP; each is published as the phase `workflow_progressed`.
  | { readonly type: "decision"; readonly key: string; readonly value: Json }
  | { readonly type: "handed_off"; readonly step_id: string }
  | { readonly type: "receipt"; readonly step_id: string; readonly receipt: Json }
  | { readonly type: "wait_opened"; readonly step_id: string; readonly visit: number; readonly wait: Wait }
  | { readonly type: "wait_warned"; readonly wait_id: string }
  | {
      readonly type: "wait_closed";
      readonly wait_id: string;
      /** What ended it: a decision, an answered value, the time, or the end of its step or run. */
      readonly by: "decision" | "answer" | "timer" | "expiry" | "stop" | "resume" | "repair";
      readonly decision?: Decision;
      readonly value?: Json;
      readonly decided_by?: string;
    }
  | { readonly type: "grant_issued"; readonly wait_id: string; readonly digest: string; readonly decision: Decision }
  | { readonly type: "child_linked"; readonly step_id: string; readonly child_run_id: string }
  | {
      readonly type: "cancel_requested";
      readonly stop_reason: StopReason;
      readonly reason?: string;
      readonly decided_by?: string;
      readonly requested_at_ms?: number;
    }
  | {
      readonly type: "repaired";
      readonly step_id: string;
      readonly wait_id: string;
      readonly resolution: "succeeded" | "failed" | "cancelled" | "retry";
      readonly message?: string;
      readonly decided_by: string;
    }
  | { readonly type: "late_result"; readonly step_id: string; readonly attempt: number; readonly result: Json }
  | { readonly type: "budget_raised"; readonly budget: Json; readonly decided_by: string };

export type RunEvent = EventBase & EventBody;
export type EventType = RunEvent["type"];

/** RP's 14 kinds, in RP's order. */
export const RP_EVENT_TYPES = [
  "run_queued",
  "run_started",
  "phase",
  "step_queued",
  "step_started",
  "step_suspended",
  "step_completed",
  "step_failed",
  "step_cancelled",
  "step_skipped",
  "run_suspended",
  "run_succeeded",
  "run_failed",
  "run_cancelled",
] as const satisfies readonly EventType[];

export const TERMINAL_EVENT_TYPES: readonly EventType[] = ["run_succeeded", "run_failed", "run_cancelled"];
