/** `Glob`: the files of the workspace whose paths match a pattern. */
import { type AnyTool, defineTool } from "../define.ts";
import { ToolError } from "../tool-error.ts";
import { locate, type Place, parsePath, showPath, workspaceRoot } from "./confine.ts";
import { DEFAULT_FILES, MAX_FILES } from "./limits.ts";
import { compileGlob } from "./pattern.ts";
import { walk } from "./walk.ts";

export function globTool(): AnyTool {
  return defineTool({
    name: "Glob",
    description:
      "Finds files of the workspace by a pattern such as **/*.ts, sorted by path. Answers {files, truncated}; files are " +
      "relative to the workspace, the pattern to `path`. Knows *, **, ?, [a-z], [!a-z], {a,b}; a leading dot is matched " +
      "like any character. Links are not followed below `path`. .git, node_modules and .holdfast/state are passed over, " +
      "the first two unless the walk begins in them. `limit` is 10,000 unless given, at most 100,000; `truncated` says " +
      "that there may be more: the limit, 500,000 entries or 30 seconds were reached, or a folder could not be read.",
    input: {
      type: "object",
      properties: {
        pattern: { type: "string", description: "Relative to path, with / between names" },
        path: { type: "string", description: "Folder to look in; default the workspace" },
        limit: { type: "integer", minimum: 1, maximum: MAX_FILES, description: "Most files; default 10,000" },
      },
      required: ["pattern"],
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: { files: { type: "array", items: { type: "string" } }, truncated: { type: "boolean" } },
      required: ["files", "truncated"],
      additionalProperties: false,
    },
    sideEffect: "read_only",
    async run(input, context) {
      const glob = compileGlob(input.pattern);
      const asked = parsePath(input.path ?? ".");
      const root = await workspaceRoot(context.workspace);
      await folder(root, asked.segments);
      const base = [...asked.segments, ...glob.base];
      const start = await folder(root, base).catch((error: unknown) => {
        // The pattern's own first names lead nowhere: no file matches. Out of the workspace stays an error.
        if (ToolError.is(error) && error.kind === "execution") return undefined;
        throw error;
      });
      if (start === undefined) return { files: [], truncated: false };
      const limit = input.limit ?? DEFAULT_FILES;
      const walking = walk({ root, start, depth: glob.depth, signal: context.signal });
      const prefix = base.length === 0 ? "" : `${base.join("/")}/`;
      const files: string[] = [];
      for await (const file of walking.files()) {
        if (!glob.matches(file.path)) continue;
        if (files.length === limit) return { files, truncated: true };
        files.push(prefix + file.path);
      }
      return { files, truncated: walking.incomplete };
    },
  });
}

async function folder(root: string, segments: readonly string[]): Promise<Place> {
  const place = await locate(root, { segments, folder: true });
  if (!place.stat.isDirectory())
    throw new ToolError(`Cannot look in ${JSON.stringify(showPath(segments))}: it is no folder`);
  return place;
}
