/** What a program has asked for and not been answered yet, and the executor's side of it as one program host sees it. */
import type { Json } from "../domain/json.ts";
import type { Failure } from "../domain/run.ts";
import type { BranchContext } from "./branch.ts";
import type { DefinitionRef, StepSpec, WaitSpec } from "./program.ts";

interface RequestBase {
  readonly instance: string;
  readonly visit: number;
  /** True when the journal has this visit open: it is resumed, not begun. */
  resumed: boolean;
  /** A cancelled request is never delivered. */
  dead: boolean;
  readonly branches: readonly BranchContext[];
  readonly resolve: (value: Json) => void;
  readonly reject: (error: Error) => void;
}

export interface StepRequest extends RequestBase {
  readonly kind: "step";
  readonly spec: StepSpec;
  readonly input: Json;
  readonly inputHash: string;
}

export interface WaitRequest extends RequestBase {
  readonly kind: "wait";
  readonly spec: WaitSpec;
  readonly input: Json;
  readonly inputHash: string;
}

export interface ChildRequest extends RequestBase {
  readonly kind: "child";
  readonly definition: DefinitionRef;
  readonly input: Json;
  readonly inputHash: string;
}

export interface RetryRequest extends RequestBase {
  readonly kind: "retry";
  readonly key: string;
  readonly delayMs: number;
  /** Present when the journal has it. */
  dueAtMs?: number;
}

export interface CancelRequest extends RequestBase {
  readonly kind: "cancel";
  readonly key: string;
  /** What to cancel, as it stood when the program asked. */
  readonly targets: readonly OpenRequest[];
}

export type OpenRequest = StepRequest | WaitRequest | ChildRequest | RetryRequest;
export type Request = OpenRequest | CancelRequest;

/** The executor of the run's tree, as one host sees it. */
export interface LiveRun {
  /** Of the run's budget as it was created. */
  readonly maxRetries: number;
  go(request: Request): void;
  /** Whether the request's visit is queued, running or suspended. */
  isOpen(request: OpenRequest): boolean;
  /** RP-38. */
  skip(instance: string, visit: number, reason: string): void;
  decided(key: string, value: Json): void;
  /** Undefined when admitted (RP-34); `starved` waits for a raised limit and then calls `again`. */
  admit(items: number, leavesPerItem: number, again: () => void): Failure | "starved" | undefined;
  /** RP-26: undefined when a retry was reserved; appends `retry_reserved`. */
  reserveRetry(key: string, dueAtMs: number, again: () => void): Failure | "starved" | undefined;
  now(): number;
  /** What is parked goes live, and more of it than what the journal has open. */
  ready(): void;
  /** The program asked for something else than was recorded. */
  nondeterminism(message: string): void;
  /** The program can go no further by itself, or has ended (`host.ended`). */
  quiet(): void;
}
