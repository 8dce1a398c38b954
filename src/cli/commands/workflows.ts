/** `holdfast workflows`: what the catalog found, and where. */
import path from "node:path";
import type { Holdfast, WorkflowEntry } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { nearest } from "../../domain/nearest.ts";
import { type Context, commandLine, withWorkspace } from "../context.ts";
import { diagnosticLines, EXIT } from "../output.ts";
import { type Column, table } from "../table.ts";
import { jsonText, oneLine, printable } from "../text.ts";

const ACTIONS = ["list", "show", "reload"] as const;

const COLUMNS: readonly Column[] = [
  { title: "WORKFLOW", flexible: true },
  { title: "KIND" },
  { title: "FROM" },
  { title: "STATE" },
  { title: "WHAT IT DOES", flexible: true },
];

export async function run(context: Context): Promise<number> {
  const action = readAction(context);
  return await withWorkspace(context, { needStore: false, readOnly: true }, async (holdfast, { workspace }) => {
    if (action === "show") return await show(context, holdfast);
    if (action === "reload") return await reload(context, holdfast);
    return await list(context, holdfast, workspace);
  });
}

function readAction(context: Context): (typeof ACTIONS)[number] {
  const [word = "list", named] = context.args;
  const action = ACTIONS.find((name) => name === word);
  if (action === undefined) {
    const meant = nearest(word, ACTIONS);
    throw new HoldfastError(
      "usage",
      `Cannot run workflows ${JSON.stringify(oneLine(word))}: it knows list, show and reload; ${
        meant === undefined
          ? `to look at one: ${commandLine(context, "workflows", "show", word)}`
          : `did you mean ${meant}?`
      }`,
    );
  }
  if ((action === "show") !== (named !== undefined))
    throw new HoldfastError(
      "usage",
      `Cannot run workflows ${action}: it takes ${action === "show" ? "a workflow" : "no more words"}; see ${commandLine(context, "workflows", "--help")}`,
    );
  return action;
}

async function list(context: Context, holdfast: Holdfast, workspace: string): Promise<number> {
  const { out } = context;
  const workflows = await holdfast.workflows.list();
  if (out.json) {
    out.document({ workflows });
    return EXIT.succeeded;
  }
  const rows = workflows.map((entry) => [
    oneLine(entry.revision > 0 ? `${entry.workflow_id}@${entry.revision}` : entry.workflow_id),
    entry.kind,
    entry.source,
    entry.state,
    oneLine(entry.title ?? entry.description ?? "").trim(),
  ]);
  if (rows.length > 0) out.print(...table(COLUMNS, rows, out.terminal.width));
  const broken = workflows.filter(({ state }) => state === "broken");
  if (broken.length > 0) {
    out.note("", out.style.bad(`Broken: ${broken.map((entry) => whereFrom(entry, workspace)).join(", ")}`));
    out.note(`  ${commandLine(context, "check")}`);
  }
  if (!workflows.some(({ source }) => source === "workspace"))
    out.note(`None of this workspace's own. Write one: ${commandLine(context, "init")}`);
  return EXIT.succeeded;
}

function whereFrom(entry: WorkflowEntry, workspace: string): string {
  if (entry.path === undefined) return oneLine(entry.workflow_id);
  const relative = path.relative(workspace, entry.path);
  return oneLine(relative.startsWith("..") ? entry.path : relative);
}

async function show(context: Context, holdfast: Holdfast): Promise<number> {
  const { out } = context;
  const entry = await holdfast.workflows.get(context.args[1] ?? "");
  if (out.json) out.document(entry);
  else out.print(...entryLines(entry, context));
  return EXIT.succeeded;
}

function entryLines(entry: WorkflowEntry, context: Context): string[] {
  const { style } = context.out;
  const lines = [`${style.bold(`${oneLine(entry.workflow_id)}@${entry.revision}`)}  ${entry.state}`];
  const field = (name: string, value: string | undefined) => {
    if (value !== undefined) lines.push(`${style.dim(name.padEnd(8))} ${value.replaceAll("\n", `\n${" ".repeat(9)}`)}`);
  };
  field("title", entry.title === undefined ? undefined : oneLine(entry.title));
  field("about", entry.description === undefined ? undefined : printable(entry.description).trim());
  field("kind", entry.kind);
  field("from", [entry.source, ...(entry.path === undefined ? [] : [oneLine(entry.path)])].join("  "));
  field("hash", entry.definition_hash);
  field("started", startedBy(entry));
  field("input", entry.input_schema === undefined ? undefined : jsonText(entry.input_schema, 2));
  field("output", entry.output_schema === undefined ? undefined : jsonText(entry.output_schema, 2));
  lines.push(...diagnosticLines(entry.diagnostics, style));
  if (entry.state === "valid" && entry.kind !== "instruction")
    lines.push(
      "",
      `  ${commandLine(context, "preview", entry.workflow_id)}`,
      `  ${commandLine(context, "run", entry.workflow_id)}`,
    );
  return lines;
}

function startedBy({ invocation_policy: { explicit, automatic } }: WorkflowEntry): string {
  if (explicit && automatic) return "by people, programs and models";
  if (explicit) return "by people and programs";
  return automatic ? "by models only" : "by nobody; only from other workflows";
}

async function reload(context: Context, holdfast: Holdfast): Promise<number> {
  const { out } = context;
  const { publication_revision, diagnostics } = await holdfast.workflows.reload();
  const workflows = await holdfast.workflows.list();
  if (out.json) out.document({ workflows });
  else {
    out.print(...diagnosticLines(diagnostics, out.style));
    out.note(`${out.style.done} Read again: publication ${publication_revision}, ${workflows.length} workflows.`);
  }
  return diagnostics.some(({ severity }) => severity === "error") ? EXIT.refused : EXIT.succeeded;
}
