/**
 * The attempts of a run as the fold of its events (GD-13 … GD-24 read through ). What was started
 * and then asked about is no intent, and a wait or a child run is no dispatch: neither is an attempt.
 */
import type { RunEvent } from "../events.ts";
import { dispatchId } from "../journal.ts";
import type { AttemptSummary } from "./types.ts";

export interface FoldedAttempt extends AttemptSummary {
  /** Sequence of the `step_started` that made it: its place among the others. */
  readonly sequence: number;
}

type Folded = { -readonly [field in keyof FoldedAttempt]: FoldedAttempt[field] };

export class AttemptFold {
  readonly #runId: string;
  readonly #found = new Map<number, Folded>();
  /** The newest attempt of each step that is still open. */
  readonly #open = new Map<string, Folded>();

  constructor(runId: string) {
    this.#runId = runId;
  }

  /** In the order they were prepared. */
  get attempts(): readonly FoldedAttempt[] {
    return [...this.#found.values()];
  }

  get size(): number {
    return this.#found.size;
  }

  /** Whether the first `count` of them have ended. */
  settled(count: number): boolean {
    if (this.#open.size === 0) return true;
    let seen = 0;
    for (const attempt of this.#found.values()) {
      if (seen++ >= count) return true;
      if (attempt.terminal_at_ms === undefined) return false;
    }
    return true;
  }

  add(event: RunEvent): void {
    switch (event.type) {
      case "step_started":
        return this.#start(event);
      case "receipt":
        return this.#change(event.step_id, (open) =>
          Object.assign(
            open,
            { has_receipt: true, admitted_at_ms: event.at_ms },
            open.stage === "prepared" ? { stage: "admitted" } : {},
          ),
        );
      case "cancel_requested":
        for (const open of this.#open.values()) if (open.status === "running") open.stage = "cancelling";
        return;
      case "wait_opened":
      case "child_linked":
        return this.#drop(event.step_id);
      case "step_suspended":
        if (event.wait?.type === "tool_approval") return this.#drop(event.step_id);
        if (event.wait?.type === "child") return this.#drop(event.step_id);
        return this.#change(event.step_id, (open) => {
          open.status = "suspended";
          delete open.stage;
        });
      case "repaired":
        // GD-74: given up as it stands; the next attempt has a new number and so a new key.
        if (event.resolution !== "retry") return;
        return this.#end(event.step_id, event.at_ms, "failed", "abandoned");
      case "step_completed":
        return this.#end(event.step_id, event.at_ms, "succeeded");
      case "step_failed":
        return this.#end(event.step_id, event.at_ms, "failed");
      case "step_cancelled":
        return this.#end(event.step_id, event.at_ms, "cancelled");
      default:
        return;
    }
  }

  #start(event: Extract<RunEvent, { type: "step_started" }>): void {
    const open = this.#open.get(event.step_id);
    if (open !== undefined && open.attempt === event.attempt) {
      open.status = "running";
      open.stage = open.has_receipt ? "admitted" : "prepared";
      open.redispatches = Math.max(open.redispatches, event.redispatch ?? 0);
      return;
    }
    // Sent again: its beginning lies before what is read here, on an earlier page.
    if ((event.redispatch ?? 0) > 0) return;
    const made: Folded = {
      sequence: event.sequence,
      step_id: event.step_id,
      attempt: event.attempt,
      dispatch_id: dispatchId(this.#runId, event.step_id, event.attempt),
      side_effect: event.side_effect,
      ...(event.tool === undefined ? {} : { tool: event.tool }),
      status: "running",
      stage: "prepared",
      has_receipt: false,
      redispatches: 0,
      prepared_at_ms: event.at_ms,
    };
    this.#found.set(event.sequence, made);
    this.#open.set(event.step_id, made);
  }

  #change(stepId: string, change: (open: Folded) => void): void {
    const open = this.#open.get(stepId);
    if (open !== undefined) change(open);
  }

  #drop(stepId: string): void {
    const open = this.#open.get(stepId);
    if (open === undefined) return;
    this.#open.delete(stepId);
    this.#found.delete(open.sequence);
  }

  #end(stepId: string, atMs: number, status: Folded["status"], stage?: Folded["stage"]): void {
    const open = this.#open.get(stepId);
    if (open === undefined) return;
    this.#open.delete(stepId);
    open.status = status;
    open.terminal_at_ms = atMs;
    if (stage === undefined) delete open.stage;
    else open.stage = stage;
  }
}
