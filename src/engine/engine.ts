/**
 * The engine of one process: it creates run trees, claims them, keeps their leases, hands them signals, and lets go
 * of them (DESIGN §7). Everything a run does happens in its tree's executor.
 */
import { assert, HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import type { Json } from "../domain/json.ts";
import type { Bundle, Definition } from "../domain/plan/index.ts";
import { isTerminal, type RunHeader } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import type { Claim, Clock, RunRecord, Signal, SignalKind, Timer } from "../ports/index.ts";
import { foldLedger } from "../domain/ledger.ts";
import { haltedSteps, initialState } from "../domain/state.ts";
import { JournalWriter } from "./journal-writer.ts";
import { LeaseClock } from "./leases.ts";
import { TreeExecutor } from "./tree/executor.ts";
import { TreeJournal } from "./tree/journal.ts";
import { loadRun, markInterrupted, revive, treeLedger, type LoadedRun } from "./tree/loading.ts";
import type { Recorded } from "./replay.ts";
import { wake } from "./tree/parents.ts";
import { copyOf } from "./tree/retrying.ts";
import { applySignal, needsPrograms } from "./tree/signals.ts";
import { stopRun } from "./tree/stopping.ts";
import { DEFAULT_LIMITS, type EngineLimits, type EnginePorts, type LateResult } from "./work.ts";

/** Raised by every change of the engine that replay can see; a process claims only what it knows. */
export const ENGINE_VERSION = 1;
/** Callers of a signal are answered after this long with `pending`. */
const SIGNAL_WAIT_MS = 5_000;

export interface EngineOptions {
  readonly ports: EnginePorts;
  readonly limits?: Partial<EngineLimits>;
  readonly recovery?: "auto" | "manual";
  /** Whether the workspace is trusted now; asked at every dispatch (RP-20). */
  readonly trusted: () => boolean;
  readonly workspace: string;
  readonly log?: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
}

export interface NewRun {
  readonly header: RunHeader;
  readonly bundle: Bundle;
  readonly bundleBytes: Uint8Array;
  readonly key?: { readonly key: string; readonly request_hash: string };
  /** Leave it queued for a worker process. */
  readonly queue: boolean;
  readonly maxOpenRuns: number;
  /** The ended run whose settled prefix this one begins with (R-2j). */
  readonly retryOf?: string;
}

const QUEUED = { type: "run_queued" as const };

interface Held {
  readonly tree: TreeExecutor;
  readonly idle: Promise<void>;
  readonly markIdle: () => void;
  loaded: ReadonlyMap<string, LoadedRun>;
  readonly inHand: Set<string>;
  /** Serialises what needs the programs: reviving them twice would run them twice. */
  reviving: Promise<void> | undefined;
  failed: HoldfastError | undefined;
}

/**
 * Why programs are started: a person asked (refusals throw), the process goes on by itself, something that was
 * waited for has happened, or a limit was raised.
 */
type How = "explicit" | "auto" | "woken" | "raised";

export type Subscriber = (events: readonly RunEvent[], state: RunState) => void;

export class Engine {
  readonly options: EngineOptions;
  readonly owner: string;
  readonly limits: EngineLimits;
  readonly writer: JournalWriter;
  readonly #held = new Map<string, Held>();
  readonly #attaching = new Map<string, Promise<TreeExecutor | undefined>>();
  readonly #subscribers = new Map<string, Set<Subscriber>>();
  readonly #observers = new Set<Subscriber>();
  readonly #bundles = new Map<string, Bundle>();
  /** Bundles that the store is known to have: they are not sent again with every start. */
  readonly #stored = new Set<string>();
  readonly #lease: LeaseClock;
  #registered: Promise<void> | undefined;
  #claiming: Promise<unknown> = Promise.resolve();
  #renewal: Timer | undefined;
  #unwatch: (() => void) | undefined;
  #looking = false;
  #lookAgain = false;
  #closed = false;

  constructor(options: EngineOptions) {
    this.options = options;
    this.owner = options.ports.ids.uuid();
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.writer = new JournalWriter(options.ports.store);
    this.#lease = new LeaseClock(options.ports.clock, this.limits.lease_ms);
  }

  get ports(): EnginePorts {
    return this.options.ports;
  }

  // ── creating ────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Creates a run; durable when it returns (RP-22). The program starts only then: a start that the store refuses
   * has run nothing.
   * @returns false when an idempotency key answered with an earlier run: `run_id` is that one
   */
  async create(request: NewRun): Promise<{ readonly run_id: string; readonly created: boolean }> {
    await this.#register();
    const { header } = request;
    this.#bundles.set(header.bundle_hash, request.bundle);
    const sent = this.#lease.now();
    const held = this.#hold(header, 1, 0, foldLedger(initialState(header), []), "ask");
    const { journal } = held.tree;
    journal.createTree(
      header,
      {
        session_id: header.session_id,
        max_open_runs: request.maxOpenRuns,
        ...(request.key === undefined ? {} : { key: request.key }),
        ...(request.queue ? {} : { claim: { owner: this.owner, lease_expires_at_ms: this.ports.clock.now() + this.limits.lease_ms } }),
      },
      this.#stored.has(header.bundle_hash) ? undefined : { hash: header.bundle_hash, bytes: request.bundleBytes },
    );
    const copied = request.retryOf === undefined ? undefined : await copyOf(this.ports.store, request.retryOf, held.tree.services.definition(`${header.workflow_id}@${header.workflow_revision}`));
    const fresh = request.queue ? [QUEUED] : [QUEUED, { type: "run_started" as const }];
    journal.append(header.run_id, copied?.events ?? fresh);
    if (copied !== undefined) held.tree.absorb(header.run_id);
    if (request.queue) journal.update({ wake_at_ms: this.ports.clock.now() });
    try {
      await journal.barrier();
    } catch (error) {
      const earlier = keyedRun(error);
      if (earlier === undefined) throw error;
      return { run_id: earlier, created: false };
    }
    if (this.#stored.size >= 4096) this.#stored.clear();
    this.#stored.add(header.bundle_hash);
    if (request.queue) {
      this.#drop(held);
      return { run_id: header.run_id, created: true };
    }
    if (this.#held.size === 1) this.#lease.renewed(sent);
    held.reviving = held.tree.background(this.#begin(held.tree, header, copied?.recorded));
    return { run_id: header.run_id, created: true };
  }

  async #begin(tree: TreeExecutor, header: RunHeader, recorded: Recorded | undefined): Promise<void> {
    const session = await this.ports.sessions.getSession(header.session_id);
    if (session !== undefined) tree.posture = session.posture;
    // It may have been stopped before its program was there.
    if (tree.closing || tree.stops.size > 0 || isTerminal(tree.state(header.run_id).status)) return;
    await tree.begin(tree.activate(header, recorded));
  }

  #hold(
    root: RunHeader,
    fence: number,
    controlVersion: number,
    ledger: ConstructorParameters<typeof TreeExecutor>[2],
    posture: TreeExecutor["posture"],
  ): Held {
    let markIdle: () => void = () => undefined;
    const idle = new Promise<void>((resolve) => {
      markIdle = resolve;
    });
    const journal = new TreeJournal({
      rootRunId: root.run_id,
      fence,
      controlVersion,
      writer: this.writer,
      now: () => this.ports.clock.now(),
      publish: (runId, events, state) => this.#publish(runId, events, state),
      onPoison: (error) => this.#poisoned(root.run_id, error),
      onControl: () => this.#controlMoved(root.run_id),
    });
    const tree = new TreeExecutor(
      journal,
      {
        ports: this.ports,
        limits: this.limits,
        lease: this.#lease,
        definition: (key) => this.#definition(root.bundle_hash, key),
        trusted: this.options.trusted,
        workspace: this.options.workspace,
        log: this.options.log ?? (() => undefined),
        onIdle: (idleTree) => this.#idle(idleTree),
        late: (rootRunId, late) => void this.#late(rootRunId, late),
      },
      ledger,
      { id: root.session_id, posture },
    );
    this.writer.register(journal, { usage: (run) => tree.usage(run), ledger: () => tree.ledgerJson() });
    const held: Held = { tree, idle, markIdle, loaded: new Map(), inHand: new Set(), reviving: undefined, failed: undefined };
    this.#held.set(root.run_id, held);
    this.#keepLeases();
    return held;
  }

  #definition(bundleHash: string, key: string): Definition {
    const definition = this.#bundles.get(bundleHash)?.definitions[key];
    assert(definition !== undefined, `the definition ${key} is not in its bundle`);
    return definition;
  }

  // ── holding ─────────────────────────────────────────────────────────────────────────────────────────────────

  holds(rootRunId: string): TreeExecutor | undefined {
    return this.#held.get(rootRunId)?.tree;
  }

  /**
   * Claims a tree and brings it into memory, marking what a dead process left open. Answers undefined while another
   * process holds it. Programs are not started: `go` does that.
   */
  async attach(rootRunId: string): Promise<TreeExecutor | undefined> {
    const held = this.#held.get(rootRunId);
    if (held !== undefined) return held.tree;
    const [claimed] = await this.#claim(async (by) => {
      const mine = this.#held.has(rootRunId) || this.#attaching.has(rootRunId);
      const one = mine ? undefined : await this.ports.store.claim(rootRunId, by);
      return one === undefined ? [] : [one];
    });
    if (claimed !== undefined) return claimed.loading;
    return this.#attaching.get(rootRunId) ?? this.#held.get(rootRunId)?.tree;
  }

  /**
   * Claims trees that want work — due, signalled, or left by a dead process — and brings each into memory; `each`
   * is given the tree, or what was wrong with it. One bad run never holds up another (GD-36, C07).
   * @returns how many were claimed
   */
  async claimDue(limit: number, each: (claim: Claim, tree: Promise<TreeExecutor>) => void): Promise<number> {
    const claims = await this.#claim((by) => this.ports.store.claimDue({ ...by, limit }));
    for (const { claim, loading } of claims) each(claim, loading);
    return claims.length;
  }

  /**
   * One claim at a time, and what it took is known to be on its way before the next: a process that claimed a tree
   * twice would fence itself off.
   */
  async #claim(
    act: (by: { owner: string; leaseMs: number; graceMs: number }) => Promise<readonly Claim[]>,
  ): Promise<readonly { readonly claim: Claim; readonly loading: Promise<TreeExecutor> }[]> {
    await this.#register();
    const turn = this.#claiming.then(async () => {
      if (this.#closed) return [];
      const sent = this.#lease.now();
      const { lease_ms } = this.limits;
      const claims = await act({ owner: this.owner, leaseMs: lease_ms, graceMs: lease_ms / 6 });
      if (claims.length > 0 && this.#held.size === 0) this.#lease.renewed(sent);
      return claims.map((claim) => ({ claim, loading: this.#bringIn(claim) }));
    });
    this.#claiming = turn.catch(() => undefined);
    return turn;
  }

  #bringIn(claim: Claim): Promise<TreeExecutor> {
    const loading = this.#adopt(claim);
    const known = loading.then(
      (tree) => tree as TreeExecutor | undefined,
      () => undefined,
    );
    this.#attaching.set(claim.root_run_id, known);
    void known.finally(() => {
      if (this.#attaching.get(claim.root_run_id) === known) this.#attaching.delete(claim.root_run_id);
    });
    return loading;
  }

  /** How many trees are in memory here. */
  get load(): number {
    return this.#held.size + this.#attaching.size;
  }

  async #adopt(claim: Claim): Promise<TreeExecutor> {
    try {
      const tree = await this.#load(claim);
      await this.#hear(tree);
      return tree;
    } catch (error) {
      await this.ports.store.release(claim.root_run_id, claim.fence).catch(() => undefined);
      throw error;
    }
  }

  async #load(claim: Claim): Promise<TreeExecutor> {
    const { store } = this.ports;
    const records = await store.treeRuns(claim.root_run_id);
    const root = records.find((record) => record.run_id === claim.root_run_id);
    if (root === undefined) throw new HoldfastError("storage", `Cannot load the run ${claim.root_run_id}: it is missing`);
    if (root.engine_version > ENGINE_VERSION)
      throw new HoldfastError("not_possible", `Cannot go on with the run ${root.run_id}: a newer build started it; upgrade`);
    await this.#loadBundle(root.bundle_hash);
    const loaded = new Map<string, LoadedRun>();
    const ended: RunRecord[] = [];
    for (const record of records) {
      const needed = !isTerminal(record.status) || record.run_id === root.run_id || awaited(records, record);
      if (needed) loaded.set(record.run_id, await loadRun(store, record));
      if (isTerminal(record.status) && record.run_id !== root.run_id && !needed) ended.push(record);
    }
    const session = await this.ports.sessions.getSession(root.session_id);
    const held = this.#hold(
      (loaded.get(root.run_id) as LoadedRun).state.header,
      claim.fence,
      claim.control_version,
      treeLedger(loaded, ended, root.run_id),
      session?.posture ?? "ask",
    );
    held.loaded = loaded;
    for (const run of loaded.values()) held.tree.journal.adopt(run.state, run.tip);
    // the claim counted this recovery already. After so many without progress the run is parked, and says so.
    held.tree.recoveries = claim.recoveries;
    const parked = claim.recoveries >= this.limits.recoveries;
    markInterrupted(held.tree, parked ? "no_progress" : "the process that ran it has ended", { queued: parked });
    return held.tree;
  }

  /** An answer that came after its tree was let go: the tree is taken once more to keep it, if nobody else has it. */
  async #late(rootRunId: string, late: LateResult): Promise<void> {
    try {
      await this.idle(rootRunId).catch(() => undefined);
      const tree = this.#closed ? undefined : await this.attach(rootRunId);
      if (tree === undefined) throw new HoldfastError("conflict", `Cannot keep a late result of the run ${rootRunId}: it is held elsewhere`);
      tree.guard(() => tree.appendLate(late));
      tree.settleDownSoon();
    } catch (error) {
      this.options.log?.("warn", "a late result was not kept", { root_run_id: rootRunId, step_id: late.step_id, error });
    }
  }

  async #loadBundle(hash: string): Promise<Bundle> {
    const known = this.#bundles.get(hash);
    if (known !== undefined) return known;
    const bytes = await this.ports.store.getBundle(hash);
    if (bytes === undefined) throw new HoldfastError("storage", `Cannot load the definitions ${hash}: they are missing`);
    const bundle = JSON.parse(Buffer.from(bytes).toString("utf8")) as Bundle;
    if (this.#bundles.size >= 256) this.#bundles.delete(this.#bundles.keys().next().value as string);
    this.#bundles.set(hash, bundle);
    return bundle;
  }

  /** The pinned definitions of a run, for who shows it. */
  async bundleOf(hash: string): Promise<Bundle> {
    return this.#loadBundle(hash);
  }

  /**
   * Starts or continues the programs of a tree that was attached. `explicit`: a person asked; refusals throw.
   * Otherwise it goes on only where that is safe by itself.
   */
  async go(tree: TreeExecutor, how: How): Promise<void> {
    const held = this.#held.get(tree.rootRunId);
    if (held === undefined || tree.closed) return;
    if (tree.runs.size > 0 && held.reviving === undefined) return;
    held.reviving ??= this.#go(held, how);
    await held.reviving;
  }

  async #go(held: Held, how: How): Promise<void> {
    const { tree } = held;
    const root = tree.state(tree.rootRunId);
    if (isTerminal(root.status)) return tree.settleDown();
    const parked = tree.recoveries >= this.limits.recoveries && how === "auto";
    if (parked || !this.#mayContinue(tree, how)) return tree.settleDown();
    try {
      await revive(tree, held.loaded);
    } catch (error) {
      tree.runs.clear();
      held.reviving = undefined;
      this.options.log?.("error", "cannot continue", { root_run_id: tree.rootRunId, error });
      tree.settleDown();
      if (how === "explicit") throw error;
      return;
    }
    held.loaded = new Map();
    if (how !== "woken") this.#resumeRuns(tree);
    // past its deadline nothing of it is begun.
    if (tree.overdue(tree.rootRunId)) return void tree.background(stopRun(tree, tree.rootRunId, { reason: "timeout" }));
    for (const run of tree.runs.values()) if (tree.state(run.runId).status === "running") tree.armWallTimer(run);
    tree.runs.get(tree.rootRunId)?.host.goLive();
    // A run that waits for a person and has work that an interruption stopped: the work goes on meanwhile.
    if (how !== "woken")
      for (const run of [...tree.runs.values()])
        if (tree.state(run.runId).status === "suspended" && haltedSteps(tree.state(run.runId)).length > 0) wake(tree, run);
    tree.settleDownSoon();
  }

  /** repair allows no continue; a run that waits for a person is not continued, but its programs may be needed. */
  #mayContinue(tree: TreeExecutor, how: How): boolean {
    if (how === "woken") return true;
    for (const { state } of tree.journal.runs.values()) {
      if (isTerminal(state.status)) continue;
      if (state.waits.some((wait) => wait.type === "repair")) {
        if (how === "explicit")
          throw new HoldfastError(
            "not_possible",
            `Cannot continue the run ${state.header.run_id}: the outcome of a step is unknown; repair it first`,
          );
        return false;
      }
    }
    // A pause and a used-up budget end only by a person's word.
    const root = tree.state(tree.rootRunId);
    if (how === "auto" && root.waits.some((wait) => wait.type === "paused" || wait.type === "budget")) return false;
    if (how === "raised") return root.waits.every((wait) => wait.type !== "paused");
    if (how === "auto" && this.options.recovery === "manual")
      return tree.state(tree.rootRunId).status === "queued";
    return true;
  }

  #resumeRuns(tree: TreeExecutor): void {
    for (const run of tree.runs.values()) {
      const state = tree.state(run.runId);
      const standsStill = state.waits.some((wait) => wait.step_id === undefined);
      if (state.status === "queued" || (state.status === "suspended" && standsStill))
        tree.append(run.runId, [{ type: "run_started" }]);
    }
  }

  /** Resolves when the tree is no longer in memory here. @throws what made it impossible to go on */
  async idle(rootRunId: string): Promise<void> {
    const held = this.#held.get(rootRunId);
    if (held === undefined) return;
    await held.idle;
    if (held.failed !== undefined && held.failed.code !== "conflict") throw held.failed;
  }

  #idle(tree: TreeExecutor): void {
    const held = this.#held.get(tree.rootRunId);
    if (held?.tree === tree) this.#drop(held);
  }

  #drop(held: Held): void {
    if (this.#held.get(held.tree.rootRunId) === held) this.#held.delete(held.tree.rootRunId);
    if (this.#held.size === 0) this.#stopLeases();
    held.markIdle();
  }

  #poisoned(rootRunId: string, error: HoldfastError): void {
    const held = this.#held.get(rootRunId);
    if (held === undefined) return;
    held.failed = error;
    held.tree.drop();
    this.#drop(held);
    // The lease is given up so that anyone, this process included, may load what is durable and go on.
    if (error.code !== "conflict") void this.ports.store.release(rootRunId, held.tree.journal.fence).catch(() => undefined);
  }

  /** Resolves when this process can claim. */
  ready(): Promise<void> {
    return this.#register();
  }

  // ── leases and signals ──────────────────────────────────────────────────────────────────────────────────────

  #register(): Promise<void> {
    this.#registered ??= this.ports.store.registerOwner(this.owner);
    return this.#registered;
  }

  #keepLeases(): void {
    if (this.#renewal !== undefined) return;
    this.#renewal = every(this.ports.clock, this.limits.lease_ms / 3, () => void this.#renew());
    // Kept until the end: setting a watch up and down with every run would cost more than the run.
    this.#unwatch ??= this.ports.store.watch(() => void this.#look());
  }

  #stopLeases(): void {
    this.#renewal?.cancel();
    this.#renewal = undefined;
  }

  async #renew(): Promise<void> {
    const sent = this.#lease.now();
    const before = new Set(this.#held.keys());
    try {
      const kept = new Map((await this.ports.store.renew(this.owner, this.limits.lease_ms)).map((t) => [t.root_run_id, t]));
      this.#lease.renewed(sent);
      for (const root of before) {
        const held = this.#held.get(root);
        if (held === undefined || kept.has(root) || held.tree.journal.unborn) continue;
        if (!held.tree.closing)
          held.tree.journal.poison(new HoldfastError("conflict", `Cannot go on with the run ${root}: another process has taken it over`));
      }
    } catch (error) {
      this.options.log?.("warn", "lease renewal failed", { error });
    }
  }

  /** Takes in the signals of the trees held here; bursts of changes are looked at once. */
  async #look(): Promise<void> {
    if (this.#looking) {
      this.#lookAgain = true;
      return;
    }
    this.#looking = true;
    try {
      do {
        this.#lookAgain = false;
        if (this.#held.size === 0 || this.#closed) break;
        for (const signal of await this.ports.store.signals({ owner: this.owner })) this.#take(signal);
      } while (this.#lookAgain);
    } catch (error) {
      this.options.log?.("warn", "signals could not be read", { error });
    } finally {
      this.#looking = false;
    }
  }

  async #controlMoved(rootRunId: string): Promise<number> {
    const record = await this.ports.store.getTree(rootRunId);
    if (record === undefined) throw new HoldfastError("conflict", `Cannot go on with the run ${rootRunId}: it is gone`);
    for (const signal of await this.ports.store.signals({ root_run_id: rootRunId })) this.#take(signal);
    return record.control_version;
  }

  /** Takes in what was asked while nobody held the tree: what ends or pauses it comes before it goes on. */
  async #hear(tree: TreeExecutor): Promise<void> {
    const signals = await this.ports.store.signals({ root_run_id: tree.rootRunId });
    for (const signal of signals) if (!needsPrograms(tree, signal)) await this.#take(signal);
    for (const signal of signals) if (needsPrograms(tree, signal)) await this.#take(signal);
  }

  /** Applies a signal to a held tree, once. What it stops is told before this returns; the rest goes on behind. */
  #take(signal: Signal): Promise<void> | undefined {
    const held = this.#held.get(signal.root_run_id);
    if (held === undefined || held.inHand.has(signal.signal_id) || held.tree.closing) return undefined;
    held.inHand.add(signal.signal_id);
    const { tree } = held;
    return tree.background(
      (async () => {
        // What is being started or revived is told when it is there: half of it would not hear.
        if (held.reviving !== undefined) await held.reviving.catch(() => undefined);
        if (needsPrograms(tree, signal) && tree.runs.size === 0) await this.go(tree, "woken");
        if (tree.closed) return;
        await applySignal(tree, signal);
        // DESIGN §6: a raised limit goes on from there.
        if (signal.kind === "budget" && tree.runs.size === 0 && !tree.closed) await this.go(tree, "raised");
        tree.settleDownSoon();
      })(),
    );
  }

  /**
   * Sends a signal to whoever holds the tree, claiming it when nobody does.
   * @returns false when no holder took it within 5 s; it stays and will be taken
   */
  async signal(
    target: { readonly root_run_id: string; readonly run_id: string },
    kind: SignalKind,
    payload: Json,
    waitMs = SIGNAL_WAIT_MS,
    signal_id = this.ports.ids.uuid(),
  ): Promise<boolean> {
    const { store, clock } = this.ports;
    const signal: Signal = { ...target, signal_id, kind, payload, created_at_ms: clock.now() };
    await store.putSignal(signal, kind === "cancel" || kind === "pause" || kind === "posture");
    const until = clock.now() + waitMs;
    for (let pause = 4; ; pause = Math.min(50, pause * 2)) {
      await this.#deliver(signal);
      if (!(await store.signalExists(signal.signal_id))) return true;
      if (clock.now() >= until) return false;
      await this.#pause(pause);
    }
  }

  async #deliver(signal: Signal): Promise<void> {
    const held = this.#held.get(signal.root_run_id);
    if (held !== undefined) {
      const taken = this.#take(signal);
      if (taken !== undefined) await this.#atMost(SIGNAL_WAIT_MS, taken);
      if (!held.tree.closed) await held.tree.journal.barrier()?.catch(() => undefined);
      if (held.tree.closing) await held.idle;
      return;
    }
    const tree = await this.attach(signal.root_run_id);
    if (tree === undefined) return;
    const taken = this.#held.get(signal.root_run_id);
    await (this.#take(signal) ?? Promise.resolve());
    await tree.journal.barrier()?.catch(() => undefined);
    // Whoever sends a signal does what it asks and leaves the rest to a driver, but for what that set going.
    if (taken !== undefined && tree.closing) await taken.idle;
  }

  #pause(ms: number): Promise<void> {
    const { clock } = this.ports;
    return new Promise((resolve) => void clock.at(clock.now() + ms, resolve));
  }

  /** The timer ends with the work: it must not keep a process alive. */
  async #atMost(ms: number, work: Promise<void>): Promise<void> {
    const { clock } = this.ports;
    let timer: { cancel(): void } | undefined;
    const time = new Promise<void>((resolve) => {
      timer = clock.at(clock.now() + ms, resolve);
    });
    await Promise.race([work, time]).finally(() => timer?.cancel());
  }

  // ── watching ────────────────────────────────────────────────────────────────────────────────────────────────

  /** Durable events of a run as this process commits them. */
  subscribe(runId: string, subscriber: Subscriber): () => void {
    const set = this.#subscribers.get(runId) ?? new Set();
    this.#subscribers.set(runId, set);
    set.add(subscriber);
    return () => {
      set.delete(subscriber);
      if (set.size === 0) this.#subscribers.delete(runId);
    };
  }

  /** Durable events of every run as this process commits them: for figures and for whoever watches a session. */
  observe(observer: Subscriber): () => void {
    this.#observers.add(observer);
    return () => void this.#observers.delete(observer);
  }

  #publish(runId: string, events: readonly RunEvent[], state: RunState): void {
    for (const observer of this.#observers) observer(events, state);
    for (const subscriber of this.#subscribers.get(runId) ?? []) subscriber(events, state);
  }

  // ── leaving ─────────────────────────────────────────────────────────────────────────────────────────────────

  /** Stops claiming, lets what is appended reach the disk, and gives all leases up. Runs are left claimable. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.writer.idle();
    for (const held of [...this.#held.values()]) {
      const { fence } = held.tree.journal;
      held.tree.drop();
      await this.ports.store.release(held.tree.rootRunId, fence).catch(() => undefined);
    }
    await this.writer.idle();
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#stopLeases();
  }
}

/** A child that has ended while its parent's step is still open: its outcome has to reach the parent. */
function awaited(records: readonly RunRecord[], child: RunRecord): boolean {
  const parent = records.find((record) => record.run_id === child.parent_run_id);
  return parent !== undefined && !isTerminal(parent.status);
}

function keyedRun(error: unknown): string | undefined {
  if (!HoldfastError.is(error) || error.code !== "idempotency_key_reused") return undefined;
  const details = error.details as { same_request?: boolean; run_id?: string } | undefined;
  return details?.same_request === true ? details.run_id : undefined;
}

function every(clock: Clock, ms: number, callback: () => void): Timer {
  if (clock.every !== undefined) return clock.every(ms, callback);
  const handle = setInterval(callback, ms);
  return { cancel: () => clearInterval(handle) };
}
