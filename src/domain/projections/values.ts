/** How single values are rendered on the wire: times, failures (RP-75), the public phase names (RP-73). */
import type { Failure, FailureCode } from "../run.ts";
import type { PublicFailure } from "./types.ts";

/** The furthest instants that a date can hold; a timer may be set beyond them. */
const LAST_MS = 8_640_000_000_000_000;

/** Epoch milliseconds as RFC 3339 in UTC, always with milliseconds: texts sort like times. */
export function rfc3339(ms: number): string {
  return new Date(Math.min(LAST_MS, Math.max(-LAST_MS, ms))).toISOString();
}

/** RP-75: what the public reads of a failure; the real text is for the operator. */
const PUBLIC_MESSAGES: { readonly [code in FailureCode]: string } = {
  invalid_definition: "definition is invalid",
  invalid_input: "input is invalid",
  invalid_output: "output is invalid",
  unknown_reference: "reference is unavailable",
  permission_denied: "permission was denied",
  untrusted_workspace: "workspace is not trusted",
  budget_exceeded: "execution budget was exceeded",
  retry_exhausted: "retry budget was exhausted",
  execution_failed: "execution failed",
  cancelled: "execution was cancelled",
  recovery_suspended: "recovery requires attention",
  suspended: "execution is suspended",
  dependency_skipped: "dependency was skipped",
  storage: "storage is unavailable",
};

export function publicFailure(failure: Failure): PublicFailure {
  return {
    code: failure.code,
    message: `Workflow ${PUBLIC_MESSAGES[failure.code]}`,
    retryable: failure.retryable,
  };
}

/** The failure as it was written down, by listing its fields. */
export function fullFailure(failure: Failure): Failure {
  return { code: failure.code, message: failure.message, retryable: failure.retryable };
}
