// Owns what a planted bug is looked for with: crash-everywhere and frozen-everywhere over the scenarios of the
// simulation. Bundled from a copy of the sources by planted.ts; says one JSON document on stdout.
import { writeSync } from "node:fs";
import { type CrashFailure, crashEverywhere, describeFailure, frozenEverywhere } from "../../src/testing/index.ts";
import { SCENARIOS } from "../sim/scenarios.ts";

const seed = Number(process.env.HOLDFAST_SEED ?? 1);
/** A world in which a bug goes round in circles is evidence too, but must not hold up the others. */
const LIMIT_MS = 120_000;

setTimeout(() => finish(), LIMIT_MS).unref();
const failures: CrashFailure[] = [];
const bug = (error: unknown): void =>
  void failures.push({
    rule: "no_bug",
    cites: "DESIGN §13",
    sequence: 0,
    why: error instanceof Error ? error.message : String(error),
    seed,
    stopped: [],
  });
// A planted bug may break what nobody waits for.
process.on("unhandledRejection", bug);
process.on("uncaughtException", bug);

function finish(): void {
  const rules = [...new Set(failures.map((failure) => failure.rule))];
  writeSync(
    1,
    `${JSON.stringify({ rules, failures: failures.length, first: failures[0] === undefined ? undefined : describeFailure(failures[0]) })}\n`,
  );
  process.exit(0);
}

for (const [name, options] of Object.entries(SCENARIOS)) {
  // The rule that says it is what counts, so a few crashes of the long scenario are as good as all of them.
  const points = name.startsWith("a map") ? 8 : 40;
  for (const run of [
    () => crashEverywhere({ ...options, seed, points, again: 4 }),
    () => frozenEverywhere({ ...options, seed }),
  ]) {
    if (failures.length > 100) break;
    try {
      failures.push(...(await run()).failures);
    } catch (error) {
      failures.push({
        rule: "no_bug",
        cites: "DESIGN §13",
        sequence: 0,
        why: error instanceof Error ? error.message : String(error),
        seed,
        stopped: [],
      });
    }
  }
}
finish();
