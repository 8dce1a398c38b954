/** Is this installation fit to run work, part by part, and what to do where it is not. */
import { existsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import path from "node:path";
import { HoldfastError } from "../domain/errors.ts";
import type { Installation } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";

type Check = Installation["checks"][number];

/** Less than this and a run may not be able to write its next step. */
const LEAST_FREE_BYTES = 100_000_000;

export async function installation(context: AccessContext): Promise<Installation> {
  const checks = [
    nodeCheck(),
    { name: "workspace", ok: true, detail: context.workspace },
    trustCheck(context),
    await diskCheck(context.workspace),
    await storeCheck(context),
  ];
  return { ok: checks.every((check) => check.ok), checks };
}

/** Node 20.19 or newer. */
export function nodeCheck(): Check {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const ok = major > 20 || (major === 20 && minor >= 19);
  const detail = `${process.versions.node} on ${process.platform} ${process.arch}`;
  return { name: "node", ok, detail, ...(ok ? {} : { fix: "install Node 20.19 or newer" }) };
}

function trustCheck(context: AccessContext): Check {
  return {
    name: "trust",
    ok: true,
    detail: context.trusted()
      ? "trusted: its configuration takes effect"
      : "not trusted: reading only, no code of it is loaded",
  };
}

/** Room where the workspace's runs are written. */
export async function diskCheck(workspace: string): Promise<Check> {
  let folder = path.join(workspace, ".holdfast", "state");
  while (!existsSync(folder) && path.dirname(folder) !== folder) folder = path.dirname(folder);
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const ok = free >= LEAST_FREE_BYTES;
  return {
    name: "disk",
    ok,
    detail: `${Math.floor(free / 1_000_000)} MB free under ${folder}`,
    ...(ok ? {} : { fix: "free some space, or keep runs elsewhere with --store" }),
  };
}

async function storeCheck(context: AccessContext): Promise<Check> {
  try {
    const info = await needStore(context).info();
    const detail = `${info.engine} ${info.engine_version}, schema ${info.schema_version}, synchronous=${info.synchronous}, ${info.bytes} bytes, ${info.runs} runs`;
    return { name: "store", ok: true, detail };
  } catch (error) {
    if (!HoldfastError.is(error)) throw error;
    return { name: "store", ok: false, detail: error.message, fix: "see: holdfast store info" };
  }
}
