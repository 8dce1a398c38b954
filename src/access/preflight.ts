/**
 * The whole-bundle check before anything is created (RP-14, RP-18): every reachable definition and every step,
 * unchosen branches included. One denial refuses the run.
 */
import { type ErrorDoc, HoldfastError, type Refused } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import {
  type AgentStep,
  type Bundle,
  type CompileEnv,
  checkCeilings,
  type Definition,
  maxDepth,
  type Step,
  type ToolStep,
  validateBundle,
} from "../domain/plan/index.ts";
import type { Budgets, RunHeader, SideEffect } from "../domain/run.ts";
import type { AgentProfile, PolicyAnswer, Posture } from "../ports/index.ts";
import { type AccessContext, ceilingsFor } from "./context.ts";

/** A step as preflight judges it. */
export interface JudgedStep {
  /** `id`, or `workflow/id` for a step of a nested definition. */
  readonly step_id: string;
  readonly step: Step;
  readonly capabilities: readonly string[];
  readonly side_effect: SideEffect;
  readonly answer: PolicyAnswer;
  readonly unknown: boolean;
  /** For agents: whether a price is known. */
  readonly priced?: boolean;
}

export function preflightError(
  refused: Refused,
  message: string,
  details: { readonly [key: string]: Json } = {},
): HoldfastError {
  return new HoldfastError("preflight", message, { details: { refused, ...details } });
}

/** What bundles were found sound: they are immutable, so once is enough. */
const sound = new WeakSet<Bundle>();

/** RP-13. @throws definition or preflight, naming the first fault */
export function checkBundle(bundle: Bundle, env: CompileEnv): void {
  if (sound.has(bundle)) return;
  const [refusal] = validateBundle(bundle, env);
  if (refusal !== undefined) {
    if (refusal.kind === "preflight")
      throw preflightError("bundle", refusal.message, { definition: refusal.definition });
    throw new HoldfastError("definition", refusal.message, {
      details: {
        definition: refusal.definition,
        problems: (refusal.problems ?? []).map((p) => ({ path: [...p.path], code: p.code, message: p.message })),
      },
    });
  }
  sound.add(bundle);
}

/** Every step of the bundle with what policy says of it now; root first. */
export async function judgeSteps(context: AccessContext, bundle: Bundle, posture: Posture): Promise<JudgedStep[]> {
  const judged: JudgedStep[] = [];
  const agents = new Map<string, AgentProfile | undefined>();
  for (const definition of rootFirst(bundle)) {
    for (const step of definition.steps) {
      const step_id = definition.id === bundle.root_id ? step.id : `${definition.id}/${step.id}`;
      if (step.type === "tool") judged.push({ step_id, ...judgeTool(context, step, posture) });
      else if (step.type === "agent") judged.push({ step_id, ...(await judgeAgent(context, step, posture, agents)) });
      else
        judged.push({
          step_id,
          step,
          capabilities: [],
          side_effect: "read_only",
          answer: { decision: "allow" },
          unknown: false,
        });
    }
  }
  return judged;
}

function rootFirst(bundle: Bundle): Definition[] {
  const all = Object.values(bundle.definitions);
  return [...all.filter((d) => d.id === bundle.root_id), ...all.filter((d) => d.id !== bundle.root_id)];
}

function judgeTool(context: AccessContext, step: ToolStep, posture: Posture): Omit<JudgedStep, "step_id"> {
  const tool = context.tools.describe(step.tool);
  const capabilities = [...new Set([...(tool?.capabilities ?? []), ...step.capabilities])];
  const side_effect = tool?.side_effect ?? "mutating";
  const answer = context.policy.decide({
    kind: "tool",
    target: step.tool,
    declared: step.capabilities,
    capabilities: tool?.capabilities ?? [],
    side_effect,
    trusted: context.trusted(),
    posture,
  });
  return { step, capabilities, side_effect, answer, unknown: tool === undefined };
}

async function judgeAgent(
  context: AccessContext,
  step: AgentStep,
  posture: Posture,
  known: Map<string, AgentProfile | undefined>,
): Promise<Omit<JudgedStep, "step_id">> {
  // RP-43: each distinct name is resolved once.
  if (!known.has(step.agent)) known.set(step.agent, await context.agents?.resolve(step.agent));
  const profile = known.get(step.agent);
  const answer = context.policy.decide({
    kind: "agent",
    target: step.agent,
    declared: step.capabilities,
    capabilities: profile?.capabilities ?? [],
    side_effect: "idempotent",
    trusted: context.trusted(),
    posture,
  });
  const capabilities = [...new Set([...(profile?.capabilities ?? []), ...step.capabilities])];
  return {
    step,
    capabilities,
    side_effect: "idempotent",
    answer,
    unknown: profile === undefined,
    priced: profile?.priced ?? true,
  };
}

/** Every reason why the run may not start; empty when it may. `asked`: a cost limit that someone asked for. */
export async function refusals(
  context: AccessContext,
  bundle: Bundle,
  budget: Budgets,
  options: { readonly posture: Posture; readonly ceilings: Budgets; readonly costAsked: boolean },
): Promise<HoldfastError[]> {
  const found: HoldfastError[] = [];
  const depth = maxDepth(bundle);
  if (depth >= budget.max_nesting_depth)
    found.push(
      preflightError(
        "ceiling",
        `Cannot start: workflows are nested ${depth} deep and max_nesting_depth is ${budget.max_nesting_depth}; raise it or nest less`,
      ),
    );
  for (const judged of await judgeSteps(context, bundle, options.posture)) {
    const error = refusalOf(context, judged) ?? priceRefusal(judged, options.costAsked);
    if (error !== undefined) found.push(error);
  }
  for (const refusal of checkCeilings(budget, options.ceilings))
    found.push(preflightError("ceiling", refusal.message, { field: refusal.field }));
  return found;
}

function refusalOf(context: AccessContext, { step, step_id, answer, unknown }: JudgedStep): HoldfastError | undefined {
  if (answer.decision === "deny") {
    const refused: Refused = answer.cause === "plan_mode" ? "policy" : answer.cause;
    return preflightError(refused, `Cannot start: the step "${step_id}" is not allowed: ${answer.reason}`, { step_id });
  }
  if (!unknown) return undefined;
  if (step.type === "agent") {
    const why = context.agents === undefined ? "this build has no agents" : `there is no agent "${step.agent}"`;
    return preflightError("policy", `Cannot start: the step "${step_id}" needs an agent, and ${why}`, { step_id });
  }
  const name = step.type === "tool" ? step.tool : step.id;
  return preflightError(
    "policy",
    `Cannot start: the step "${step_id}" uses "${name}", which is no tool here; see: holdfast preview`,
    { step_id },
  );
}

function priceRefusal(judged: JudgedStep, costAsked: boolean): HoldfastError | undefined {
  if (!costAsked || judged.step.type !== "agent" || judged.priced !== false) return undefined;
  return new HoldfastError(
    "workflow_monetary_budget_unsupported",
    `Cannot start: the cost of the agent "${judged.step.agent}" is unknown and a cost limit was asked for; give it a price or drop the limit`,
  );
}

export function errorDocs(errors: readonly HoldfastError[]): ErrorDoc[] {
  return errors.map((error) => error.toJSON());
}

/** What would refuse the run if it were to start today (RP-63): trust, policy, posture or a ceiling may have changed. */
export async function refusedToday(
  context: AccessContext,
  run: Pick<RunHeader, "session_id" | "origin" | "budget">,
  bundle: Bundle,
): Promise<HoldfastError | undefined> {
  const owner = await context.store?.getSession(run.session_id);
  const restricted = run.origin === "automatic" || !context.trusted();
  const [refused] = await refusals(context, bundle, run.budget, {
    posture: owner?.posture ?? "ask",
    ceilings: ceilingsFor(context, restricted),
    costAsked: false,
  });
  return refused;
}
