/** Who may do what (DESIGN §11, RP-19, RP-20, R-34). Asked in preflight and again at every dispatch. */
import type { SideEffect } from "../domain/run.ts";
import type { Posture } from "./session-store.ts";

export interface PolicyRequest {
  readonly kind: "tool" | "agent";
  readonly target: string;
  /** Capabilities that the step declares. */
  readonly declared: readonly string[];
  /** Capabilities that the tool has; a declaration never authorises. */
  readonly capabilities: readonly string[];
  readonly side_effect: SideEffect;
  readonly trusted: boolean;
  readonly posture: Posture;
}

export type PolicyAnswer =
  | { readonly decision: "allow" }
  | { readonly decision: "ask"; readonly reason: string }
  | {
      readonly decision: "deny";
      readonly reason: string;
      /** `plan_mode` blocks before dispatch as execution_failed, not retryable (RP-21). */
      readonly cause: "trust" | "capability" | "policy" | "plan_mode";
    };

export interface PolicyPort {
  /** Part of the approval digest: changes when the rules change. */
  readonly fingerprint: string;
  decide(request: PolicyRequest): PolicyAnswer;
}
