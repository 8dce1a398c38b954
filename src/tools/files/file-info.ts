/** `GetFileInfo`: what a path is, without reading it. */
import { type AnyTool, defineTool } from "../define.ts";
import { locate, openInside, parsePath, showPath, workspaceRoot } from "./confine.ts";

export function fileInfoTool(): AnyTool {
  return defineTool({
    name: "GetFileInfo",
    description:
      "Tells what a path of the workspace is. Answers {path, type, size_bytes, modified_at_ms}; `type` is file, " +
      "directory or other, links are followed inside the workspace, `size_bytes` is 0 for all but files, and times " +
      "are epoch milliseconds.",
    input: {
      type: "object",
      properties: { path: { type: "string", description: "Relative to the workspace, with / between names" } },
      required: ["path"],
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: {
        path: { type: "string" },
        type: { type: "string", enum: ["file", "directory", "other"] },
        size_bytes: { type: "integer" },
        modified_at_ms: { type: "integer" },
      },
      required: ["path", "type", "size_bytes", "modified_at_ms"],
      additionalProperties: false,
    },
    sideEffect: "read_only",
    async run(input, context) {
      context.signal.throwIfAborted();
      const asked = parsePath(input.path);
      const root = await workspaceRoot(context.workspace);
      const place = await locate(root, asked);
      const path = showPath(asked.segments);
      const modified = (ms: number) => Math.max(0, Math.floor(ms));
      if (!place.stat.isFile() && !place.stat.isDirectory())
        return { path, type: "other" as const, size_bytes: 0, modified_at_ms: modified(place.stat.mtimeMs) };
      const type = place.stat.isFile() ? ("file" as const) : ("directory" as const);
      // Asked of the open handle, because the path may by now lead elsewhere (C39).
      const { handle, stat } = await openInside(root, asked, type === "file" ? "file" : "folder");
      await handle.close();
      return { path, type, size_bytes: type === "file" ? stat.size : 0, modified_at_ms: modified(stat.mtimeMs) };
    },
  });
}
