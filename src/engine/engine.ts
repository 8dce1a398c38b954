/**
 * The engine of one process, as others see it: it creates run trees, lets their programs go on, and leaves them to be
 * claimed (DESIGN §7). Holding them is custody's, signals are the signal box's; what a run does happens in its tree's
 * executor.
 */
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import { foldLedger } from "../domain/ledger.ts";
import { type Bundle, definitionKey } from "../domain/plan/index.ts";
import { haltedSteps, isPaused, isRaised } from "../domain/questions.ts";
import { isTerminal, type RunHeader, type Wait } from "../domain/run.ts";
import { initialState, type RunState } from "../domain/state.ts";
import type { Claim, SignalKind } from "../ports/index.ts";
import { Bundles } from "./bundles.ts";
import { Custody, type Held } from "./custody.ts";
import { JournalWriter } from "./journal-writer.ts";
import type { Recorded } from "./replay.ts";
import { SIGNAL_WAIT_MS, SignalBox } from "./signal-box.ts";
import type { TreeExecutor } from "./tree/executor.ts";
import { revive, suspendForNondeterminism } from "./tree/loading.ts";
import { wake } from "./tree/parents.ts";
import { copyOf } from "./tree/retrying.ts";
import { stopRun } from "./tree/stopping.ts";
import type { Trouble } from "./troubles.ts";
import { type Subscriber, Watchers } from "./watchers.ts";
import { DEFAULT_LIMITS, type EngineLimits, type EngineOptions, type EnginePorts, type How } from "./work.ts";

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

export class Engine {
  readonly options: EngineOptions;
  readonly limits: EngineLimits;
  readonly writer: JournalWriter;
  readonly #bundles: Bundles;
  readonly #custody: Custody;
  readonly #signals: SignalBox;
  readonly #watchers = new Watchers();

  constructor(options: EngineOptions) {
    this.options = options;
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.writer = new JournalWriter(options.ports.store);
    this.#bundles = new Bundles(options.ports.store);
    this.#custody = new Custody(options, this.limits, this.writer, {
      bundles: this.#bundles,
      publish: (runId, events, state) => this.#watchers.publish(runId, events, state),
      controlMoved: (rootRunId) => this.#signals.controlMoved(rootRunId),
      hear: (tree) => this.#signals.hear(tree),
      changed: () => void this.#signals.look(),
    });
    this.#signals = new SignalBox(options, this.#custody, (tree, how) => this.go(tree, how));
  }

  get ports(): EnginePorts {
    return this.options.ports;
  }

  /** This process, as leases name it. */
  get owner(): string {
    return this.#custody.owner;
  }

  /** Resolves when this process can claim. */
  ready(): Promise<void> {
    return this.#custody.register();
  }

  // ── creating ────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Creates a run; durable when it returns (RP-22). The program starts only then: a start that the store refuses
   * has run nothing.
   * @returns false when an idempotency key answered with an earlier run: `run_id` is that one
   */
  async create(request: NewRun): Promise<{ readonly run_id: string; readonly created: boolean }> {
    await this.#custody.register();
    const { header } = request;
    const queue = request.queue || this.options.leaves === true;
    this.#bundles.add(header.bundle_hash, request.bundle);
    const sent = this.#custody.lease.now();
    const held = this.#custody.hold(header, {
      fence: 1,
      controlVersion: 0,
      ledger: foldLedger(initialState(header), []),
      posture: "ask",
    });
    const { journal } = held.tree;
    journal.createTree(
      header,
      {
        session_id: header.session_id,
        max_open_runs: request.maxOpenRuns,
        ...(request.key === undefined ? {} : { key: request.key }),
        ...(queue
          ? {}
          : { claim: { owner: this.owner, lease_expires_at_ms: this.ports.clock.now() + this.limits.lease_ms } }),
      },
      this.#bundles.isStored(header.bundle_hash) ? undefined : { hash: header.bundle_hash, bytes: request.bundleBytes },
    );
    const definition = this.#bundles.definition(
      header.bundle_hash,
      definitionKey(header.workflow_id, header.workflow_revision),
    );
    const { retryOf } = request;
    const copied = retryOf === undefined ? undefined : await copyOf(this.ports.store, retryOf, definition);
    const fresh = queue ? [QUEUED] : [QUEUED, { type: "run_started" as const }];
    journal.append(header.run_id, copied?.events ?? fresh);
    if (copied !== undefined) held.tree.absorb(header.run_id);
    if (queue) journal.update({ wake_at_ms: this.ports.clock.now() });
    try {
      await journal.barrier();
    } catch (error) {
      const earlier = keyedRun(error);
      if (earlier === undefined) throw error;
      return { run_id: earlier, created: false };
    }
    this.#bundles.stored(header.bundle_hash);
    if (queue) {
      this.#custody.drop(held);
      return { run_id: header.run_id, created: true };
    }
    if (this.#custody.size === 1) this.#custody.lease.renewed(sent);
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

  /** The pinned definitions of a run, for who shows it. */
  async bundleOf(hash: string): Promise<Bundle> {
    return this.#bundles.load(hash);
  }

  // ── holding ─────────────────────────────────────────────────────────────────────────────────────────────────

  /** How many trees are in memory here. */
  get load(): number {
    return this.#custody.load;
  }

  holds(rootRunId: string): TreeExecutor | undefined {
    return this.#custody.held(rootRunId)?.tree;
  }

  /** As `Custody.attach`: claims a tree and brings it into memory; undefined while another process holds it. */
  attach(rootRunId: string): Promise<TreeExecutor | undefined> {
    return this.#custody.attach(rootRunId);
  }

  /** As `Custody.claimDue`: claims trees that want work. @returns how many */
  claimDue(limit: number, each: (claim: Claim, tree: Promise<TreeExecutor>) => void): Promise<number> {
    return this.#custody.claimDue(limit, each);
  }

  /** Resolves when the tree is no longer in memory here. @throws what made it impossible to go on */
  idle(rootRunId: string): Promise<void> {
    return this.#custody.idle(rootRunId);
  }

  /** What keeps a tree from going on here, though it should. */
  troubleOf(rootRunId: string): Trouble | undefined {
    return this.#custody.troubles.of(rootRunId);
  }

  // ── going on ────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Starts or continues the programs of a tree that was attached. `explicit`: a person asked; refusals throw.
   * Otherwise it goes on only where that is safe by itself.
   */
  async go(tree: TreeExecutor, how: How): Promise<void> {
    const held = this.#custody.held(tree.rootRunId);
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
    tree.dormant = parked || !this.#mayContinue(tree, how) || !(await this.#isAuthorised(tree, how));
    if (tree.dormant) return tree.settleDown();
    try {
      await revive(tree, held.loaded);
    } catch (error) {
      tree.runs.clear();
      held.reviving = undefined;
      this.options.log?.("error", "cannot continue", { root_run_id: tree.rootRunId, error });
      // what a person asked for is refused and nothing written; else the run says why it stands still.
      if (how !== "explicit") suspendForNondeterminism(tree, error);
      tree.dormant = true;
      tree.settleDown();
      if (how === "explicit") throw error;
      return;
    }
    held.loaded = new Map();
    if (how !== "woken") this.#resumeRuns(tree);
    // past its deadline nothing of it is begun.
    if (tree.overdue(tree.rootRunId)) return void tree.background(stopRun(tree, tree.rootRunId, { reason: "timeout" }));
    for (const run of tree.runs.values()) if (tree.state(run.runId).status === "running") tree.armWallTimer(run);
    // Woken to hear a decision, and paused: it is written down, and the run stays where it is (GD-62).
    tree.dormant = isPaused(tree.state(tree.rootRunId));
    tree.paused = tree.dormant;
    const program = tree.runs.get(tree.rootRunId);
    if (program !== undefined) tree.goLive(program);
    // A run that waits for a person and has work that an interruption stopped: the work goes on meanwhile.
    if (how !== "woken")
      for (const run of [...tree.runs.values()])
        if (tree.state(run.runId).status === "suspended" && haltedSteps(tree.state(run.runId)).length > 0)
          wake(tree, run);
    tree.settleDownSoon();
  }

  /** SC-40: what was interrupted goes on by itself only where it could start today. */
  async #isAuthorised(tree: TreeExecutor, how: How): Promise<boolean> {
    const { header, waits } = tree.state(tree.rootRunId);
    if (how !== "auto" || !waits.some((wait) => wait.type === "recovery")) return true;
    return (await this.options.authorised?.(header, await this.bundleOf(header.bundle_hash))) ?? true;
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
    const held = (wait: Wait): boolean => wait.type === "paused" || (wait.type === "budget" && !isRaised(root, wait));
    if (how === "auto" && root.waits.some(held)) return false;
    if (how === "raised") return root.waits.every((wait) => wait.type !== "paused");
    if (how === "auto" && this.options.recovery === "manual") return root.status === "queued" || wasNotAdmitted(root);
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

  // ── asking and watching ─────────────────────────────────────────────────────────────────────────────────────

  /**
   * Sends a signal to whoever holds the tree, claiming it when nobody does.
   * @returns false when no holder took it within 5 s; it stays and will be taken
   */
  signal(
    target: { readonly root_run_id: string; readonly run_id: string },
    kind: SignalKind,
    payload: Json,
    waitMs = SIGNAL_WAIT_MS,
    signal_id = this.ports.ids.uuid(),
  ): Promise<boolean> {
    return this.#signals.send(target, kind, payload, waitMs, signal_id);
  }

  /** Durable events of a run as this process commits them. */
  subscribe(runId: string, subscriber: Subscriber): () => void {
    return this.#watchers.subscribe(runId, subscriber);
  }

  /** Durable events of every run as this process commits them: for figures and for whoever watches a session. */
  observe(observer: Subscriber): () => void {
    return this.#watchers.observe(observer);
  }

  /** Stops claiming, lets what is appended reach the disk, and gives all leases up. Runs are left claimable. */
  close(): Promise<void> {
    return this.#custody.close();
  }
}

/** It was let go of by itself because nothing of it could begin: that is no crash, and nobody has to be asked (GD-27). */
function wasNotAdmitted(root: RunState): boolean {
  return root.waits.some((wait) => wait.type === "recovery" && wait.due_at_ms !== undefined);
}

function keyedRun(error: unknown): string | undefined {
  if (!HoldfastError.is(error) || error.code !== "idempotency_key_reused") return undefined;
  const details = error.details as { same_request?: boolean; run_id?: string } | undefined;
  return details?.same_request === true ? details.run_id : undefined;
}
