/**
 * What callers may ask and what they are shown (interfaces §1, R-39). Every interface — command line, HTTP,
 * MCP, TypeScript — is a thin form over `Holdfast`; none re-derives what it answers.
 */
import type { ErrorDoc } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import type { Bundle, Diagnostic, InvocationPolicy } from "../domain/plan/definition.ts";
import type {
  OperatorEvent,
  PublicEvent,
  PublicPlan,
  PublicRun,
  Run,
  RunSummary,
  StepDetail,
  Why,
} from "../domain/projections/index.ts";
import type { Budgets, DefinitionKind, RepairEvidence, RunStatus, SideEffect, Wait, WaitType } from "../domain/run.ts";
import type { SessionPatch, SessionRecord, StoreInfo, ToolDescriptor } from "../ports/index.ts";

export {
  ACTION_NAMES,
  type Action,
  type ActionName,
  type OperatorEvent,
  type PublicEvent,
  type PublicFailure,
  type PublicPlan,
  type PublicRun,
  type PublicStep,
  type PublicSuspension,
  type PublicWait,
  type Run,
  type RunSummary,
  type StepDetail,
  type Why,
} from "../domain/projections/index.ts";

export interface WorkflowEntry {
  readonly workflow_id: string;
  readonly revision: number;
  readonly kind: DefinitionKind | "instruction";
  readonly title?: string;
  readonly description?: string;
  readonly source: "workspace" | "user" | "builtin" | "code";
  readonly path?: string;
  readonly definition_hash?: string;
  readonly invocation_policy: InvocationPolicy;
  readonly tool_name?: string;
  readonly input_schema?: JsonObject;
  readonly output_schema?: JsonObject;
  readonly state: "valid" | "broken" | "shadowed";
  readonly diagnostics: readonly Diagnostic[];
}

export interface Preview {
  readonly workflow_id: string;
  readonly revision: number;
  readonly definition_hash: string;
  readonly plan: PublicPlan;
  readonly steps: readonly {
    readonly step_id: string;
    readonly kind: string;
    readonly tool?: string;
    readonly agent?: string;
    readonly capabilities: readonly string[];
    readonly side_effect: SideEffect;
    readonly permission: "allow" | "ask" | "deny";
  }[];
  readonly approvals: readonly string[];
  readonly bounds: {
    readonly steps: number;
    readonly agents: number;
    readonly retries: number;
    readonly tokens?: number;
    readonly cost_micros?: number;
    readonly wall_time_ms: number;
  };
  readonly refusals: readonly ErrorDoc[];
  readonly text?: string;
}

/** `id`, `id@revision`, a path to a definition file, `hash:<definition hash>`, or a definition defined in code. */
export type WorkflowRef = string;

export interface StartRequest {
  readonly workflow: WorkflowRef;
  readonly args?: unknown;
  /** Tightens the definition's limits (RP-23). In-process callers may give only some fields. */
  readonly budget?: Partial<Budgets>;
  /** Idempotency key: the same key and request answer with the same run. */
  readonly key?: string;
  /** `automatic`: asked for by a model through a tool (RP-15). Default `explicit`. */
  readonly origin?: "explicit" | "automatic";
  readonly durability?: "standard" | "strict";
  /** Leave the run queued for a worker process instead of driving it here. */
  readonly queue?: boolean;
  readonly session?: string;
}

export interface RunHandle {
  readonly run_id: string;
  /** True when an idempotency key answered with an earlier run. */
  readonly replayed: boolean;
  /** Resolves when the run has ended or is suspended and nothing in this process moves it. */
  result(): Promise<Run>;
  /** Committed events in order, each once, until the terminal one (or until `signal` aborts). */
  events(options?: { since?: number; signal?: AbortSignal }): AsyncIterable<OperatorEvent>;
}

export interface ListQuery {
  readonly session?: string;
  readonly status?: readonly RunStatus[];
  readonly workflow_id?: string;
  readonly waiting?: boolean;
  readonly children?: boolean;
  readonly parent_run_id?: string;
  /** 1..200, default 20. */
  readonly limit?: number;
  readonly cursor?: string;
}

export interface Followed {
  /** Aborting stops the following, never the run. */
  readonly signal?: AbortSignal;
}

/** A decision by a named decider on what was shown. */
export interface DecisionRequest {
  readonly decided_by: string;
  readonly reason?: string;
  /** At least 8 leading hex digits of the digest shown. */
  readonly digest?: string;
}

export type Resolution =
  | { readonly resolution: "succeeded"; readonly output: unknown }
  | { readonly resolution: "failed" | "cancelled"; readonly message: string }
  | { readonly resolution: "retry"; readonly reason: string };

/** The answer of a verb that signals: `pending` when no holder took it within 5 s. */
export interface Verb {
  readonly run: Run;
  readonly pending: boolean;
}

export interface RunsApi {
  list(query?: ListQuery): Promise<{ readonly runs: readonly RunSummary[]; readonly next_cursor?: string }>;
  /** Full id, unique suffix of at least 6 characters, `last` or `last:WORKFLOW`. @throws not_found, usage (ambiguous) */
  find(ref: string, session?: string): Promise<string>;
  get(runId: string, session?: string): Promise<PublicRun>;
  inspect(runId: string, session?: string): Promise<Run>;
  step(runId: string, stepId: string, session?: string): Promise<StepDetail>;
  events(
    runId: string,
    query?: { since?: number; limit?: number },
    session?: string,
  ): Promise<readonly OperatorEvent[]>;
  publicEvents(
    runId: string,
    query?: { since?: number; limit?: number },
    session?: string,
  ): Promise<readonly PublicEvent[]>;
  /** Journal first, then live: every event once, in order, until the run ends. */
  follow(runId: string, options?: { since?: number } & Followed, session?: string): AsyncIterable<OperatorEvent>;
  /** @throws not_possible before the end, terminal when it ended without one */
  output(runId: string, session?: string): Promise<Json>;
  why(runId: string, session?: string): Promise<Why>;
  /** Drives the run here when nobody else does, else follows; resolves when it ends or is suspended. */
  drive(runId: string, options?: Followed, session?: string): Promise<Run>;
  cancel(
    runId: string,
    options?: { reason?: string; decided_by?: string; wait_ms?: number },
    session?: string,
  ): Promise<Verb>;
  pause(runId: string, options?: { reason?: string; decided_by?: string }, session?: string): Promise<Verb>;
  resume(runId: string, options?: { decided_by?: string }, session?: string): Promise<Verb>;
  restart(runId: string, session?: string, origin?: "explicit" | "automatic"): Promise<RunHandle>;
  verify(runId: string, session?: string): Promise<{ ok: boolean; segments: number; events: number; broken?: string }>;
  bundle(runId: string, session?: string): Promise<Bundle>;
  /** Lines of `journal.jsonl` and the folded state; `tree` takes the children along. */
  export(
    runId: string,
    options?: { readonly tree?: boolean },
    session?: string,
  ): Promise<{ readonly lines: AsyncIterable<string>; readonly snapshot: Json }>;
  /** Reads an exported journal back, every hash checked. @throws input, conflict */
  import(
    lines: AsyncIterable<string>,
    session?: string,
  ): Promise<{ readonly run_id: string; readonly events: number; readonly runs: number; readonly truncated_tail: boolean }>;
}

export interface WaitsApi {
  list(query?: {
    session?: string;
    type?: readonly WaitType[];
    run_id?: string;
    all_sessions?: boolean;
    limit?: number;
    cursor?: string;
  }): Promise<{ readonly waits: readonly (Wait & { workflow_id: string })[]; readonly next_cursor?: string }>;
  approve(runId: string, waitId: string | undefined, request: DecisionRequest, session?: string): Promise<Verb>;
  deny(runId: string, waitId: string | undefined, request: DecisionRequest, session?: string): Promise<Verb>;
  repair(
    runId: string,
    stepId: string,
    request: Resolution & { decided_by: string; digest?: string },
    session?: string,
  ): Promise<Verb>;
  evidence(runId: string, stepId: string, session?: string): Promise<RepairEvidence>;
}

export interface WorkflowsApi {
  list(): Promise<readonly WorkflowEntry[]>;
  get(ref: WorkflowRef): Promise<WorkflowEntry>;
  preview(
    ref: WorkflowRef,
    options?: { args?: unknown; budget?: Partial<Budgets>; session?: string },
  ): Promise<Preview>;
  reload(): Promise<{ publication_revision: number; diagnostics: readonly Diagnostic[] }>;
}

export interface SessionsApi {
  list(): Promise<readonly (SessionRecord & { active_runs: number })[]>;
  create(request: {
    name: string;
    posture?: SessionRecord["posture"];
    orchestration_opt_in?: boolean;
    metadata?: JsonObject;
  }): Promise<SessionRecord>;
  get(idOrName: string): Promise<SessionRecord & { active_runs: number }>;
  update(idOrName: string, patch: SessionPatch): Promise<SessionRecord>;
}

/** The whole of Holdfast in one process. */
export interface Holdfast {
  start(request: StartRequest): Promise<RunHandle>;
  run(request: StartRequest): Promise<Run>;
  readonly runs: RunsApi;
  readonly waits: WaitsApi;
  readonly workflows: WorkflowsApi;
  readonly sessions: SessionsApi;
  readonly toolList: () => readonly ToolDescriptor[];
  storeInfo(): Promise<StoreInfo>;
  /** Marks interrupted runs and continues those that are safe; answers the runs it changed. */
  recover(): Promise<readonly string[]>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
