/** `holdfast token`: named tokens of this workspace's server, added and revoked with or without it running. */
import { prepareState } from "../../config/index.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { TokenFolder } from "../../server/index.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../output.ts";
import { table } from "../table.ts";
import { oneLine } from "../text.ts";

export async function run(context: Context): Promise<number> {
  const [action = "list", name, ...more] = context.args;
  const tokens = await folder(context);
  if (more.length > 0 || (action === "list") !== (name === undefined) || !["list", "add", "revoke"].includes(action))
    throw new HoldfastError(
      "usage",
      `Cannot run token ${JSON.stringify(oneLine(action))}: it knows add NAME --role ROLE, list, and revoke NAME`,
    );
  if (action === "add") return add(context, tokens, name ?? "");
  if (action === "revoke") return revoke(context, tokens, name ?? "");
  return list(context, tokens);
}

async function folder(context: Context): Promise<TokenFolder> {
  const root = await context.process.load();
  const { workspace } = context.globals;
  const found =
    workspace === undefined
      ? root.findWorkspace(context.process.cwd, context.process.env)
      : root.openWorkspaceFolder(workspace);
  return new TokenFolder(prepareState({ ...found, origin: "given" }));
}

function add(context: Context, tokens: TokenFolder, name: string): number {
  const role = context.flags.text("role");
  if (role !== "observer" && role !== "operator")
    throw new HoldfastError(
      "usage",
      "Cannot add a token: say what it may do with --role observer (look) or --role operator (everything)",
    );
  const added = tokens.add(name, role, context.process.now());
  if (context.out.json) context.out.document(added);
  else {
    context.out.print(added.token);
    context.out.note(
      `This is the token "${name}" (${role}). It is shown once and kept nowhere; a running server takes it at once.`,
    );
  }
  return EXIT.succeeded;
}

function revoke(context: Context, tokens: TokenFolder, name: string): number {
  const role = tokens.list().find((token) => token.name.toLowerCase() === name.toLowerCase())?.role;
  tokens.revoke(name);
  if (context.out.json) context.out.document({ name, role, revoked: true });
  else context.out.note(`Revoked "${oneLine(name)}": it is refused from now on.`);
  return EXIT.succeeded;
}

function list(context: Context, tokens: TokenFolder): number {
  const known = tokens.list();
  if (context.out.json) {
    context.out.document({ tokens: known });
    return EXIT.succeeded;
  }
  const rows = known.map(({ name, role, created_at_ms }) => [
    name,
    role,
    new Date(created_at_ms).toISOString().slice(0, 10),
  ]);
  if (rows.length > 0)
    context.out.print(
      ...table(
        [{ title: "NAME", flexible: true }, { title: "ROLE" }, { title: "ADDED" }],
        rows,
        context.out.terminal.width,
      ),
    );
  else context.out.note("No named tokens. A running server's own token is in server.json in the state folder.");
  return EXIT.succeeded;
}
