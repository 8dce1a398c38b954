/**
 * A step's own retries (GD-59), over what any program may do: each attempt is a step, each delay a recorded retry
 * with its due time, so that a restart neither loses nor repeats one.
 */
import { backoffMs, type RetryPolicy } from "../domain/backoff.ts";
import type { Json } from "../domain/json.ts";
import { StepFailure } from "./program.ts";

export interface Attempts {
  readonly policy: RetryPolicy;
  /** Retries of the run's budget; attempts are at most one more. */
  readonly maxRetries: number;
  /** Names this entry of the step in the run. */
  readonly key: string;
  readonly once: () => Promise<Json>;
  readonly retry: (key: string, delayMs: number) => Promise<void>;
}

/** The outcome of the last attempt. @throws StepFailure its failure, or the refusal of a retry that the budget has not */
export async function withRetries({ policy, maxRetries, key, once, retry }: Attempts): Promise<Json> {
  const attempts = Math.min(policy.max_attempts, maxRetries + 1);
  for (let attempt = 1; ; attempt++) {
    try {
      return await once();
    } catch (error) {
      if (!admits(policy, error) || attempt >= attempts) throw error;
    }
    await retry(`${key}.${attempt}`, backoffMs(policy, attempt + 1));
  }
}

/** Only kinds that the policy names; what has no kind — a cancellation, a timeout, a denial — never. */
function admits(policy: RetryPolicy, error: unknown): boolean {
  if (!(error instanceof StepFailure) || error.refused) return false;
  const { kind } = error.failure;
  return kind !== undefined && policy.eligible_failures.includes(kind);
}
