/** The demonstration's result for people. */
import type { Json } from "../../domain/json.ts";
import type { Output } from "../output.ts";
import { table } from "../table.ts";
import { byteSize, clip, count, oneLine } from "../text.ts";
import type { Report } from "./sources.ts";

/** The shape is the summarising tool's output schema, which the engine has checked. */
export function reportLines(output: Json, out: Output): string[] {
  const report = output as unknown as Report;
  const { style } = out;
  const width = Math.min(out.terminal.width, 100);
  if (report.files === 0) return ["No source files here. In a folder with some, there is more to see."];
  const lines = [
    style.bold(`${count(report.files, "source file")}, ${report.lines} lines, ${byteSize(report.bytes)}`),
    ...(report.left_out > 0
      ? [style.dim(`${count(report.left_out, "more file")} left out: generated, or too many to watch`)]
      : []),
    "",
    ...section(style.bold("Size by folder"), folders(report, width)),
    ...section(
      style.bold("Longest files"),
      report.longest.map(({ path, lines: n }) => `  ${String(n).padStart(6)}  ${clip(oneLine(path), width - 10)}`),
    ),
    ...section(style.bold(`Open markers: ${report.markers}`), markers(report, width)),
    style.bold(
      `Code files with a test of their own name: ${report.tested} of ${report.tested + report.without_test.length}`,
    ),
    ...withoutTest(report, width),
  ];
  return lines;
}

function section(title: string, lines: readonly string[]): string[] {
  return [title, ...lines, ""];
}

const FOLDERS_SHOWN = 10;

function folders(report: Report, width: number): string[] {
  const rows = report.folders
    .slice(0, FOLDERS_SHOWN)
    .map(({ folder, files, lines, bytes }) => [oneLine(folder), String(files), String(lines), byteSize(bytes)]);
  const columns = [
    { title: "FOLDER", flexible: true },
    { title: "FILES", align: "right" },
    { title: "LINES", align: "right" },
    { title: "SIZE", align: "right" },
  ] as const;
  const rest = report.folders.length - rows.length;
  return [
    ...table(columns, rows, width - 2).map((line) => `  ${line}`),
    ...(rest > 0 ? [`  and ${count(rest, "more folder")}`] : []),
  ];
}

function markers(report: Report, width: number): string[] {
  const shown = report.first_markers.map(
    ({ path, line, text }) => `  ${clip(`${oneLine(path)}:${line}  ${oneLine(text)}`, width - 2)}`,
  );
  const rest = report.markers - shown.length;
  if (report.markers === 0) return ["  none"];
  return rest > 0 ? [...shown, `  and ${rest} more`] : shown;
}

function withoutTest(report: Report, width: number): string[] {
  const shown = report.without_test.slice(0, 6).map((file) => `  ${clip(oneLine(file), width - 2)}`);
  const rest = report.without_test.length - shown.length;
  return [
    ...(shown.length > 0 ? ["  without:"] : []),
    ...shown.map((line) => `  ${line}`),
    ...(rest > 0 ? [`    and ${rest} more`] : []),
  ];
}
