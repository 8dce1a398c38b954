/**
 * What callers may ask and what they are shown (interfaces §1, R-39). Every interface — command line, HTTP,
 * MCP, TypeScript — is a thin form over `Holdfast`; none re-derives what it answers.
 */
import type { CatalogEntry as WorkflowEntry } from "../catalog/index.ts";
import type { ErrorDoc } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import type { Bundle, Diagnostic } from "../domain/plan/definition.ts";
import type {
  AttemptSummary,
  Finding,
  OperatorEvent,
  PublicEvent,
  PublicPlan,
  PublicRun,
  PublicStep,
  Run,
  RunSummary,
  StepDetail,
  Why,
} from "../domain/projections/index.ts";
import type { Budgets, RepairEvidence, RunStatus, SideEffect, StepStatus, Wait, WaitType } from "../domain/run.ts";
import type { SessionPatch, SessionRecord, StoreInfo, ToolDescriptor } from "../ports/index.ts";
import type { ToolSetOptions, WorkflowTools } from "./tool-types.ts";

export {
  ACTION_NAMES,
  type Action,
  type ActionName,
  type AttemptSummary,
  type Finding,
  type FindingCode,
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
export type { WorkflowEntry };

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
  /** Who asks: `os:USER`, `token:NAME`, `mcp:CLIENT`. Default: the user of this process. */
  readonly started_by?: string;
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
  /** Of the signal that waits, when it is pending. */
  readonly signal_id?: string;
}

export interface AttemptQuery {
  readonly status?: readonly AttemptSummary["status"][];
  /** 1..200, default 50. */
  readonly limit?: number;
  readonly cursor?: string;
}

/** GD-73: what is wrong with a run, as far as `limit` goes (1..1000, default 100). */
export interface RunFindings {
  readonly findings: readonly Finding[];
  readonly truncated: boolean;
}

/** Whether this installation is fit to run work, part by part, and what to do where it is not. */
export interface Installation {
  readonly ok: boolean;
  readonly checks: readonly {
    readonly name: string;
    readonly ok: boolean;
    readonly detail: string;
    readonly fix?: string;
  }[];
}

/** A row of a run's steps. `failure` is the public one. */
export interface StepRow extends PublicStep {
  readonly started_at_ms?: number;
}

/** Event lines of one segment, and the hash that ends it. */
export interface JournalLine {
  readonly text: string;
  readonly segment: { readonly first: number; readonly last: number; readonly prev: string; readonly hash: string };
}

export interface RunsApi {
  list(query?: ListQuery): Promise<{ readonly runs: readonly RunSummary[]; readonly next_cursor?: string }>;
  /** One page of a run's steps, by instance id. */
  steps(
    runId: string,
    query?: { readonly status?: readonly StepStatus[]; readonly limit?: number; readonly cursor?: string },
    session?: string,
  ): Promise<{ readonly steps: readonly StepRow[]; readonly next_cursor?: string }>;
  /** What was handed to tools and agents, in the order it was prepared; a page may be short and still have a next. */
  attempts(
    runId: string,
    query?: AttemptQuery,
    session?: string,
  ): Promise<{ readonly attempts: readonly AttemptSummary[]; readonly next_cursor?: string }>;
  /** GD-73: compares the journal with what is derived from it; reads only, whatever it finds. */
  doctor(runId: string, limit?: number, session?: string): Promise<RunFindings>;
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
  /** As `follow`, in the public form. */
  followPublic(runId: string, options?: { since?: number } & Followed, session?: string): AsyncIterable<PublicEvent>;
  /** The journal as it is stored, from the segment that holds `since` + 1 on. @throws storage when it was altered */
  journal(runId: string, options?: { readonly since?: number }, session?: string): AsyncIterable<JournalLine>;
  /** A large value of this run by its hash. @throws not_found also for a value of another run */
  artifact(runId: string, sha256: string, session?: string): Promise<Uint8Array>;
  /** @throws not_possible before the end, terminal when it ended without one */
  output(runId: string, session?: string): Promise<Json>;
  /** `public`: without tool names, prompts and other texts of the run (RP-74). */
  why(runId: string, session?: string, options?: { readonly public?: boolean }): Promise<Why>;
  /** Drives the run here when nobody else does, else follows; resolves when it ends or is suspended. */
  drive(runId: string, options?: Followed, session?: string): Promise<Run>;
  cancel(
    runId: string,
    options?: { reason?: string; decided_by?: string; wait_ms?: number },
    session?: string,
  ): Promise<Verb>;
  pause(runId: string, options?: { reason?: string; decided_by?: string }, session?: string): Promise<Verb>;
  /** Goes on from where it stands; a run that goes already is answered as it is (GD-62). @throws not_possible, terminal */
  resume(runId: string, options?: { decided_by?: string }, session?: string): Promise<Verb>;
  /** Raises limits of a tree, never below what is spent or set (D). @throws input, not_possible, preflight above a ceiling */
  raiseBudget(
    runId: string,
    budget: Partial<Budgets>,
    options?: { decided_by?: string },
    session?: string,
  ): Promise<Verb>;
  restart(
    runId: string,
    session?: string,
    origin?: "explicit" | "automatic",
    key?: string,
    options?: { readonly started_by?: string },
  ): Promise<RunHandle>;
  /** A new run from the failed steps of a failed one (R-2j). @throws not_possible */
  retry(
    runId: string,
    stepId?: string,
    session?: string,
    options?: { readonly started_by?: string },
  ): Promise<RunHandle>;
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
  ): Promise<{
    readonly run_id: string;
    readonly events: number;
    readonly runs: number;
    readonly truncated_tail: boolean;
  }>;
}

/** An open wait with what it takes to find and answer it. */
export type InboxWait = Wait & { readonly workflow_id: string; readonly session_id: string };

export interface WaitsApi {
  list(query?: {
    session?: string;
    type?: readonly WaitType[];
    run_id?: string;
    all_sessions?: boolean;
    limit?: number;
    cursor?: string;
  }): Promise<{ readonly waits: readonly InboxWait[]; readonly next_cursor?: string }>;
  /**
   * The same decision again has the same answer. @throws conflict: it was decided otherwise, its time is over, the
   * run was cancelled, or what is asked is not what was shown (`details.digest` is that of what is asked now)
   */
  approve(runId: string, waitId: string | undefined, request: DecisionRequest, session?: string): Promise<Verb>;
  deny(runId: string, waitId: string | undefined, request: DecisionRequest, session?: string): Promise<Verb>;
  /** @throws input with the place where the value does not fit; the wait stays */
  answer(
    runId: string,
    waitId: string | undefined,
    request: { value: unknown; decided_by: string; digest?: string },
    session?: string,
  ): Promise<Verb>;
  repair(
    runId: string,
    stepId: string,
    /** `dispatch_id`: the exact attempt that is meant (GD-74); another one that is open by now is a conflict. */
    request: Resolution & { decided_by: string; digest?: string; dispatch_id?: string },
    session?: string,
  ): Promise<Verb>;
  /** With the digest of what is asked, which a repair over HTTP has to give. */
  evidence(runId: string, stepId: string, session?: string): Promise<RepairEvidence & { readonly digest?: string }>;
}

export interface WorkflowsApi {
  list(): Promise<readonly WorkflowEntry[]>;
  /** The list and the number of the publication that it is of (RP-9). */
  publication(): Promise<{ readonly publication_revision: number; readonly workflows: readonly WorkflowEntry[] }>;
  /** An entry with its public plan (absent for what is broken or no plan) and the text it was read from. */
  show(
    ref: WorkflowRef,
  ): Promise<{ readonly entry: WorkflowEntry; readonly plan?: PublicPlan; readonly source: string }>;
  /** Faults of a text that is in no file yet; the ending of `file` says the form. */
  check(source: string, file: string): Promise<readonly Diagnostic[]>;
  get(ref: WorkflowRef): Promise<WorkflowEntry>;
  /** What a run that is started now would be pinned to: the definition and all that it reaches. */
  bundle(ref: WorkflowRef): Promise<Bundle>;
  preview(
    ref: WorkflowRef,
    options?: { args?: unknown; budget?: Partial<Budgets>; session?: string },
  ): Promise<Preview>;
  reload(): Promise<{ publication_revision: number; diagnostics: readonly Diagnostic[] }>;
}

/** A session, how many of its runs have not ended, and whether its workspace is trusted now. */
export type SessionView = SessionRecord & { readonly active_runs: number; readonly trusted: boolean };

export interface SessionsApi {
  list(): Promise<readonly SessionView[]>;
  page(query?: {
    readonly limit?: number;
    readonly cursor?: string;
  }): Promise<{ readonly sessions: readonly SessionView[]; readonly next_cursor?: string }>;
  create(request: {
    name: string;
    posture?: SessionRecord["posture"];
    orchestration_opt_in?: boolean;
    metadata?: JsonObject;
  }): Promise<SessionRecord>;
  get(idOrName: string): Promise<SessionView>;
  update(idOrName: string, patch: SessionPatch): Promise<SessionRecord>;
}

/** What this process has just made durable. */
export interface Committed {
  readonly run_id: string;
  readonly root_run_id: string;
  readonly session_id: string;
  readonly workflow_id: string;
  readonly workflow_revision: number;
  readonly status: RunStatus;
  readonly suspension?: WaitType;
  readonly events: readonly RunEvent[];
}

/** GD-72: what a live view needs to know; it reads the rest. */
export interface RunChange {
  readonly version: 3;
  readonly run_id: string;
  readonly event_sequence: number;
  readonly changed_at_ms: number;
}

/** Who asks over HTTP: a name for the journal, and what it may do. */
export interface Caller {
  readonly name: string;
  readonly role: "observer" | "operator";
  /** Whose word it is in journals; default `token:` and the name. */
  readonly principal?: string;
}

export interface HandlerOptions {
  /**
   * Who asks, decided by the server that this is mounted in; undefined is refused (401). Without it the tokens of
   * `holdfast token add` in the workspace's state folder count.
   */
  readonly authenticate?: (request: Request) => Caller | undefined | Promise<Caller | undefined>;
  /** Path that it is mounted at, without a slash at the end; default none. */
  readonly base_path?: string;
  /** Exact `Host` values that are answered; default: any, since the outer server has chosen. */
  readonly allow_hosts?: readonly string[];
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
  /** Tools by which a model starts and looks after the runs of one session (RP-80 … RP-83). */
  tools(options?: ToolSetOptions): WorkflowTools;
  storeInfo(): Promise<StoreInfo>;
  /** Node, workspace, trust, disk, store: is this installation fit to run work? */
  doctor(): Promise<Installation>;
  /** Calls back with everything this process commits, once it is durable; answers how to stop. */
  observe(listener: (committed: Committed) => void): () => void;
  /** Changes of the session's runs, whichever process makes them, from now on until `signal` aborts (GD-72). */
  changes(options?: Followed, session?: string): AsyncIterable<RunChange>;
  /** The HTTP interface, to mount in a server of one's own. */
  handler(options?: HandlerOptions): (request: Request) => Promise<Response>;
  /** Marks interrupted runs and continues those that are safe; answers the runs it changed. */
  recover(): Promise<readonly string[]>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
