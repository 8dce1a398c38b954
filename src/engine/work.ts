/** The words that the parts of the engine share: what it is given, and what is open in a run tree. */
import type { Json } from "../domain/json.ts";
import type { Bundle, Definition } from "../domain/plan/definition.ts";
import type { Failure, RunHeader, SideEffect, StopReason } from "../domain/run.ts";
import type {
  AgentPort,
  Clock,
  Ids,
  PolicyPort,
  RunStore,
  SecretPort,
  SessionStore,
  Timer,
  ToolPort,
} from "../ports/index.ts";
import type { LazyAbort } from "./lazy-abort.ts";
import type { Program } from "./program.ts";
import type { ProgramHost } from "./program-host.ts";
import type { ChildRequest, StepRequest, WaitRequest } from "./requests.ts";

/** Everything the engine reaches the outside through. */
export interface EnginePorts {
  readonly store: RunStore;
  readonly sessions: SessionStore;
  readonly tools: ToolPort;
  readonly agents: AgentPort | undefined;
  readonly policy: PolicyPort;
  readonly secrets: SecretPort;
  readonly clock: Clock;
  readonly ids: Ids;
}

export interface EngineLimits {
  /** Longest wait for work that is told to stop, ms. */
  readonly stop_grace_ms: number;
  /** Longest wait of a step for resources or its owner's room before its tree is let go of for a while (GD-27), ms. */
  readonly admission_timeout_ms: number;
  /** Lease of a run tree, ms. */
  readonly lease_ms: number;
  readonly open_runs: number;
  /** Recoveries without progress before a run is parked. */
  readonly recoveries: number;
}

export const DEFAULT_LIMITS: EngineLimits = {
  stop_grace_ms: 5_000,
  admission_timeout_ms: 30_000,
  lease_ms: 30_000,
  open_runs: 1_000_000,
  recoveries: 5,
};

export interface EngineOptions {
  readonly ports: EnginePorts;
  readonly limits?: Partial<EngineLimits>;
  readonly recovery?: "auto" | "manual";
  /** How long an approval that a permission asks for may take, and how long before people are warned, ms. */
  readonly approvals?: { readonly deadline_ms?: number; readonly warn_ms?: number };
  /** Whether the workspace is trusted now; asked at every dispatch (RP-20). */
  readonly trusted: () => boolean;
  /** Whether a run would be allowed to start today; asked before an interrupted one goes on by itself (RP-63). */
  readonly authorised?: (root: RunHeader, bundle: Bundle) => Promise<boolean>;
  readonly workspace: string;
  /**
   * This process lets programs go on but calls no tool and no agent: whoever takes the run next does. For commands
   * that do not stay (`--detach`).
   */
  readonly leaves?: boolean;
  /** The interpreter of a definition; default: that of plans. */
  readonly program?: (definition: Definition) => Program;
  readonly log?: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
}

/**
 * Why programs are started: a person asked (refusals throw), the process goes on by itself, something that was
 * waited for has happened, or a limit was raised.
 */
export type How = "explicit" | "auto" | "woken" | "raised";

/** A run of the tree whose program is in memory. */
export interface ActiveRun {
  readonly runId: string;
  readonly definition: Definition;
  host: ProgramHost;
  readonly jobs: Map<string, Job>;
  /** Retry delays that are waited for. */
  readonly delays: Map<string, Timer & { readonly dueAtMs: number }>;
  readonly cancels: Map<string, PendingCancel>;
  wallTimer?: Timer;
  /** The run is being stopped: its results are not settled any more. */
  stopping: StopReason | undefined;
  /** What the stop could end has ended and is written; an open mutation is waited for. */
  stopped: boolean;
  /** What found a limit used up and waits for a raised one (`on_exhausted: suspend`), in the order asked. */
  readonly starved: Starved[];
  /** What the program asked for that was not recorded; the run cannot go on with it. */
  nondeterminism?: string;
  /** Its terminal event is appended. */
  ended: boolean;
}

export interface Starved {
  readonly failure: Failure;
  /** The step, where one is queued already: it is suspended with the run. */
  readonly instance?: string;
  /** Asks again; false when its program no longer wants it. */
  readonly again: () => void;
}

/** A fail-fast cancellation that waits for what it stops. */
export interface PendingCancel {
  readonly key: string;
  readonly instances: Set<string>;
  /** All that could be stopped has; a person has to say what became of the rest. */
  waiting: boolean;
}

/** An answer that came after its attempt was given up. */
export interface LateResult {
  readonly run_id: string;
  readonly step_id: string;
  readonly attempt: number;
  readonly result: Json;
}

/** One open request of a program, on its way from reservation to settlement. */
export interface Job {
  readonly run: ActiveRun;
  readonly request: StepRequest | WaitRequest | ChildRequest;
  readonly instance: string;
  stage: "queued" | "running" | "waiting";
  sideEffect: SideEffect;
  /** Set when it is told to stop: what it still answers is not settled. */
  stop: StopReason | undefined;
  readonly abort: LazyAbort;
  /** Resolves when the tool or agent has answered or can never be heard. */
  done: Promise<void>;
  ended: boolean;
  /** Of a group that is being stopped, taken up after a restart: nobody here is in a call with it. */
  adopted?: true;
  /** Its stop is written without it: it answers too late. */
  givenUp: boolean;
  /** What it answered after it was told to stop. */
  late?: Json;
  timers: Timer[];
  /** When the first of `timers` that ends or warns a wait is due. */
  dueAtMs?: number;
}

/** Dispatch stops short when this is true: the job belongs to nobody any more. */
export function isDropped(job: Job): boolean {
  return job.stop !== undefined || job.run.ended || job.run.stopping !== undefined;
}
