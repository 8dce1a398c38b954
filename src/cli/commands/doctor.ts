/** `holdfast doctor`: is this installation fit to run work, and what to do where it is not. */
import { existsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import path from "node:path";
import { ERRORS, HoldfastError } from "../../domain/errors.ts";
import { type Context, commandLine, isMissingStore, openRequest } from "../context.ts";
import { EXIT } from "../output.ts";
import type { CompositionRoot, Opened } from "../root.ts";
import { byteSize, count, oneLine } from "../text.ts";

interface Check {
  readonly name: string;
  readonly ok: boolean;
  readonly detail: string;
  readonly fix?: string;
}

/** Less than this and a run may not be able to write its next step. */
const LEAST_FREE_BYTES = 100_000_000;

export async function run(context: Context): Promise<number> {
  const checks: Check[] = [nodeCheck()];
  let unavailable = false;
  const root = await context.process.load();
  const opened = await opening(context, root, false);
  if ("error" in opened) checks.push(failed("config", opened.error, "correct the file that it names"));
  else {
    checks.push(...workspaceChecks(context, opened));
    await opened.holdfast.close();
    checks.push(await diskCheck(opened.workspace));
    const store = await storeCheck(context, root);
    unavailable = store.unavailable;
    checks.push(store.check);
  }
  const ok = checks.every((check) => check.ok);
  if (context.out.json) context.out.document({ ok, checks });
  else context.out.print(...checks.flatMap((check) => checkLines(context, check)));
  if (ok) return EXIT.succeeded;
  return unavailable ? EXIT.unavailable : EXIT.failed;
}

function nodeCheck(): Check {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const ok = major > 20 || (major === 20 && minor >= 19);
  const detail = `${process.versions.node} on ${process.platform} ${process.arch}`;
  return { name: "node", ok, detail, ...(ok ? {} : { fix: "install Node 20.19 or newer" }) };
}

async function opening(
  context: Context,
  root: CompositionRoot,
  needStore: boolean,
): Promise<Opened | { error: HoldfastError }> {
  try {
    return await root.openWorkspace({ ...openRequest(context), needStore, readOnly: true });
  } catch (error) {
    if (HoldfastError.is(error)) return { error };
    throw error;
  }
}

function failed(name: string, error: HoldfastError, fix: string): Check {
  return { name, ok: false, detail: oneLine(error.message), fix };
}

function workspaceChecks(context: Context, opened: Opened): Check[] {
  const errors = opened.diagnostics.filter(({ severity }) => severity === "error");
  const config =
    opened.configFile === undefined
      ? "no configuration file; the defaults hold"
      : oneLine(path.basename(opened.configFile));
  return [
    { name: "workspace", ok: true, detail: oneLine(opened.workspace) },
    {
      name: "trust",
      ok: true,
      detail: opened.trusted
        ? "trusted: its configuration takes effect"
        : `not trusted: reading only, no code of it is loaded (${commandLine(context, "trust")})`,
    },
    {
      name: "config",
      ok: errors.length === 0,
      detail:
        errors.length === 0
          ? config
          : `${config}: ${count(errors.length, "error")}, first: ${oneLine(errors[0]?.message ?? "")}`,
      ...(errors.length === 0 ? {} : { fix: commandLine(context, "check") }),
    },
  ];
}

async function diskCheck(workspace: string): Promise<Check> {
  let folder = path.join(workspace, ".holdfast", "state");
  while (!existsSync(folder) && path.dirname(folder) !== folder) folder = path.dirname(folder);
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const ok = free >= LEAST_FREE_BYTES;
  return {
    name: "disk",
    ok,
    detail: `${byteSize(free)} free under ${oneLine(folder)}`,
    ...(ok ? {} : { fix: "free some space, or keep runs elsewhere with --store" }),
  };
}

/** Opens the store as every command does, so that what it says is what they will meet. */
async function storeCheck(context: Context, root: CompositionRoot): Promise<{ check: Check; unavailable: boolean }> {
  const opened = await opening(context, root, true);
  if ("error" in opened) return storeFailure(opened.error);
  try {
    const info = await opened.holdfast.storeInfo();
    const detail = `${info.engine} ${info.engine_version}, schema ${info.schema_version}, synchronous=${info.synchronous}, ${byteSize(info.bytes)}, ${count(info.runs, "run")}, ${info.url}`;
    return { check: { name: "store", ok: true, detail: oneLine(detail) }, unavailable: false };
  } catch (error) {
    if (HoldfastError.is(error)) return storeFailure(error);
    throw error;
  } finally {
    await opened.holdfast.close();
  }
}

function storeFailure(error: HoldfastError): { check: Check; unavailable: boolean } {
  if (isMissingStore(error))
    return { check: { name: "store", ok: true, detail: "none yet; the first run makes it" }, unavailable: false };
  return {
    check: failed("store", error, ERRORS[error.code].action),
    unavailable: ERRORS[error.code].exit === EXIT.unavailable,
  };
}

function checkLines(context: Context, check: Check): string[] {
  const { style } = context.out;
  const mark = check.ok ? style.good(style.done) : style.bad(style.failed);
  const line = `${mark} ${check.name.padEnd(10)} ${check.detail}`;
  return check.fix === undefined ? [line] : [line, `  ${" ".repeat(10)} ${style.warn(check.fix)}`];
}
