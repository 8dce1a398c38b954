/** What the help says of the commands that look after the installation: trust, journals, the store (interfaces §2). */

import type { CommandHelp } from "../spec.ts";
import { RUN } from "./words.ts";

export const CARING = {
  trust: {
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
  },
  verify: {
    group: "Look after",
    args: [{ arg: "[RUN]", about: "a run" }],
    summary: "prove that a journal was not altered",
    about: "Recomputes the hash chain of the journal. It cannot expose a store that was rewritten as a whole.",
    flags: [{ flag: "--all", about: "every run of the session" }],
    examples: ["verify last", "verify --all"],
    exits: "0 intact, 1 altered, 2 refused, 5 store unavailable",
    json: '{"ok", "segments", "events", "broken"?}',
  },
  export: {
    group: "Look after",
    args: [RUN],
    summary: "write a run's journal and state to a folder",
    about: "Writes journal.jsonl (with its hash chain, definitions and large values) and snapshot.json.",
    flags: [
      { flag: "--out <DIR>", about: "a new folder, `-` for the journal on standard output (default holdfast-RUN)" },
      { flag: "--tree", about: "with the runs below it" },
    ],
    examples: ["export last --out /tmp/run", "export last --tree --out -"],
    exits: "0 written, 2 refused, 5 store unavailable",
    json: '{"path", "events", "sha256"}',
  },
  import: {
    group: "Look after",
    args: [{ arg: "<DIR>", about: "a folder that export wrote, or its journal.jsonl" }],
    summary: "read an exported run back, every hash checked",
    about:
      "Reads up to the last whole segment and says so when something stands behind it. Nothing is written unless all of it is sound.",
    flags: [],
    examples: ["import /tmp/run"],
    exits: "0 read, 1 it is here already, 2 refused, 5 store unavailable",
    json: '{"run_id", "events", "truncated_tail"}',
  },
  store: {
    group: "Look after",
    args: [{ arg: "[ACTION]", about: "info" }],
    summary: "what the store is, where, and how large",
    flags: [],
    examples: ["store info"],
    exits: "0 done, 2 refused, 5 store unavailable",
    json: "{url, engine, engine_version, schema_version, synchronous, bytes, runs}",
  },
  doctor: {
    group: "Look after",
    args: [{ arg: "[RUN]", about: "a run: whether its journal agrees with all that is derived from it" }],
    summary: "check the installation: Node, store, disk, trust, configuration; or one run",
    about:
      "With a run it compares the journal with itself, with the run's rows, its snapshot, its children and its lease, says what disagrees and what to do about it, and changes nothing.",
    flags: [{ flag: "--limit <N>", about: "at most N findings, 1 to 1000, default 100" }],
    examples: ["doctor", "doctor last --limit 10"],
    exits: "0 all well, 1 something is wrong, 2 not found, 5 store unavailable",
    json: '{"ok", "checks": [{name, ok, detail, fix?}]}; with a run {"findings": [finding], "truncated"}',
  },
} satisfies Readonly<Record<string, CommandHelp>>;
