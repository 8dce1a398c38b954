// Owns C05 in simulation: frozen before every write, in every scenario, and woken after another has ended the run.
import { expect, test } from "vitest";
import { describeFailure, frozenEverywhere } from "../../src/testing/index.ts";
import { SCENARIOS } from "./scenarios.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? 1);

for (const [name, options] of Object.entries(SCENARIOS))
  test(`C05 ${name}, frozen everywhere (seed ${seed})`, async () => {
    const { worlds, failures } = await frozenEverywhere({ ...options, seed });
    expect(failures.map(describeFailure)).toEqual([]);
    expect(worlds).toBeGreaterThan(1);
  });
