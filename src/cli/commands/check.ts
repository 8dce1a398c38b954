/** `holdfast check`: the mistakes in workflow files, with line and column. */
import type { Diagnostic } from "../../domain/plan/index.ts";
import { type Context, commandLine, openRequest, withWorkspace } from "../context.ts";
import { diagnosticLines, EXIT } from "../output.ts";
import { count } from "../text.ts";

export async function run(context: Context): Promise<number> {
  const { diagnostics, checked } = context.args.length > 0 ? await checkFiles(context) : await checkCatalog(context);
  const errors = diagnostics.filter(({ severity }) => severity === "error").length;
  const warnings = diagnostics.length - errors;
  const { out } = context;
  if (out.json) out.document({ ok: errors === 0, diagnostics });
  else {
    out.print(...diagnosticLines(diagnostics, out.style));
    const found = errors + warnings === 0 ? "no mistakes" : `${count(errors, "error")}, ${count(warnings, "warning")}`;
    out.note(`${errors === 0 ? out.style.good(out.style.done) : out.style.bad(out.style.failed)} ${checked}: ${found}`);
    if (checked.startsWith("0 ")) out.note(`Write a first workflow: ${commandLine(context, "init")}`);
  }
  return errors === 0 ? EXIT.succeeded : EXIT.refused;
}

interface Checked {
  readonly diagnostics: readonly Diagnostic[];
  readonly checked: string;
}

async function checkFiles(context: Context): Promise<Checked> {
  const root = await context.process.load();
  const request = { ...openRequest(context), needStore: false, readOnly: true };
  return { diagnostics: await root.checkFiles(request, context.args), checked: count(context.args.length, "file") };
}

/** Built-ins are ours and checked by our tests; what is shadowed is only said, never an error. */
async function checkCatalog(context: Context): Promise<Checked> {
  return await withWorkspace(context, { needStore: false, readOnly: true }, async (holdfast) => {
    const entries = (await holdfast.workflows.list()).filter(({ source }) => source !== "builtin");
    return { diagnostics: entries.flatMap((entry) => entry.diagnostics), checked: count(entries.length, "workflow") };
  });
}
