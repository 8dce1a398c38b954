/**
 * The table of commands (interfaces §2): names, arguments, flags, help. Commander is built from it and the
 * documentation is checked against it; each command's code is in its own file and loaded only when it runs.
 */
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

const RUN = { arg: "<RUN>", about: "full id, its last 6 or more characters, `last`, or `last:WORKFLOW`" };
const WORKFLOW = { arg: "<WORKFLOW>", about: "id, id@revision, a file (contains `/` or ends in .yaml), or hash:HEX" };
const INPUT: readonly FlagSpec[] = [
  { flag: "--input <key=value>", about: "one input, read by the workflow's schema", repeated: true },
  { flag: "--input-file <FILE>", about: "inputs as one JSON document, `-` for standard input (at most 1 MiB)" },
];
const BUDGET: FlagSpec = {
  flag: "--budget <limit=value>",
  about: "tighten a limit, e.g. max_steps=50, wall_time_ms=5m",
  repeated: true,
};
const REASON: FlagSpec = { flag: "--reason <TEXT>", about: "why; kept in the journal" };
const DETACH: FlagSpec = { flag: "--detach", about: "do not follow the run" };
const RUN_EXITS =
  "0 succeeded, 1 failed, 2 refused, 3 suspended: a person or time must act, 4 cancelled, 5 store unavailable";

export const COMMANDS: readonly CommandSpec[] = [
  {
    name: "demo",
    group: "Start",
    args: [],
    summary: "watch a real workflow at work on the files of this folder",
    about:
      "Finds the source files, measures and searches them, and reports what a person would want to know: size by folder, longest files, open markers, files without a test. In the middle its worker process is killed, and a new one goes on. Read-only; it brings three read-only tools of its own and trusts those and nothing else. Its state is thrown away unless --keep is given.",
    flags: [
      { flag: "--fast", about: "without the pauses that make it readable" },
      { flag: "--keep", about: "keep its store and say where" },
      { flag: "--worker <STORE>", about: "be the demonstration's worker process", hidden: true },
      { flag: "--again", about: "be the one after the kill", hidden: true },
    ],
    examples: ["demo", "demo --fast --json"],
    exits: "0 done, 1 the workflow failed, 5 store unavailable",
    json: "{run_id, killed_at_sequence, kept, repeated, output}",
    load: () => import("./demo.ts"),
  },
  {
    name: "init",
    group: "Start",
    args: [{ arg: "[DIR]", about: "folder of the project, default the current one" }],
    summary: "write a first workflow into a project",
    about: "Writes .holdfast/workflows/hello.yaml and a schema for your editor. Never overwrites a file.",
    flags: [{ flag: "--config <yaml|ts>", about: "also write a configuration file" }],
    examples: ["init", "init ../shop --config yaml"],
    exits: "0 done, 2 refused",
    json: '{"created": [path]}',
    load: () => import("./init.ts"),
  },
  {
    name: "run",
    group: "Run",
    args: [WORKFLOW],
    summary: "start a workflow and follow it to its end",
    about:
      "Progress goes to standard error, the output to standard output. The first Ctrl-C pauses the run and prints how to go on; it never cancels. On a terminal, approvals are asked for (Enter alone is No); elsewhere the exact command is printed and the status is 3.",
    flags: [
      ...INPUT,
      BUDGET,
      { flag: "--key <KEY>", about: "idempotency key: the same key and request answer with the same run" },
      { flag: "--timeout <DURATION>", about: "stop following after 90s, 15m, 2h, 30d, PT5M (status 3)" },
      { flag: "--detach", about: "as `start`: leave it queued for a worker process" },
    ],
    examples: [
      "run hello",
      "run open-markers --input dir=src --input pattern='TODO|FIXME'",
      "run ./release.yaml --input-file release.json --json",
    ],
    exits: RUN_EXITS,
    json: "the run, with output, failure, actions and waits",
    load: () => import("./run.ts"),
  },
  {
    name: "start",
    group: "Run",
    args: [WORKFLOW],
    summary: "start a workflow and return at once",
    about: "The run is left queued for a worker process; where none is running, this says so and how to go on.",
    flags: [...INPUT, BUDGET, { flag: "--key <KEY>", about: "idempotency key" }],
    examples: ["start open-markers --input dir=src --input pattern=TODO"],
    exits: "0 queued, 2 refused, 5 store unavailable",
    json: "the run",
    load: () => import("./start.ts"),
  },
  {
    name: "resume",
    alias: "continue",
    group: "Run",
    args: [RUN],
    summary: "go on with a paused or interrupted run from where it stands",
    flags: [DETACH],
    examples: ["resume last"],
    exits: RUN_EXITS,
    json: "the run",
    load: () => import("./resume.ts"),
  },
  {
    name: "restart",
    group: "Run",
    args: [RUN],
    summary: "a new run with the same definition and inputs",
    flags: [DETACH],
    examples: ["restart last:open-markers"],
    exits: RUN_EXITS,
    json: "the new run",
    load: () => import("./restart.ts"),
  },
  {
    name: "pause",
    group: "Run",
    args: [RUN],
    summary: "stop dispatching; nothing is lost, `resume` goes on",
    flags: [REASON],
    examples: ["pause last --reason 'deploy at noon'"],
    exits: "0 paused, 1 not possible now, 2 refused, 3 asked for and not yet taken, 5 store unavailable",
    json: "the run",
    load: () => import("./pause.ts"),
  },
  {
    name: "cancel",
    group: "Run",
    args: [{ arg: "<RUN...>", about: "one or more runs" }],
    summary: "end runs for good",
    about: "Waits until what was running has stopped, at most 30 s. A second cancel of the same run changes nothing.",
    flags: [REASON, { flag: "--detach", about: "do not wait until it has stopped" }],
    examples: ["cancel last", "cancel last:open-markers --reason 'wrong input'"],
    exits: "0 cancelled, 1 it had ended already, 2 refused, 3 still stopping, 5 store unavailable",
    json: 'the run; for several {"runs": [run]}',
    load: () => import("./cancel.ts"),
  },
  {
    name: "list",
    group: "Look",
    args: [],
    summary: "the runs, newest first",
    flags: [
      { flag: "--status <STATUS>", about: "queued, running, suspended, succeeded, failed, cancelled", repeated: true },
      { flag: "--workflow <ID>", about: "only of this workflow" },
      { flag: "--waiting", about: "only those that wait for someone" },
      { flag: "--children", about: "also the runs that other runs started" },
      { flag: "--limit <N>", about: "1 to 200, default 20" },
      { flag: "--cursor <CURSOR>", about: "the next page, as the last one printed it" },
    ],
    examples: ["list", "list --status failed --status cancelled", "list --waiting --json"],
    exits: "0 done, 2 refused, 5 store unavailable",
    json: '{"runs": [summary], "next_cursor"?}',
    load: () => import("./list.ts"),
  },
  {
    name: "show",
    group: "Look",
    args: [RUN],
    summary: "where a run stands: status, steps, usage, waits, what may be done",
    flags: [
      { flag: "--steps", about: "every step, not only what needs attention" },
      { flag: "--step <STEP>", about: "one step with input, output and attempts" },
    ],
    examples: ["show last", "show last --steps", "show last --step 'each@root[3]'"],
    exits: "0 done, 2 not found, 5 store unavailable",
    json: "the run; with --step the step",
    load: () => import("./show.ts"),
  },
  {
    name: "why",
    group: "Look",
    args: [RUN],
    summary: "in plain words: where it stands, why, and what can be done",
    flags: [],
    examples: ["why last"],
    exits: "0 done, 2 not found, 5 store unavailable",
    json: "{run_id, status, sentence, causes}",
    load: () => import("./why.ts"),
  },
  {
    name: "events",
    group: "Look",
    args: [RUN],
    summary: "the journal of a run",
    flags: [
      { flag: "--since <N>", about: "only events after sequence N" },
      { flag: "--limit <N>", about: "at most N events, 1 to 1000000" },
      { flag: "--follow", about: "go on as they happen, until the run ends" },
    ],
    examples: ["events last", "events last --json --follow"],
    exits: "0 done, 2 not found, 5 store unavailable",
    json: "one event a line",
    load: () => import("./events.ts"),
  },
  {
    name: "output",
    group: "Look",
    args: [RUN],
    summary: "the output of a run and nothing around it",
    flags: [
      { flag: "--pointer </p>", about: "one part, by JSON pointer" },
      { flag: "--raw", about: "a text as it is, without quotes" },
    ],
    examples: ["output last", "output last --pointer /summary --raw"],
    exits: RUN_EXITS,
    json: "the output",
    load: () => import("./output.ts"),
  },
  {
    name: "watch",
    group: "Look",
    args: [RUN],
    summary: "watch a run that goes on elsewhere, without moving it",
    about: "Ctrl-C stops the watching, never the run.",
    flags: [{ flag: "--plain", about: "one line an event" }],
    examples: ["watch last --plain"],
    exits: RUN_EXITS,
    json: "one event a line",
    load: () => import("./watch.ts"),
  },
  {
    name: "waits",
    group: "Decide",
    args: [],
    summary: "the inbox: what waits for someone",
    flags: [
      { flag: "--type <TYPE>", about: "approval, tool_approval, input, repair, recovery, paused …", repeated: true },
      { flag: "--all-sessions", about: "of every session" },
      { flag: "--limit <N>", about: "1 to 200, default 50" },
      { flag: "--cursor <CURSOR>", about: "the next page, as the last one printed it" },
    ],
    examples: ["waits", "waits --type approval --json"],
    exits: "0 done, 2 refused, 5 store unavailable",
    json: '{"waits": [wait], "next_cursor"?}',
    load: () => import("./waits.ts"),
  },
  {
    name: "approve",
    group: "Decide",
    args: [RUN, { arg: "[WAIT]", about: "wait or step id; may be left out when one approval is open" }],
    summary: "say yes to an approval",
    about:
      "On a terminal it shows everything that is asked and wants the word `approve`; Enter alone is No. Elsewhere --digest proves that what is approved is what was shown. There is no --yes.",
    flags: [{ flag: "--digest <HEX>", about: "8 or more digits of the digest that was shown" }, REASON, DETACH],
    examples: ["approve last", "approve 5f20c1a9 w-12 --digest 9c1f00ab --reason 'checked the diff'"],
    exits: RUN_EXITS,
    json: "the run",
    load: () => import("./approve.ts"),
  },
  {
    name: "deny",
    group: "Decide",
    args: [RUN, { arg: "[WAIT]", about: "wait or step id; may be left out when one approval is open" }],
    summary: "say no to an approval",
    flags: [{ flag: "--digest <HEX>", about: "8 or more digits of the digest that was shown" }, REASON, DETACH],
    examples: ["deny last --reason 'not on a Friday'"],
    exits: RUN_EXITS,
    json: "the run",
    load: () => import("./deny.ts"),
  },
  {
    name: "repair",
    group: "Decide",
    args: [RUN, { arg: "<STEP>", about: "the step whose outcome is not known" }],
    summary: "say what became of a step whose outcome is not known",
    about: "Without a flag it shows the evidence. Give exactly one of the four answers.",
    flags: [
      { flag: "--succeeded", about: "it was done; its output comes from --output-file" },
      { flag: "--output-file <FILE>", about: "the output as JSON, `-` for standard input" },
      { flag: "--failed <MESSAGE>", about: "it was not done, or failed" },
      { flag: "--cancelled <MESSAGE>", about: "it was stopped" },
      { flag: "--retry <REASON>", about: "send it again: only when you know that nothing happened" },
      DETACH,
    ],
    examples: ["repair last publish", "repair last publish --succeeded --output-file receipt.json"],
    exits: RUN_EXITS,
    json: "the run; without an answer the evidence",
    load: () => import("./repair.ts"),
  },
  {
    name: "check",
    group: "Write",
    args: [{ arg: "[FILE...]", about: "definition files; default the whole catalog" }],
    summary: "find the mistakes in workflow files, with line and column",
    flags: [],
    examples: ["check", "check .holdfast/workflows/hello.yaml"],
    exits: "0 no errors, 2 errors",
    json: '{"ok", "diagnostics"}',
    load: () => import("./check.ts"),
  },
  {
    name: "preview",
    alias: "plan",
    group: "Write",
    args: [WORKFLOW],
    summary: "what would run: steps, capabilities, side effects, worst-case budget",
    flags: [...INPUT, BUDGET],
    examples: ["preview hello", "preview open-markers --input dir=src --input pattern=TODO"],
    exits: "0 it could start, 2 it would be refused",
    json: "the preview",
    load: () => import("./preview.ts"),
  },
  {
    name: "workflows",
    group: "Write",
    args: [
      { arg: "[ACTION]", about: "list (default), show or reload" },
      { arg: "[WORKFLOW]", about: "for show" },
    ],
    summary: "the workflows that are found here, and where",
    flags: [],
    examples: ["workflows", "workflows show hello", "workflows reload"],
    exits: "0 done, 2 refused",
    json: '{"workflows": [entry]}; for show the entry',
    load: () => import("./workflows.ts"),
  },
  {
    name: "schema",
    group: "Write",
    args: [{ arg: "<KIND>", about: "plan, config or skill" }],
    summary: "a JSON Schema for your editor",
    flags: [],
    examples: ["schema plan > .holdfast/plan.schema.json"],
    exits: "0 done, 2 refused",
    json: "JSON Schema 2020-12",
    load: () => import("./schema.ts"),
  },
  {
    name: "trust",
    group: "Look after",
    args: [{ arg: "[DIR]", about: "workspace, default the one you are in" }],
    summary: "let this workspace's configuration and code take effect",
    about:
      "Shows what trusting would load and asks. The list of trusted workspaces is in your home folder, never in the workspace.",
    flags: [
      { flag: "--revoke", about: "trust it no more" },
      { flag: "--list", about: "the trusted workspaces" },
      { flag: "--yes", about: "do not ask; needed where there is no terminal" },
    ],
    examples: ["trust", "trust --list", "trust --revoke"],
    exits: "0 done, 2 refused or not confirmed",
    json: '{"path", "trusted"}',
    load: () => import("./trust.ts"),
  },
  {
    name: "verify",
    group: "Look after",
    args: [{ arg: "[RUN]", about: "a run" }],
    summary: "prove that a journal was not altered",
    about: "Recomputes the hash chain of the journal. It cannot expose a store that was rewritten as a whole.",
    flags: [{ flag: "--all", about: "every run of the session" }],
    examples: ["verify last", "verify --all"],
    exits: "0 intact, 1 altered, 2 refused, 5 store unavailable",
    json: '{"ok", "segments", "events", "broken"?}',
    load: () => import("./verify.ts"),
  },
  {
    name: "store",
    group: "Look after",
    args: [{ arg: "[ACTION]", about: "info" }],
    summary: "what the store is, where, and how large",
    flags: [],
    examples: ["store info"],
    exits: "0 done, 2 refused, 5 store unavailable",
    json: "{url, engine, engine_version, schema_version, synchronous, bytes, runs}",
    load: () => import("./store.ts"),
  },
  {
    name: "doctor",
    group: "Look after",
    args: [],
    summary: "check the installation: Node, store, disk, trust, configuration",
    flags: [],
    examples: ["doctor"],
    exits: "0 all well, 1 something is wrong, 5 store unavailable",
    json: '{"ok", "checks": [{name, ok, detail, fix?}]}',
    load: () => import("./doctor.ts"),
  },
];
