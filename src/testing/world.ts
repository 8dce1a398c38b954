/**
 * The simulated world (DESIGN §14.3): several processes with one engine each over one store, tools whose effects are
 * counted, and a clock that only moves when nothing else can. Everything left to chance is drawn from one seed, so
 * a run of the world is had again by its number. No server, no container, no network.
 */

import { HoldfastError } from "../domain/errors.ts";
import type { EventBody, RunEvent } from "../domain/events.ts";
import { dispatchId, parseEvents } from "../domain/journal.ts";
import { canonicalJson, hashJson, type Json } from "../domain/json.ts";
import { applyDefaults, type Bundle, bundleHash, type Definition, rootDefinition } from "../domain/plan/index.ts";
import { type Budgets, type Durability, isTerminal, type RunHeader, type SideEffect } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import { Driver, ENGINE_VERSION, Engine, type EngineLimits, loadRun, unpackText } from "../engine/index.ts";
import type {
  AgentPort,
  PolicyPort,
  RunRecord,
  RunStore,
  SecretPort,
  Segment,
  SessionStore,
  ToolCall,
  TreeRecord,
} from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { type ProcessClock, SimulatedClock } from "./clock.ts";
import { bundleOf } from "./definitions.ts";
import { EffectLedger } from "./effects.ts";
import { type FaultPlan, faultyStore } from "./faulty-store.ts";
import { eventsOf, readHistory } from "./history.ts";
import { SESSION_ID, sessionRecord } from "./journals.ts";
import { mortalAgents } from "./mock-agents.ts";
import { mockToolPort, type WorldTool } from "./mock-tools.ts";
import { observedStore } from "./observed-store.ts";
import { type Random, seededIds, seededRandom } from "./random.ts";
import { checkRules, type TreeHistory, type Violation } from "./rules.ts";

export interface WorldOptions {
  readonly seed: number;
  /** Plan documents, the root first; or a pinned bundle. */
  readonly definitions: readonly unknown[] | Bundle;
  readonly tools?: readonly WorldTool[];
  readonly agents?: AgentPort;
  /** Default: everything is allowed. */
  readonly policy?: PolicyPort;
  readonly secrets?: SecretPort;
  readonly limits?: Partial<EngineLimits>;
  readonly recovery?: "auto" | "manual";
  readonly trusted?: () => boolean;
  /** Epoch ms. */
  readonly start?: number;
  /** Real path that tools are told of. Default `/workspace`. */
  readonly workspace?: string;
  /** Default: a fresh one in memory. One that is given stays its owner's to close. */
  readonly store?: RunStore & SessionStore;
}

export interface ProcessOptions {
  readonly name?: string;
  readonly faults?: FaultPlan;
  /** Wall clock minus the world's, ms. */
  readonly driftMs?: number;
  readonly recovery?: "auto" | "manual";
  /** Claims by itself what wants work; default true. */
  readonly drives?: boolean;
  /** The driver's slow poll, ms; by default none that a story would live to see. */
  readonly pollMs?: number;
}

export interface StartOptions {
  readonly args?: Json;
  readonly durability?: Durability;
  readonly budget?: Partial<Budgets>;
  readonly queue?: boolean;
}

/** Notices of a world are kept up to this many. */
const MAX_LOG = 1_000;
const ALLOW: PolicyPort = { fingerprint: "allow", decide: () => ({ decision: "allow" }) };
const NO_SECRETS: SecretPort = { resolve: async () => ({ ok: false, reason: "none is configured" }) };

/** One process of the world: an engine, its handle on the store, its clock and its tools. */
export class WorldProcess {
  readonly name: string;
  readonly engine: Engine;
  readonly driver: Driver;
  readonly clock: ProcessClock;
  readonly #faulty: ReturnType<typeof faultyStore>;
  readonly #onGone: () => void;

  constructor(parts: {
    name: string;
    engine: Engine;
    driver: Driver;
    clock: ProcessClock;
    faulty: ReturnType<typeof faultyStore>;
    onGone: () => void;
  }) {
    this.name = parts.name;
    this.engine = parts.engine;
    this.driver = parts.driver;
    this.clock = parts.clock;
    this.#faulty = parts.faulty;
    this.#onGone = parts.onGone;
  }

  get alive(): boolean {
    return !this.#faulty.stopped;
  }

  /** Writes made so far, as `faultyStore` counts them. */
  get writes(): number {
    return this.#faulty.writes;
  }

  get calls(): number {
    return this.#faulty.calls;
  }

  /** The process is gone, as by SIGKILL; its host lock proves it to the others. */
  kill(): void {
    this.#faulty.stop();
  }

  /** The process stands still, as by SIGSTOP: it keeps what it holds, and hears nothing. */
  freeze(): void {
    this.clock.freeze();
    this.#faulty.freeze();
  }

  thaw(): void {
    this.#faulty.thaw();
    this.clock.thaw();
  }

  /** Called by the world once the fault plan has stopped it. */
  gone(): void {
    this.clock.stop();
    this.#onGone();
  }
}

export class World {
  readonly seed: number;
  readonly clock: SimulatedClock;
  readonly random: Random;
  readonly effects = new EffectLedger();
  readonly violations: Violation[] = [];
  readonly log: { readonly level: string; readonly message: string; readonly details: Record<string, unknown> }[] = [];
  /** The store itself, without any fault. */
  readonly store: RunStore & SessionStore;
  readonly bundle: Bundle;
  readonly #options: WorldOptions;
  readonly #ids: ReturnType<typeof seededIds>;
  readonly #ownsStore: boolean;
  readonly #watchers = new Map<() => void, () => boolean>();
  readonly #segments = new Map<string, readonly RunEvent[]>();
  #announced = false;
  #processes = 0;

  constructor(options: WorldOptions, clock: SimulatedClock, store: RunStore & SessionStore, ownsStore: boolean) {
    this.seed = options.seed;
    this.clock = clock;
    this.store = store;
    this.random = seededRandom("world", options.seed);
    this.bundle = bundleOf(options.definitions);
    this.#options = options;
    this.#ids = seededIds(clock, "world", options.seed);
    this.#ownsStore = ownsStore;
  }

  /** A process with an engine that claims what wants work. */
  async process(options: ProcessOptions = {}): Promise<WorldProcess> {
    const name = options.name ?? `process-${++this.#processes}`;
    const clock = this.clock.view(options.driftMs ?? 0);
    const subscribed = new Set<string>();
    let process: WorldProcess | undefined;
    const alive = (): boolean => process?.alive !== false;
    const observed = observedStore(this.store, {
      violate: (violation) => void this.violations.push(violation),
      announce: () => this.#announce(),
      onRun: (runId) => {
        if (process === undefined || subscribed.has(runId)) return;
        subscribed.add(runId);
        process.engine.subscribe(runId, (events) => this.#published(runId, events));
      },
      watch: (onChange) => {
        this.#watchers.set(onChange, alive);
        return () => void this.#watchers.delete(onChange);
      },
    });
    const faulty = faultyStore(observed, {
      ...options.faults,
      onCall: (method) => {
        this.clock.touch();
        options.faults?.onCall?.(method);
      },
      onFreeze: () => {
        clock.freeze();
        options.faults?.onFreeze?.();
      },
      onStop: () => {
        process?.gone();
        options.faults?.onStop?.();
      },
    });
    const engine = this.#engine(name, clock, faulty.store, options, alive);
    process = new WorldProcess({
      name,
      engine,
      driver: new Driver(engine, { pollMs: options.pollMs ?? 365 * 86_400_000 }),
      clock,
      faulty,
      // What the system does with a process's host lock: whoever asks finds it free.
      onGone: () => void this.store.renew(engine.owner, -86_400_000).then(() => this.#announce()),
    });
    if (options.drives !== false) void process.driver.start().catch(() => undefined);
    return process;
  }

  #engine(
    name: string,
    clock: ProcessClock,
    store: RunStore & SessionStore,
    options: ProcessOptions,
    alive: () => boolean,
  ): Engine {
    const world = this.#options;
    return new Engine({
      ports: {
        store,
        sessions: store,
        tools: mockToolPort(world.tools ?? [], {
          seed: this.seed,
          process: name,
          clock,
          effects: this.effects,
          alive,
          hold: () => this.clock.hold(),
          onCall: (call, sideEffect) => {
            this.clock.touch();
            this.#checkIntent(call, sideEffect);
          },
        }),
        agents: world.agents === undefined ? undefined : mortalAgents(world.agents, alive, () => this.clock.hold()),
        policy: world.policy ?? ALLOW,
        secrets: world.secrets ?? NO_SECRETS,
        clock,
        ids: seededIds(clock, name, this.seed),
      },
      ...(world.limits === undefined ? {} : { limits: world.limits }),
      recovery: options.recovery ?? world.recovery ?? "auto",
      trusted: world.trusted ?? (() => true),
      workspace: world.workspace ?? "/workspace",
      log: (level, message, details) => this.#log(level, message, details, alive()),
    });
  }

  #log(level: string, message: string, details: Record<string, unknown>, alive: boolean): void {
    if (this.log.length < MAX_LOG) this.log.push({ level, message, details });
    const { error } = details;
    const known = HoldfastError.is(error) && error.code !== "internal";
    if (alive && level === "error" && error !== undefined && !known)
      this.violations.push({
        rule: "no_bug",
        cites: "DESIGN §13",
        sequence: 0,
        why: `${message}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
      });
  }

  /** Starts a run of the root definition; resolves when it is durable, and never in a process that is gone. */
  async start(process: WorldProcess, options: StartOptions = {}): Promise<string> {
    const root = rootDefinition(this.bundle) as Definition;
    const args = applyDefaults(root.input_schema, options.args ?? {});
    const run_id = this.#ids.uuid();
    const header: RunHeader = {
      run_id,
      root_run_id: run_id,
      session_id: SESSION_ID,
      kind: "plan",
      workflow_id: root.id,
      workflow_revision: root.revision,
      bundle_hash: bundleHash(this.bundle),
      args,
      args_hash: hashJson(args),
      budget: { ...root.budgets, ...options.budget },
      created_at_ms: process.clock.now(),
      depth: 0,
      engine_version: ENGINE_VERSION,
      durability: options.durability ?? "standard",
      origin: "explicit",
    };
    await process.engine.create({
      header,
      bundle: this.bundle,
      bundleBytes: Buffer.from(canonicalJson(this.bundle as unknown as Json)),
      queue: options.queue ?? false,
      maxOpenRuns: 1_000_000,
    });
    return run_id;
  }

  /**
   * Lets the world go on until `done`: first everything that can happen now, then the next timer.
   * @returns false when nothing is left that could happen, or `untilMs` of the world's clock is reached
   */
  async until(done: () => boolean | Promise<boolean>, untilMs = Number.POSITIVE_INFINITY): Promise<boolean> {
    for (;;) {
      await this.clock.settle();
      if (await done()) return true;
      if (!this.clock.stepToward(untilMs)) return false;
    }
  }

  async record(runId: string): Promise<RunRecord> {
    const record = await this.store.getRun(runId);
    if (record === undefined) throw new Error(`The world has no run ${runId}`);
    return record;
  }

  async tree(rootRunId: string): Promise<TreeRecord> {
    const tree = await this.store.getTree(rootRunId);
    if (tree === undefined) throw new Error(`The world has no run tree ${rootRunId}`);
    return tree;
  }

  async state(runId: string): Promise<RunState> {
    return (await loadRun(this.store, await this.record(runId))).state;
  }

  /** Read through the hash chain: a broken one throws. */
  async events(runId: string): Promise<readonly RunEvent[]> {
    return eventsOf(this.store, await this.record(runId));
  }

  /** Types in order; phases as `phase NAME`. */
  async kinds(runId: string): Promise<readonly string[]> {
    return (await this.events(runId)).map((event) => (event.type === "phase" ? `phase ${event.name}` : event.type));
  }

  async history(rootRunId: string): Promise<TreeHistory> {
    return readHistory(this.store, rootRunId, this.effects);
  }

  /** Every rule, on the journals of the tree and on what was seen while they were written. */
  async check(rootRunId: string): Promise<readonly Violation[]> {
    try {
      return [...this.violations, ...checkRules(await this.history(rootRunId))];
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      return [...this.violations, { rule: "hash_chain", cites: "R-23", run_id: rootRunId, sequence: 0, why }];
    }
  }

  /** The run has ended, and nobody works on its tree any more. */
  async ended(rootRunId: string): Promise<boolean> {
    const record = await this.store.getRun(rootRunId);
    return record !== undefined && isTerminal(record.status) && (await this.tree(rootRunId)).owner === undefined;
  }

  async close(): Promise<void> {
    if (this.#ownsStore) await this.store.close();
  }

  #announce(): void {
    this.clock.touch();
    if (this.#announced) return;
    this.#announced = true;
    queueMicrotask(() => {
      this.#announced = false;
      for (const [watcher, alive] of [...this.#watchers]) if (alive()) watcher();
    });
  }

  #parsed(segment: Segment): readonly RunEvent[] {
    let events = this.#segments.get(segment.hash);
    if (events === undefined) {
      events = parseEvents(unpackText(segment));
      if (this.#segments.size >= MAX_PARSED) this.#segments.clear();
      this.#segments.set(segment.hash, events);
    }
    return events;
  }

  /** RP-55: whoever hears of an event can read it. */
  #published(runId: string, events: readonly RunEvent[]): void {
    const last = events.at(-1);
    if (last === undefined) return;
    void this.store.getRun(runId).then((record) => {
      if (record !== undefined && record.last_sequence >= last.sequence) return;
      this.violations.push({
        rule: "published_is_durable",
        cites: "RP-55, R-3",
        run_id: runId,
        sequence: last.sequence,
        event: last.type,
        why: "a subscriber heard of an event that is not in the store",
      });
    });
  }

  /** DESIGN §4: before anything outside may change, the intent is in the store; R-2: what is settled is not done again. */
  #checkIntent(call: ToolCall, sideEffect: SideEffect): void {
    void this.store.readSegments(call.run_id, 0, Number.MAX_SAFE_INTEGER).then((segments) => {
      const events = segments.flatMap((segment) => this.#parsed(segment));
      const mine = events.filter(
        (event): event is RunEvent & { step_id: string } => "step_id" in event && event.step_id === call.step_id,
      );
      const at = { run_id: call.run_id, sequence: mine.at(-1)?.sequence ?? 0 };
      let attempt = 0;
      let open: (EventBody & { type: "step_started" }) | undefined;
      for (const event of mine) {
        if (event.type === "step_started") [attempt, open] = [event.attempt, event];
        else if (event.type === "step_suspended" || SETTLES.has(event.type)) open = undefined;
        if (SETTLES.has(event.type) && attempt === call.attempt)
          this.violations.push({
            ...at,
            sequence: event.sequence,
            event: event.type,
            rule: "settled_is_not_sent_again",
            cites: "R-2, RP-63",
            why: `attempt ${attempt} of ${call.step_id} had settled and was sent again`,
          });
      }
      const fits = open?.attempt === call.attempt && (open.redispatch ?? 0) === call.redispatch;
      if ((sideEffect !== "read_only" || call.redispatch > 0) && !fits)
        this.violations.push({
          ...at,
          rule: "intent_before_effect",
          cites: "DESIGN §4, R-3",
          why: `${call.step_id} (${call.tool}, attempt ${call.attempt}, redispatch ${call.redispatch}) was called before its intent was durable`,
        });
      if (dispatchId(call.run_id, call.step_id, call.attempt) !== call.dispatch_id)
        this.violations.push({
          ...at,
          rule: "dispatch_id",
          cites: "R-24",
          why: `${call.step_id} was sent under an id that is not its attempt's`,
        });
    });
  }
}

/** Parsed segments that a world remembers. */
const MAX_PARSED = 4_096;
const SETTLES: ReadonlySet<string> = new Set(["step_completed", "step_failed", "step_cancelled"]);

/** A world with a session in it. */
export async function createWorld(options: WorldOptions): Promise<World> {
  const clock = new SimulatedClock({
    seed: options.seed,
    ...(options.start === undefined ? {} : { start: options.start }),
  });
  const store = options.store ?? (await openSqliteStore({ path: ":memory:", clock }));
  if ((await store.getSession(SESSION_ID)) === undefined) await store.createSession(sessionRecord());
  return new World(options, clock, store, options.store === undefined);
}
