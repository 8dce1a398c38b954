/** Shapes of a plan definition (RP §2 with the lifts of ). Defaults are filled by the compiler. */
import type { RetryPolicy } from "../backoff.ts";
import type { Json, JsonObject } from "../json.ts";
import type { Budgets } from "../run.ts";

/** JSON Schema in the subset of RP-2 and DESIGN §8. */
export type Schema = JsonObject;

export type FailurePolicy = "fail_fast" | "continue_with_error" | "skip_dependents";

interface StepBase {
  readonly id: string;
  readonly failure: FailurePolicy;
  readonly output_schema?: Schema;
}

/** A resource of the workspace that a step needs while it is at work: readers share it, a writer excludes (GD-53). */
export interface Claim {
  /** Its name, or a reference to it. */
  readonly resource: Json;
  readonly access: "read" | "write";
}

export interface ToolStep extends StepBase {
  readonly type: "tool";
  readonly tool: string;
  readonly args: Json;
  readonly capabilities: readonly string[];
  readonly timeout_ms?: number;
  readonly resources?: readonly Claim[];
  /** Failed attempts that are made again by themselves (GD-59). */
  readonly retry?: RetryPolicy;
}

export interface AgentStep extends StepBase {
  readonly type: "agent";
  readonly agent: string;
  readonly prompt: Json;
  readonly model?: string;
  readonly effort?: string;
  readonly capabilities: readonly string[];
  readonly structured_output_attempts: number;
  readonly timeout_ms?: number;
}

export interface WorkflowStep extends StepBase {
  readonly type: "workflow";
  readonly workflow_id: string;
  readonly revision: number;
  readonly args: Json;
}

export interface ApprovalStep extends StepBase {
  readonly type: "approval";
  readonly prompt: string;
  readonly details?: Json;
  readonly deadline_ms?: number;
  readonly warn_ms?: number;
  readonly outcome?: "value";
}

export interface InputStep extends StepBase {
  readonly type: "input";
  readonly prompt: string;
  readonly schema: Schema;
  readonly details?: Json;
  readonly deadline_ms?: number;
  readonly warn_ms?: number;
}

/** Exactly one of `for_ms` and `until` (epoch ms or RFC 3339 text, or a reference to either). */
export interface WaitStep extends StepBase {
  readonly type: "wait";
  readonly for_ms?: Json;
  readonly until?: Json;
}

export type Step = ToolStep | AgentStep | WorkflowStep | ApprovalStep | InputStep | WaitStep;

export type ValueRef =
  | { readonly from: "args"; readonly pointer?: string }
  | { readonly from: "step"; readonly step: string; readonly pointer?: string }
  | { readonly from: "item"; readonly name: string; readonly pointer?: string }
  | { readonly from: "literal"; readonly value: Json }
  /** Builds an object whose fields are templates; the only way to have a `from` key. */
  | { readonly from: "object"; readonly fields: { readonly [name: string]: Json } };

/** A choice condition: a boolean reference, or a predicate over one. */
export type Condition = ValueRef | { readonly from: "test"; readonly of: ValueRef; readonly predicate: JsonObject };

export type Plan =
  | { readonly type: "step"; readonly step: string }
  | { readonly type: "sequence"; readonly nodes: readonly Plan[] }
  | { readonly type: "parallel"; readonly id?: string; readonly nodes: readonly Plan[] }
  | {
      readonly type: "choice";
      readonly id?: string;
      readonly condition: Condition;
      readonly then_branch: Plan;
      readonly else_branch: Plan;
    }
  | {
      readonly type: "map";
      readonly id?: string;
      readonly source: ValueRef;
      readonly item: string;
      readonly body: Plan;
    }
  | { readonly type: "retry"; readonly node: Plan; readonly max_attempts: number; readonly delay_ms: number };

/** The executable part: what is hashed and pinned (R-31 strips the header below). */
export interface Definition {
  readonly workflow_schema: 1;
  readonly id: string;
  readonly revision: number;
  readonly input_schema: Schema;
  readonly output_schema?: Schema;
  readonly steps: readonly Step[];
  readonly plan: Plan;
  readonly budgets: Budgets;
}

export interface InvocationPolicy {
  readonly explicit: boolean;
  readonly automatic: boolean;
}

/** Catalog data of a definition file: never part of a run's bundle hash, but for the root's policy. */
export interface Header {
  readonly title?: string;
  readonly description?: string;
  readonly labels?: readonly string[];
  readonly invocation_policy: InvocationPolicy;
}

export const DEFAULT_INVOCATION_POLICY: InvocationPolicy = { explicit: true, automatic: false };

/** The root definition and everything it reaches, copied from one publication (RP-9). */
export interface Bundle {
  readonly publication_revision: number;
  readonly root_id: string;
  readonly root_revision: number;
  readonly root_invocation_policy: InvocationPolicy;
  /** Key: `id@revision`. */
  readonly definitions: { readonly [key: string]: Definition };
}

/** A fault found by compiling, addressed by path into the document; the reader of the file adds line and column. */
export interface Problem {
  /** Keys and indexes from the document's root, e.g. `["steps", 0, "tool"]`. */
  readonly path: readonly (string | number)[];
  /** True when the key itself is at fault (unknown key), not its value. */
  readonly at_key?: true;
  readonly code: string;
  readonly message: string;
  readonly severity: "error" | "warning";
  readonly hint?: string;
}

/** A fault with its place in a file; 1-based (interfaces §1). */
export interface Diagnostic {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly code: string;
  readonly message: string;
  readonly severity: "error" | "warning";
  readonly hint?: string;
}
