/** `holdfast init`: a first workflow in a project. Never overwrites. */
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, commandLine } from "../context.ts";
import { CONFIG_TS, CONFIG_YAML, HELLO_YAML } from "../init-files.ts";
import { EXIT } from "../output.ts";
import { jsonText, oneLine, shellQuote } from "../text.ts";

export async function run(context: Context): Promise<number> {
  const { process, args, out } = context;
  const folder = path.resolve(process.cwd, args[0] ?? context.globals.workspace ?? ".");
  const config = readConfigKind(context.flags.text("config"));
  const root = await process.load();
  if (config !== undefined) refuseSecondConfig(root.configFiles(folder), config);
  const files: [string, string][] = [
    [path.join(".holdfast", "workflows", "hello.yaml"), HELLO_YAML],
    [path.join(".holdfast", "plan.schema.json"), `${jsonText(root.planEditorSchema(), 2)}\n`],
  ];
  if (config === "yaml") files.push(["holdfast.config.yaml", CONFIG_YAML]);
  if (config === "yaml")
    files.push([path.join(".holdfast", "config.schema.json"), `${jsonText(await root.configEditorSchema(), 2)}\n`]);
  if (config === "ts") files.push(["holdfast.config.ts", CONFIG_TS]);
  const created: string[] = [];
  const kept: string[] = [];
  for (const [name, text] of files) ((await writeNew(folder, name, text)) ? created : kept).push(name);
  if (out.json) out.document({ created: created.map((name) => path.join(folder, name)) });
  else out.print(...created.map((name) => `${out.style.good(out.style.done)} ${oneLine(name)}`));
  out.note(
    ...kept.map((name) => `${out.style.dim(out.style.skipped)} ${oneLine(name)} is there already and stays as it is`),
  );
  if (!out.json) out.note("", ...nextSteps(context, folder, config !== undefined));
  return EXIT.succeeded;
}

function readConfigKind(text: string | undefined): "yaml" | "ts" | undefined {
  if (text === undefined || text === "yaml" || text === "ts") return text;
  throw new HoldfastError(
    "usage",
    `Cannot write a configuration: ${JSON.stringify(text)} is no kind; give --config yaml or --config ts`,
  );
}

/** Exactly one configuration may be there: a second one would stop every command. */
function refuseSecondConfig(present: readonly string[], kind: "yaml" | "ts"): void {
  const other = present.map((file) => path.basename(file)).find((name) => name !== `holdfast.config.${kind}`);
  if (other !== undefined)
    throw new HoldfastError(
      "usage",
      `Cannot write holdfast.config.${kind}: ${other} is there already and only one may be; edit that one`,
    );
}

/** @returns false when the file was there: it is left alone, whatever it holds */
async function writeNew(folder: string, name: string, text: string): Promise<boolean> {
  const file = path.join(folder, name);
  try {
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, text, { flag: "wx" });
    return true;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "EEXIST") return false;
    throw new HoldfastError(
      "usage",
      `Cannot write ${oneLine(file)}: ${String(code ?? error)}; choose a folder that you may write to`,
    );
  }
}

function nextSteps(context: Context, folder: string, hasConfig: boolean): string[] {
  const there =
    folder === context.process.cwd ? [] : [`  cd ${shellQuote(path.relative(context.process.cwd, folder) || ".")}`];
  return [
    "Next:",
    ...there,
    `  ${commandLine(context, "check")}`,
    `  ${commandLine(context, "preview", "hello")}`,
    `  ${commandLine(context, "run", "hello")}`,
    ...(hasConfig ? [`  ${commandLine(context, "trust")}      # so that the configuration takes effect`] : []),
  ];
}
