/** Starting a run (RP-14, RP-15): every refusal comes before anything is created. */

import { DEFAULT_BUNDLE_LIMITS, UNTRUSTED_BUNDLE_LIMITS } from "../catalog/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import { canonicalJson, hashJson, type Json, JsonError, normalizeJson, sha256 } from "../domain/json.ts";
import {
  applyDefaults,
  type Bundle,
  bundleHash,
  type CompileEnv,
  compileSchema,
  type Definition,
  definitionKey,
  findCredential,
  inheritCeilings,
  tightenBudget,
} from "../domain/plan/index.ts";
import { type Budgets, isTerminal, type RunHeader } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import { ENGINE_VERSION } from "../engine/index.ts";
import type { SessionRecord } from "../ports/index.ts";
import type { StartRequest } from "./api.ts";
import { type AccessContext, ceilingsFor, needEngine, needStore, sessionOf, UNTRUSTED_OPEN_RUNS } from "./context.ts";
import { checkBundle, preflightError, refusals } from "./preflight.ts";

export interface Started {
  readonly run_id: string;
  readonly replayed: boolean;
  /** The run's last state, once it has ended in this process: it need not be read back. */
  readonly ended?: () => RunState | undefined;
}

export function compileEnv(context: AccessContext): CompileEnv {
  return {
    tool: (name) => context.tools.describe(name),
    maxConcurrency: context.trusted() ? context.limits.ceilings.max_concurrency : 64,
  };
}

export async function startRun(context: AccessContext, request: StartRequest): Promise<Started> {
  const session = await sessionOf(context, request.session);
  const origin = request.origin ?? "explicit";
  const restricted = origin === "automatic" || !context.trusted();
  if (origin === "automatic" && !session.orchestration_opt_in)
    throw preflightError(
      "opt_in",
      "Cannot start: the session has no opt-in for runs that a model starts; set orchestration_opt_in",
    );
  const pinned = pinRoot(context, request, restricted);
  const policy = pinned.bundle.root_invocation_policy;
  if ((origin === "explicit" ? policy.explicit : policy.automatic) !== true)
    throw preflightError(
      "invocation",
      `Cannot start "${pinned.bundle.root_id}": its invocation_policy does not allow ${origin} starts`,
    );
  return create(context, session, request, tightened(pinned.bundle, request.budget, restricted, context), {
    restricted,
    costAsked:
      request.budget?.max_cost_micros !== undefined || rootOf(pinned.bundle).budgets.max_cost_micros !== undefined,
  });
}

function pinRoot(context: AccessContext, request: StartRequest, restricted: boolean): { bundle: Bundle } {
  const { definitions, bundle_bytes } = context.limits;
  const limits = restricted
    ? UNTRUSTED_BUNDLE_LIMITS
    : { ...DEFAULT_BUNDLE_LIMITS, maxDefinitions: definitions, maxBytes: bundle_bytes };
  return context.catalog.pin(request.workflow, { limits });
}

export function rootOf(bundle: Bundle): Definition {
  const root = bundle.definitions[definitionKey(bundle.root_id, bundle.root_revision)];
  if (root === undefined)
    throw preflightError("bundle", "Cannot start: the bundle does not hold its root; pin it again");
  return root;
}

interface Tightened {
  readonly bundle: Bundle;
  readonly budget: Budgets;
}

/** RP-23, RP-24: the request only tightens; the tightened root replaces the bundle's before it is hashed (RP-11). */
export function tightened(
  bundle: Bundle,
  requested: Partial<Budgets> | undefined,
  restricted: boolean,
  context: AccessContext,
): Tightened {
  const root = rootOf(bundle);
  const ceilings = ceilingsFor(context, restricted);
  const result = tightenBudget(root.budgets, requested ?? {}, { complete: false });
  if (!result.ok) throw new HoldfastError("input", result.message, { details: { field: result.field } });
  if (requested === undefined) return { bundle, budget: inheritCeilings(root.budgets, ceilings) };
  const budgets = result.budgets;
  if (budgets.max_agents > budgets.max_steps)
    throw new HoldfastError("input", "Cannot use this budget: max_agents is above max_steps; lower it", {
      details: { field: "max_agents" },
    });
  const definition: Definition = { ...root, budgets };
  return {
    bundle: { ...bundle, definitions: { ...bundle.definitions, [definitionKey(root.id, root.revision)]: definition } },
    budget: inheritCeilings(budgets, ceilings),
  };
}

/** Arguments in normal form, with defaults, fitting the schema, free of credentials. @throws input */
export function readArgs(definition: Definition, given: unknown): Json {
  let args: Json;
  try {
    args = normalizeJson(given ?? {});
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new HoldfastError(
      "input",
      `Cannot start "${definition.id}": the arguments are not JSON at ${error.path}: ${error.reason}`,
      { details: { path: error.path } },
    );
  }
  args = applyDefaults(definition.input_schema, args);
  const fits = compileSchema(definition.input_schema).validate(args);
  if (!fits.ok)
    throw new HoldfastError(
      "input",
      `Cannot start "${definition.id}": the arguments do not fit at ${fits.path || "/"}: ${fits.message}`,
      { details: { path: fits.path } },
    );
  const leak = findCredential(args, "args");
  if (leak !== undefined)
    throw new HoldfastError(
      "input",
      `Cannot start "${definition.id}": the arguments hold what looks like a credential at ${leak.path}; pass a secret handle {"$secret": "name"} instead`,
      { details: { path: leak.path } },
    );
  return args;
}

interface CreateOptions {
  readonly restricted: boolean;
  readonly costAsked: boolean;
  readonly made_from?: RunHeader["made_from"];
}

/** Longest name of a starter; it is shown beside what the run asks for. */
const MAX_STARTER = 200;

function startedBy(
  context: AccessContext,
  { started_by = context.starter }: StartRequest,
): Pick<RunHeader, "started_by"> {
  if (started_by === undefined) return {};
  if (started_by.length === 0 || started_by.length > MAX_STARTER || /[\u0000-\u001f\u007f]/.test(started_by))
    throw new HoldfastError(
      "usage",
      `Cannot start: \`started_by\` is no name; give 1 to ${MAX_STARTER} characters such as os:anna`,
    );
  return { started_by };
}

/** The engine's part of RP-14: bundle, policy, ceilings, arguments, then creation. */
export async function create(
  context: AccessContext,
  session: SessionRecord,
  request: StartRequest,
  { bundle, budget }: Tightened,
  options: CreateOptions,
): Promise<Started> {
  const engine = needEngine(context);
  checkBundle(bundle, compileEnv(context));
  const root = rootOf(bundle);
  const ceilings = ceilingsFor(context, options.restricted);
  const [refused] = await refusals(context, bundle, budget, {
    posture: session.posture,
    ceilings,
    costAsked: options.costAsked,
  });
  if (refused !== undefined) throw refused;
  const args = readArgs(root, request.args);
  const request_hash = hashJson({ workflow: `${root.id}@${root.revision}`, args, budget: { ...budget } });
  if (request.key !== undefined) {
    const earlier = await needStore(context).getKeyedStart(session.session_id, request.key);
    if (earlier !== undefined) {
      if (earlier.request_hash === request_hash) return { run_id: earlier.run_id, replayed: true };
      throw new HoldfastError(
        "idempotency_key_reused",
        `Cannot start "${root.id}": the key "${request.key}" was used for another request; use a new key`,
        {
          details: { run_id: earlier.run_id },
        },
      );
    }
  }
  const stored = storedBundle(bundle);
  const run_id = context.ids.uuid();
  const header: RunHeader = {
    run_id,
    root_run_id: run_id,
    session_id: session.session_id,
    kind: "plan",
    workflow_id: root.id,
    workflow_revision: root.revision,
    bundle_hash: stored.hash,
    args,
    args_hash: sha256(canonicalJson(args)),
    budget,
    created_at_ms: context.clock.now(),
    depth: 0,
    engine_version: ENGINE_VERSION,
    durability: request.durability ?? context.durability,
    origin: request.origin ?? "explicit",
    ...startedBy(context, request),
    ...(options.made_from === undefined ? {} : { made_from: options.made_from }),
  };
  let last: RunState | undefined;
  const unsubscribe = engine.subscribe(run_id, (_, state) => {
    if (!isTerminal(state.status)) return;
    last = state;
    unsubscribe();
  });
  const { run_id: answered, created } = await engine.create({
    header,
    bundle,
    bundleBytes: stored.bytes,
    queue: request.queue ?? false,
    maxOpenRuns: options.restricted
      ? Math.min(UNTRUSTED_OPEN_RUNS, context.limits.open_runs)
      : context.limits.open_runs,
    ...(request.key === undefined ? {} : { key: { key: request.key, request_hash } }),
    ...(options.made_from?.how === "retry" ? { retryOf: options.made_from.run_id } : {}),
  });
  if (!created) unsubscribe();
  return { run_id: answered, replayed: !created, ended: () => last };
}

const storedBundles = new WeakMap<Bundle, { readonly hash: string; readonly bytes: Uint8Array }>();

function storedBundle(bundle: Bundle): { readonly hash: string; readonly bytes: Uint8Array } {
  let stored = storedBundles.get(bundle);
  if (stored === undefined) {
    stored = { hash: bundleHash(bundle), bytes: Buffer.from(canonicalJson(bundle as unknown as Json), "utf8") };
    storedBundles.set(bundle, stored);
  }
  return stored;
}
