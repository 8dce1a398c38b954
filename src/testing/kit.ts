/** What the conformance suites need of a test runner; vitest, jest and node:test with an `expect` all have it. */
export interface TestKit {
  readonly describe: (name: string, body: () => void) => void;
  readonly test: (name: string, body: () => Promise<void>) => void;
  readonly expect: (value: unknown) => Expectation;
}

export interface Expectation {
  toBe(expected: unknown): void;
  toEqual(expected: unknown): void;
}

/** A test of a suite that a store does not take, and why; the reason is shown in the title. */
export interface Skip {
  readonly test: string;
  readonly reason: string;
}

/** The kit with the skipped tests left out by name; a name that no test has is an error, so that no skip outlives its test. */
export function withSkips(kit: TestKit, skips: readonly Skip[]): { test: TestKit["test"]; done: () => void } {
  const left = new Map(skips.map((skip) => [skip.test, skip.reason]));
  return {
    test: (name, body) => {
      const reason = left.get(name);
      left.delete(name);
      if (reason === undefined) kit.test(name, body);
      else kit.test(`${name} (not taken: ${reason})`, async () => {});
    },
    done: () => {
      if (left.size > 0) throw new Error(`No test of the suite is called: ${[...left.keys()].join(", ")}`);
    },
  };
}
