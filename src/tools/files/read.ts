/** `Read`, also named `read_file`: the text of one file, by lines. */
import type { FileHandle } from "node:fs/promises";
import { type AnyTool, defineTool } from "../define.ts";
import { failed, openInside, parsePath, showPath, workspaceRoot } from "./confine.ts";
import { MAX_CONTENT_CHARS, MAX_READ_BYTES } from "./limits.ts";
import { characterStart, isBinary } from "./text.ts";

const CHUNK_BYTES = 65_536;

/** The same tool under the two names that RP-19 knows. */
export function readTool(name: "Read" | "read_file"): AnyTool {
  return defineTool({
    name,
    description:
      "Reads a text file of the workspace. Answers {path, content, truncated, first_line, lines, size_bytes, " +
      "next_offset?}. `offset` is the first line wanted, from 1; `limit` the most lines. At most 1,048,576 characters " +
      "are answered; `truncated` says that the file goes on, `next_offset` with which line. Text is UTF-8; other bytes " +
      "become U+FFFD; a file with a NUL in its first 8 KiB is binary and refused.",
    input: {
      type: "object",
      properties: {
        path: { type: "string", description: "Relative to the workspace, with / between names" },
        offset: { type: "integer", minimum: 1, description: "First line, from 1; default 1" },
        limit: { type: "integer", minimum: 1, description: "Most lines; default all" },
      },
      required: ["path"],
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: {
        path: { type: "string" },
        content: { type: "string" },
        truncated: { type: "boolean" },
        first_line: { type: "integer" },
        lines: { type: "integer" },
        size_bytes: { type: "integer" },
        next_offset: { type: "integer" },
      },
      required: ["path", "content", "truncated", "first_line", "lines", "size_bytes"],
      additionalProperties: false,
    },
    sideEffect: "read_only",
    async run(input, context) {
      context.signal.throwIfAborted();
      const asked = parsePath(input.path);
      const path = showPath(asked.segments);
      const opened = await openInside(await workspaceRoot(context.workspace), asked, "file");
      try {
        const window = { first: input.offset ?? 1, most: input.limit ?? Number.POSITIVE_INFINITY };
        const part = await readLines(opened.handle, window, path, context.signal);
        return {
          path,
          content: part.content,
          truncated: part.more,
          first_line: window.first,
          lines: part.lines,
          size_bytes: opened.stat.size,
          ...(part.more ? { next_offset: window.first + part.lines } : {}),
        };
      } finally {
        await opened.handle.close();
      }
    },
  });
}

interface Part {
  readonly content: string;
  readonly lines: number;
  /** The file goes on after it. */
  readonly more: boolean;
}

async function readLines(
  handle: FileHandle,
  window: { first: number; most: number },
  path: string,
  signal: AbortSignal,
): Promise<Part> {
  let content = "";
  let line = 1;
  const last = window.first + window.most;
  for await (const text of readText(handle, path, signal)) {
    let from = 0;
    while (line < window.first && from < text.length) {
      const end = text.indexOf("\n", from);
      if (end === -1) break;
      from = end + 1;
      line++;
    }
    if (line < window.first) continue;
    // The file goes on, and all that was asked for is there.
    if (line >= last && from < text.length) return { content, lines: line - window.first, more: true };
    let to = from;
    while (line < last && to < text.length) {
      const end = text.indexOf("\n", to);
      to = end === -1 ? text.length : end + 1;
      if (end !== -1) line++;
    }
    content += text.slice(from, to);
    if (content.length > MAX_CONTENT_CHARS) return cut(content);
    if (to < text.length) return { content, lines: line - window.first, more: true };
  }
  const open = content !== "" && !content.endsWith("\n") ? 1 : 0;
  return { content, lines: Math.max(0, line - window.first) + open, more: false };
}

/** Cuts after a whole line where there is one, else between two characters. */
function cut(content: string): Part {
  const lineEnd = content.lastIndexOf("\n", MAX_CONTENT_CHARS - 1);
  const kept = content.slice(0, lineEnd === -1 ? characterStart(content, MAX_CONTENT_CHARS) : lineEnd + 1);
  return { content: kept, lines: lineEnd === -1 ? 1 : kept.split("\n").length - 1, more: true };
}

/** The file's text piece by piece. A line that was skipped is never held whole. */
async function* readText(handle: FileHandle, path: string, signal: AbortSignal): AsyncGenerator<string, void, void> {
  const decoder = new TextDecoder("utf-8");
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let position = 0;
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await handle.read(buffer, 0, CHUNK_BYTES, position);
    if (bytesRead === 0) break;
    const bytes = buffer.subarray(0, bytesRead);
    if (position === 0 && isBinary(bytes)) throw failed(path, "it is a binary file");
    position += bytesRead;
    if (position > MAX_READ_BYTES)
      throw failed(path, `what was asked for begins or ends past its first ${MAX_READ_BYTES} bytes`);
    yield decoder.decode(bytes, { stream: true });
  }
  const rest = decoder.decode();
  if (rest !== "") yield rest;
}
