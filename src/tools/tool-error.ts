/** The one way in which a tool says that it failed; everything else it throws is not its word. */
import type { ToolOutcome } from "../ports/index.ts";

/**
 * `execution`: it did not work. `bad_arguments`: it never can with this input. `not_found`: what was addressed does
 * not exist as a tool. `bad_output`: it ran to its end, but its value is not JSON, too large, or not as declared.
 * `unavailable`: whoever does the work could not take it, and has accepted nothing (GD-59).
 */
export type ToolErrorKind = "execution" | "bad_arguments" | "not_found" | "bad_output" | "unavailable";

const KINDS: readonly ToolErrorKind[] = ["execution", "bad_arguments", "not_found", "bad_output", "unavailable"];
/** `Symbol.for`, so that two copies of the package in one process know each other's errors. */
const BRAND = Symbol.for("holdfast.tool_error");

/**
 * Thrown by a tool that knows it failed. From a mutating tool it is the only failure there is: any other throw is
 * an unknown outcome that a person must settle.
 */
export class ToolError extends Error {
  readonly kind: ToolErrorKind;
  /**
   * May the same input be tried again? Left out: yes for `unavailable`, and for `execution` of a tool that is not
   * mutating; else no (RP-41).
   */
  readonly retryable?: boolean;
  readonly [BRAND] = true;

  /** @param message for the operator's log only: it enters no failure and nothing public (RP-41) */
  constructor(message: string, options: { retryable?: boolean; kind?: ToolErrorKind; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "ToolError";
    this.kind = options.kind ?? "execution";
    if (options.retryable !== undefined) this.retryable = options.retryable;
  }

  /** Also true for the `ToolError` of another copy of the package. */
  static is(error: unknown): error is ToolError {
    if (typeof error !== "object" || error === null || !(BRAND in error)) return false;
    const { kind, message } = error as { kind?: unknown; message?: unknown };
    return typeof message === "string" && KINDS.some((known) => known === kind);
  }
}

export type Failed = Extract<ToolOutcome, { type: "failed" }>;

/** The outcome of a call that failed, as ports answer it. */
export function failed(kind: Failed["kind"], retryable: boolean, message: string): Failed {
  return { type: "failed", kind, retryable, message };
}
