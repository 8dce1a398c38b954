/**
 * What a program — the plan, graph or script interpreter — may do (DESIGN §5). Programs know nothing of storage,
 * policy or models, and must be deterministic in what they ask: the same recorded outcomes in the same order make
 * them ask the same again.
 */
import type { RetryPolicy } from "../domain/backoff.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import type { Failure } from "../domain/run.ts";
import type { ResourceClaim } from "../ports/index.ts";

export interface ToolSpec {
  readonly kind: "tool";
  readonly tool: string;
  readonly capabilities: readonly string[];
  readonly output_schema?: JsonObject;
  readonly timeout_ms?: number;
  /** What it needs of the workspace for itself while it runs, across all runs there (GD-53). */
  readonly resources?: readonly ResourceClaim[];
  /** Failed attempts that are made again by themselves (GD-59). */
  readonly retry?: RetryPolicy;
}

export interface AgentSpec {
  readonly kind: "agent";
  readonly agent: string;
  readonly model?: string;
  readonly effort?: string;
  readonly capabilities: readonly string[];
  readonly output_schema?: JsonObject;
  readonly structured_output_attempts: number;
  readonly timeout_ms?: number;
}

export type StepSpec = ToolSpec | AgentSpec;

export type WaitSpec =
  | {
      readonly type: "approval";
      readonly prompt: string;
      readonly details?: Json;
      readonly deadline_ms?: number;
      readonly warn_ms?: number;
      /** `value`: every decision is a success whose value is the Decision; else silence and no are failures. */
      readonly outcome?: "value";
    }
  | {
      readonly type: "input";
      readonly prompt: string;
      readonly schema: JsonObject;
      readonly details?: Json;
      readonly deadline_ms?: number;
      readonly warn_ms?: number;
    }
  /** Due `for_ms` after it is reached, or at `until_ms`. */
  | { readonly type: "timer"; readonly for_ms?: number; readonly until_ms?: number };

/** A definition of the run's own bundle. */
export interface DefinitionRef {
  readonly workflow_id: string;
  readonly revision: number;
}

export interface ProgramContext {
  readonly args: Json;
  readonly signal: AbortSignal;
  /** Durable, memoised, budgeted. @throws StepFailure with the recorded failure (R-2e) */
  step(instance: string, spec: StepSpec, input: Json): Promise<Json>;
  /** Marks an instance skipped (RP-38); an earlier outcome of it is dropped. */
  skip(instance: string, reason: string): void;
  wait(instance: string, spec: WaitSpec): Promise<Json>;
  child(instance: string, definition: DefinitionRef, args: Json): Promise<Json>;
  /** Computed once and recorded: clock, chance, admission (R-2d). */
  decide(key: string, compute: () => Json): Promise<Json>;
  /** RP-34: whether a map's worst case fits the tree's step budget, decided once. @throws StepFailure */
  admit(key: string, items: number, leavesPerItem: number): Promise<void>;
  /** Reserves a retry and waits for its due time (RP-26, RP-36). @throws StepFailure when none is left */
  retry(key: string, delayMs: number): Promise<void>;
  /** A context whose requests can be cancelled together. */
  branch(): ProgramContext;
  /** Cancels what the branches have open, and resolves when it has stopped (RP-32). `key` names this cancellation. */
  cancel(branches: readonly ProgramContext[], key: string): Promise<void>;
}

export type Program = (context: ProgramContext) => Promise<Json>;

/** A failed step, as programs see it. In the engine a failing step is an event, not an exception. */
export class StepFailure extends Error {
  readonly failure: Failure;
  /** A reservation was refused: nothing was started, so no failure policy applies (RP-26, RP-37). */
  readonly refused: boolean;
  constructor(failure: Failure, options: { readonly refused?: boolean } = {}) {
    super(failure.message);
    this.name = "StepFailure";
    this.failure = failure;
    this.refused = options.refused ?? false;
  }
}
