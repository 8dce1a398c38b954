/** What a row of the command table says of a command. */
import type { CommandAction } from "../context.ts";

export interface FlagSpec {
  /** As commander reads it: `--input <key=value>`. */
  readonly flag: string;
  readonly about: string;
  /** May be given more than once. */
  readonly repeated?: true;
  /** Of Holdfast's own use, not in the help. */
  readonly hidden?: true;
}

export interface CommandSpec {
  readonly name: string;
  readonly alias?: string;
  readonly group: "Start" | "Run" | "Look" | "Decide" | "Write" | "Look after";
  /** As commander reads it: `<WORKFLOW>`, `[WAIT]`, `<RUN...>`. */
  readonly args: readonly { readonly arg: string; readonly about: string }[];
  readonly summary: string;
  /** More than the summary says, in full sentences. */
  readonly about?: string;
  readonly flags: readonly FlagSpec[];
  readonly examples: readonly string[];
  readonly exits: string;
  readonly json: string;
  readonly load: () => Promise<{ readonly run: CommandAction }>;
}

/** What a command takes, and what the help says of it. */
export type CommandHelp = Omit<CommandSpec, "name" | "alias" | "load">;
