// Owns `npm run check`: format, lint, types and the house rules, without the tests of behaviour.
import { passes, runGates, VITEST } from "./gates.mjs";

const { failed } = runGates();
if (!passes([...VITEST, "test/tidy.test.ts"])) failed.push("tidy");
console.log(failed.length === 0 ? "All checks passed." : `Failed: ${failed.join(", ")}`);
process.exitCode = failed.length === 0 ? 0 : 1;
