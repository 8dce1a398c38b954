/** `list_directory`: the entries of one folder. */
import { lstat } from "node:fs/promises";
import { join } from "node:path";
import { type AnyTool, defineTool } from "../define.ts";
import { failed, folderName, type Opened, openInside, parsePath, showPath, stayed, workspaceRoot } from "./confine.ts";
import { MAX_ENTRIES } from "./limits.ts";
import { type Entry, listFolder } from "./walk.ts";

const AT_ONCE = 64;

export function listDirectoryTool(): AnyTool {
  return defineTool({
    name: "list_directory",
    description:
      "Lists one folder of the workspace, sorted. Answers {entries: [{name, type, size_bytes}], truncated}; `type` is " +
      "file, directory, link or other, and `size_bytes` is 0 for all but files. At most 5,000 entries are answered.",
    input: {
      type: "object",
      properties: { path: { type: "string", description: "Relative to the workspace; . for the workspace itself" } },
      required: ["path"],
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: {
        entries: {
          type: "array",
          items: {
            type: "object",
            properties: {
              name: { type: "string" },
              type: { type: "string", enum: ["file", "directory", "link", "other"] },
              size_bytes: { type: "integer" },
            },
            required: ["name", "type", "size_bytes"],
            additionalProperties: false,
          },
        },
        truncated: { type: "boolean" },
      },
      required: ["entries", "truncated"],
      additionalProperties: false,
    },
    sideEffect: "read_only",
    async run(input, context) {
      const asked = parsePath(input.path);
      const root = await workspaceRoot(context.workspace);
      const opened = await openInside(root, asked, "folder");
      try {
        const listing = await listFolder(root, opened);
        if (listing === undefined) throw changed(asked.segments);
        const entries = await withSizes(opened, listing.entries.slice(0, MAX_ENTRIES), context.signal);
        if (!(await stayed(root, opened))) throw changed(asked.segments);
        return { entries, truncated: listing.incomplete || listing.entries.length > MAX_ENTRIES };
      } finally {
        await opened.handle.close();
      }
    },
  });
}

interface SizedEntry extends Entry {
  readonly size_bytes: number;
}

async function withSizes(opened: Opened, entries: readonly Entry[], signal: AbortSignal): Promise<SizedEntry[]> {
  const sized: SizedEntry[] = [];
  const sizeOf = async (entry: Entry): Promise<SizedEntry | undefined> => {
    if (entry.type !== "file") return { ...entry, size_bytes: 0 };
    // Gone since it was listed: then it is no entry.
    const stat = await lstat(join(folderName(opened), entry.name)).catch(() => undefined);
    return stat === undefined ? undefined : { ...entry, size_bytes: stat.isFile() ? stat.size : 0 };
  };
  for (let i = 0; i < entries.length; i += AT_ONCE) {
    signal.throwIfAborted();
    const part = await Promise.all(entries.slice(i, i + AT_ONCE).map(sizeOf));
    sized.push(...part.filter((entry) => entry !== undefined));
  }
  return sized;
}

function changed(segments: readonly string[]): Error {
  return failed(showPath(segments), "it kept changing while it was read; try again");
}
