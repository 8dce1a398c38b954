/** Test fixture: an engine over an in-memory store, with tools given as plain functions. Never shipped. */

import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { canonicalJson, hashJson, type Json } from "../domain/json.ts";
import {
  type Bundle,
  bundleHash,
  compilePlan,
  DEFAULT_INVOCATION_POLICY,
  type Definition,
  definitionKey,
} from "../domain/plan/index.ts";
import type { RunHeader, SideEffect } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import type {
  AgentCall,
  AgentEstimate,
  AgentOutcome,
  AgentPort,
  Clock,
  PolicyPort,
  RunStore,
  SecretPort,
  SessionStore,
  SignalKind,
  ToolCall,
  ToolDescriptor,
  ToolOutcome,
  ToolPort,
} from "../ports/index.ts";
import {
  ENGINE_VERSION,
  Engine,
  type EngineLimits,
  type EngineOptions,
  loadRun,
  systemClock,
  systemIds,
} from "./index.ts";

export interface FakeTool {
  readonly side_effect?: SideEffect;
  readonly capabilities?: readonly string[];
  readonly run: (call: ToolCall) => Promise<ToolOutcome> | ToolOutcome;
  readonly lookup?: ToolPort["lookup"];
  readonly observe?: ToolPort["observe"];
  /** Its owner plans, and is handed over to (GD-13). */
  readonly plan?: ToolPort["plan"];
  readonly cancel?: ToolPort["cancel"];
}

export const ok = (output: Json): ToolOutcome => ({ type: "succeeded", output });
export const failed = (retryable = true): ToolOutcome => ({
  type: "failed",
  kind: "execution",
  retryable,
  message: "raw text",
});

export function toolPort(tools: Record<string, FakeTool>): ToolPort {
  const describe = (name: string): ToolDescriptor | undefined => {
    const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
    if (tool === undefined) return undefined;
    return {
      name,
      description: name,
      input_schema: {},
      side_effect: tool.side_effect ?? "read_only",
      capabilities: tool.capabilities ?? ["read"],
      source: "code",
      can_lookup: tool.lookup !== undefined,
      can_observe: tool.observe !== undefined,
      ...(tool.plan === undefined ? {} : { can_handoff: true }),
    };
  };
  return {
    describe,
    list: () => Object.keys(tools).map((name) => describe(name) as ToolDescriptor),
    call: async (call) => (tools[call.tool] as FakeTool).run(call),
    lookup: async (tool, query) => (await tools[tool]?.lookup?.(tool, query)) ?? { type: "unknown" },
    observe: async (tool, query) => (await tools[tool]?.observe?.(tool, query)) ?? { type: "unknown" },
    plan: async (tool, query) => (await tools[tool]?.plan?.(tool, query)) ?? { type: "ready", intent: null },
    cancel: async (tool, query) => tools[tool]?.cancel?.(tool, query),
  };
}

/** A promise and its settling, for tests that decide when something ends. */
export interface Gate<T = void> {
  readonly promise: Promise<T>;
  readonly open: (value: T) => void;
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => undefined;
  const promise = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { promise, open };
}

/** Resolves when the call is told to stop. */
export function aborted(call: { readonly signal: AbortSignal }): Promise<void> {
  return new Promise((resolve) => {
    if (call.signal.aborted) resolve();
    else call.signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

export const NEVER = new Promise<never>(() => undefined);

/** A tool that says that it has been called, and answers no more: its process is meant to end meanwhile. */
export const hangs = (called: Gate): FakeTool => ({
  run: () => {
    called.open();
    return NEVER;
  },
});

/** A plan of one step. */
export const leaf = (step: string): { readonly type: "step"; readonly step: string } => ({ type: "step", step });

/** Agents that answer by a function; `estimate` says what each call is expected to take. */
export function agentPort(
  call: (call: AgentCall) => Promise<AgentOutcome> | AgentOutcome,
  estimate: (call: Omit<AgentCall, "signal" | "dispatch_id">) => AgentEstimate = () => ({}),
): AgentPort {
  return {
    resolve: async (name) => ({ name, capabilities: [], priced: true }),
    estimate: async (request) => estimate(request),
    call: async (request) => call(request),
  };
}

/**
 * The same store, whose commits stop reaching the disk after `commits` of them: what a process that dies there
 * leaves behind. `commit` may look at each group first.
 */
export function cutStore<S extends RunStore>(store: S, commits: number): S & { readonly made: () => number } {
  let made = 0;
  const cut: RunStore["commit"] = async (group) => {
    if (made >= commits) throw new HoldfastError("storage_unavailable", "the process has died here");
    made++;
    return store.commit(group);
  };
  return wrapStore(store, { commit: cut, made: () => made });
}

/** A store with some of its methods replaced. */
export function wrapStore<S extends object, T extends object>(store: S, replaced: T): S & T {
  return new Proxy(store, {
    get(target, key) {
      const own: unknown = Reflect.get(replaced, key);
      if (own !== undefined) return own;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  }) as S & T;
}

/** A clock that stands still until it is told to go on. */
export class TestClock implements Clock {
  #now = Date.now();
  #timers: { at: number; callback: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  at(at: number, callback: () => void): { cancel(): void } {
    const timer = { at, callback };
    this.#timers.push(timer);
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer);
      },
    };
  }

  get pending(): number {
    return this.#timers.length;
  }

  /** Fires what is due, in order of time; what that sets going has its turn before the next. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    for (;;) {
      const next = this.#timers.filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#timers = this.#timers.filter((other) => other !== next);
      this.#now = Math.max(this.#now, next.at);
      next.callback();
      for (let i = 0; i < 5; i++) await turn();
    }
    this.#now = until;
  }
}

/** One turn of the event loop. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

export const allowAll: PolicyPort = { fingerprint: "allow", decide: () => ({ decision: "allow" }) };
const noSecrets: SecretPort = { resolve: async () => ({ ok: false, reason: "none is configured" }) };

export interface Fixture {
  readonly engine: Engine;
  readonly store: RunStore & SessionStore;
  start(
    definition: object,
    args?: Json,
    options?: Partial<RunHeader> & { nested?: readonly object[] },
  ): Promise<string>;
  /** Starts, waits until the tree is let go, and answers its final state. */
  run(
    definition: object,
    args?: Json,
    options?: Partial<RunHeader> & { nested?: readonly object[] },
  ): Promise<RunState>;
  state(runId: string): Promise<RunState>;
  events(runId: string): Promise<readonly RunEvent[]>;
  /** Kinds in order; phases as `phase NAME`. */
  kinds(runId: string): Promise<readonly string[]>;
  /** Resolves with the first durable state that fits. */
  until(runId: string, fits: (state: RunState) => boolean): Promise<RunState>;
  /** Claims the tree, goes on with it, and answers its state when it is let go. */
  resume(runId: string, how?: "explicit" | "auto" | "woken"): Promise<RunState>;
  /** A signal on the root run, or on `child`. */
  signal(runId: string, kind: SignalKind, payload?: Json, child?: string): Promise<boolean>;
}

export interface FixtureOptions {
  readonly store: RunStore & SessionStore;
  readonly tools?: Record<string, FakeTool>;
  readonly agents?: AgentPort;
  readonly policy?: PolicyPort;
  readonly secrets?: SecretPort;
  readonly limits?: Partial<EngineLimits>;
  readonly recovery?: "auto" | "manual";
  readonly leaves?: boolean;
  readonly approvals?: EngineOptions["approvals"];
  readonly trusted?: boolean;
  readonly clock?: Clock;
  readonly authorised?: EngineOptions["authorised"];
  readonly program?: EngineOptions["program"];
  /** Errors that the engine logs are expected. */
  readonly quiet?: boolean;
  /** The store has its session, or cannot be asked yet. */
  readonly hasSession?: boolean;
}

export function compile(document: object): Definition {
  const compiled = compilePlan({ workflow_schema: 1, id: "flow", revision: 1, ...document } as unknown as Json, {
    maxConcurrency: 1024,
  });
  if (compiled.definition === undefined)
    throw new Error(compiled.problems.map((p) => `${p.path.join(".")}: ${p.message}`).join("\n"));
  return compiled.definition;
}

export async function fixture(options: FixtureOptions): Promise<Fixture> {
  const { store } = options;
  const session = "00000000-0000-7000-8000-000000000001";
  if (options.hasSession !== true && (await store.getSession(session)) === undefined)
    await store.createSession({
      session_id: session,
      name: "default",
      workspace: "/tmp",
      posture: "ask",
      orchestration_opt_in: false,
      metadata: {},
      created_at_ms: 1,
      updated_at_ms: 1,
    });
  const engine = new Engine({
    ports: {
      store,
      sessions: store,
      tools: toolPort(options.tools ?? {}),
      agents: options.agents,
      policy: options.policy ?? allowAll,
      secrets: options.secrets ?? noSecrets,
      clock: options.clock ?? systemClock,
      ids: systemIds,
    },
    ...(options.limits === undefined ? {} : { limits: options.limits }),
    recovery: options.recovery ?? "auto",
    leaves: options.leaves ?? false,
    approvals: options.approvals ?? {},
    trusted: () => options.trusted ?? true,
    ...(options.authorised === undefined ? {} : { authorised: options.authorised }),
    ...(options.program === undefined ? {} : { program: options.program }),
    workspace: "/tmp",
    log: (level, message, details) => {
      if (level === "error" && options.quiet !== true) console.error(message, details);
    },
  });
  const state = async (runId: string): Promise<RunState> => {
    const record = await store.getRun(runId);
    if (record === undefined) throw new Error(`no run ${runId}`);
    return (await loadRun(store, record)).state;
  };
  const events = async (runId: string): Promise<readonly RunEvent[]> => {
    const { readEvents } = await import("./values.ts");
    const all: RunEvent[] = [];
    for (const segment of await store.readSegments(runId, 0, 1 << 30)) all.push(...(await readEvents(store, segment)));
    return all;
  };
  const start: Fixture["start"] = async (document, args = {}, { nested = [], ...header } = {}) => {
    const definition = compile(document);
    const definitions = Object.fromEntries(
      [definition, ...nested.map(compile)].map((d) => [definitionKey(d.id, d.revision), d]),
    );
    const bundle: Bundle = {
      publication_revision: 1,
      root_id: definition.id,
      root_revision: definition.revision,
      root_invocation_policy: DEFAULT_INVOCATION_POLICY,
      definitions,
    };
    const run_id = systemIds.uuid();
    await engine.create({
      header: {
        run_id,
        root_run_id: run_id,
        session_id: session,
        kind: "plan",
        workflow_id: definition.id,
        workflow_revision: definition.revision,
        bundle_hash: bundleHash(bundle),
        args,
        args_hash: hashJson(args),
        budget: definition.budgets,
        created_at_ms: (options.clock ?? systemClock).now(),
        depth: 0,
        engine_version: ENGINE_VERSION,
        durability: "standard",
        origin: "explicit",
        ...header,
      },
      bundle,
      bundleBytes: Buffer.from(canonicalJson(bundle as unknown as Json)),
      queue: false,
      maxOpenRuns: 1000,
    });
    return run_id;
  };
  return {
    engine,
    store,
    start,
    run: async (document, args, header) => {
      const runId = await start(document, args, header);
      await engine.idle(runId);
      return state(runId);
    },
    state,
    events,
    until: (runId, fits) =>
      new Promise((resolve, reject) => {
        const stop = engine.subscribe(runId, (_, seen) => {
          if (!fits(seen)) return;
          stop();
          resolve(seen);
        });
        // It may have got there before.
        state(runId).then((now) => {
          if (!fits(now)) return;
          stop();
          resolve(now);
        }, reject);
      }),
    resume: async (runId, how = "explicit") => {
      const tree = await engine.attach(runId);
      if (tree === undefined) throw new Error(`the run ${runId} cannot be claimed`);
      await engine.go(tree, how);
      await engine.idle(runId);
      return state(runId);
    },
    signal: (runId, kind, payload = {}, child = runId) =>
      engine.signal({ root_run_id: runId, run_id: child }, kind, payload),
    kinds: async (runId) => (await events(runId)).map((e) => (e.type === "phase" ? `phase ${e.name}` : e.type)),
  };
}
