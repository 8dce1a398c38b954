/** What does the work of a tool step (DESIGN §6, §12). Only `engine/dispatch` calls it. */
import type { Json, JsonObject } from "../domain/json.ts";
import type { SideEffect } from "../domain/run.ts";
import type { Posture } from "./session-store.ts";

export interface ToolDescriptor {
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonObject;
  readonly output_schema?: JsonObject;
  /** Undeclared is mutating. */
  readonly side_effect: SideEffect;
  /** What it can do: `read`, `write`, `shell`, `network`, `agent`, or one of its own. */
  readonly capabilities: readonly string[];
  /** Where it comes from, for `preview` and policy. */
  readonly source: "builtin" | "config" | "code" | "mcp";
  readonly can_lookup: boolean;
  readonly can_observe: boolean;
  /** Its owner plans each dispatch before it is written down, and the hand-over to it is an event of its own (GD-13). */
  readonly can_handoff?: boolean;
}

export interface ToolCall {
  readonly tool: string;
  /** Secrets resolved: in memory only. */
  readonly input: Json;
  /** Idempotency key: SHA-256(run NUL instance NUL attempt). The same on every redispatch. */
  readonly dispatch_id: string;
  /** RP-41's fresh id of this call. */
  readonly tool_call_id: string;
  readonly run_id: string;
  readonly step_id: string;
  readonly attempt: number;
  /** How often this attempt was sent before; 0 the first time. */
  readonly redispatch: number;
  /** Real path of the session's workspace; file tools stay inside it. */
  readonly workspace: string;
  readonly posture: Posture;
  readonly signal: AbortSignal;
  /** A person has approved exactly this call: a tool that asks first (`needs_approval`) now goes on (RP-68). */
  readonly approved?: true;
  /** What `plan` prepared: byte-equal however often it is sent. Only for tools that `can_handoff`. */
  readonly intent?: Json;
  /**
   * Stores proof of acceptance before the work goes on; resolves when it is durable. The same again changes nothing.
   * @throws HoldfastError `conflict` for another receipt of this attempt (kept as evidence), or after it has ended
   */
  readonly receipt: (receipt: Json) => Promise<void>;
  /**
   * Says in which agent session the work goes on (GD-42); resolves when it is durable. The same again changes nothing.
   * @throws HoldfastError `conflict` for another session of this attempt, a session that is another's, or after it ended
   */
  readonly link: (session: { readonly session_id: string; readonly shared?: boolean }) => Promise<void>;
}

/**
 * What a tool said. Anything it throws that is not a `ToolError` is an unknown outcome for a mutating tool and
 * `execution_failed`, retryable, for the others (R-8, RP-41).
 */
export type ToolOutcome =
  | { readonly type: "succeeded"; readonly output: Json }
  | {
      readonly type: "failed";
      /**
       * `not_found` → unknown_reference, `bad_arguments` → invalid_input, else execution_failed (RP-41). `bad_output`:
       * it ran to its end, but its value is not JSON, too large or not as declared → invalid_output (C22).
       * `unavailable`: its owner could not take it, and has accepted nothing (GD-59).
       */
      readonly kind: "not_found" | "bad_arguments" | "bad_output" | "execution" | "unavailable";
      readonly retryable: boolean;
      /** Stays out of failure messages and of everything public; only for the operator's log. */
      readonly message: string;
    }
  /** The tool itself asks a person first (RP-68). */
  | { readonly type: "needs_approval"; readonly prompt?: string }
  /** Detached and still running; `kill` ends it (RP-68, R-34). */
  | { readonly type: "running"; readonly kill: () => Promise<boolean> };

/** What an owner knows of a dispatch. A `receipt` is the one that a lookup found: it is stored before the rest. */
export type OwnerAnswer =
  | { readonly type: "succeeded"; readonly output: Json; readonly receipt?: Json }
  | { readonly type: "failed"; readonly message: string; readonly retryable: boolean; readonly receipt?: Json }
  | { readonly type: "cancelled"; readonly receipt?: Json }
  /** Still at work. */
  | { readonly type: "running"; readonly receipt?: Json }
  /** It cannot say now and will later: nothing changes, and it is asked again (GD-35). */
  | { readonly type: "deferred"; readonly reason: string }
  /** Never heard of it, and from now on this id is refused or deduplicated: safe to send. */
  | { readonly type: "absent" }
  | { readonly type: "unknown"; readonly reason?: string };

/** What an owner makes of a dispatch before anything is written. */
export type OwnerPlan =
  /** `intent` is stored with the attempt and handed over with it. */
  | { readonly type: "ready"; readonly intent: Json }
  /**
   * It takes nothing now: the step stays queued and nothing is written (GD-14). `free` resolves when it may be asked
   * again; without it, and in any case, it is asked again after a while.
   */
  | { readonly type: "busy"; readonly waits_for?: string; readonly free?: Promise<void> };

export interface ToolPort {
  /** The tool by its exact name (case matters, but for the aliases a port documents). */
  describe(name: string): ToolDescriptor | undefined;
  list(): readonly ToolDescriptor[];
  call(call: ToolCall): Promise<ToolOutcome>;
  /** Asks the owner by dispatch id; only for tools that `can_lookup`. */
  lookup(tool: string, query: { dispatch_id: string; input: Json; signal: AbortSignal }): Promise<OwnerAnswer>;
  /** Asks the owner by receipt; only for tools that `can_observe`. */
  observe(tool: string, query: { dispatch_id: string; receipt: Json; signal: AbortSignal }): Promise<OwnerAnswer>;
  /**
   * Plans a dispatch without any side effect; only for tools that `can_handoff`. Secrets are still handles. What it
   * refuses, or throws, fails the step with nothing accepted.
   */
  plan?(
    tool: string,
    query: { dispatch_id: string; input: Json; signal: AbortSignal },
  ): Promise<OwnerPlan | Extract<ToolOutcome, { type: "failed" }>>;
  /** Tells the owner of a dispatch that nobody here is in a call with to stop; repeating it changes nothing (GD-39). */
  cancel?(tool: string, query: { dispatch_id: string; receipt?: Json }): Promise<void>;
  close?(): Promise<void>;
}
