/** What every operation works with: the engine, the store, the catalog and the rules of this workspace. */
import type { Catalog } from "../catalog/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Budgets, Durability } from "../domain/run.ts";
import { UNTRUSTED_CEILINGS } from "../domain/run.ts";
import type { Engine, EngineLimits } from "../engine/index.ts";
import type {
  AgentPort,
  Clock,
  Ids,
  PolicyPort,
  RunStore,
  SessionRecord,
  SessionStore,
  ToolPort,
} from "../ports/index.ts";

/** Ceilings of trusted workspaces; the configuration may change each. */
export interface AccessLimits {
  readonly ceilings: Budgets;
  readonly open_runs: number;
  readonly definitions: number;
  readonly bundle_bytes: number;
}

export const DEFAULT_ACCESS_LIMITS: AccessLimits = {
  ceilings: {
    max_concurrency: 1_024,
    max_agents: 100_000,
    max_steps: 100_000,
    max_retries: 100_000,
    max_nesting_depth: 64,
    wall_time_ms: 30 * 86_400_000,
  },
  open_runs: 1_000_000,
  definitions: 256,
  bundle_bytes: 16 * 1024 * 1024,
};

/** RP-76's limit for model-started runs and untrusted workspaces. */
export const UNTRUSTED_OPEN_RUNS = 256;

export interface AccessContext {
  /** Absent when only the catalog was opened. */
  readonly engine: Engine | undefined;
  readonly store: (RunStore & SessionStore) | undefined;
  readonly catalog: Catalog;
  readonly tools: ToolPort;
  readonly agents: AgentPort | undefined;
  readonly policy: PolicyPort;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly trusted: () => boolean;
  /** Real path. */
  readonly workspace: string;
  readonly limits: AccessLimits;
  readonly engineLimits: Partial<EngineLimits>;
  readonly durability: Durability;
  /** The store was opened for reading alone. */
  readonly readOnly: boolean;
  /** For operators: what callers are not told. */
  readonly log?: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
  /** Who may approve, and how. */
  readonly approvals: { readonly mcp?: "elicit"; readonly not_by_starter?: boolean };
  /** Who starts runs when a request does not say. */
  readonly starter?: string;
  /** Session used when a request names none. */
  readonly session: string;
}

export function needStore(context: AccessContext): RunStore & SessionStore {
  if (context.store === undefined)
    throw new HoldfastError("usage", "Cannot look at runs: no store is open; open the workspace with its store");
  return context.store;
}

export function needEngine(context: AccessContext): Engine {
  if (context.engine === undefined)
    throw new HoldfastError("usage", "Cannot move runs: no store is open; open the workspace with its store");
  return context.engine;
}

/** What binds a start: RP's ceilings where a model or an untrusted workspace asks, else the configuration's. */
export function ceilingsFor(context: AccessContext, restricted: boolean): Budgets {
  return restricted ? UNTRUSTED_CEILINGS : context.limits.ceilings;
}

const DEFAULT_SESSION = "default";

/** The session of a request; `default` and the process's own are made on first use. @throws not_found */
export async function sessionOf(context: AccessContext, wanted: string | undefined): Promise<SessionRecord> {
  const store = needStore(context);
  const name = wanted ?? context.session;
  const found = await store.getSession(name);
  if (found !== undefined) return found;
  if (name !== DEFAULT_SESSION && name !== context.session)
    throw new HoldfastError("not_found", `Cannot find the session "${name}"; see: holdfast sessions`);
  const now = context.clock.now();
  // Looking at what nobody has used yet shows nothing, and writes nothing.
  const session: SessionRecord = {
    session_id: context.ids.uuid(),
    name,
    workspace: context.workspace,
    posture: "ask",
    orchestration_opt_in: false,
    metadata: {},
    created_at_ms: now,
    updated_at_ms: now,
  };
  if (context.readOnly) return session;
  try {
    await store.createSession(session);
    return session;
  } catch (error) {
    const other = await store.getSession(name);
    if (other === undefined) throw error;
    return other;
  }
}
