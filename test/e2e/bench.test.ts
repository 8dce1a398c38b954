// Every workload of `npm run bench` works and fills its rows. No figure is judged here: times belong to no test.
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const ROWS = [
  "W1 one run of 3 steps",
  "sequential steps, read-only",
  "sequential steps, strict",
  "sequential steps, mutating",
  "W2 ",
  "W3 growth",
  "W3 disk",
  "W3 memory",
  "W4 ",
  "W5 5 runs in flight",
  "W5 runs lost",
  "W5 settled steps run again",
  "W6 5 asleep: memory",
  "W6 5 asleep: CPU",
  "5 starts at once over HTTP",
  '`import "holdfast"`',
  "`holdfast --help`",
];
const folder = mkdtempSync(path.join(os.tmpdir(), "bench-"));
const run = promisify(execFile);
const bench = (...words: string[]) => run(process.execPath, [path.join(ROOT, "dev", "bench.mjs"), ...words]);
let report = "";

beforeAll(async () => {
  const out = path.join(folder, "report.md");
  const { stdout } = await bench("--tiny", "--out", out);
  report = readFileSync(out, "utf8");
  expect(stdout).toBe(report);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("every row of the table is there, with a number, its bounds and what it was taken beside", () => {
  const rows = report.split("\n").filter((line) => line.startsWith("| ") && /[✓✗]/.test(line));
  expect(rows.map((row) => ROWS.find((name) => row.startsWith(`| ${name}`)))).toEqual(ROWS);
  for (const row of rows)
    expect(row).toMatch(/^\| .+ \| \*\*-?[\d.,]+\*\* .+ \| [≤≥] .+ [✓✗] \| [≤≥] .+ [✓✗] \| .+ \|$/);
  expect(report).not.toContain("failed");
});

test("a run killed with everything in flight loses nothing", () => {
  expect(report).toMatch(/^\| W5 runs lost \| \*\*0\.00\*\* runs/m);
});

test("figures of tiny sizes say that they mean nothing", () => {
  expect(report).toContain("only show that every workload works");
  expect(report).toMatch(/Node \d+\.\d+\.\d+ · SQLite \d+\.\d+/);
});

test("an unknown name is refused with the known ones, before anything is measured", async () => {
  await expect(bench("w9")).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/^Cannot measure: there is no "w9"; choose among w1, .*start-up/),
  });
});
