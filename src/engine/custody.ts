/**
 * The trees that this process holds (R-1, R-4, R-5): claimed, kept by renewing their leases, loaded into memory and
 * let go of. What they do meanwhile is their executors' business.
 */
import { HoldfastError } from "../domain/errors.ts";
import type { Ledger } from "../domain/ledger.ts";
import { isTerminal, type RunHeader } from "../domain/run.ts";
import type { Claim, Clock, Posture, RunRecord, Timer } from "../ports/index.ts";
import type { Bundles } from "./bundles.ts";
import type { JournalWriter } from "./journal-writer.ts";
import { LeaseClock } from "./leases.ts";
import { planProgram } from "./programs/plan/index.ts";
import { TreeExecutor } from "./tree/executor.ts";
import { type Publish, TreeJournal } from "./tree/journal.ts";
import { type LoadedRun, loadRun, markInterrupted, treeLedger } from "./tree/loading.ts";
import { quiesce } from "./tree/pausing.ts";
import { Troubles } from "./troubles.ts";
import type { EngineLimits, EngineOptions, EnginePorts, LateResult } from "./work.ts";

/** Raised by every change of the engine that replay can see; a process claims only what it knows. */
export const ENGINE_VERSION = 2;
export interface Held {
  readonly tree: TreeExecutor;
  readonly idle: Promise<void>;
  readonly markIdle: () => void;
  loaded: ReadonlyMap<string, LoadedRun>;
  readonly inHand: Set<string>;
  /** Serialises what needs the programs: reviving them twice would run them twice. */
  reviving: Promise<void> | undefined;
  failed: HoldfastError | undefined;
}

/** What a tree is taken into memory with. */
export interface TreeStart {
  readonly fence: number;
  readonly controlVersion: number;
  readonly ledger: Ledger;
  readonly posture: Posture;
}

/** Whom custody tells, and asks for definitions. */
export interface Neighbours {
  readonly bundles: Bundles;
  readonly publish: Publish;
  /** An intent had not seen every signal of its tree. @returns the control version with which it has */
  readonly controlMoved: (rootRunId: string) => Promise<number>;
  /** Takes in what was asked of a tree while nobody held it. */
  readonly hear: (tree: TreeExecutor) => Promise<void>;
  /** Somebody wrote to the store. */
  readonly changed: () => void;
}

export class Custody {
  readonly owner: string;
  readonly lease: LeaseClock;
  readonly troubles: Troubles;
  readonly #options: EngineOptions;
  readonly #ports: EnginePorts;
  readonly #limits: EngineLimits;
  readonly #writer: JournalWriter;
  readonly #neighbours: Neighbours;
  readonly #held = new Map<string, Held>();
  readonly #attaching = new Map<string, Promise<TreeExecutor | undefined>>();
  #registered: Promise<void> | undefined;
  #claiming: Promise<unknown> = Promise.resolve();
  #renewal: Timer | undefined;
  #unwatch: (() => void) | undefined;
  #closed = false;

  constructor(options: EngineOptions, limits: EngineLimits, writer: JournalWriter, neighbours: Neighbours) {
    this.owner = options.ports.ids.uuid();
    this.lease = new LeaseClock(options.ports.clock, limits.lease_ms);
    this.troubles = new Troubles(options.ports.store, options.ports.clock);
    this.#options = options;
    this.#ports = options.ports;
    this.#limits = limits;
    this.#writer = writer;
    this.#neighbours = neighbours;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** How many trees are held. */
  get size(): number {
    return this.#held.size;
  }

  /** How many trees are in memory here, or on their way. */
  get load(): number {
    return this.#held.size + this.#attaching.size;
  }

  held(rootRunId: string): Held | undefined {
    return this.#held.get(rootRunId);
  }

  /** Puts a tree in memory. Its claim is durable already, or rides in its first commit. */
  hold(root: RunHeader, from: TreeStart): Held {
    const { fence, controlVersion, ledger, posture } = from;
    let markIdle: () => void = () => undefined;
    const idle = new Promise<void>((resolve) => {
      markIdle = resolve;
    });
    const journal = new TreeJournal({
      rootRunId: root.run_id,
      fence,
      controlVersion,
      writer: this.#writer,
      now: () => this.#ports.clock.now(),
      publish: (runId, events, state) => {
        this.troubles.heard(root.run_id, events);
        this.#neighbours.publish(runId, events, state);
      },
      onPoison: (error) => this.#poisoned(root.run_id, error),
      onControl: () => this.#neighbours.controlMoved(root.run_id),
    });
    const tree = new TreeExecutor(
      journal,
      {
        ports: this.#ports,
        limits: this.#limits,
        lease: this.lease,
        definition: (key) => this.#neighbours.bundles.definition(root.bundle_hash, key),
        trusted: this.#options.trusted,
        workspace: this.#options.workspace,
        program: this.#options.program ?? planProgram,
        approvals: this.#options.approvals ?? {},
        leaves: this.#options.leaves ?? false,
        log: this.#options.log ?? (() => undefined),
        onIdle: (idleTree) => this.#idle(idleTree),
        late: (rootRunId, late) => void this.#late(rootRunId, late),
      },
      ledger,
      { id: root.session_id, posture },
    );
    this.#writer.register(journal, { usage: (run) => tree.usage(run), ledger: () => tree.ledgerJson() });
    const held: Held = {
      tree,
      idle,
      markIdle,
      loaded: new Map(),
      inHand: new Set(),
      reviving: undefined,
      failed: undefined,
    };
    this.#held.set(root.run_id, held);
    this.#keepLeases();
    return held;
  }

  /**
   * Claims a tree and brings it into memory, marking what a dead process left open. Answers undefined while another
   * process holds it. Programs are not started: `go` does that.
   */
  async attach(rootRunId: string): Promise<TreeExecutor | undefined> {
    const held = this.#held.get(rootRunId);
    // On its way out of memory, or here only to hear a decision of a paused run: it is claimed anew.
    if (held !== undefined && (held.tree.closing || held.tree.paused)) await held.idle;
    else if (held !== undefined) return held.tree;
    const [claimed] = await this.#claim(async (by) => {
      const mine = this.#held.has(rootRunId) || this.#attaching.has(rootRunId);
      const one = mine ? undefined : await this.#ports.store.claim(rootRunId, by);
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
    const claims = await this.#claim(async (by) => {
      const due: Claim[] = [];
      for (const claim of await this.#ports.store.claimDue({ ...by, limit }))
        if (!(await this.troubles.isEarly(claim))) due.push(claim);
      return due;
    });
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
    await this.register();
    const turn = this.#claiming.then(async () => {
      if (this.#closed) return [];
      const sent = this.lease.now();
      const { lease_ms } = this.#limits;
      const claims = await act({ owner: this.owner, leaseMs: lease_ms, graceMs: lease_ms / 6 });
      if (claims.length > 0 && this.#held.size === 0) this.lease.renewed(sent);
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

  async #adopt(claim: Claim): Promise<TreeExecutor> {
    try {
      const tree = await this.#load(claim);
      await this.#neighbours.hear(tree);
      return tree;
    } catch (error) {
      await this.#ports.store.release(claim.root_run_id, claim.fence).catch(() => this.#stuck(claim, error));
      throw error;
    }
  }

  /** It could neither be loaded nor given up: the second is tried until the store takes it. */
  #stuck(claim: Claim, error: unknown): void {
    const { root_run_id, fence } = claim;
    const known = HoldfastError.is(error);
    this.troubles.letGo(
      root_run_id,
      fence,
      known ? error : new HoldfastError("storage", "Cannot load the run: the store failed"),
    );
  }

  async #load(claim: Claim): Promise<TreeExecutor> {
    const { store } = this.#ports;
    const records = await store.treeRuns(claim.root_run_id);
    const root = records.find((record) => record.run_id === claim.root_run_id);
    if (root === undefined)
      throw new HoldfastError("storage", `Cannot load the run ${claim.root_run_id}: it is missing`);
    if (root.engine_version > ENGINE_VERSION)
      throw new HoldfastError(
        "not_possible",
        `Cannot go on with the run ${root.run_id}: a newer build started it; upgrade`,
      );
    await this.#neighbours.bundles.load(root.bundle_hash);
    const loaded = new Map<string, LoadedRun>();
    const ended: RunRecord[] = [];
    for (const record of records) {
      const needed = !isTerminal(record.status) || record.run_id === root.run_id || awaited(records, record);
      if (needed) loaded.set(record.run_id, await loadRun(store, record));
      if (isTerminal(record.status) && record.run_id !== root.run_id && !needed) ended.push(record);
    }
    const session = await this.#ports.sessions.getSession(root.session_id);
    const held = this.hold((loaded.get(root.run_id) as LoadedRun).state.header, {
      fence: claim.fence,
      controlVersion: claim.control_version,
      ledger: treeLedger(loaded, ended, root.run_id),
      posture: session?.posture ?? "ask",
    });
    held.loaded = loaded;
    for (const run of loaded.values()) held.tree.journal.adopt(run.state, run.tip);
    // the claim counted this recovery already. After so many without progress the run is parked, and says so.
    held.tree.recoveries = claim.recoveries;
    for (const id of claim.leases ?? []) held.tree.journal.leases.add(id);
    const parked = claim.recoveries >= this.#limits.recoveries;
    markInterrupted(held.tree, parked ? "no_progress" : "the process that ran it has ended", { queued: parked });
    return held.tree;
  }

  /** An answer that came after its tree was let go: the tree is taken once more to keep it, if nobody else has it. */
  async #late(rootRunId: string, late: LateResult): Promise<void> {
    try {
      await this.idle(rootRunId).catch(() => undefined);
      const tree = this.#closed ? undefined : await this.attach(rootRunId);
      if (tree === undefined)
        throw new HoldfastError("conflict", `Cannot keep a late result of the run ${rootRunId}: it is held elsewhere`);
      tree.guard(() => tree.appendLate(late));
      tree.settleDownSoon();
    } catch (error) {
      this.#options.log?.("warn", "a late result was not kept", {
        root_run_id: rootRunId,
        step_id: late.step_id,
        error,
      });
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
    if (held?.tree === tree) this.drop(held);
  }

  /** The tree is in memory no longer; its lease is given up elsewhere. */
  drop(held: Held): void {
    if (this.#held.get(held.tree.rootRunId) === held) this.#held.delete(held.tree.rootRunId);
    if (this.#held.size === 0) this.#stopLeases();
    held.markIdle();
  }

  #poisoned(rootRunId: string, error: HoldfastError): void {
    const held = this.#held.get(rootRunId);
    if (held === undefined) return;
    held.failed = error;
    held.tree.drop();
    this.drop(held);
    // The lease is given up so that anyone, this process included, may load what is durable and go on.
    if (error.code !== "conflict") this.troubles.letGo(rootRunId, held.tree.journal.fence, error);
  }

  /** Resolves when this process can claim. */
  register(): Promise<void> {
    // One that failed is tried anew by the next who needs it: a store that heals is used again (GD-31).
    this.#registered ??= this.#ports.store.registerOwner(this.owner).catch((error: unknown) => {
      this.#registered = undefined;
      throw error;
    });
    return this.#registered;
  }

  #keepLeases(): void {
    if (this.#renewal !== undefined) return;
    this.#renewal = every(this.#ports.clock, this.#limits.lease_ms / 3, () => void this.#renew());
    // Kept until the end: setting a watch up and down with every run would cost more than the run.
    this.#unwatch ??= this.#ports.store.watch(() => this.#neighbours.changed());
  }

  #stopLeases(): void {
    this.#renewal?.cancel();
    this.#renewal = undefined;
  }

  async #renew(): Promise<void> {
    const sent = this.lease.now();
    const before = new Set(this.#held.keys());
    try {
      const kept = new Map(
        (await this.#ports.store.renew(this.owner, this.#limits.lease_ms)).map((t) => [t.root_run_id, t]),
      );
      this.lease.renewed(sent);
      for (const root of before) {
        const held = this.#held.get(root);
        if (held === undefined || kept.has(root) || held.tree.journal.unborn) continue;
        if (!held.tree.closing)
          held.tree.journal.poison(
            new HoldfastError("conflict", `Cannot go on with the run ${root}: another process has taken it over`),
          );
      }
    } catch (error) {
      this.#options.log?.("warn", "lease renewal failed", { error });
    }
  }

  /**
   * Stops claiming, gives calls in flight their grace, lets what is appended reach the disk, and gives all leases up
   * . Runs are left claimable. What only reads is not waited for: whoever takes the run sends it again.
   */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.troubles.close();
    const trees = [...this.#held.values()].map(({ tree }) => tree);
    await Promise.all(trees.map((tree) => quiesce(tree, (job) => job.sideEffect !== "read_only")));
    for (const tree of trees) tree.guard(() => tree.settleDown());
    await this.#writer.idle();
    for (const held of [...this.#held.values()]) {
      const { fence } = held.tree.journal;
      held.tree.drop();
      await this.#ports.store.release(held.tree.rootRunId, fence).catch(() => undefined);
    }
    await this.#writer.idle();
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

function every(clock: Clock, ms: number, callback: () => void): Timer {
  if (clock.every !== undefined) return clock.every(ms, callback);
  const handle = setInterval(callback, ms);
  return { cancel: () => clearInterval(handle) };
}
