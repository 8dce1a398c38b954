// Owns `npm test`: the gates, then all tests, then one plain line that counts both (docs/decisions/0004).
// With arguments (`npm test -- src/engine`) only the tests that they choose run, without the gates.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { root } from "./bundle.mjs";
import { passes, runGates, VITEST } from "./gates.mjs";

const chosen = process.argv.slice(2);
const gates = chosen.length === 0 ? runGates() : { passed: 0, failed: [] };
const tests = runTests(chosen);
const passed = gates.passed + tests.passed;
const failed = gates.failed.length + tests.failed;
if (gates.failed.length > 0) console.log(`Failed besides the tests: ${gates.failed.join(", ")}`);
console.log(`${passed} passed, ${failed} failed${tests.skipped > 0 ? `, ${tests.skipped} skipped` : ""}`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;

function runTests(filters) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "holdfast-test-"));
  const file = path.join(folder, "counts.json");
  const reporters = ["--reporter=default", `--reporter=${path.join(root, "dev/count-reporter.mjs")}`];
  try {
    const ok = passes([...VITEST, ...reporters, ...filters], { HOLDFAST_COUNTS: file });
    const counts = readCounts(file);
    // Whatever vitest ends on that no test stands for is one failure, never a pass.
    return ok || counts.failed > 0 ? counts : { ...counts, failed: 1 };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function readCounts(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return { passed: 0, failed: 1, skipped: 0 };
  }
}
