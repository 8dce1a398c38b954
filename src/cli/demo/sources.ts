/** What the demonstration takes for source files, and what it reports of them. Pure. */
import path from "node:path";

/** Endings of source files; the find step's pattern is made from them. */
export const EXTENSIONS = [
  "ts",
  "tsx",
  "mts",
  "js",
  "jsx",
  "mjs",
  "cjs",
  "py",
  "go",
  "rs",
  "java",
  "kt",
  "rb",
  "php",
  "c",
  "h",
  "cpp",
  "hpp",
  "cs",
  "swift",
  "scala",
  "lua",
  "sh",
  "sql",
  "css",
  "html",
  "vue",
  "svelte",
  "md",
  "yaml",
  "yml",
] as const;

/** Below folders of these names nothing was written by hand. */
const GENERATED = new Set([
  "node_modules",
  "dist",
  "build",
  "out",
  "target",
  "coverage",
  "vendor",
  "venv",
  "__pycache__",
]);

/** Files that the demonstration measures at most: enough for a picture, few enough to watch. */
export const MOST_FILES = 400;

/** Root files and everything below folders whose name does not begin with a dot. */
export const SOURCE_PATTERN = `{,[!.]*/**/}*.{${EXTENSIONS.join(",")}}`;

export interface Picked {
  readonly found: boolean;
  readonly files: string[];
  /** Files that were found and not picked: generated, or past the limit. */
  readonly left_out: number;
}

/** Hand-written files, spread over the whole list when there are too many. */
export function pickSources(files: readonly string[]): Picked {
  const written = files.filter((file) => !file.split("/").some((name) => name.startsWith(".") || GENERATED.has(name)));
  const every = Math.max(1, written.length / MOST_FILES);
  const picked: string[] = [];
  for (let at = 0; at < written.length && picked.length < MOST_FILES; at += every) {
    const file = written[Math.floor(at)];
    if (file !== undefined) picked.push(file);
  }
  return { found: picked.length > 0, files: picked, left_out: files.length - picked.length };
}

export interface Measured {
  readonly path: string;
  readonly lines: number;
  readonly bytes: number;
}

export interface Marker {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

export interface Report {
  readonly files: number;
  readonly lines: number;
  readonly bytes: number;
  readonly left_out: number;
  readonly folders: {
    readonly folder: string;
    readonly files: number;
    readonly lines: number;
    readonly bytes: number;
  }[];
  readonly longest: { readonly path: string; readonly lines: number }[];
  readonly markers: number;
  readonly first_markers: Marker[];
  readonly tested: number;
  readonly without_test: string[];
}

const SHOWN = 8;

export function summarise(measured: readonly Measured[], markers: readonly Marker[], leftOut: number): Report {
  const known = new Set(measured.map((file) => file.path));
  const own = markers.filter((marker) => known.has(marker.path));
  const { tested, untested } = byTest([...known]);
  const sum = (pick: (file: Measured) => number, files = measured) =>
    files.reduce((total, file) => total + pick(file), 0);
  const folders = new Map<string, Measured[]>();
  for (const file of measured) {
    const folder = folderOf(file.path);
    folders.set(folder, [...(folders.get(folder) ?? []), file]);
  }
  return {
    files: measured.length,
    lines: sum((file) => file.lines),
    bytes: sum((file) => file.bytes),
    left_out: leftOut,
    folders: [...folders]
      .map(([folder, files]) => ({
        folder,
        files: files.length,
        lines: sum((f) => f.lines, files),
        bytes: sum((f) => f.bytes, files),
      }))
      .sort((a, b) => b.bytes - a.bytes || (a.folder < b.folder ? -1 : 1)),
    longest: [...measured]
      .sort((a, b) => b.lines - a.lines || (a.path < b.path ? -1 : 1))
      .slice(0, SHOWN)
      .map((file) => ({ path: file.path, lines: file.lines })),
    markers: own.length,
    first_markers: own
      .slice(0, SHOWN)
      .map(({ path: file, line, text }) => ({ path: file, line, text: text.trim().slice(0, 160) })),
    tested,
    without_test: untested,
  };
}

/** The first two levels: `src/cli`, `src`, or `.` for the root. */
function folderOf(file: string): string {
  return file.split("/").slice(0, -1).slice(0, 2).join("/") || ".";
}

const CODE = /\.(?:[cm]?[jt]sx?|py|go|rs|java|kt|rb|php|cs|swift|scala|lua)$/;
const TEST_FILE = /(?:[._-](?:test|spec)|Tests?)\.[a-z]+$|^test_/;
const TEST_FOLDER = /(?:^|\/)(?:tests?|__tests__|spec)\//;
/** Entry lists, declarations and configuration hold nothing to test. */
const NOTHING_TO_TEST = /(?:^|\/)(?:index|mod|__init__|main)\.[a-z]+$|\.d\.[cm]?ts$|\.config\.[a-z]+$/;

/** Code files that some test names, and those that none does (`a.ts` and `a.test.ts`, `test_a.py`, `a_test.go`). */
function byTest(files: readonly string[]): { tested: number; untested: string[] } {
  const isTest = (file: string) => TEST_FILE.test(path.posix.basename(file)) || TEST_FOLDER.test(file);
  const subjects = new Set(files.filter(isTest).map((file) => subjectOf(file)));
  const code = files.filter((file) => CODE.test(file) && !isTest(file) && !NOTHING_TO_TEST.test(file));
  const untested = code.filter((file) => !subjects.has(subjectOf(file)));
  return { tested: code.length - untested.length, untested };
}

function subjectOf(file: string): string {
  const stem = path.posix.basename(file).replace(/\.[a-z]+$/, "");
  return stem
    .replace(/[._-](?:test|spec)$|Tests?$/, "")
    .replace(/^test_/, "")
    .toLowerCase();
}
