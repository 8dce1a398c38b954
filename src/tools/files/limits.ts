/** Every bound of the file tools, in one place; their descriptions and docs/ state the same numbers. */

/** Longest path, glob or search pattern, in characters. */
export const MAX_PATH = 4_096;
export const MAX_GLOB = 1_000;
export const MAX_PATTERN = 1_000;

/** `Read`: most text of one answer, and most bytes it goes through to find the first line asked for. */
export const MAX_CONTENT_CHARS = 1_048_576;
export const MAX_READ_BYTES = 67_108_864;
/** Bytes in which a NUL makes a file binary. */
export const BINARY_PROBE_BYTES = 8_192;

/** `list_directory`: most entries of one answer. */
export const MAX_ENTRIES = 5_000;
/** Most names read from one folder, before sorting. */
export const MAX_NAMES = 100_000;

/** `Glob`: files of one answer. */
export const DEFAULT_FILES = 10_000;
export const MAX_FILES = 100_000;

/** `Glob`, `Grep`: most entries gone through, deepest folder, longest time. */
export const MAX_WALKED = 500_000;
export const MAX_DEPTH = 100;
export const MAX_WALK_MS = 30_000;

/** `Grep`: matches of one answer, bytes searched of one file and of all, characters searched and shown of a line. */
export const DEFAULT_MATCHES = 1_000;
export const MAX_MATCHES = 10_000;
export const MAX_FILE_BYTES = 8_388_608;
export const MAX_TOTAL_BYTES = 1_073_741_824;
export const MAX_LINE_SEARCHED = 65_536;
export const MAX_LINE_SHOWN = 1_000;

/** Folders that `Glob` and `Grep` pass over unless the walk begins inside one. */
export const SKIPPED_FOLDERS: ReadonlySet<string> = new Set([".git", "node_modules"]);
