// Owns the numbers of a test run: writes { passed, failed, skipped } to HOLDFAST_COUNTS when vitest ends.
import { writeFileSync } from "node:fs";

export default class CountReporter {
  onTestRunEnd(modules, unhandledErrors) {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      let failedInside = false;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        failedInside ||= state === "failed";
        counts[state === "pending" ? "failed" : state] += 1;
      }
      // A file that could not be loaded, or whose hook failed, has no failed test to count: it counts itself.
      if (!failedInside && module.state() === "failed") counts.failed += 1;
    }
    writeFileSync(process.env.HOLDFAST_COUNTS, JSON.stringify(counts));
  }
}
