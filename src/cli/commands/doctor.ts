/** `holdfast doctor`: is this installation fit to run work; with a run, whether its own records agree (GD-73). */
import path from "node:path";
import { diskCheck, type Finding, type Installation, nodeCheck } from "../../access/index.ts";
import { ERRORS, HoldfastError } from "../../domain/errors.ts";
import { type Context, commandLine, isMissingStore, openRequest, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import type { CompositionRoot, Opened } from "../root.ts";
import { byteSize, count, oneLine, printable } from "../text.ts";

type Check = Installation["checks"][number];

const MAX_LIMIT = 1_000;

export function run(context: Context): Promise<number> {
  const limit = context.flags.whole("limit", 1, MAX_LIMIT);
  const [ref] = context.args;
  if (ref !== undefined) return examine(context, ref, limit);
  if (limit !== undefined)
    throw new HoldfastError("usage", "Cannot use --limit without a run: it bounds the findings of one; name the run");
  return checkInstallation(context);
}

/** Reads the run's journal and what is derived from it; changes nothing. */
async function examine(context: Context, ref: string, limit: number | undefined): Promise<number> {
  return await withWorkspace(context, { readOnly: true }, async (holdfast) => {
    const runId = await holdfast.runs.find(ref);
    const { findings, truncated } = await holdfast.runs.doctor(runId, limit);
    const { out } = context;
    if (out.json) out.document({ findings, truncated });
    else {
      const { style } = out;
      if (findings.length === 0) out.print(`${style.good(style.done)} run ${runId}: its records agree`);
      out.print(...findings.flatMap((finding) => findingLines(context, finding)));
      if (truncated) out.note(`There are more: ${commandLine(context, "doctor", runId, "--limit", String(MAX_LIMIT))}`);
    }
    return findings.length === 0 ? EXIT.succeeded : EXIT.failed;
  });
}

function findingLines(context: Context, finding: Finding): string[] {
  const { style } = context.out;
  return [
    `${style.bad(style.failed)} ${finding.code}  ${printable(finding.message)}`,
    `  ${style.warn(printable(finding.guidance))}`,
  ];
}

async function checkInstallation(context: Context): Promise<number> {
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
