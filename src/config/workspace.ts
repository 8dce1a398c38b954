/**
 * Where Holdfast works: the workspace, its state folder, and the user's own folder. All by real path, since
 * trust and confinement hold for the folder itself, not for a name that leads to it.
 */
import { lstatSync, mkdirSync, readdirSync, realpathSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve, sep } from "node:path";
import { HoldfastError } from "../domain/errors.ts";

/** Environment variables, as `process.env` gives them. */
export type Environment = { readonly [name: string]: string | undefined };

export const CONFIG_ENDINGS = ["ts", "mts", "js", "mjs", "json", "yaml", "yml"] as const;

export interface Workspace {
  /** Real path. */
  readonly root: string;
  /** `<root>/.holdfast/state`; made by `prepareState`. */
  readonly state_dir: string;
  /** `given`: by flag or environment; `found`: by a marker in an ancestor; `cwd`: neither. */
  readonly origin: "given" | "found" | "cwd";
}

/** The user's own folder: `HOLDFAST_HOME`, else `~/.holdfast`. It need not exist. */
export function holdfastHome(env: Environment): string {
  const given = env.HOLDFAST_HOME;
  if (given !== undefined && given !== "") return resolve(given);
  return join(userHome(env), ".holdfast");
}

function userHome(env: Environment): string {
  return env.HOME !== undefined && env.HOME !== "" ? resolve(env.HOME) : homedir();
}

/**
 * The workspace of a command: `HOLDFAST_WORKSPACE`, else the nearest ancestor with `.holdfast/` or
 * `holdfast.config.*` that is not the home folder, else the current folder.
 * @throws HoldfastError `usage` when the folder given does not exist
 */
export function findWorkspace(cwd: string, env: Environment = {}): Workspace {
  const given = env.HOLDFAST_WORKSPACE;
  if (given !== undefined && given !== "") return openWorkspaceFolder(resolve(cwd, given), "given");
  const start = openWorkspaceFolder(cwd, "cwd");
  const homes = new Set([realOrSame(userHome(env)), dirname(realOrSame(holdfastHome(env)))]);
  for (let folder = start.root; ; folder = dirname(folder)) {
    if (!homes.has(folder) && hasMarker(folder)) return workspaceAt(folder, "found");
    if (dirname(folder) === folder) return start;
  }
}

/** The workspace at exactly this folder. @throws HoldfastError `usage` when there is no such folder */
export function openWorkspaceFolder(folder: string, origin: Workspace["origin"] = "given"): Workspace {
  let real: string | undefined;
  try {
    real = realpathSync(folder);
    if (!statSync(real).isDirectory()) real = undefined;
  } catch {
    real = undefined;
  }
  if (real === undefined)
    throw new HoldfastError(
      "usage",
      `Cannot use the workspace "${folder}": there is no such folder; name one that exists`,
    );
  return workspaceAt(real, origin);
}

function workspaceAt(root: string, origin: Workspace["origin"]): Workspace {
  return { root, state_dir: join(root, ".holdfast", "state"), origin };
}

function hasMarker(folder: string): boolean {
  return isFolder(join(folder, ".holdfast")) || configFiles(folder).length > 0;
}

/** Names of the configuration files of a folder, sorted; more than one is an error of the reader. */
export function configFiles(folder: string): string[] {
  const wanted = new Set(CONFIG_ENDINGS.map((ending) => `holdfast.config.${ending}`));
  try {
    return readdirSync(folder)
      .filter((name) => wanted.has(name))
      .sort();
  } catch {
    return [];
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function realOrSame(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** True for the folder itself and all below it; real paths. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/**
 * Makes the state folder with mode 0700 and its own `.gitignore`.
 * @throws HoldfastError `storage` when it cannot be made or a link leads it out of the workspace
 */
export function prepareState(workspace: Workspace): string {
  const folder = workspace.state_dir;
  const refuse = (state: string, action: string): never => {
    throw new HoldfastError("storage", `Cannot keep state in "${folder}": ${state}; ${action}`);
  };
  try {
    const parent = dirname(folder);
    // Before anything is made: a cloned workspace may bring `.holdfast` as a link to somewhere else.
    for (const path of [parent, folder])
      if (isDangling(path) || !isWithin(nearestReal(path), workspace.root))
        refuse("a link leads it out of the workspace", "remove the link or name another store with --store");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    writeOnce(join(folder, ".gitignore"), "*\n");
  } catch (error) {
    if (HoldfastError.is(error)) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    refuse(`the folder cannot be written (${code})`, "make it writable or name another store with --store");
  }
  return folder;
}

/** Real path of the nearest ancestor that exists. */
function nearestReal(path: string): string {
  for (let at = path; ; at = dirname(at)) {
    try {
      return realpathSync(at);
    } catch {
      if (dirname(at) === at) return at;
    }
  }
}

/** A link whose other end does not exist: making a folder there would create it outside. */
function isDangling(path: string): boolean {
  try {
    if (!lstatSync(path).isSymbolicLink()) return false;
  } catch {
    return false;
  }
  try {
    realpathSync(path);
    return false;
  } catch {
    return true;
  }
}

function writeOnce(path: string, text: string): void {
  try {
    writeFileSync(path, text, { flag: "wx", mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
