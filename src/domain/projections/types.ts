/**
 * What is shown of a run (interfaces §1, R-27): the wire shapes of the public projection, which a model or an
 * untrusted client may see, and of the operator's. Only this room builds them.
 */
import type { Json } from "../json.ts";
import type { PublicPlan } from "../plan/walk.ts";
import type {
  Budgets,
  DefinitionKind,
  Failure,
  RunStatus,
  SideEffect,
  StepStatus,
  Usage,
  Wait,
  WaitType,
} from "../run.ts";

export type { PublicPlan } from "../plan/walk.ts";

export const ACTION_NAMES = [
  "cancel",
  "pause",
  "resume",
  "restart",
  "retry",
  "fork",
  "approve",
  "deny",
  "answer",
  "repair",
  "raise_budget",
] as const;
export type ActionName = (typeof ACTION_NAMES)[number];

/** What may be done now; every name is always present, in the order above. */
export interface Action {
  readonly name: ActionName;
  readonly allowed: boolean;
  /** Why not; present exactly when it is refused. */
  readonly reason?: string;
  readonly wait_id?: string;
}

export interface PublicFailure {
  readonly code: Failure["code"];
  readonly message: string;
  readonly retryable: boolean;
}

export interface PublicWait {
  readonly wait_id: string;
  readonly type: WaitType;
  readonly run_id: string;
  readonly step_id?: string;
  readonly since_ms: number;
  readonly due_at_ms?: number;
  readonly deadline_at_ms?: number;
  readonly warn_at_ms?: number;
}

export type PublicSuspension =
  | { readonly type: "tool_approval"; readonly step_id: string }
  | { readonly type: "tool_running"; readonly step_id: string; readonly killed: boolean }
  | { readonly type: "recovery" }
  | {
      readonly type: Exclude<WaitType, "tool_approval" | "tool_running" | "recovery">;
      readonly step_id?: string;
      readonly wait_id: string;
    };

export interface PublicStep {
  readonly id: string;
  readonly status: StepStatus;
  readonly failure?: PublicFailure;
  readonly attempts: number;
}

/** RP-69's fields, then `actions` and `waits`: what a model, an observer and every single-run route may see. */
export interface PublicRun {
  readonly run_id: string;
  readonly parent_run_id?: string;
  readonly parent_step_id?: string;
  readonly session_id: string;
  readonly workflow_id: string;
  readonly workflow_revision: number;
  readonly definition_bundle_hash: string;
  readonly status: RunStatus;
  readonly can_cancel: boolean;
  readonly can_restart_as_new_run: boolean;
  readonly planned_steps: readonly { readonly id: string; readonly kind: string }[];
  readonly plan: PublicPlan;
  readonly steps: readonly PublicStep[];
  readonly budget: Budgets;
  readonly usage: Usage;
  readonly child_agent_count: number;
  readonly last_sequence: number;
  readonly failure?: PublicFailure;
  readonly suspension?: PublicSuspension;
  readonly created_at: string;
  readonly updated_at: string;
  readonly actions: readonly Action[];
  readonly waits: readonly PublicWait[];
}

/** The operator's form. */
export interface Run extends Omit<PublicRun, "waits"> {
  readonly kind: DefinitionKind;
  readonly root_run_id: string;
  readonly args: Json;
  readonly output?: Json;
  readonly failure?: Failure;
  readonly waits: readonly Wait[];
}

export interface RunSummary {
  readonly run_id: string;
  readonly parent_run_id?: string;
  readonly session_id: string;
  readonly workflow_id: string;
  readonly workflow_revision: number;
  readonly kind: DefinitionKind;
  readonly status: RunStatus;
  readonly suspension?: WaitType;
  readonly wait_count: number;
  readonly usage: Usage;
  readonly last_sequence: number;
  readonly created_at: string;
  readonly updated_at: string;
}

/** One step in full, for the operator. */
export interface StepDetail extends PublicStep {
  readonly failure?: Failure;
  readonly tool?: string;
  readonly side_effect?: SideEffect;
  readonly input?: Json;
  readonly input_hash: string;
  readonly output?: Json;
  readonly child_run_id?: string;
  readonly tries: readonly {
    readonly attempt: number;
    readonly dispatch_id: string;
    readonly started_at_ms: number;
    readonly ended_at_ms?: number;
    readonly redispatches: number;
    readonly outcome?: "succeeded" | "failed" | "cancelled" | "suspended";
    readonly failure?: Failure;
    /** What the tool itself said of its failure (RP-41: never part of the failure's message). */
    readonly detail?: string;
    readonly receipt?: Json;
  }[];
}

/**
 * One try at a step by a tool or an agent (interfaces §3 `R/attempts`). GD's words read through R-19: prepared,
 * admitted and cancelling are `running` with that stage, waiting for repair is `suspended`, abandoned is `failed`.
 */
export interface AttemptSummary {
  readonly step_id: string;
  readonly attempt: number;
  readonly dispatch_id: string;
  readonly side_effect: SideEffect;
  readonly tool?: string;
  readonly status: "running" | "suspended" | "succeeded" | "failed" | "cancelled";
  readonly stage?: "prepared" | "admitted" | "cancelling" | "abandoned";
  readonly has_receipt: boolean;
  /** The agent session in which its work goes on, where its owner has said so (GD-42). */
  readonly session_id?: string;
  /** How often recovery has sent it again. */
  readonly redispatches: number;
  readonly prepared_at_ms: number;
  /** When its owner's receipt was stored. */
  readonly admitted_at_ms?: number;
  readonly terminal_at_ms?: number;
}

/** GD-73's five, and what keeps a journal from being read at all. */
export const FINDING_CODES = [
  "repair_status_mismatch",
  "invalid_grant",
  "orphaned_attempt",
  "activation_output_mismatch",
  "attempt_identity_mismatch",
  "journal_unreadable",
] as const;
export type FindingCode = (typeof FINDING_CODES)[number];

/** One thing that is wrong with a run, and what to do about it. */
export interface Finding {
  readonly code: FindingCode;
  readonly message: string;
  readonly guidance: string;
  readonly run_id: string;
  readonly step_id?: string;
  readonly attempt?: number;
  readonly dispatch_id?: string;
  readonly wait_id?: string;
}

/** RP's event in the operator's form: payloads included, `at` in RFC 3339. */
export type OperatorEvent = {
  readonly run_id: string;
  readonly sequence: number;
  readonly at: string;
  readonly type: string;
} & { readonly [field: string]: Json };

/** RP-73: no outputs, no reasons. */
export interface PublicEvent {
  readonly run_id: string;
  readonly sequence: number;
  readonly at: string;
  readonly step_id?: string;
  readonly type: string;
  readonly name?: string;
  readonly failure?: PublicFailure;
}

export interface Why {
  readonly run_id: string;
  readonly status: RunStatus;
  readonly sentence: string;
  readonly causes: readonly {
    readonly cause: string;
    readonly sentence: string;
    readonly step_id?: string;
    readonly wait_id?: string;
    readonly until_ms?: number;
    readonly ends_by: readonly ActionName[];
  }[];
}
