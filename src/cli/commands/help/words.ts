/** Arguments, flags and exit statuses that several commands have. */
import type { FlagSpec } from "../spec.ts";

export const RUN = { arg: "<RUN>", about: "full id, its last 6 or more characters, `last`, or `last:WORKFLOW`" };
export const WORKFLOW = {
  arg: "<WORKFLOW>",
  about: "id, id@revision, a file (contains `/` or ends in .yaml), or hash:HEX",
};
export const INPUT: readonly FlagSpec[] = [
  { flag: "--input <key=value>", about: "one input, read by the workflow's schema", repeated: true },
  { flag: "--input-file <FILE>", about: "inputs as one JSON document, `-` for standard input (at most 1 MiB)" },
];
export const BUDGET: FlagSpec = {
  flag: "--budget <limit=value>",
  about: "tighten a limit, e.g. max_steps=50, wall_time_ms=5m",
  repeated: true,
};
export const REASON: FlagSpec = { flag: "--reason <TEXT>", about: "why; kept in the journal" };
export const DETACH: FlagSpec = { flag: "--detach", about: "do not follow the run" };
export const RUN_EXITS =
  "0 succeeded, 1 failed, 2 refused, 3 suspended: a person or time must act, 4 cancelled, 5 store unavailable";
