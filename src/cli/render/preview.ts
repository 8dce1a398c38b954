/** A preview for people: the plan as a tree, what each step can do, and the most it can take. */
import type { Preview, PublicPlan } from "../../access/api.ts";
import type { Context } from "../context.ts";
import { type Column, table } from "../table.ts";
import { count, elapsed, oneLine, printable } from "../text.ts";

const COLUMNS: readonly Column[] = [
  { title: "STEP", flexible: true },
  { title: "DOES", flexible: true },
  { title: "CAN" },
  { title: "SIDE EFFECT" },
  { title: "PERMISSION" },
];

export function previewLines(preview: Preview, context: Context): string[] {
  const { style, terminal } = context.out;
  const lines = [
    `${style.bold(`${oneLine(preview.workflow_id)}@${preview.revision}`)}  ${style.dim(preview.definition_hash.slice(0, 12))}`,
    "",
    ...planTree(preview.plan, terminal.unicode),
    "",
  ];
  const rows = preview.steps.map((step) => [
    oneLine(step.step_id),
    oneLine(step.tool ?? step.agent ?? step.kind),
    step.capabilities.length === 0 ? "-" : oneLine(step.capabilities.join(", ")),
    step.side_effect.replace("_", " "),
    step.permission,
  ]);
  lines.push(...table(COLUMNS, rows, terminal.width), "", boundsText(preview));
  if (preview.approvals.length > 0) lines.push(`It will ask a person: ${preview.approvals.map(oneLine).join(", ")}.`);
  if (preview.refusals.length > 0) {
    lines.push("", style.bad("It would be refused:"));
    for (const { message } of preview.refusals) lines.push(`  ${style.failed} ${printable(message)}`);
  }
  return lines;
}

function boundsText({ bounds }: Preview): string {
  const parts = [
    count(bounds.steps, "step"),
    count(bounds.agents, "agent"),
    count(bounds.retries, "retry", "retries"),
    // Inherited ceilings say nothing where no model is asked.
    ...(bounds.agents === 0 || bounds.tokens === undefined ? [] : [count(bounds.tokens, "token")]),
    ...(bounds.agents === 0 || bounds.cost_micros === undefined
      ? []
      : [`${(bounds.cost_micros / 1_000_000).toFixed(2)} spent`]),
    elapsed(bounds.wall_time_ms),
  ];
  return `At most: ${parts.join(", ")}.`;
}

/** The plan as an indented tree; drawn with lines where the terminal knows them. */
export function planTree(plan: PublicPlan, unicode: boolean): string[] {
  const [branch, last, bar, blank] = unicode ? ["├─ ", "└─ ", "│  ", "   "] : ["|- ", "`- ", "|  ", "   "];
  const lines = [nodeName(plan)];
  const inner = children(plan);
  for (const [i, { label, node }] of inner.entries()) {
    const end = i === inner.length - 1;
    const [first = "", ...rest] = planTree(node, unicode);
    lines.push(`${end ? last : branch}${label}${first}`, ...rest.map((line) => `${end ? blank : bar}${line}`));
  }
  return lines;
}

function nodeName(plan: PublicPlan): string {
  switch (plan.type) {
    case "step":
      return oneLine(plan.step);
    case "map":
      return "map: for each item";
    case "retry":
      return `retry: at most ${count(plan.max_attempts, "attempt")}`;
    default:
      return plan.type;
  }
}

function children(plan: PublicPlan): readonly { readonly label: string; readonly node: PublicPlan }[] {
  switch (plan.type) {
    case "step":
      return [];
    case "choice":
      return [
        { label: "then ", node: plan.then_branch },
        { label: "else ", node: plan.else_branch },
      ];
    case "map":
      return [{ label: "", node: plan.body }];
    case "retry":
      return [{ label: "", node: plan.node }];
    default:
      return plan.nodes.map((node) => ({ label: "", node }));
  }
}
