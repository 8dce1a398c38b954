import { expect, test } from "vitest";
import { backoffMs, checkRetryPolicy, type RetryPolicy } from "./backoff.ts";

const policy: RetryPolicy = {
  version: 1,
  max_attempts: 3,
  eligible_failures: ["owner_reported_retryable"],
  initial_backoff_ms: 100,
  backoff_multiplier: 2,
  maximum_backoff_ms: 1_000,
};

test("GD-59 the first retry waits the initial delay, each further one the multiple of it, up to the cap", () => {
  expect([2, 3, 4, 5, 6, 7].map((n) => backoffMs(policy, n))).toEqual([100, 200, 400, 800, 1_000, 1_000]);
  expect(backoffMs(policy, 1)).toBe(100);
  expect(backoffMs({ ...policy, backoff_multiplier: 1 }, 50)).toBe(100);
});

test("C17 the delay is finite, not negative and within the cap for any input", () => {
  const odd = [0, 1, 10, 1e308, Number.NaN, -1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5];
  for (const initial_backoff_ms of odd)
    for (const backoff_multiplier of odd)
      for (const maximum_backoff_ms of [...odd, 60_000])
        for (const attempt of [1, 2, 309, 1_000, ...odd]) {
          const delay = backoffMs({ initial_backoff_ms, backoff_multiplier, maximum_backoff_ms }, attempt);
          const cap = Number.isNaN(maximum_backoff_ms) ? 0 : Math.max(0, maximum_backoff_ms);
          expect(Number.isSafeInteger(delay) && delay >= 0 && delay <= cap).toBe(true);
        }
  const steep = { initial_backoff_ms: 1, backoff_multiplier: 10, maximum_backoff_ms: 60_000 };
  expect([1, 309, 1_000].map((n) => backoffMs(steep, n))).toEqual([1, 60_000, 60_000]);
});

test("C17 odd values are refused when the policy is loaded, each with its field", () => {
  expect(checkRetryPolicy(policy)).toEqual([]);
  for (const backoff_multiplier of [0, 1e308, Number.NaN, -1, 101, "2", undefined, 1.5])
    expect(checkRetryPolicy({ ...policy, backoff_multiplier }).map((p) => p.field)).toEqual(["backoff_multiplier"]);
  const wrong = {
    ...policy,
    max_attempts: 0,
    maximum_backoff_ms: 86_400_001,
    eligible_failures: ["timeout"],
    toString: 1,
  };
  expect(checkRetryPolicy(wrong).map((p) => p.field)).toEqual([
    "toString",
    "max_attempts",
    "maximum_backoff_ms",
    "eligible_failures",
  ]);
  expect(
    checkRetryPolicy({ ...policy, eligible_failures: ["owner_reported_retryable", "owner_reported_retryable"] }),
  ).toHaveLength(1);
  expect(checkRetryPolicy(null)).toHaveLength(1);
  expect(checkRetryPolicy([])).toHaveLength(1);
});
