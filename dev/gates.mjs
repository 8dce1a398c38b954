// Owns the checks beside the tests: each is one command with a status, the same for `npm run check` and `npm test`.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { root } from "./bundle.mjs";

const bin = (name, file) => path.join(root, "node_modules", name, file);

/** In the order in which a failure is the cheapest to see. */
export const GATES = [
  { name: "format and lint", command: [bin("@biomejs/biome", "bin/biome"), "check", "--error-on-warnings"] },
  {
    name: "types",
    command: [
      bin("typescript", "bin/tsc"),
      ...["-p", ".", "--noEmit", "--incremental", "--tsBuildInfoFile", ".cache/tsc.tsbuildinfo"],
    ],
  },
  {
    name: "promises",
    command: [
      bin("eslint", "bin/eslint.js"),
      ...["--max-warnings", "0", "--no-warn-ignored", "--no-error-on-unmatched-pattern", "src", "test", "bench"],
    ],
  },
];

/** Runs one tool of node_modules to its end, its words going to this terminal. @returns {boolean} whether it passed */
export function passes(command, env = {}) {
  mkdirSync(path.join(root, ".cache"), { recursive: true });
  const { status, error } = spawnSync(process.execPath, command, {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, ...env },
  });
  if (error !== undefined) console.error(`Cannot run ${command[0]}: ${error.message}`);
  return status === 0;
}

/** Runs every gate, also after one has failed. @returns {{ passed: number, failed: string[] }} */
export function runGates() {
  const failed = [];
  for (const { name, command } of GATES) {
    const started = Date.now();
    const ok = passes(command);
    console.log(`${ok ? "passed" : "FAILED"}: ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
    if (!ok) failed.push(name);
  }
  return { passed: GATES.length - failed.length, failed };
}

/** Arguments that run vitest once. */
export const VITEST = [bin("vitest", "vitest.mjs"), "run"];
