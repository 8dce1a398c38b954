/** What the help says of the commands for authors of workflows (interfaces §2). */

import type { CommandHelp } from "../spec.ts";
import { BUDGET, INPUT, WORKFLOW } from "./words.ts";

export const WRITING = {
  check: {
    group: "Write",
    args: [{ arg: "[FILE...]", about: "definition files; default the whole catalog" }],
    summary: "find the mistakes in workflow files, with line and column",
    flags: [],
    examples: ["check", "check .holdfast/workflows/hello.yaml"],
    exits: "0 no errors, 2 errors",
    json: '{"ok", "diagnostics"}',
  },
  preview: {
    group: "Write",
    args: [WORKFLOW],
    summary: "what would run: steps, capabilities, side effects, worst-case budget",
    flags: [...INPUT, BUDGET],
    examples: ["preview hello", "preview open-markers --input dir=src --input pattern=TODO"],
    exits: "0 it could start, 2 it would be refused",
    json: "the preview",
  },
  test: {
    group: "Write",
    args: [WORKFLOW],
    summary: "crash it everywhere in a simulated world, and see that nothing is lost or done twice",
    about:
      "Runs the workflow once, then once for every write it makes with the process gone just before and just after it, recovered each time, and again with the recovery cut short. No run is started and nothing is changed: tools that may change something are replaced by mocks that say so, read-only ones read the workspace. Time is simulated.",
    flags: [
      ...INPUT,
      { flag: "--tools <FILE>", about: "mocks of your own: a module whose default export is [defineTool({…}), …]" },
      { flag: "--crash <every|N|none>", about: "which crashes are tried; default every" },
      { flag: "--seed <N>", about: "what chance is drawn from, to have a failure again; default 1" },
    ],
    examples: [
      "test hello",
      "test ./release.yaml --input version=1.2 --tools mocks.ts",
      "test hello --crash 10 --seed 7",
    ],
    exits: "0 it held, 1 it did not, 2 refused",
    json: '{"ok", "boundaries", "failures": [{sequence, why}]}',
  },
  workflows: {
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
  },
  schema: {
    group: "Write",
    args: [{ arg: "<KIND>", about: "plan, config or skill" }],
    summary: "a JSON Schema for your editor",
    flags: [],
    examples: ["schema plan > .holdfast/plan.schema.json"],
    exits: "0 done, 2 refused",
    json: "JSON Schema 2020-12",
  },
} satisfies Readonly<Record<string, CommandHelp>>;
