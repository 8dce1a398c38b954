/** What does the work of an agent step. The real workers come later; tests and demonstrations script it. */
import type { Json, JsonObject } from "../domain/json.ts";

/** An agent as resolved once in preflight (RP-43). */
export interface AgentProfile {
  readonly name: string;
  readonly capabilities: readonly string[];
  readonly output_schema?: JsonObject;
  /** False: no price is known, so a finite cost budget that someone asked for refuses it. */
  readonly priced: boolean;
}

/** The most one attempt can take; absent: not known, so everything that is left is reserved. */
export interface AgentEstimate {
  readonly tokens?: number;
  readonly cost_micros?: number;
}

export interface AgentCall {
  readonly agent: string;
  readonly prompt: Json;
  readonly model?: string;
  readonly effort?: string;
  readonly output_schema?: JsonObject;
  readonly dispatch_id: string;
  readonly run_id: string;
  readonly step_id: string;
  readonly attempt: number;
  /** 1-based try at a value that fits the schema (`structured_output_attempts`). */
  readonly output_attempt: number;
  readonly workspace: string;
  readonly signal: AbortSignal;
}

export interface AgentUsage {
  readonly tokens: number;
  /** `null`: not measured. */
  readonly cost_micros: number | null;
}

export interface AgentOutcome {
  /** `stopped`: the abort signal was heard and the agent has ended. */
  readonly type: "succeeded" | "failed" | "stopped";
  readonly output?: Json;
  readonly message?: string;
  /** Absent: could not be observed (RP-44). */
  readonly usage?: AgentUsage;
}

export interface AgentPort {
  resolve(name: string): Promise<AgentProfile | undefined>;
  estimate(call: Omit<AgentCall, "signal" | "dispatch_id">): Promise<AgentEstimate>;
  call(call: AgentCall): Promise<AgentOutcome>;
}
