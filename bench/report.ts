/** The table of DESIGN §15 as it was measured: figures beside their bounds, what the engine costs, what is missed. */
import { cpus, release, totalmem } from "node:os";
import { openDatabase } from "../src/stores/sqlite/driver.ts";
import { type Bound, type Cost, type Figure, type Hot, type Measured, shown } from "./measure.ts";

/** A workload's figures, and where its time goes when it misses a must. */
export interface Result extends Measured {
  readonly name: string;
  readonly hot?: readonly Hot[];
  /** Why there are no figures. */
  readonly failed?: string;
}

export interface Conditions {
  readonly date: Date;
  /** Size of the measures when it is not the full one. */
  readonly tiny: boolean;
  readonly seconds: number;
}

/** CPU of others, in cores, above which figures say little. */
const MOST_OTHERS = 0.5;

export function report(results: readonly Result[], conditions: Conditions): string {
  const figures = results.flatMap((result) => result.figures);
  const costs = results.flatMap((result) => result.costs ?? []);
  return `${[
    "# What `npm run bench` measured",
    ...heading(conditions),
    ...warning(costs),
    table(figures),
    "Figures are medians; each is taken beside its floor or raw rate in the same minute on the same disk, all at `synchronous=FULL`. " +
      "*Floor*: a run row and one journal row for each event, a commit for each event; *group floor*: one commit for all events of " +
      "one turn of the event loop; *raw rate*: single-row durable commits (docs/performance.md).",
    ...(costs.length === 0 ? [] : ["## What a step costs", costTable(costs)]),
    "## What is missed",
    missed(results),
  ].join("\n\n")}\n`;
}

function heading({ date, tiny, seconds }: Conditions): string[] {
  const [processor] = cpus();
  const machine = [
    `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`,
    `${cpus().length} × ${processor?.model.trim() ?? "unknown processor"}`,
    `${Math.round(totalmem() / 2 ** 30)} GiB`,
    `${process.platform} ${release()}`,
    `Node ${process.versions.node}`,
    `SQLite ${sqliteVersion()}`,
    `took ${Math.round(seconds)} s`,
  ].join(" · ");
  return tiny ? [machine, "**Tiny sizes: these figures only show that every workload works.**"] : [machine];
}

/** Ratios too wander where others compete for the processor: ours needs it, a floor mostly waits for the disk. */
function warning(costs: readonly Cost[]): string[] {
  const most = Math.max(0, ...costs.map(({ others }) => others));
  if (most <= MOST_OTHERS) return [];
  return [`**Other processes took up to ${shown(most)} cores meanwhile; measure again on a quiet machine.**`];
}

function sqliteVersion(): string {
  const db = openDatabase(":memory:", { readOnly: false });
  const { version } = db.get<{ version: string }>("SELECT sqlite_version() AS version") ?? { version: "unknown" };
  db.close();
  return version;
}

function table(figures: readonly Figure[]): string {
  const rows = figures.map(({ work, value, must, aim, beside }) => {
    const verdict = (bound: Bound): string => `${boundText(bound)} ${meets(value, bound) ? "✓" : "✗"}`;
    return `| ${work} | **${shown(value)}** ${must.unit} | ${verdict(must)} | ${verdict(aim)} | ${beside} |`;
  });
  return ["| work | measured | must | aim | in figures |", "| --- | --- | --- | --- | --- |", ...rows].join("\n");
}

function costTable(costs: readonly Cost[]): string {
  const rows = costs.map((cost) => `| ${cost.work} | ${shown(cost.stepMicros)} | ${shown(cost.others)} |`);
  const head = [
    "| work | CPU of the process, µs a step | CPU that others took meanwhile, cores |",
    "| --- | --: | --: |",
  ];
  return [...head, ...rows].join("\n");
}

export function meets(value: number, { is, value: bound }: Bound): boolean {
  return is === "at most" ? value <= bound : value >= bound;
}

function boundText({ is, value, unit }: Bound): string {
  // Bounds of DESIGN are short numbers; those that follow from a floor are rounded.
  const number = Number.isInteger(value * 100) ? String(value) : shown(value);
  return `${is === "at most" ? "≤" : "≥"} ${number} ${unit}`;
}

export function misses(measured: Measured): readonly Figure[] {
  return measured.figures.filter(({ value, must }) => !meets(value, must));
}

function missed(results: readonly Result[]): string {
  const lines = results.flatMap((result) => {
    const again = `\`npm run bench -- ${result.name}\``;
    if (result.failed !== undefined) return [`- **${result.name} failed** (${again}): ${result.failed}`];
    const those = misses(result);
    const sentences = those.map(
      ({ work, value, must }) =>
        `- **${work}** (${again}): ${shown(value)} ${must.unit} where ${boundText(must)} is a must; ${factor(value, must)}.`,
    );
    return [...sentences, ...(result.hot === undefined ? [] : [hotText(result.name, result.hot)])];
  });
  return lines.length === 0 ? "Nothing: every must is reached." : lines.join("\n");
}

function factor(value: number, must: Bound): string {
  const times = must.is === "at most" ? value / must.value : must.value / value;
  return `${shown(times)} times too ${must.is === "at most" ? "much" : "little"}`;
}

function hotText(name: string, hot: readonly Hot[]): string {
  const shares = hot.map(({ where, share }) => `  - ${(share * 100).toFixed(1)} % ${where}`);
  return [
    `- Where the time of ${name} goes (self time of the main thread, once more under the profiler):`,
    ...shares,
  ].join("\n");
}
