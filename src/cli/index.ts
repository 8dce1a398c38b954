/** The command line as a room: one call of it, and the table that its help and the documentation come from. */
export { runCli } from "./cli.ts";
export { COMMANDS, type CommandSpec, type FlagSpec } from "./commands/index.ts";
