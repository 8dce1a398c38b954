// Owns `npm run sim -- --seed N [--runs N]`: the simulated world from a seed that is printed, so a failure can be replayed.
import { randomInt } from "node:crypto";
import { parseArgs } from "node:util";
import { passes, VITEST } from "./gates.mjs";

const { values } = parseArgs({ options: { seed: { type: "string" }, runs: { type: "string" } } });
const seed = values.seed ?? String(randomInt(2 ** 31));
for (const [flag, text] of Object.entries({ seed, runs: values.runs ?? "1" })) {
  if (!/^\d{1,15}$/.test(text)) {
    console.error(`Cannot simulate: --${flag} is ${JSON.stringify(text)}; give a whole number, such as --${flag} 7.`);
    process.exit(2);
  }
}
console.log(`HOLDFAST_SEED=${seed} (npm run sim -- --seed ${seed} runs it again)`);
const env = { HOLDFAST_SEED: seed, ...(values.runs === undefined ? {} : { HOLDFAST_SIM_RUNS: values.runs }) };
process.exitCode = passes([...VITEST, "--passWithNoTests=false", "test/sim"], env) ? 0 : 1;
