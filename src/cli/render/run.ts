/** Runs for people: how one ended, where one stands, its steps and usage. */
import type { Action, Run, StepDetail } from "../../access/api.ts";
import type { Json } from "../../domain/json.ts";
import { BUDGET_FIELDS, isTerminal, type RunStatus, type StepStatus, type Usage } from "../../domain/run.ts";
import { type Context, commandLine } from "../context.ts";
import { type Column, table } from "../table.ts";
import type { Style } from "../terminal.ts";
import { ago, count, elapsed, jsonText, oneLine, printable } from "../text.ts";
import { heldBy, waitCommands, waitLines } from "./wait.ts";

/** The output on stdout: text as it is under `raw`, else indented JSON. */
export function outputText(output: Json, raw = false): string {
  return raw && typeof output === "string" ? printable(output) : jsonText(output, 2);
}

export function statusText(status: StepStatus, style: Style): string {
  switch (status) {
    case "succeeded":
      return style.good(`${style.done} ${status}`);
    case "failed":
      return style.bad(`${style.failed} ${status}`);
    case "suspended":
      return style.warn(`${style.waiting} ${status}`);
    case "running":
      return `${style.going} ${status}`;
    default:
      return style.dim(`${style.skipped} ${status}`);
  }
}

/** `38 steps, 1 retry, 2 agents, 1204 tokens, 0.0130 cost`. */
export function usageText(usage: Usage): string {
  const parts = [count(usage.steps, "step")];
  if (usage.retries > 0) parts.push(count(usage.retries, "retry", "retries"));
  if (usage.agents > 0) parts.push(count(usage.agents, "agent"));
  if (usage.tokens > 0) parts.push(count(usage.tokens, "token"));
  if (usage.cost_micros === null) parts.push("cost not measured");
  else if (usage.cost_micros > 0) parts.push(`${(usage.cost_micros / 1_000_000).toFixed(4)} spent`);
  return parts.join(", ");
}

/** The last word of a verb that moved a run: on stderr, with what to do next where there is something to do. */
export function endLines(run: Run, context: Context, workspace: string): string[] {
  const { style } = context.out;
  const took = Date.parse(run.updated_at) - Date.parse(run.created_at);
  const head = `${statusText(run.status, style)} ${style.dim(`after ${elapsed(took)}, ${usageText(run.usage)}, run ${run.run_id}`)}`;
  if (run.status === "failed")
    return [head, ...failureLines(run), `  ${commandLine(context, "show", run.run_id, "--steps")}`];
  if (run.status !== "suspended") return [head];
  const shown = { workspace, nowMs: context.process.now(), style };
  return [
    head,
    ...heldBy(run.waits).flatMap((wait) => [
      ...waitLines(wait, shown),
      ...waitCommands(wait, context, run.actions).map((c) => `  ${c}`),
    ]),
  ];
}

function failureLines(run: Run): string[] {
  if (run.failure === undefined) return [];
  return [`  ${oneLine(run.failure.code)}: ${printable(run.failure.message)}`];
}

/** Where a run stands. `all`: every step, else only those that a person should look at. */
export function runLines(run: Run, context: Context, workspace: string, all: boolean): string[] {
  const { style } = context.out;
  const now = context.process.now();
  const field = (name: string, value: string) => `${style.dim(name.padEnd(10))} ${value}`;
  const lines = [
    `${style.bold(`${oneLine(run.workflow_id)}@${run.workflow_revision}`)}  ${statusText(run.status, style)}`,
    field("run", run.run_id),
    ...(run.parent_run_id === undefined
      ? []
      : [field("part of", `${run.parent_run_id} ${oneLine(run.parent_step_id ?? "")}`)]),
    field("created", `${run.created_at} (${ago(Date.parse(run.created_at), now)})`),
    field("updated", `${run.updated_at} (${ago(Date.parse(run.updated_at), now)})`),
    field("used", usageText(run.usage)),
    field("limits", limitsText(run)),
    field("inputs", jsonText(run.args)),
  ];
  if (run.failure !== undefined) lines.push(field("failure", `${run.failure.code}: ${printable(run.failure.message)}`));
  lines.push("", ...stepLines(run, context, all));
  const shown = { workspace, nowMs: now, style };
  for (const wait of heldBy(run.waits))
    lines.push("", ...waitLines(wait, shown), ...waitCommands(wait, context, run.actions).map((c) => `  ${c}`));
  const may = actionLines(run.actions, run, context);
  if (may.length > 0) lines.push("", style.dim("May be done now:"), ...may);
  if (run.output !== undefined) lines.push("", style.dim(`Output: ${commandLine(context, "output", run.run_id)}`));
  return lines;
}

function limitsText(run: Run): string {
  const named = BUDGET_FIELDS.flatMap((field) => {
    const value = run.budget[field];
    if (value === undefined) return [];
    return [
      field === "wall_time_ms"
        ? `time ${elapsed(value)}`
        : `${field.replace(/^max_/, "").replace("_micros", "")} ${limit(field, value)}`,
    ];
  });
  return named.join(", ");
}

function limit(field: string, value: number): string {
  return field === "max_cost_micros" ? (value / 1_000_000).toFixed(2) : String(value);
}

const STEP_COLUMNS: readonly Column[] = [
  { title: "STEP", flexible: true },
  { title: "STATUS" },
  { title: "ATTEMPTS", align: "right" },
  { title: "FAILURE", flexible: true },
];

/** At most this many rows unless all are asked for. */
const STEPS_SHOWN = 12;

function stepLines(run: Run, context: Context, all: boolean): string[] {
  const notable = all ? run.steps : run.steps.filter(({ status }) => status !== "succeeded" && status !== "skipped");
  const shown = all ? notable : notable.slice(0, STEPS_SHOWN);
  const tally = tallyText(run);
  if (shown.length === 0) return [tally];
  const rows = shown.map((step) => [
    oneLine(step.id),
    step.status,
    String(step.attempts),
    step.failure === undefined ? "" : `${step.failure.code}: ${oneLine(step.failure.message)}`,
  ]);
  const rest = notable.length - shown.length;
  const lines = [tally, ...table(STEP_COLUMNS, rows, context.out.terminal.width)];
  if (rest > 0)
    lines.push(
      context.out.style.dim(`and ${count(rest, "more step")}: ${commandLine(context, "show", run.run_id, "--steps")}`),
    );
  return lines;
}

function tallyText(run: Run): string {
  const tally = new Map<StepStatus, number>();
  for (const { status } of run.steps) tally.set(status, (tally.get(status) ?? 0) + 1);
  const parts = [...tally].map(([status, n]) => `${n} ${status}`);
  return parts.length === 0 ? "No step has begun." : `Steps: ${parts.join(", ")}.`;
}

/** Verbs of this command line for the actions that are allowed; the others are not offered. */
export function actionLines(
  actions: readonly Action[],
  run: { run_id: string; status: RunStatus },
  context: Context,
): string[] {
  const verbs = new Set(["cancel", "pause", "resume", "restart"]);
  return actions
    .filter(({ allowed, name }) => allowed && verbs.has(name) && !(name === "cancel" && isTerminal(run.status)))
    .map(({ name }) => `  ${commandLine(context, name, run.run_id)}`);
}

/** One step in full. */
export function stepDetailLines(step: StepDetail, style: Style): string[] {
  const lines = [`${style.bold(oneLine(step.id))}  ${statusText(step.status, style)}`];
  const field = (name: string, value: string | undefined) => {
    if (value !== undefined)
      lines.push(`${style.dim(name.padEnd(12))} ${value.replaceAll("\n", `\n${" ".repeat(13)}`)}`);
  };
  field("tool", step.tool === undefined ? undefined : oneLine(step.tool));
  field("side effect", step.side_effect?.replace("_", " "));
  field("child run", step.child_run_id);
  field("input", step.input === undefined ? undefined : jsonText(step.input, 2));
  field("output", step.output === undefined ? undefined : jsonText(step.output, 2));
  field("failure", step.failure === undefined ? undefined : `${step.failure.code}: ${printable(step.failure.message)}`);
  for (const tried of step.tries) field(`attempt ${tried.attempt}`, triedText(tried));
  return lines;
}

function triedText(tried: StepDetail["tries"][number]): string {
  const took = tried.ended_at_ms === undefined ? "not ended" : elapsed(tried.ended_at_ms - tried.started_at_ms);
  const parts = [tried.outcome ?? "open", took, new Date(tried.started_at_ms).toISOString()];
  if (tried.redispatches > 0) parts.push(`sent again ${tried.redispatches}×`);
  if (tried.failure !== undefined) parts.push(`${tried.failure.code}: ${oneLine(tried.failure.message)}`);
  return parts.join("  ");
}
