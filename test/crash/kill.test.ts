// Owns the same proof with real processes: SIGKILL at the boundaries of a commit, and a fresh process that goes on.
import { afterAll, expect, test } from "vitest";
import { seededRandom } from "../../src/testing/index.ts";
import { cleanUp, effectsIn, folder, runChild, twoAtATime } from "./children.ts";

afterAll(cleanUp);

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
/** Kills of one run of the suite, over all workflows: every boundary where there are few. */
const KILLS = 60;
const NAMES = ["mutating", "asked", "nested", "fan", "timed"] as const;

interface Kill {
  readonly workflow: string;
  readonly write: number;
  readonly when: "before" | "after";
}

function counts(at: string): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { tool, step } of effectsIn(at)) found[`${tool} ${step}`] = (found[`${tool} ${step}`] ?? 0) + 1;
  return found;
}

test(`C03 ${KILLS} real kills at commit boundaries: each run ends as it would have, and no effect happens twice (seed ${seed})`, async () => {
  const whole = new Map<string, { output: unknown; effects: Record<string, number> }>();
  const all = (
    await twoAtATime(NAMES, async (workflow) => {
      const at = folder();
      const { last } = await runChild({ act: "finish", folder: at, workflow });
      expect([workflow, last.status, last.rules]).toEqual([workflow, "succeeded", []]);
      whole.set(workflow, { output: last.output, effects: counts(at) });
      return Array.from({ length: last.writes as number }, (_, i) => [
        { workflow, write: i + 1, when: "before" as const },
        { workflow, write: i + 1, when: "after" as const },
      ]).flat();
    })
  ).flat();
  const kills: readonly Kill[] = [...seededRandom("kills", seed).shuffle(all), ...all].slice(0, Math.max(KILLS, 0));
  expect(kills.length).toBeGreaterThanOrEqual(KILLS);
  const outcomes = await twoAtATime(kills, async (kill) => {
    const at = folder();
    const died = await runChild({ act: "start", folder: at, workflow: kill.workflow, die: kill });
    const { last } = await runChild({ act: "finish", folder: at, workflow: kill.workflow });
    const expected = whole.get(kill.workflow);
    return {
      kill,
      died: died.signal,
      is: { status: last.status, output: last.output, rules: last.rules, effects: counts(at) },
      should: { status: "succeeded", output: expected?.output, rules: [], effects: expected?.effects },
    };
  });
  for (const { kill, is, should } of outcomes) expect({ kill, ...is }).toEqual({ kill, ...should });
  // Fewer writes happen where a process only starts the run; those past the last one kill nobody.
  expect(outcomes.filter((outcome) => outcome.died === "SIGKILL").length).toBeGreaterThanOrEqual(KILLS / 2);
});
