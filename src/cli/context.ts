/** What a command is given: its words, the global flags, the ways out, and the workspace when it asks for it. */
import { existsSync } from "node:fs";
import { userInfo } from "node:os";
import path from "node:path";
import type { Holdfast } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import { diagnosticLines, type Output } from "./output.ts";
import type { RemoteWish } from "./remote.ts";
import type { CompositionRoot, Opened, OpenRequest } from "./root.ts";
import type { Streams } from "./terminal.ts";
import { shellQuote } from "./text.ts";

/** Global flags after the environment has been asked (interfaces §2: a flag beats the environment). */
export interface Globals {
  readonly workspace?: string;
  readonly store?: string;
  readonly session?: string;
  /** Address of a server to work through. */
  readonly server?: string;
  readonly tokenFile?: string;
  readonly json: boolean;
  readonly quiet: boolean;
  readonly verbose: boolean;
  readonly color: boolean;
  readonly prompts: boolean;
  /** The global flags as they were given: printed commands repeat them, so that they reach the same runs. */
  readonly repeated: readonly string[];
}

export type FlagValue = string | boolean | readonly string[] | undefined;

/** Flags of one command by their long name in camel case; commander fills it from the command table. */
export class Flags {
  readonly #values: ReadonlyMap<string, FlagValue>;

  constructor(values: Iterable<readonly [string, FlagValue]>) {
    this.#values = new Map(values);
  }

  on(name: string): boolean {
    return this.#values.get(name) === true;
  }

  /** `--no-NAME` was given. */
  off(name: string): boolean {
    return this.#values.get(name) === false;
  }

  text(name: string): string | undefined {
    const value = this.#values.get(name);
    return typeof value === "string" ? value : undefined;
  }

  list(name: string): readonly string[] {
    const value = this.#values.get(name);
    return Array.isArray(value) ? (value as readonly string[]) : [];
  }

  /** @throws HoldfastError `usage` outside `least`..`most` */
  whole(name: string, least: number, most: number): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new HoldfastError(
      "usage",
      `Cannot read --${name}: ${JSON.stringify(text)} is not a whole number from ${least} to ${most}; give one`,
    );
  }
}

export interface Process {
  readonly streams: Streams;
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  /** The program as its user calls it, for printed commands; already quoted for the shell. */
  readonly program: string;
  /** File that starts this very build again. */
  readonly entry: string;
  readonly load: () => Promise<CompositionRoot>;
  /** Listens for a signal; answers how to stop listening. */
  readonly onSignal: (signal: "SIGINT" | "SIGTERM", listener: () => void) => () => void;
  /** Ends the process at once: the second Ctrl-C only. */
  readonly exit: (status: number) => void;
  readonly now: () => number;
}

export interface Context {
  readonly process: Process;
  readonly out: Output;
  readonly globals: Globals;
  readonly args: readonly string[];
  readonly flags: Flags;
}

/** A command: does its work and answers the exit status; refusals are thrown. */
export type CommandAction = (context: Context) => Promise<number>;

export function openRequest(context: Context): OpenRequest {
  const { globals, process } = context;
  return {
    cwd: process.cwd,
    env: process.env,
    ...(globals.workspace === undefined ? {} : { workspace: globals.workspace }),
    ...(globals.store === undefined ? {} : { store: globals.store }),
    ...(globals.session === undefined ? {} : { session: globals.session }),
    ...(process.env.HOLDFAST_TRUST === "1" ? { trustOnce: true } : {}),
  };
}

/** Opens the workspace for `use` and closes it whatever happens. Warnings are told once, on stderr. */
export async function withWorkspace<T>(
  context: Context,
  how: RemoteWish & { readonly leaves?: boolean; readonly noStore?: () => T },
  use: (holdfast: Holdfast, opened: Opened) => Promise<T>,
): Promise<T> {
  const root = await context.process.load();
  const { noStore, direct: _direct, live: _live, ...open } = how;
  let opened: Opened;
  try {
    const remote = await throughServer(context, root, how);
    if (remote !== undefined) return await closing(remote, use);
    const leaves = context.flags.on("detach") ? { leaves: true } : {};
    opened = await root.openWorkspace({ ...openRequest(context), ...leaves, ...open });
  } catch (error) {
    if (!HoldfastError.is(error) || !isMissingStore(error)) throw error;
    // Where nothing was ever started, looking finds nothing: that is an answer, not a broken store.
    if (noStore !== undefined) return noStore();
    throw new HoldfastError("not_found", error.message, { cause: error });
  }
  context.out.note(...diagnosticLines(opened.diagnostics, context.out.style));
  return await closing(opened, use);
}

async function closing<T>(opened: Opened, use: (holdfast: Holdfast, opened: Opened) => Promise<T>): Promise<T> {
  try {
    return await use(opened.holdfast, opened);
  } finally {
    await opened.holdfast.close();
  }
}

/** The client is loaded only where there may be a server: where none is named and none has left its file, none is asked. */
async function throughServer(context: Context, root: CompositionRoot, how: RemoteWish): Promise<Opened | undefined> {
  const { globals, process } = context;
  if (globals.server === undefined) {
    if ((how.readOnly === true && how.live !== true) || how.needStore === false) return undefined;
    const folder =
      globals.workspace === undefined
        ? root.findWorkspace(process.cwd, process.env)
        : root.openWorkspaceFolder(globals.workspace);
    if (!existsSync(path.join(folder.state_dir, "server.json"))) return undefined;
  }
  const { openRemote } = await import("./remote.ts");
  return await openRemote(context, root, how);
}

/** The store's own word that nothing is there, which only a reader gets: others make it. */
export function isMissingStore(error: HoldfastError): boolean {
  return (
    error.code === "storage" &&
    typeof error.details === "object" &&
    error.details !== null &&
    "missing" in error.details
  );
}

/** A command to copy, quoted for the shell, with the global flags that lead to the same store and session. */
export function commandLine(context: Context, ...words: readonly string[]): string {
  return [context.process.program, ...[...context.globals.repeated, ...words].map(shellQuote)].join(" ");
}

/** Who decides on this terminal. */
export function decider(): string {
  try {
    return `os:${userInfo().username}`;
  } catch {
    // A user id without an entry in the user database, as in some containers.
    return `os:${process.getuid?.() ?? "unknown"}`;
  }
}
