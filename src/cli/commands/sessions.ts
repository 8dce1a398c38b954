/** `holdfast sessions`: who owns runs, and what they may do. */
import type { SessionView } from "../../access/api.ts";
import { sessionDoc } from "../../access/index.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { nearest } from "../../domain/nearest.ts";
import type { SessionPatch } from "../../ports/index.ts";
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { table } from "../table.ts";
import { oneLine } from "../text.ts";

const ACTIONS = ["list", "create", "show", "set"] as const;
const POSTURES = ["ask", "auto", "read_only"] as const;

export async function run(context: Context): Promise<number> {
  const [word = "list", name, ...words] = context.args;
  const action = ACTIONS.find((known) => known === word);
  if (action === undefined)
    throw new HoldfastError(
      "usage",
      `Cannot run sessions ${JSON.stringify(oneLine(word))}: it knows list, create NAME, show SESSION and set SESSION KEY=VALUE${did(word)}`,
    );
  if ((action === "list") !== (name === undefined) || (action === "set") !== words.length > 0)
    throw new HoldfastError("usage", `Cannot run sessions ${action}: ${usageOf(action)}`);
  const patch = action === "set" ? readPatch(words) : {};
  const reads = action === "list" || action === "show";
  return await withWorkspace(
    context,
    { readOnly: reads, ...(action === "list" ? { noStore: () => showAll(context, []) } : {}) },
    async (holdfast) => {
      const { sessions } = holdfast;
      if (action === "list") return showAll(context, await sessions.list());
      if (action === "create")
        return showOne(context, await sessions.get((await sessions.create({ name: name ?? "" })).session_id));
      if (action === "set") await sessions.update(name ?? "", patch);
      return showOne(context, await sessions.get(name ?? ""));
    },
  );
}

function did(word: string): string {
  const meant = nearest(word, ACTIONS);
  return meant === undefined ? "" : `; did you mean ${meant}?`;
}

function usageOf(action: (typeof ACTIONS)[number]): string {
  if (action === "list") return "it takes no more words";
  if (action === "set") return "give a session and what to set, such as: sessions set default posture=auto";
  return "give exactly one session";
}

/** @throws HoldfastError `usage` */
function readPatch(words: readonly string[]): SessionPatch {
  const patch: { -readonly [key in "posture" | "orchestration_opt_in"]?: SessionPatch[key] } = {};
  for (const word of words) {
    const [key = "", value = ""] = word.split("=", 2);
    const posture = POSTURES.find((known) => known === value);
    if (key === "posture" && posture !== undefined) patch.posture = posture;
    else if (key === "opt_in" && (value === "true" || value === "false")) patch.orchestration_opt_in = value === "true";
    else
      throw new HoldfastError(
        "usage",
        `Cannot set ${JSON.stringify(oneLine(word))}: give posture=${POSTURES.join("|")} or opt_in=true|false`,
      );
  }
  return patch as SessionPatch;
}

function showAll(context: Context, sessions: readonly SessionView[]): number {
  const { out } = context;
  if (out.json) out.document({ sessions: sessions.map((session) => sessionDoc(session, { operator: true })) });
  else if (sessions.length > 0) out.print(...table(COLUMNS, sessions.map(row), out.terminal.width));
  else out.note("No session yet: the first run makes the session `default`.");
  return EXIT.succeeded;
}

function showOne(context: Context, session: SessionView): number {
  const { out } = context;
  if (out.json) out.document(sessionDoc(session, { operator: true }));
  else out.print(...table(COLUMNS, [row(session)], out.terminal.width));
  return EXIT.succeeded;
}

const COLUMNS = [
  { title: "NAME", flexible: true },
  { title: "POSTURE" },
  { title: "OPT-IN" },
  { title: "OPEN RUNS", align: "right" },
  { title: "ID", flexible: true },
] as const;

function row(session: SessionView): string[] {
  return [
    oneLine(session.name),
    session.posture,
    session.orchestration_opt_in ? "yes" : "no",
    String(session.active_runs),
    session.session_id,
  ];
}
