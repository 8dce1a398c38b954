/** Text for people: what comes from runs made harmless, widths, quoting for the shell, sizes and times. */

// Control, hidden and bidirectional characters could hide or reorder what a person decides on, or drive the
// terminal: C0 but tab and newline, DEL and C1, soft hyphen, Arabic letter mark, zero-width and bidi marks,
// separators, invisible operators, byte order mark, interlinear marks and the tag block.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

function escapeUnits(text: string): string {
  let out = "";
  for (let i = 0; i < text.length; i++) out += `\\u${text.charCodeAt(i).toString(16).padStart(4, "0")}`;
  return out;
}

/** Text safe for a terminal: hidden, control and bidirectional characters as `\uXXXX`; tabs and newlines stay. */
export function printable(text: string): string {
  return text.toWellFormed().replace(HIDDEN, escapeUnits);
}

/** `printable` on one line: newlines and tabs are escaped too. */
export function oneLine(text: string): string {
  return printable(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

/** JSON text with the same characters escaped: equal as JSON, harmless on a terminal. `indent` 0: one line. */
export function jsonText(value: unknown, indent = 0): string {
  return (JSON.stringify(value, undefined, indent) ?? "null").replace(HIDDEN, escapeUnits);
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const COMBINING = /\p{M}/u;

const COLOUR = /\u001b\[[0-9;]*m/g;

/** Terminal columns that the text takes; our own colour sequences take none. */
export function displayWidth(text: string): number {
  const bare = text.replace(COLOUR, "");
  let width = 0;
  for (const char of bare) width += COMBINING.test(char) ? 0 : WIDE.test(char) ? 2 : 1;
  return width;
}

/** The text cut to `columns`, its end marked; never splits a character. Expects no colours. */
export function clip(text: string, columns: number, mark = "…"): string {
  if (displayWidth(text) <= columns) return text;
  let out = "";
  let width = displayWidth(mark);
  for (const char of text) {
    width += displayWidth(char);
    if (width > columns) break;
    out += char;
  }
  return out + mark;
}

/** One word for a POSIX shell: bare when harmless, else in single quotes (`'each@root[3]'`). */
export function shellQuote(word: string): string {
  if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** `850 ms`, `4.2 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`. */
export function elapsed(ms: number): string {
  const whole = Math.max(0, Math.round(ms));
  if (whole < 1_000) return `${whole} ms`;
  if (whole < 60_000) return `${(whole / 1_000).toFixed(1)} s`;
  const seconds = Math.floor(whole / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1_440) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(minutes / 1_440)} d ${Math.floor((minutes % 1_440) / 60)} h`;
}

/** `just now`, `4 min ago`, `3 h ago`, `12 d ago`. */
export function ago(atMs: number, nowMs: number): string {
  const seconds = Math.floor((nowMs - atMs) / 1_000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** `812 B`, `4.1 kB`, `12.3 MB`, `1.2 GB`. */
export function byteSize(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`;
  if (bytes < 1_000_000_000) return `${(bytes / 1_000_000).toFixed(1)} MB`;
  return `${(bytes / 1_000_000_000).toFixed(1)} GB`;
}

/** `1 step`, `3 steps`. */
export function count(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** The end of a run id that lists show: random in every UUID, so it tells runs apart (its beginning does not). */
export function shortId(runId: string): string {
  return /^[0-9a-f-]{36}$/.test(runId) ? runId.slice(-12) : runId;
}
