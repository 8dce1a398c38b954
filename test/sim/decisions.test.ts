// Owns the proof that decisions have one winner (issue D): thousands of seeded stories of people, time and crashes, each
// held against the rules of ./decisions/rules.ts.
import { expect, test } from "vitest";
import { tell } from "./decisions/story.ts";

/** Where no number of runs is asked for: as many as fit, ms. */
const MAX_MS = 12_000;
const LEAST = 300;
const MOST = 600;

const first = Number(process.env.HOLDFAST_SEED ?? 1);
const wanted = process.env.HOLDFAST_SIM_RUNS === undefined ? undefined : Number(process.env.HOLDFAST_SIM_RUNS);

test("R-1 of cancel, approve, deny, answer, expiry, crash, takeover and completion in all orders one wins, and everybody is told which", async () => {
  const began = performance.now();
  const broken: string[] = [];
  const most = wanted ?? (process.env.HOLDFAST_SEED === undefined ? MOST : LEAST);
  let seeds = 0;
  for (; seeds < most && broken.length < 20; seeds++) {
    if (wanted === undefined && seeds >= LEAST && performance.now() - began > MAX_MS) break;
    const seed = first + seeds;
    const violations = await tell(seed).then(
      (told) =>
        told.violations.map(
          ({ rule, cites, why, sequence, event }) =>
            `${rule} (${cites}) at ${sequence}${event === undefined ? "" : ` (${event})`}: ${why}`,
        ),
      (error: Error) => [`the story broke off: ${error.stack ?? error.message}`],
    );
    if (violations.length > 0)
      broken.push([`npm run sim -- --seed ${seed} --runs 1`, ...new Set(violations)].join("\n  "));
  }
  console.log(`${seeds} stories from seed ${first} in ${Math.round(performance.now() - began)} ms`);
  expect(broken.join("\n")).toBe("");
}, 7_200_000);

test("R-12 a repair that arrives as the stop of its run has just been written ends the run (seed 808)", async () => {
  const { violations, kinds } = await tell(808);
  expect(kinds).toContain("late_result");
  expect(violations).toEqual([]);
});

test("R-1 a cancel that arrives as its run succeeds is told that it came too late (seed 8567)", async () => {
  const { violations, kinds } = await tell(8567);
  expect(kinds.at(-1)).toBe("run_succeeded");
  expect(violations).toEqual([]);
});

test("R-12 what waited for repair before its sibling failed is stopped with its group, not sent again (seed 3048)", async () => {
  const { violations, kinds } = await tell(3048);
  expect(kinds.filter((kind) => kind === "repaired")).toHaveLength(1);
  expect(kinds.at(-1)).toBe("run_failed");
  expect(violations).toEqual([]);
});
