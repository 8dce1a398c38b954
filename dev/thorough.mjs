// Owns `npm run thorough`: the proofs that `npm test` holds in a short form, at their full length. About five minutes.
import { parseArgs } from "node:util";
import { passes, VITEST } from "./gates.mjs";

const { values } = parseArgs({ options: { seed: { type: "string", default: "1" } } });
if (!/^\d{1,15}$/.test(values.seed)) {
  console.error(`Cannot begin: --seed is ${JSON.stringify(values.seed)}; give a whole number, such as --seed 7.`);
  process.exit(2);
}

/** Stories of people, time and crashes; then a minute in which real processes are killed. */
const PROOFS = [
  { tests: "test/sim/decisions.test.ts", env: { HOLDFAST_SIM_RUNS: "10000" } },
  { tests: "test/crash/stress.test.ts", env: { HOLDFAST_STRESS: "60" } },
];

let ok = true;
for (const { tests, env } of PROOFS)
  ok = passes([...VITEST, "--passWithNoTests=false", tests], { ...env, HOLDFAST_SEED: values.seed }) && ok;
process.exitCode = ok ? 0 : 1;
