/** `holdfast waits`: the inbox. */
import type { Holdfast } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { nearest } from "../../domain/nearest.ts";
import { WAIT_TYPES, type WaitType } from "../../domain/run.ts";
import { type Context, commandLine, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { waitCommands, waitSubject } from "../render/wait.ts";
import { type Column, table } from "../table.ts";
import { ago, elapsed, oneLine, shortId } from "../text.ts";

const COLUMNS: readonly Column[] = [
  { title: "RUN" },
  { title: "WAIT" },
  { title: "WORKFLOW", flexible: true },
  { title: "FOR" },
  { title: "WHAT", flexible: true },
  { title: "SINCE" },
  { title: "DEADLINE" },
];

/** The first waits are shown with the commands that end them; each of the others by `why`. */
const WITH_COMMANDS = 5;

export async function run(context: Context): Promise<number> {
  const { flags } = context;
  const cursor = flags.text("cursor");
  const query = {
    limit: flags.whole("limit", 1, 200) ?? 50,
    type: flags.list("type").flatMap((names) => names.split(",").map(readType)),
    all_sessions: flags.on("allSessions"),
    ...(cursor === undefined ? {} : { cursor }),
  };
  const noStore = () => show(context, { waits: [] });
  return await withWorkspace(context, { readOnly: true, noStore }, async (holdfast) => {
    const { type, all_sessions, ...rest } = query;
    return show(
      context,
      await holdfast.waits.list({
        ...rest,
        ...(type.length === 0 ? {} : { type }),
        ...(all_sessions ? { all_sessions } : {}),
      }),
    );
  });
}

function show(context: Context, page: Awaited<ReturnType<Holdfast["waits"]["list"]>>): number {
  const { out } = context;
  if (out.json) {
    out.document(page);
    return EXIT.succeeded;
  }
  const now = context.process.now();
  const rows = page.waits.map((wait) => [
    shortId(wait.run_id),
    oneLine(wait.wait_id),
    oneLine(wait.workflow_id),
    wait.type,
    waitSubject(wait),
    ago(wait.since_ms, now),
    wait.deadline_at_ms === undefined ? "" : `in ${elapsed(wait.deadline_at_ms - now)}`,
  ]);
  if (rows.length === 0) out.note("Nothing waits for anyone.");
  else out.print(...table(COLUMNS, rows, out.terminal.width));
  const all = context.flags.on("allSessions");
  const commands = page.waits
    .slice(0, WITH_COMMANDS)
    .flatMap((wait) => waitCommands(wait, all ? inSession(context, wait.session_id) : context));
  if (commands.length > 0) out.note("", ...commands.map((command) => `  ${command}`));
  if (page.next_cursor !== undefined) {
    const same = [
      ...context.flags.list("type").flatMap((type) => ["--type", type]),
      ...(all ? ["--all-sessions"] : []),
    ];
    out.note(`More: ${commandLine(context, "waits", ...same, "--cursor", page.next_cursor)}`);
  }
  return EXIT.succeeded;
}

/** Printed commands then reach the session that the wait is of, whichever this command was called with. */
function inSession(context: Context, session: string): Context {
  const { repeated } = context.globals;
  const at = repeated.indexOf("--session");
  const others = at < 0 ? repeated : [...repeated.slice(0, at), ...repeated.slice(at + 2)];
  return { ...context, globals: { ...context.globals, repeated: [...others, "--session", session] } };
}

function readType(name: string): WaitType {
  const type = WAIT_TYPES.find((t) => t === name);
  if (type !== undefined) return type;
  const meant = nearest(name, WAIT_TYPES);
  throw new HoldfastError(
    "usage",
    `Cannot list waits: ${JSON.stringify(name)} is no type; ${meant === undefined ? `use ${WAIT_TYPES.join(", ")}` : `did you mean ${meant}?`}`,
  );
}
