/** The catalog as callers see it: entries, and what a start would do without doing it. */
import { type ErrorDoc, HoldfastError } from "../domain/errors.ts";
import { definitionHash, publicPlan, worstCase } from "../domain/plan/index.ts";
import type { Preview, WorkflowsApi } from "./api.ts";
import { type AccessContext, ceilingsFor } from "./context.ts";
import { checkBundle, errorDocs, judgeSteps, refusals } from "./preflight.ts";
import { compileEnv, readArgs, rootOf, tightened } from "./starting.ts";

export function workflowsApi(context: AccessContext): WorkflowsApi {
  return {
    list: async () => context.catalog.entries(),
    publication: async () => ({
      publication_revision: context.catalog.publication_revision,
      workflows: context.catalog.entries(),
    }),
    show: async (ref) => {
      const { entry, definition, source } = context.catalog.resolve(ref);
      return { entry, ...(definition === undefined ? {} : { plan: publicPlan(definition.plan) }), source };
    },
    check: async (source, file) => context.catalog.checkText(source, file),
    get: async (ref) => context.catalog.resolve(ref).entry,
    bundle: async (ref) => context.catalog.pin(ref).bundle,
    preview: (ref, options) => preview(context, ref, options),
    reload: async () => {
      const { publication_revision, diagnostics } = context.catalog.reload();
      return { publication_revision, diagnostics };
    },
  };
}

async function preview(
  context: AccessContext,
  ref: string,
  options: Parameters<WorkflowsApi["preview"]>[1] = {},
): Promise<Preview> {
  const restricted = !context.trusted();
  const { bundle, entry } = context.catalog.pin(ref);
  const { bundle: tight, budget } = tightened(bundle, options.budget, restricted, context);
  const root = rootOf(tight);
  const posture = "ask" as const;
  const judged = await judgeSteps(context, tight, posture);
  const worst = worstCase(tight);
  const found: ErrorDoc[] = [];
  try {
    checkBundle(tight, compileEnv(context));
  } catch (error) {
    if (!HoldfastError.is(error)) throw error;
    found.push(error.toJSON());
  }
  const costAsked = options.budget?.max_cost_micros !== undefined || root.budgets.max_cost_micros !== undefined;
  found.push(
    ...errorDocs(
      await refusals(context, tight, budget, { posture, ceilings: ceilingsFor(context, restricted), costAsked }),
    ),
  );
  if (options.args !== undefined) found.push(...argRefusals(() => readArgs(root, options.args)));
  return {
    workflow_id: root.id,
    revision: root.revision,
    definition_hash: definitionHash(rootOf(bundle)),
    plan: publicPlan(root.plan),
    steps: judged.map(({ step_id, step, capabilities, side_effect, answer }) => ({
      step_id,
      kind: step.type,
      ...(step.type === "tool" ? { tool: step.tool } : {}),
      ...(step.type === "agent" ? { agent: step.agent } : {}),
      capabilities,
      side_effect,
      permission: answer.decision,
    })),
    approvals: judged
      .filter(({ step, answer }) => step.type === "approval" || answer.decision === "ask")
      .map(({ step_id }) => step_id),
    bounds: {
      steps: Math.min(worst.steps, budget.max_steps),
      agents: Math.min(worst.agents, budget.max_agents),
      retries: Math.min(worst.retries, budget.max_retries),
      ...(budget.max_tokens === undefined ? {} : { tokens: budget.max_tokens }),
      ...(budget.max_cost_micros === undefined ? {} : { cost_micros: budget.max_cost_micros }),
      wall_time_ms: budget.wall_time_ms,
    },
    refusals: found,
    ...(entry.description === undefined ? {} : { text: entry.description }),
  };
}

function argRefusals(read: () => unknown): ErrorDoc[] {
  try {
    read();
    return [];
  } catch (error) {
    if (!HoldfastError.is(error)) throw error;
    return [error.toJSON()];
  }
}
