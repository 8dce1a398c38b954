// Owns the proof that no crash changes how a run ends: every scenario, stopped at every one of its writes.
import { expect, test } from "vitest";
import { crashEverywhere, describeFailure } from "../../src/testing/index.ts";
import { SCENARIOS } from "./scenarios.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
const runs = Number(process.env.HOLDFAST_SIM_RUNS ?? 1);

for (const [name, options] of Object.entries(SCENARIOS))
  for (let n = 0; n < runs; n++)
    test(`C03 ${name}, stopped everywhere (seed ${seed + n})`, async () => {
      const report = await crashEverywhere({ again: 60, ...options, seed: seed + n });
      expect(report.failures.map(describeFailure)).toEqual([]);
      expect(report.boundaries).toBeGreaterThan(2);
    });
