/**
 * Whether a command works through a server or opens the store itself (interfaces §2). `--server` and HOLDFAST_SERVER
 * always mean the server. Without them, what moves runs goes through the server that `<state>/server.json` names, when
 * it lives, drives runs and serves this workspace's own store: so the run is where it is looked after. So does `why`: a
 * step that waits for its turn is known to that process alone. What else only reads, and what HTTP does not offer, opens the store beside it, which SQLite allows.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { connect } from "../client/index.ts";
import { isLive, readServerFile, type ServerFile, serverFilePath } from "../config/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Context } from "./context.ts";
import type { CompositionRoot, Opened } from "./root.ts";

export interface RemoteWish {
  readonly readOnly?: boolean;
  /** It only reads, but what the process that drives the run knows besides the store counts. */
  readonly live?: boolean;
  readonly needStore?: boolean;
  /** The command does what no server offers. */
  readonly direct?: boolean;
}

const MAX_TOKEN_FILE = 16_384;

/** Undefined: open the store here. @throws HoldfastError `usage`, `unauthorized`, `server_unavailable` */
export async function openRemote(
  context: Context,
  root: CompositionRoot,
  wish: RemoteWish,
): Promise<Opened | undefined> {
  const { globals, process } = context;
  const found =
    globals.workspace === undefined
      ? root.findWorkspace(process.cwd, process.env)
      : root.openWorkspaceFolder(globals.workspace);
  const file = serverFilePath(found.state_dir);
  if (globals.server !== undefined) {
    if (wish.direct === true)
      throw new HoldfastError(
        "usage",
        "Cannot do this through a server: its HTTP interface does not offer it; leave --server out",
      );
    return opened(context, found.root, globals.server, tokenFor(context, globals.server, file));
  }
  const server = isOwnWish(context, wish) ? await ownServer(file, found.state_dir) : undefined;
  return server === undefined ? undefined : opened(context, found.root, server.url, server.token);
}

/** What is done on the store itself, whoever serves beside it, unless a server is named. */
export function opensStore(wish: RemoteWish): boolean {
  return (wish.readOnly === true && wish.live !== true) || wish.needStore === false;
}

/** Only where the command line would otherwise drive runs itself, with nothing said that the server may not share. */
function isOwnWish({ globals, process, args }: Context, wish: RemoteWish): boolean {
  if (opensStore(wish) || wish.direct === true) return false;
  if (globals.store !== undefined || process.env.HOLDFAST_TRUST === "1") return false;
  // Files and hashes are this machine's own.
  return !args.some(
    (word) => word.includes("/") || word.startsWith("hash:") || /\.(?:ya?ml|json|toml|lua|[cm]?[jt]s)$/.test(word),
  );
}

async function ownServer(file: string, stateDir: string): Promise<ServerFile | undefined> {
  if (!existsSync(file)) return undefined;
  const server = readServerFile(file);
  if (server?.drives !== true || server.store !== `sqlite:${path.join(stateDir, "holdfast.db")}`) return undefined;
  return (await isLive(server)) ? server : undefined;
}

async function opened(context: Context, workspace: string, url: string, token: string): Promise<Opened> {
  const { session } = context.globals;
  const holdfast = connect({ url, token, ...(session === undefined ? {} : { session }) });
  const trusted = (await ownSession(holdfast, session ?? "default")).trusted;
  return { holdfast, workspace, trusted, diagnostics: [] };
}

/** A session named on the command line is made on first use, as it is when the store is opened here. */
async function ownSession(holdfast: Opened["holdfast"], name: string): Promise<{ readonly trusted: boolean }> {
  try {
    return await holdfast.sessions.get(name);
  } catch (error) {
    if (!HoldfastError.is(error) || error.code !== "not_found") throw error;
    await holdfast.sessions.create({ name });
    return holdfast.sessions.get(name);
  }
}

/** HOLDFAST_TOKEN, then --token-file or HOLDFAST_TOKEN_FILE, then this workspace's own server, if it is that one. */
function tokenFor({ globals, process }: Context, url: string, own: string): string {
  const given = process.env.HOLDFAST_TOKEN;
  if (globals.tokenFile === undefined && given !== undefined && given !== "") return given;
  if (globals.tokenFile !== undefined) return readTokenFile(path.resolve(process.cwd, globals.tokenFile));
  const server = readServerFile(own);
  if (server !== undefined && sameOrigin(server.url, url)) return server.token;
  throw new HoldfastError(
    "unauthorized",
    `Cannot use the server at ${url}: no token is given; set HOLDFAST_TOKEN or name a file with --token-file`,
  );
}

function sameOrigin(a: string, b: string): boolean {
  return URL.canParse(a) && URL.canParse(b) && new URL(a).origin === new URL(b).origin;
}

/** A file that holds a token alone, or a `server.json`. */
function readTokenFile(file: string): string {
  let text = "";
  try {
    if (statSync(file).size <= MAX_TOKEN_FILE) text = readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new HoldfastError(
      "usage",
      `Cannot read the token file ${JSON.stringify(file)}: ${(error as NodeJS.ErrnoException).code ?? "it is unreadable"}; check the path`,
    );
  }
  const token = readServerFile(file)?.token ?? (/^[\x21-\x7e]+$/.test(text) ? text : undefined);
  if (token === undefined)
    throw new HoldfastError(
      "usage",
      `Cannot read the token file ${JSON.stringify(file)}: it holds neither a token nor a server.json; check the path`,
    );
  return token;
}
