/** The words of a run: statuses, failures, usage, budgets, waits (DESIGN §2, RP §2). */
import type { RetryKind } from "./backoff.ts";
import type { Json } from "./json.ts";

export type RunStatus = "queued" | "running" | "suspended" | "succeeded" | "failed" | "cancelled";
export type StepStatus = RunStatus | "skipped";
export type TerminalStatus = "succeeded" | "failed" | "cancelled";
export type DefinitionKind = "plan" | "graph" | "script";
export type SideEffect = "read_only" | "idempotent" | "mutating";
export type Durability = "standard" | "strict";

export const RUN_STATUSES: readonly RunStatus[] = [
  "queued",
  "running",
  "suspended",
  "succeeded",
  "failed",
  "cancelled",
];

export function isTerminal(status: RunStatus): status is TerminalStatus {
  return status === "succeeded" || status === "failed" || status === "cancelled";
}

/** Codes are data of runs and steps (RP §2), never errors of an operation. */
export type FailureCode =
  | "invalid_definition"
  | "invalid_input"
  | "invalid_output"
  | "unknown_reference"
  | "permission_denied"
  | "untrusted_workspace"
  | "budget_exceeded"
  | "retry_exhausted"
  | "execution_failed"
  | "cancelled"
  | "recovery_suspended"
  | "suspended"
  | "dependency_skipped"
  | "storage";

export interface Failure {
  readonly code: FailureCode;
  readonly message: string;
  readonly retryable: boolean;
  /** What a step's own retry policy goes by (GD-59); only failures of steps that have one carry it. */
  readonly kind?: RetryKind;
}

export function failure(code: FailureCode, message: string, retryable = false): Failure {
  return { code, message, retryable };
}

/** Spent so far. `cost_micros` is millionths of a currency unit; `null` means not measured. */
export interface Usage {
  readonly steps: number;
  readonly retries: number;
  readonly agents: number;
  readonly tokens: number;
  readonly cost_micros: number | null;
}

export const NO_USAGE: Usage = { steps: 0, retries: 0, agents: 0, tokens: 0, cost_micros: 0 };

export interface Budgets {
  readonly max_concurrency: number;
  readonly max_agents: number;
  readonly max_steps: number;
  readonly max_retries: number;
  readonly max_nesting_depth: number;
  readonly wall_time_ms: number;
  readonly max_tokens?: number;
  readonly max_cost_micros?: number;
  /** What a used-up limit does: fail what asked for more (default), or suspend the run until it is raised (DESIGN §6). */
  readonly on_exhausted?: "fail" | "suspend";
}

/** The limits that are numbers. */
export type Limits = Omit<Budgets, "on_exhausted">;

/** RP's defaults for plans (RP §2, R-33). */
export const DEFAULT_BUDGETS: Budgets = {
  max_concurrency: 4,
  max_agents: 8,
  max_steps: 256,
  max_retries: 8,
  max_nesting_depth: 4,
  wall_time_ms: 900_000,
};

/** Ceilings for model-started runs and untrusted workspaces (RP §2, R-15). */
export const UNTRUSTED_CEILINGS: Required<Limits> = {
  max_concurrency: 8,
  max_agents: 16,
  max_steps: 512,
  max_retries: 16,
  max_nesting_depth: 8,
  wall_time_ms: 3_600_000,
  max_tokens: 2_000_000,
  max_cost_micros: 100_000_000,
};

export const BUDGET_FIELDS = [
  "max_concurrency",
  "max_agents",
  "max_steps",
  "max_retries",
  "max_nesting_depth",
  "wall_time_ms",
  "max_tokens",
  "max_cost_micros",
] as const satisfies readonly (keyof Limits)[];

/** What only the outside can end (DESIGN §2). */
export const WAIT_TYPES = [
  "recovery",
  "tool_approval",
  "tool_running",
  "approval",
  "input",
  "timer",
  "repair",
  "budget",
  "paused",
  "child",
] as const;
export type WaitType = (typeof WAIT_TYPES)[number];

/** A decision of a person, or of time, on an approval. */
export interface Decision {
  readonly approved: boolean;
  readonly decision: "approved" | "denied" | "expired";
  readonly decided_by: string;
  readonly decided_at_ms: number;
  readonly reason?: string;
}

/** What is known of a dispatch whose outcome is not (GD-74, interfaces §1 `RepairEvidence`). */
export interface RepairEvidence {
  readonly dispatch_id: string;
  readonly tool: string;
  readonly input_hash: string;
  readonly attempt: number;
  readonly started_at_ms: number;
  readonly receipt?: Json;
  /** What the owner answered when asked: `absent`, `unknown`, or why it could not be asked. */
  readonly lookup?: string;
  readonly late_results: readonly Json[];
}

/** An open wait, in the operator's form (interfaces §1); stored in the journal as it was opened. */
export interface Wait {
  /** `w-` and the sequence at which it was opened: unique within the run, the same on every replay. */
  readonly wait_id: string;
  readonly type: WaitType;
  readonly run_id: string;
  readonly step_id?: string;
  readonly since_ms: number;
  readonly due_at_ms?: number;
  readonly deadline_at_ms?: number;
  readonly warn_at_ms?: number;
  readonly warned?: true;
  /** Decided in favour, not dispatched yet: one grant serves one dispatch. */
  readonly granted?: Decision;
  readonly prompt?: string;
  readonly details?: Json;
  readonly tool?: string;
  readonly tool_call_id?: string;
  readonly killed?: boolean;
  readonly input?: Json;
  readonly side_effect?: SideEffect;
  readonly capabilities?: readonly string[];
  readonly schema?: Json;
  readonly outcome?: "value";
  readonly digest?: string;
  readonly reason?: string;
  /** What the run was doing when a mutating dispatch outlived its stop. */
  readonly stop_reason?: StopReason;
  readonly evidence?: RepairEvidence;
  readonly child_run_id?: string;
  // Beside the wait wherever an operator sees it; never stored with it.
  /** Who started the run that asks: `os:USER`, `token:NAME`, `mcp:CLIENT`. */
  readonly started_by?: string;
  readonly origin?: RunHeader["origin"];
  readonly workspace?: string;
  /** Of a wait for a child run: what that run and those below it wait for, oldest first. */
  readonly child_waits?: readonly Wait[];
}

/** Nothing of it could begin, and it is tried again by itself (GD-27): no person is asked. */
export function isLetGo(wait: Wait): boolean {
  return wait.type === "recovery" && wait.due_at_ms !== undefined;
}

/** Whether a wait ends without anybody's doing: by time, or as a child run goes on. */
export function endsByItself(wait: Wait): boolean {
  return wait.type === "timer" || wait.type === "child" || isLetGo(wait);
}

/** Why a run tree is being stopped. */
export type StopReason = "cancelled" | "timeout" | "sibling_failed" | "paused" | "step_timeout";

/** What a run is, fixed at its creation; the journal's hash chain starts from it. */
export interface RunHeader {
  readonly run_id: string;
  readonly root_run_id: string;
  readonly parent_run_id?: string;
  /** Instance id of the parent's step. */
  readonly parent_step_id?: string;
  readonly session_id: string;
  readonly kind: DefinitionKind;
  readonly workflow_id: string;
  readonly workflow_revision: number;
  readonly bundle_hash: string;
  /** Absent when stored as an artifact under `args_hash`. */
  readonly args?: Json;
  readonly args_hash: string;
  /** Effective limits: the definition's, tightened by the caller and by ceilings. */
  readonly budget: Budgets;
  readonly created_at_ms: number;
  /** Nesting depth; a root is 0. */
  readonly depth: number;
  /** Replay-visible behaviour of the engine that started it. */
  readonly engine_version: number;
  readonly durability: Durability;
  /** Who asked: a person or program (`explicit`), or a model through a tool (`automatic`). */
  readonly origin: "explicit" | "automatic";
  /** Whose wish that was: `os:USER`, `token:NAME`, `mcp:CLIENT`. Children have their root's. */
  readonly started_by?: string;
  /** The run that this one was made from, and how. */
  readonly made_from?: { readonly run_id: string; readonly how: "restart" | "retry" | "fork" };
}
