/** What the help says of the commands that look at runs and change nothing (interfaces §2). */

import type { CommandHelp } from "../spec.ts";
import { RUN, RUN_EXITS } from "./words.ts";

export const LOOKING = {
  list: {
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
  },
  show: {
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
  },
  why: {
    group: "Look",
    args: [RUN],
    summary: "in plain words: where it stands, why, and what can be done",
    flags: [],
    examples: ["why last"],
    exits: "0 done, 2 not found, 5 store unavailable",
    json: "{run_id, status, sentence, causes}",
  },
  events: {
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
  },
  output: {
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
  },
  watch: {
    group: "Look",
    args: [RUN],
    summary: "watch a run that goes on elsewhere, without moving it",
    about: "Ctrl-C stops the watching, never the run.",
    flags: [{ flag: "--plain", about: "one line an event" }],
    examples: ["watch last --plain"],
    exits: RUN_EXITS,
    json: "one event a line",
  },
} satisfies Readonly<Record<string, CommandHelp>>;
