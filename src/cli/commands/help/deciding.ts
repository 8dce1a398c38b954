/** What the help says of the commands with which a person answers what runs wait for (interfaces §2). */

import type { CommandHelp } from "../spec.ts";
import { DETACH, INPUT, REASON, RUN, RUN_EXITS } from "./words.ts";

export const DECIDING = {
  budget: {
    group: "Decide",
    args: [RUN],
    summary: "raise limits of a run, never below what is spent",
    flags: [
      { flag: "--max-steps <N>", about: "step attempts" },
      { flag: "--max-retries <N>", about: "retries" },
      { flag: "--max-agents <N>", about: "agent attempts" },
      { flag: "--max-concurrency <N>", about: "steps at work at once" },
      { flag: "--max-nesting-depth <N>", about: "nesting of workflows" },
      { flag: "--max-tokens <N>", about: "tokens" },
      { flag: "--max-cost-micros <N>", about: "cost in millionths" },
      { flag: "--wall-time-ms <DUR>", about: "wall time, e.g. 2h" },
    ],
    examples: ["budget last --max-steps 500"],
    exits: "0 raised, 1 not possible, 2 refused, 3 not answered yet, 5 store unavailable",
    json: "the run",
  },
  waits: {
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
  },
  approve: {
    group: "Decide",
    args: [RUN, { arg: "[WAIT]", about: "wait or step id; may be left out when one approval is open" }],
    summary: "say yes to an approval",
    about:
      "On a terminal it shows everything that is asked and wants the word `approve`; Enter alone is No. Elsewhere --digest proves that what is approved is what was shown. There is no --yes.",
    flags: [{ flag: "--digest <HEX>", about: "8 or more digits of the digest that was shown" }, REASON, DETACH],
    examples: ["approve last", "approve 5f20c1a9 w-12 --digest 9c1f00ab --reason 'checked the diff'"],
    exits: RUN_EXITS,
    json: "the run",
  },
  deny: {
    group: "Decide",
    args: [RUN, { arg: "[WAIT]", about: "wait or step id; may be left out when one approval or input is open" }],
    summary: "say no to an approval or an input",
    flags: [{ flag: "--digest <HEX>", about: "8 or more digits of the digest that was shown" }, REASON, DETACH],
    examples: ["deny last --reason 'not on a Friday'"],
    exits: RUN_EXITS,
    json: "the run",
  },
  answer: {
    group: "Decide",
    args: [RUN, { arg: "[WAIT]", about: "which input, when several are open" }],
    summary: "give a run the input it waits for",
    about:
      "On a terminal, without --input and --input-file, it shows what is wanted and asks for it; Enter alone is No. What does not fit is refused with its place, and the run goes on waiting.",
    flags: [...INPUT, DETACH],
    examples: ["answer last", "answer last --input amount=40", "answer last --input-file answer.json"],
    exits: RUN_EXITS,
    json: "the run",
  },
  repair: {
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
      {
        flag: "--digest <HEX>",
        about: "8 or more digits of the digest that was shown: refuses when something else is asked by now",
      },
      DETACH,
    ],
    examples: ["repair last publish", "repair last publish --succeeded --output-file receipt.json"],
    exits: RUN_EXITS,
    json: "the run; without an answer the evidence",
  },
} satisfies Readonly<Record<string, CommandHelp>>;
