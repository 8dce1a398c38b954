/**
 * The table of commands (interfaces §2), in the order of the help. Commander is built from it and the documentation
 * is checked against it; each command's code is in its own file and loaded only when it runs, and what the help says of
 * it is in `help/`.
 */
import { CARING } from "./help/caring.ts";
import { DECIDING } from "./help/deciding.ts";
import { LOOKING } from "./help/looking.ts";
import { RUNNING } from "./help/running.ts";
import { SERVING } from "./help/serving.ts";
import { WRITING } from "./help/writing.ts";
import type { CommandSpec } from "./spec.ts";

export type { CommandSpec, FlagSpec } from "./spec.ts";

export const COMMANDS: readonly CommandSpec[] = [
  { name: "demo", ...RUNNING.demo, load: () => import("./demo.ts") },
  { name: "init", ...RUNNING.init, load: () => import("./init.ts") },
  { name: "run", ...RUNNING.run, load: () => import("./run.ts") },
  { name: "start", ...RUNNING.start, load: () => import("./start.ts") },
  { name: "resume", alias: "continue", ...RUNNING.resume, load: () => import("./resume.ts") },
  { name: "restart", ...RUNNING.restart, load: () => import("./restart.ts") },
  { name: "retry", ...RUNNING.retry, load: () => import("./retry.ts") },
  { name: "budget", ...DECIDING.budget, load: () => import("./budget.ts") },
  { name: "pause", ...RUNNING.pause, load: () => import("./pause.ts") },
  { name: "cancel", ...RUNNING.cancel, load: () => import("./cancel.ts") },
  { name: "list", ...LOOKING.list, load: () => import("./list.ts") },
  { name: "show", ...LOOKING.show, load: () => import("./show.ts") },
  { name: "why", ...LOOKING.why, load: () => import("./why.ts") },
  { name: "events", ...LOOKING.events, load: () => import("./events.ts") },
  { name: "output", ...LOOKING.output, load: () => import("./output.ts") },
  { name: "watch", ...LOOKING.watch, load: () => import("./watch.ts") },
  { name: "waits", ...DECIDING.waits, load: () => import("./waits.ts") },
  { name: "approve", ...DECIDING.approve, load: () => import("./approve.ts") },
  { name: "deny", ...DECIDING.deny, load: () => import("./deny.ts") },
  { name: "answer", ...DECIDING.answer, load: () => import("./answer.ts") },
  { name: "repair", ...DECIDING.repair, load: () => import("./repair.ts") },
  { name: "check", ...WRITING.check, load: () => import("./check.ts") },
  { name: "preview", alias: "plan", ...WRITING.preview, load: () => import("./preview.ts") },
  { name: "test", ...WRITING.test, load: () => import("./test.ts") },
  { name: "workflows", ...WRITING.workflows, load: () => import("./workflows.ts") },
  { name: "schema", ...WRITING.schema, load: () => import("./schema.ts") },
  { name: "serve", ...SERVING.serve, load: () => import("./serve.ts") },
  { name: "token", ...SERVING.token, load: () => import("./token.ts") },
  { name: "sessions", ...SERVING.sessions, load: () => import("./sessions.ts") },
  { name: "mcp", ...SERVING.mcp, load: () => import("./mcp.ts") },
  { name: "trust", ...CARING.trust, load: () => import("./trust.ts") },
  { name: "verify", ...CARING.verify, load: () => import("./verify.ts") },
  { name: "export", ...CARING.export, load: () => import("./export.ts") },
  { name: "import", ...CARING.import, load: () => import("./import.ts") },
  { name: "store", ...CARING.store, load: () => import("./store.ts") },
  { name: "doctor", ...CARING.doctor, load: () => import("./doctor.ts") },
];
