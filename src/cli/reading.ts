/** Documents that a command reads: bounded before they are parsed (DESIGN §11), from a file or standard input. */
import { open } from "node:fs/promises";
import path from "node:path";
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import type { Context } from "./context.ts";
import { MAX_INPUT_BYTES } from "./inputs.ts";
import { oneLine } from "./text.ts";

/** @throws HoldfastError `usage` (no such file), `too_large`, `input` (not UTF-8) */
export async function readText(context: Context, file: string, flag: string): Promise<{ name: string; text: string }> {
  const name = file === "-" ? "standard input" : file;
  const bytes = file === "-" ? await readStdin(context, flag) : await readFile(context, file, flag);
  if (bytes.length > MAX_INPUT_BYTES)
    throw new HoldfastError(
      "too_large",
      `Cannot read ${name}: it is larger than 1 MiB; give less, or a path that a step reads`,
    );
  try {
    return { name, text: new TextDecoder("utf-8", { fatal: true }).decode(bytes) };
  } catch {
    throw new HoldfastError("input", `Cannot read ${name}: it is not UTF-8 text; save it as UTF-8`);
  }
}

/** @throws HoldfastError as `readText`, and `input` when it is no JSON */
export async function readJsonFile(context: Context, file: string, flag: string): Promise<Json> {
  const { name, text } = await readText(context, file, flag);
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    throw new HoldfastError("input", `Cannot read ${name}: it is not JSON (${oneLine(String(error))}); correct it`);
  }
}

async function readFile(context: Context, file: string, flag: string): Promise<Uint8Array> {
  let handle: Awaited<ReturnType<typeof open>> | undefined;
  try {
    handle = await open(path.resolve(context.process.cwd, file), "r");
    const buffer = Buffer.alloc(MAX_INPUT_BYTES + 1);
    let length = 0;
    // A pipe gives what it has: read until the end or the bound, whatever the file says its size is.
    for (let got = 1; got > 0 && length < buffer.length; length += got)
      got = (await handle.read(buffer, length, buffer.length - length)).bytesRead;
    return buffer.subarray(0, length);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
    throw new HoldfastError(
      "usage",
      `Cannot read ${flag} ${oneLine(file)}: ${READ_ERRORS.get(code) ?? code}; check the path`,
    );
  } finally {
    await handle?.close();
  }
}

const READ_ERRORS = new Map([
  ["ENOENT", "there is no such file"],
  ["EACCES", "it may not be read"],
  ["EISDIR", "it is a folder"],
]);

async function readStdin(context: Context, flag: string): Promise<Uint8Array> {
  const { stdin } = context.process.streams;
  if (stdin.isTTY === true)
    throw new HoldfastError(
      "usage",
      `Cannot read ${flag} -: standard input is a terminal; pipe a document into the command`,
    );
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of stdin) {
    const bytes = Buffer.isBuffer(chunk) ? chunk : Buffer.from(String(chunk));
    chunks.push(bytes);
    length += bytes.length;
    if (length > MAX_INPUT_BYTES) break;
  }
  return Buffer.concat(chunks);
}
