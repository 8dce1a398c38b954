/**
 * `npm run bench [-- NAME …] [--tiny] [--profile] [--out FILE]`: measures the rows of DESIGN §15 beside their floors,
 * prints the table, and writes it to bench/RESULTS.md when all of it was measured at full size, else only to FILE.
 * Where a must is missed, or with `--profile`, the work is done once more under the profiler.
 */
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs, stripVTControlCharacters } from "node:util";
import { serveAsChild } from "./child.ts";
import { type Bench, collectGarbage, FULL, TINY, type Workload } from "./measure.ts";
import { misses, type Result, report } from "./report.ts";
import { CHILD_WORKS, WORKLOADS } from "./workloads/index.ts";

const WRONG_USAGE = 2;
const LONGEST_FAILURE = 500;
/** Units of what a profile of the processor does not explain. */
const NO_TIMES: ReadonlySet<string> = new Set(["MB", "B a step", "runs", "steps"]);
const RESULTS = join("bench", "RESULTS.md");

interface Asked {
  readonly workloads: readonly Workload[];
  readonly tiny: boolean;
  readonly profile: boolean;
  readonly out: string | undefined;
}

function asked(): Asked {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { tiny: { type: "boolean" }, profile: { type: "boolean" }, out: { type: "string" } },
  });
  const names = WORKLOADS.map(({ name }) => name);
  const unknown = positionals.find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new Error(`Cannot measure: there is no "${unknown}"; choose among ${names.join(", ")}, or name none for all`);
  const all = positionals.length === 0;
  const tiny = values.tiny === true;
  return {
    workloads: all ? WORKLOADS : WORKLOADS.filter(({ name }) => positionals.includes(name)),
    tiny,
    profile: values.profile === true,
    out: values.out ?? (all && !tiny ? RESULTS : undefined),
  };
}

/** One workload that fails leaves the others their figures; the command then fails in the end. */
async function measure(workload: Workload, bench: Bench, profile: boolean): Promise<Result> {
  const start = performance.now();
  process.stderr.write(`${workload.name} … `);
  collectGarbage();
  try {
    const measured = await workload.measure(bench);
    const slow = misses(measured).some(({ must }) => !NO_TIMES.has(must.unit));
    const wanted = profile || (slow && bench.size === FULL);
    const hot = wanted ? await workload.profile?.(bench) : undefined;
    process.stderr.write(`${((performance.now() - start) / 1000).toFixed(1)} s\n`);
    return { name: workload.name, ...measured, ...(hot === undefined ? {} : { hot }) };
  } catch (error) {
    const failed = oneLine(error instanceof Error ? error.message : String(error));
    process.stderr.write(`failed: ${failed}\n`);
    return { name: workload.name, figures: [], failed };
  }
}

/** What failed, short and plain enough for a line of the report. */
function oneLine(message: string): string {
  return stripVTControlCharacters(message).replaceAll(/\s+/g, " ").slice(0, LONGEST_FAILURE);
}

async function main({ workloads, tiny, profile, out }: Asked): Promise<void> {
  const parent = realpathSync(mkdtempSync(join(tmpdir(), "holdfast-bench-")));
  const bench: Bench = { size: tiny ? TINY : FULL, folder: () => mkdtempSync(join(parent, "work-")) };
  const [date, start] = [new Date(), performance.now()];
  try {
    const results: Result[] = [];
    for (const workload of workloads) results.push(await measure(workload, bench, profile));
    const text = report(results, { date, tiny, seconds: (performance.now() - start) / 1000 });
    process.stdout.write(text);
    const failed = results.some((result) => result.failed !== undefined);
    // The last whole measurement is worth more than half of a new one.
    if (out !== undefined && !(failed && out === RESULTS)) writeFileSync(out, text);
    if (failed) process.exitCode = 1;
  } finally {
    rmSync(parent, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** What was asked for, or undefined once the mistake in it has been told. */
function understood(): Asked | undefined {
  try {
    return asked();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = WRONG_USAGE;
    return undefined;
  }
}

if (!(await serveAsChild(CHILD_WORKS))) {
  const wanted = understood();
  if (wanted !== undefined) await main(wanted);
}
