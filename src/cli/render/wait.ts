/** Waits for people: what is asked, by whom, until when, and the command that ends it. */
import type { Action } from "../../access/api.ts";
import type { Wait } from "../../domain/run.ts";
import { type Context, commandLine } from "../context.ts";
import type { Style } from "../terminal.ts";
import { ago, byteSize, elapsed, jsonText, oneLine, printable } from "../text.ts";
import { isObject } from "../values.ts";
import { membersOf, schemaText } from "./schema.ts";

const NAMES: { readonly [type in Wait["type"]]: string } = {
  recovery: "a resume after an interruption",
  tool_approval: "approval of a tool call",
  tool_running: "a tool that goes on by itself",
  approval: "approval",
  input: "an answer",
  timer: "time",
  repair: "an outcome that is not known",
  budget: "a higher budget",
  paused: "a resume",
  child: "another run",
};

export function waitName(type: Wait["type"]): string {
  return NAMES[type];
}

export function isDecision(wait: Pick<Wait, "type">): boolean {
  return wait.type === "approval" || wait.type === "tool_approval";
}

/** The first digits of a digest: enough to name what was shown (R-40: at least 8). */
export function shortDigest(digest: string): string {
  return digest.slice(0, 12);
}

export interface Shown {
  readonly workspace: string;
  readonly nowMs: number;
  readonly style: Style;
}

/**
 * All that a decision is about (R-40): tool, whole arguments, workspace, side effect, requester, deadline,
 * digest. Nothing is left out; hidden, control and bidirectional characters are escaped.
 */
export function waitLines(wait: Wait, shown: Shown): string[] {
  const { style } = shown;
  const lines = [`${style.warn(style.waiting)} ${style.bold(`Waits for ${waitName(wait.type)}`)}`];
  const field = (name: string, value: string | undefined) => {
    if (value !== undefined)
      lines.push(`  ${style.dim(name.padEnd(12))} ${value.replaceAll("\n", `\n${" ".repeat(15)}`)}`);
  };
  field("question", wait.prompt === undefined ? undefined : printable(wait.prompt));
  field("run", oneLine(wait.run_id));
  field("step", wait.step_id === undefined ? undefined : oneLine(wait.step_id));
  field("tool", wait.tool === undefined ? undefined : oneLine(wait.tool));
  field("side effect", wait.side_effect?.replace("_", " "));
  field(
    "can",
    wait.capabilities === undefined || wait.capabilities.length === 0
      ? undefined
      : oneLine(wait.capabilities.join(", ")),
  );
  field("arguments", wait.input === undefined ? undefined : jsonText(wait.input, 2));
  field("details", wait.details === undefined ? undefined : jsonText(wait.details, 2));
  field("answer", wait.schema === undefined ? undefined : schemaText(wait.schema));
  field("reason", wait.reason === undefined ? undefined : printable(wait.reason));
  if (isDecision(wait)) field("workspace", oneLine(wait.workspace ?? shown.workspace));
  field("asked by", requester(wait));
  field("since", ago(wait.since_ms, shown.nowMs));
  field("due", inTime(wait.due_at_ms, shown.nowMs));
  field("deadline", deadline(wait, shown.nowMs));
  field("wait", oneLine(wait.wait_id));
  field("digest", wait.digest === undefined ? undefined : oneLine(wait.digest));
  return lines;
}

/** Who started the run that asks, and whether a model did so through a tool (R-40). */
function requester(wait: Wait): string | undefined {
  if (wait.origin === undefined) return undefined;
  const who = wait.started_by === undefined ? "somebody who is not recorded" : oneLine(wait.started_by);
  return wait.origin === "automatic" ? `${who}, a model through a tool` : who;
}

function inTime(atMs: number | undefined, nowMs: number): string | undefined {
  if (atMs === undefined) return undefined;
  const when = new Date(atMs).toISOString();
  return atMs > nowMs ? `in ${elapsed(atMs - nowMs)} (${when})` : `now (${when})`;
}

function deadline(wait: Wait, nowMs: number): string | undefined {
  const when = inTime(wait.deadline_at_ms, nowMs);
  return when === undefined ? undefined : `${when}; silence is No`;
}

/** What really holds a run: in place of a wait for a child run, what is waited for below it. */
export function heldBy(waits: readonly Wait[]): readonly Wait[] {
  return waits.flatMap((wait) => wait.child_waits ?? [wait]);
}

/**
 * The commands that end the wait, ready to copy.
 * @param actions of its run, where they are known: a command that would be refused is not offered (DESIGN §9)
 */
export function waitCommands(wait: Wait, context: Context, actions: readonly Action[] = []): string[] {
  const digest = wait.digest === undefined ? [] : ["--digest", shortDigest(wait.digest)];
  // Somebody has said yes already; it goes on by itself, or with the run.
  if (wait.granted !== undefined) return [];
  switch (wait.type) {
    case "approval":
    case "tool_approval":
      return [
        commandLine(context, "approve", wait.run_id, wait.wait_id, ...digest),
        commandLine(context, "deny", wait.run_id, wait.wait_id, ...digest),
      ];
    case "input":
      return [
        commandLine(context, "answer", wait.run_id, wait.wait_id, ...answerWords(wait)),
        commandLine(context, "deny", wait.run_id, wait.wait_id, ...digest),
      ];
    case "budget":
      return [commandLine(context, "budget", wait.run_id, "--max-steps", "N")];
    case "tool_running":
    case "repair":
      return wait.step_id === undefined ? [] : [commandLine(context, "repair", wait.run_id, wait.step_id)];
    case "recovery":
    case "paused":
      return actions.some(({ name, allowed }) => name === "resume" && !allowed)
        ? []
        : [commandLine(context, "resume", wait.run_id)];
    case "child":
      if (wait.child_waits !== undefined) return wait.child_waits.flatMap((below) => waitCommands(below, context));
      return wait.child_run_id === undefined ? [] : [commandLine(context, "why", wait.child_run_id)];
    default:
      return [commandLine(context, "why", wait.run_id)];
  }
}

/** `--input` makes an object of its pairs; whatever else is wanted can only be a document. */
function answerWords({ schema }: Wait): string[] {
  const object =
    schema === undefined || (isObject(schema) && (membersOf(schema).length > 0 || schema.type === "object"));
  return object ? ["--input", "KEY=VALUE"] : ["--input-file", "FILE"];
}

/** One cell for lists: what the wait is about. */
export function waitSubject(wait: Wait): string {
  if (wait.prompt !== undefined) return oneLine(wait.prompt);
  if (wait.tool !== undefined) {
    const size = wait.input === undefined ? 0 : Buffer.byteLength(jsonText(wait.input));
    return `${oneLine(wait.tool)} ${size > 200 ? `(${byteSize(size)} of arguments)` : jsonText(wait.input ?? {})}`;
  }
  return oneLine(wait.reason ?? waitName(wait.type));
}
