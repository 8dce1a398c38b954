/** From the words of a shell to one command of the table, with commander; all of its refusals in our own words. */
import { Command, CommanderError, Option } from "commander";
import { HoldfastError } from "../domain/errors.ts";
import { nearest } from "../domain/nearest.ts";
import { COMMANDS, type CommandSpec } from "./commands/index.ts";
import { Flags, type FlagValue, type Globals } from "./context.ts";
import { VERSION } from "./version.ts";

export type Parsed =
  | { readonly type: "help"; readonly text: string }
  | {
      readonly type: "command";
      readonly spec: CommandSpec;
      readonly args: readonly string[];
      readonly flags: Flags;
      readonly globals: Globals;
    };

/** @throws HoldfastError `usage` */
export function parseCommandLine(
  words: readonly string[],
  env: NodeJS.ProcessEnv,
  how: { program: string; width: number; color: boolean },
): Parsed {
  let help = "";
  let parsed: Parsed | undefined;
  const program = new Command("holdfast");
  program.exitOverride().configureOutput({
    writeOut: (text) => {
      help += text;
    },
    writeErr: () => {},
    outputError: () => {},
    getOutHelpWidth: () => Math.min(how.width, 110),
    getOutHasColors: () => how.color,
  });
  describeProgram(program, how.program);
  for (const spec of COMMANDS) {
    const command = describeCommand(program, spec, how.program);
    command.action(() => {
      const flags = Object.entries(command.opts<Record<string, FlagValue>>());
      parsed = {
        type: "command",
        spec,
        args: command.args,
        flags: new Flags(flags),
        globals: readGlobals(program, env),
      };
    });
  }
  // `holdfast help run` and `holdfast` alone print help as a result, not as a refusal.
  if (words.length === 0) return { type: "help", text: program.helpInformation() };
  try {
    program.parse([...words], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { type: "help", text: help };
    throw usageError(error, words, how.program);
  }
  if (parsed !== undefined) return parsed;
  return { type: "help", text: help === "" ? program.helpInformation() : help };
}

function describeProgram(program: Command, name: string): void {
  program
    .usage("[global flags] COMMAND …")
    .description(
      "Durable workflows for AI agents: every step is written down before it happens, nothing is done twice by accident.",
    )
    .version(VERSION, "--version", "print the version")
    .helpOption("-h, --help", "help for a command")
    .option("--workspace <DIR>", "the project (else the nearest folder with .holdfast or holdfast.config.*)")
    .option("--store <URL>", "where runs are kept (default sqlite in <workspace>/.holdfast/state)")
    .option("--session <NAME>", "session that owns the runs (default `default`)")
    .option("--server <URL>", "work through this server instead of opening the store")
    .option("--token-file <FILE>", "its token, or its server.json")
    .option("--json", "one JSON document on standard output; streams one a line")
    .option("-q, --quiet", "no progress, no notes")
    .option("-v, --verbose", "more: plain progress without a terminal, causes of errors")
    .option("--no-color", "no colours, no lines rewritten in place")
    .option("--no-input", "never ask (also without a terminal and under CI)")
    .helpCommand("help [command]", "help for a command")
    .configureHelp({ sortOptions: false, subcommandTerm: (c) => [c.name(), ...c.aliases()].join(", ") })
    .addHelpText(
      "after",
      [
        "",
        "First steps:",
        `  ${name} demo                 a real workflow at work on this folder`,
        `  ${name} init                 write .holdfast/workflows/hello.yaml`,
        `  ${name} run hello            run it`,
        "",
        "Exit status: 0 succeeded, 1 failed, 2 refused before anything happened, 3 suspended: a person or time must",
        "act, 4 cancelled, 5 store or server unavailable, 70 a bug in Holdfast, 130 second Ctrl-C.",
        "",
        "Environment: HOLDFAST_WORKSPACE, HOLDFAST_STORE, HOLDFAST_SESSION, HOLDFAST_SERVER, HOLDFAST_TOKEN,",
        "HOLDFAST_TOKEN_FILE, HOLDFAST_HOME, HOLDFAST_TRUST=1, NO_COLOR.",
        "A flag beats the environment, the environment beats the configuration.",
      ].join("\n"),
    );
}

function describeCommand(program: Command, spec: CommandSpec, name: string): Command {
  const command = program
    .command([spec.name, ...spec.args.map(({ arg }) => arg)].join(" "))
    .helpGroup(`${spec.group}:`)
    .summary(spec.summary)
    .description(`${sentence(spec.summary)}${spec.about === undefined ? "" : `\n\n${spec.about}`}`)
    .helpOption("-h, --help", "this help");
  if (spec.alias !== undefined) command.alias(spec.alias);
  for (const [i, { about }] of spec.args.entries()) {
    const argument = command.registeredArguments[i];
    if (argument !== undefined) argument.description = about;
  }
  for (const { flag, about, repeated, hidden } of spec.flags) {
    const option = new Option(flag, about).hideHelp(hidden === true);
    // Every value stays text: the command reads it, and its errors speak our language.
    if (repeated) option.argParser((value: string, before: string[] | undefined) => [...(before ?? []), value]);
    command.addOption(option);
  }
  const examples = spec.examples.map((example) => `  ${name} ${example}`);
  return command.addHelpText(
    "after",
    [
      "",
      "Examples:",
      ...examples,
      "",
      `--json: ${spec.json}`,
      `Exit status: ${spec.exits}.`,
      `Global flags: ${name} --help`,
    ].join("\n"),
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** Global flags that printed commands repeat. */
const REPEATED = [
  ["workspace", "--workspace"],
  ["store", "--store"],
  ["session", "--session"],
  ["server", "--server"],
  ["tokenFile", "--token-file"],
] as const;

function readGlobals(program: Command, env: NodeJS.ProcessEnv): Globals {
  // Never merged with the command's own flags: `--no-input` and `--input` would share a name.
  const given = program.opts<{ [name: string]: string | boolean | undefined }>();
  const text = (name: string, variable: string): string | undefined => {
    const value = given[name] ?? env[variable];
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const workspace = text("workspace", "HOLDFAST_WORKSPACE");
  const store = text("store", "HOLDFAST_STORE");
  const session = text("session", "HOLDFAST_SESSION");
  const server = text("server", "HOLDFAST_SERVER");
  const tokenFile = text("tokenFile", "HOLDFAST_TOKEN_FILE");
  const repeated = REPEATED.flatMap(([name, flag]) => (typeof given[name] === "string" ? [flag, given[name]] : []));
  return {
    ...(workspace === undefined ? {} : { workspace }),
    ...(store === undefined ? {} : { store }),
    ...(session === undefined ? {} : { session }),
    ...(server === undefined ? {} : { server }),
    ...(tokenFile === undefined ? {} : { tokenFile }),
    json: given.json === true,
    quiet: given.quiet === true,
    verbose: given.verbose === true,
    color: given.color !== false,
    prompts: given.input !== false,
    repeated,
  };
}

function usageError(error: CommanderError, words: readonly string[], program: string): HoldfastError {
  const [first = "", second] = error.message.replace(/^error: /, "").split("\n");
  const spec = COMMANDS.find(
    ({ name, alias }) => words.includes(name) || (alias !== undefined && words.includes(alias)),
  );
  const asked = error.code === "commander.unknownCommand" || spec === undefined ? program : `${program} ${spec.name}`;
  const meant = suggestion(error, first, spec) ?? /Did you mean (?:one of )?(.*)\?/.exec(second ?? "")?.[1];
  const what = meant === undefined ? `see ${asked} --help` : `did you mean ${meant}? See ${asked} --help`;
  return new HoldfastError(
    "usage",
    `Cannot run ${asked}: ${first}; ${what}`,
    meant === undefined ? {} : { details: { suggestion: meant } },
  );
}

/** Commander suggests only what is very close; we also look at aliases. */
function suggestion(error: CommanderError, message: string, spec: CommandSpec | undefined): string | undefined {
  const wrong = /'([^']+)'/.exec(message)?.[1];
  if (wrong === undefined) return undefined;
  if (error.code === "commander.unknownCommand")
    return nearest(
      wrong,
      COMMANDS.flatMap(({ name, alias }) => (alias === undefined ? [name] : [name, alias])),
    );
  if (error.code !== "commander.unknownOption") return undefined;
  const own = (spec?.flags ?? []).filter(({ hidden }) => hidden !== true).map(({ flag }) => flag.split(" ")[0] ?? "");
  const global = [
    "--workspace",
    "--store",
    "--session",
    "--server",
    "--token-file",
    "--json",
    "--quiet",
    "--verbose",
    "--no-color",
    "--no-input",
    "--help",
    "--version",
  ];
  return nearest(wrong.split("=")[0] ?? wrong, [...own, ...global]);
}
