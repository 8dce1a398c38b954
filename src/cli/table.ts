/** Tables for people: columns as wide as their content, the last flexible one cut to the terminal. */
import { clip, displayWidth } from "./text.ts";

export interface Column {
  readonly title: string;
  readonly align?: "left" | "right";
  /** May be cut when the table is wider than the terminal; the widest such column gives way first. */
  readonly flexible?: true;
}

const GAP = "  ";
const LEAST = 8;

/**
 * @param rows one text a column, without colours or newlines
 * @param width terminal columns; Infinity leaves every cell whole
 * @returns lines, the heading first; trailing blanks removed
 */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], width: number): string[] {
  const cells = [columns.map((column) => column.title), ...rows];
  const widths = columns.map((_, c) => Math.max(...cells.map((row) => displayWidth(row[c] ?? ""))));
  narrow(columns, widths, width);
  return cells.map((row) =>
    columns
      .map((column, c) => pad(clip(row[c] ?? "", widths[c] ?? 0), widths[c] ?? 0, column.align))
      .join(GAP)
      .trimEnd(),
  );
}

/** Takes what is too much from the widest flexible column, again and again, until it fits or nothing gives. */
function narrow(columns: readonly Column[], widths: number[], width: number): void {
  let excess = widths.reduce((sum, w) => sum + w, 0) + GAP.length * (columns.length - 1) - width;
  while (excess > 0) {
    let widest = -1;
    for (const [c, column] of columns.entries())
      if (column.flexible && (widths[c] ?? 0) > LEAST && (widths[c] ?? 0) > (widths[widest] ?? 0)) widest = c;
    if (widest < 0) return;
    widths[widest] = (widths[widest] ?? 0) - 1;
    excess--;
  }
}

function pad(text: string, width: number, align: "left" | "right" = "left"): string {
  const blanks = " ".repeat(Math.max(0, width - displayWidth(text)));
  return align === "right" ? blanks + text : text + blanks;
}
