/** `holdfast list`: the runs, newest first. */
import type { Holdfast, ListQuery } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { nearest } from "../../domain/nearest.ts";
import { RUN_STATUSES, type RunStatus } from "../../domain/run.ts";
import { type Context, commandLine, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { type Column, table } from "../table.ts";
import { ago, oneLine, shortId } from "../text.ts";

const COLUMNS: readonly Column[] = [
  { title: "RUN" },
  { title: "WORKFLOW", flexible: true },
  { title: "STATUS" },
  { title: "STEPS", align: "right" },
  { title: "CREATED" },
];

export async function run(context: Context): Promise<number> {
  const query = readQuery(context);
  const noStore = () => show(context, { runs: [] });
  return await withWorkspace(context, { readOnly: true, noStore }, async (holdfast) =>
    show(context, await holdfast.runs.list(query)),
  );
}

function show(context: Context, page: Awaited<ReturnType<Holdfast["runs"]["list"]>>): number {
  const { out } = context;
  if (out.json) {
    out.document(page);
    return EXIT.succeeded;
  }
  const now = context.process.now();
  const rows = page.runs.map((run) => [
    shortId(run.run_id),
    oneLine(`${run.workflow_id}@${run.workflow_revision}`),
    run.suspension === undefined ? run.status : `${run.status}: ${run.suspension}`,
    String(run.usage.steps),
    ago(Date.parse(run.created_at), now),
  ]);
  if (rows.length > 0) out.print(...table(COLUMNS, rows, out.terminal.width));
  else out.note(`No runs here. What could be run: ${commandLine(context, "workflows")}`);
  if (page.next_cursor !== undefined)
    out.note(`More: ${commandLine(context, "list", ...repeat(context), "--cursor", page.next_cursor)}`);
  return EXIT.succeeded;
}

function readQuery(context: Context): ListQuery {
  const { flags } = context;
  const workflow = flags.text("workflow");
  const cursor = flags.text("cursor");
  const status = flags.list("status").flatMap((names) => names.split(",").map(readStatus));
  return {
    limit: flags.whole("limit", 1, 200) ?? 20,
    ...(status.length === 0 ? {} : { status }),
    ...(workflow === undefined ? {} : { workflow_id: workflow }),
    ...(flags.on("waiting") ? { waiting: true } : {}),
    ...(flags.on("children") ? { children: true } : {}),
    ...(cursor === undefined ? {} : { cursor }),
  };
}

function readStatus(name: string): RunStatus {
  const status = RUN_STATUSES.find((s) => s === name);
  if (status !== undefined) return status;
  const meant = nearest(name, RUN_STATUSES);
  throw new HoldfastError(
    "usage",
    `Cannot list: ${JSON.stringify(name)} is no status; ${meant === undefined ? `use ${RUN_STATUSES.join(", ")}` : `did you mean ${meant}?`}`,
  );
}

/** The flags that the next page needs again. */
function repeat(context: Context): string[] {
  const { flags } = context;
  const valued = ["workflow", "limit"].flatMap((name) => {
    const value = flags.text(name);
    return value === undefined ? [] : [`--${name}`, value];
  });
  const switches = ["waiting", "children"].filter((name) => flags.on(name)).map((name) => `--${name}`);
  return [...flags.list("status").flatMap((s) => ["--status", s]), ...valued, ...switches];
}
