// Owns how the tests are grouped and bounded: `unit` beside the code, `crash` kills real processes, `e2e` the rest.
import { defineConfig } from "vitest/config";

const shared = { environment: "node", pool: "forks", retry: 0, passWithNoTests: true } as const;

export default defineConfig({
  test: {
    // Two cores everywhere it runs; more workers only make the timings of the others worse.
    maxWorkers: 2,
    passWithNoTests: true,
    coverage: { provider: "v8", reportsDirectory: "coverage", include: ["src/**/*.ts"] },
    projects: [
      { test: { ...shared, name: "unit", include: ["src/**/*.test.ts"], testTimeout: 10_000 } },
      {
        test: {
          ...shared,
          name: "e2e",
          include: ["test/**/*.test.ts"],
          exclude: ["test/crash/**"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          ...shared,
          name: "crash",
          include: ["test/crash/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});
