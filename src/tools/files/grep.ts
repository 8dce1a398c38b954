/** `Grep`: the lines of the workspace's text files that match a pattern. */
import { type AnyTool, defineTool } from "../define.ts";
import {
  locate,
  type Opened,
  openInside,
  openPlace,
  type Place,
  parsePath,
  showPath,
  workspaceRoot,
} from "./confine.ts";
import { DEFAULT_MATCHES, MAX_FILE_BYTES, MAX_MATCHES, MAX_TOTAL_BYTES } from "./limits.ts";
import { compileGlob } from "./pattern.ts";
import { createBreath, createSearcher, type LineMatch } from "./search.ts";
import { decode, isBinary } from "./text.ts";
import { type Walk, type WalkedFile, walk } from "./walk.ts";

/** Files read ahead of the one that is searched: at most so many times 8 MiB are held. */
const READ_AHEAD = 6;

interface Match extends LineMatch {
  readonly path: string;
}

export function grepTool(): AnyTool {
  return defineTool({
    name: "Grep",
    description:
      "Searches text files of the workspace for lines that match a regular expression in RE2 syntax (no look-around, no " +
      "back-references). Answers {matches: [{path, line, text, truncated?}], truncated}, sorted by path and line; paths " +
      "are relative to the workspace. `path` is a file or folder; `glob` keeps only files whose name (or, if it has a " +
      "slash, path below `path`) matches. Binary files and links are passed over, and .git, node_modules and " +
      ".holdfast/state as in Glob. `limit` is 1,000 matches unless given, at most 10,000. Of a long line 1,000 " +
      "characters around the match are shown. `truncated` says that there may be more: the limit was reached, a file is " +
      "larger than 8 MiB, a line longer than 65,536 characters, 1 GiB, 500,000 entries or 30 seconds were reached, or " +
      "something could not be read.",
    input: {
      type: "object",
      properties: {
        pattern: { type: "string", description: "Regular expression, RE2 syntax; at most 1,000 characters" },
        path: { type: "string", description: "File or folder to search; default the workspace" },
        glob: { type: "string", description: "Only files that match, such as *.ts or src/**/*.ts" },
        ignore_case: { type: "boolean", description: "Default false" },
        limit: { type: "integer", minimum: 1, maximum: MAX_MATCHES, description: "Most matches; default 1,000" },
      },
      required: ["pattern"],
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: {
        matches: {
          type: "array",
          items: {
            type: "object",
            properties: {
              path: { type: "string" },
              line: { type: "integer" },
              text: { type: "string" },
              truncated: { type: "boolean" },
            },
            required: ["path", "line", "text"],
            additionalProperties: false,
          },
        },
        truncated: { type: "boolean" },
      },
      required: ["matches", "truncated"],
      additionalProperties: false,
    },
    sideEffect: "read_only",
    async run(input, context) {
      const searcher = createSearcher(input.pattern, input.ignore_case ?? false, createBreath(context.signal));
      const keep = fileFilter(input.glob);
      const asked = parsePath(input.path ?? ".");
      const root = await workspaceRoot(context.workspace);
      const start = await locate(root, asked);
      const limit = input.limit ?? DEFAULT_MATCHES;
      const texts = start.stat.isDirectory()
        ? folderTexts(root, start, asked.segments, keep, context.signal)
        : oneText(await openInside(root, asked, "file"), showPath(asked.segments), keep);
      const matches: Match[] = [];
      let truncated = false;
      for await (const file of texts) {
        if (file.cut) truncated = true;
        const more = await searcher.search(file.text, limit - matches.length, (match) =>
          matches.push({ path: file.path, ...match }),
        );
        if (more) truncated = true;
        // One more match would be too many: another file is only looked at to know whether there is one.
        if (more && matches.length === limit) break;
      }
      return { matches, truncated };
    },
  });
}

/** A file's text; `cut` when a part of it, or of the walk so far, is missing. */
interface FileText {
  readonly path: string;
  readonly text: string;
  readonly cut: boolean;
}

/** A glob without a slash is for the name alone, as in other search tools. */
function fileFilter(pattern: string | undefined): (path: string) => boolean {
  if (pattern === undefined) return () => true;
  const glob = compileGlob(pattern);
  if (!pattern.includes("/")) return (path) => glob.matches(path.slice(path.lastIndexOf("/") + 1));
  const base = glob.base.length === 0 ? "" : `${glob.base.join("/")}/`;
  return (path) => path.startsWith(base) && glob.matches(path.slice(base.length));
}

async function* oneText(
  opened: Opened,
  path: string,
  keep: (path: string) => boolean,
): AsyncGenerator<FileText, void, void> {
  const file = await readText(opened);
  if (file !== undefined && keep(path.slice(path.lastIndexOf("/") + 1))) yield { path, ...file };
}

/** Texts in the order of the walk, the next few already being read. */
async function* folderTexts(
  root: string,
  start: Place,
  shown: readonly string[],
  keep: (path: string) => boolean,
  signal: AbortSignal,
): AsyncGenerator<FileText, void, void> {
  const walking = walk({ root, start, signal });
  const prefix = shown.length === 0 ? "" : `${shown.join("/")}/`;
  const ahead: Promise<Omit<FileText, "path"> | undefined>[] = [];
  const paths: string[] = [];
  let left = MAX_TOTAL_BYTES;
  const next = async (): Promise<FileText | undefined> => {
    const file = await ahead.shift();
    const path = paths.shift() as string;
    if (file === undefined) return undefined;
    left -= file.text.length;
    return { path, ...file };
  };
  try {
    for await (const file of walking.files()) {
      if (!keep(file.path)) continue;
      paths.push(prefix + file.path);
      ahead.push(readWalked(root, file, start));
      if (ahead.length < READ_AHEAD) continue;
      const text = await next();
      if (text !== undefined) yield text;
      if (left <= 0 || walking.late) break;
    }
    while (ahead.length > 0) {
      const text = await next();
      if (text !== undefined) yield text;
    }
    if (left <= 0 || missed(walking)) yield { path: "", text: "", cut: true };
  } finally {
    await Promise.allSettled(ahead);
  }
}

function missed(walking: Walk): boolean {
  return walking.incomplete || walking.late;
}

/** A file that has gone since, or became a link, is no part of the answer; one that may not be read is missing. */
async function readWalked(root: string, file: WalkedFile, start: Place): Promise<Omit<FileText, "path"> | undefined> {
  try {
    const opened = await openPlace(root, { ...file.place, stat: start.stat }, "file", file.path);
    return opened === undefined ? undefined : await readText(opened);
  } catch {
    return { text: "", cut: true };
  }
}

/** The text of an open file, which is closed; `undefined` when it is binary. */
async function readText(opened: Opened): Promise<Omit<FileText, "path"> | undefined> {
  try {
    const { handle, stat } = opened;
    // One byte more than it should have, to see a file that grows; files of /proc and the like say 0.
    let buffer = Buffer.allocUnsafe(Math.min(stat.size + 1, MAX_FILE_BYTES + 1));
    let used = 0;
    for (;;) {
      const { bytesRead } = await handle.read(buffer, used, buffer.length - used, used);
      used += bytesRead;
      if (bytesRead === 0 || used > MAX_FILE_BYTES) break;
      if (isBinary(buffer.subarray(0, used))) return undefined;
      if (used === buffer.length) buffer = Buffer.concat([buffer], Math.min(buffer.length * 2, MAX_FILE_BYTES + 1));
    }
    if (used <= MAX_FILE_BYTES) return { text: decode(buffer.subarray(0, used)), cut: false };
    // The last line is not whole, so it is not searched.
    const end = buffer.lastIndexOf(10, MAX_FILE_BYTES - 1);
    return { text: decode(buffer.subarray(0, end === -1 ? MAX_FILE_BYTES : end + 1)), cut: true };
  } finally {
    await opened.handle.close();
  }
}
