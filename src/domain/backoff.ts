/**
 * How long to wait before a failed attempt is made again (GD-59): one policy, checked when it is loaded, and a delay
 * that is finite and within its cap for whatever it is asked (C17).
 */

/** Kinds of failure that a policy may admit (GD-59). */
export const RETRY_KINDS = ["owner_unavailable_before_acceptance", "owner_reported_retryable"] as const;
export type RetryKind = (typeof RETRY_KINDS)[number];

/** GD-59's policy. Times are milliseconds; attempts count the first one. */
export interface RetryPolicy {
  readonly version: 1;
  readonly max_attempts: number;
  readonly eligible_failures: readonly RetryKind[];
  readonly initial_backoff_ms: number;
  /** 1..100. */
  readonly backoff_multiplier: number;
  /** At most a day. */
  readonly maximum_backoff_ms: number;
}

const LONGEST_BACKOFF_MS = 86_400_000;

/** What each number of a policy may be, first and last. */
export const RETRY_BOUNDS = {
  version: [1, 1],
  max_attempts: [1, 100_000],
  initial_backoff_ms: [0, LONGEST_BACKOFF_MS],
  backoff_multiplier: [1, 100],
  maximum_backoff_ms: [0, LONGEST_BACKOFF_MS],
} as const;

/**
 * Ms to wait before attempt `attempt`; 2 is the first retry. GD-59: min(initial · multiplier^(n-2), maximum).
 * Finite, 0 ≤ delay ≤ the cap and whole for any input: a power that overflows is the cap, what is no number is 0.
 */
export function backoffMs(
  policy: Pick<RetryPolicy, "initial_backoff_ms" | "backoff_multiplier" | "maximum_backoff_ms">,
  attempt: number,
): number {
  const cap = finite(policy.maximum_backoff_ms, LONGEST_BACKOFF_MS);
  const first = finite(policy.initial_backoff_ms, cap);
  const power = Math.max(0, finite(attempt, Number.MAX_SAFE_INTEGER) - 2);
  const grown = first === 0 ? 0 : first * finite(policy.backoff_multiplier, Number.MAX_VALUE) ** power;
  return Math.floor(Number.isNaN(grown) ? cap : Math.min(grown, cap));
}

/** Within 0..most; what is no number counts as 0, infinity as `most`. */
function finite(value: number, most: number): number {
  return Number.isNaN(value) ? 0 : Math.min(Math.max(value, 0), most);
}

export interface RetryProblem {
  /** The field at fault; empty for the policy as a whole. */
  readonly field: string;
  readonly message: string;
}

/** What is wrong with a policy as it was written; empty when it may be used. Refused at load, never at a failure (C17). */
export function checkRetryPolicy(value: unknown): readonly RetryProblem[] {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return [{ field: "", message: "must be an object with max_attempts, eligible_failures and the backoff" }];
  const policy = new Map<string, unknown>(Object.entries(value));
  const problems: RetryProblem[] = [];
  for (const field of policy.keys())
    if (field !== "eligible_failures" && !Object.hasOwn(RETRY_BOUNDS, field))
      problems.push({ field, message: "is not known here" });
  for (const [field, [least, most]] of Object.entries(RETRY_BOUNDS)) {
    const number = policy.get(field);
    if (typeof number !== "number" || !Number.isSafeInteger(number) || number < least || number > most)
      problems.push({ field, message: `must be a whole number from ${least} to ${most}` });
  }
  return [...problems, ...checkKinds(policy.get("eligible_failures"))];
}

function checkKinds(kinds: unknown): readonly RetryProblem[] {
  const field = "eligible_failures";
  if (!Array.isArray(kinds)) return [{ field, message: "must be a list" }];
  const known = RETRY_KINDS as readonly unknown[];
  if (!kinds.every((kind) => known.includes(kind)))
    return [{ field, message: `must name only ${RETRY_KINDS.join(", ")}` }];
  return new Set(kinds).size === kinds.length ? [] : [{ field, message: "names the same kind twice" }];
}
