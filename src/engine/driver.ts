/**
 * The driver of a worker process (DESIGN §7, GD-25 … GD-33): it claims run trees that want work and lets the engine
 * go on with them. It wakes on changes of the store, on the next timer, and on a slow poll; one timer a process.
 */
import { HoldfastError } from "../domain/errors.ts";
import type { Claim, Timer } from "../ports/index.ts";
import type { Engine } from "./engine.ts";

export interface DriverOptions {
  /** Trees in memory at once; suspended ones hold none. */
  readonly maxTrees?: number;
  /** Slow poll, ms: behind the notifications, for what they miss. */
  readonly pollMs?: number;
}

const BATCH = 64;
/** A run that cannot be loaded is tried again after this, doubling (GD-36): it must not spin. */
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 300_000;

export class Driver {
  readonly #engine: Engine;
  readonly #maxTrees: number;
  readonly #pollMs: number;
  readonly #failures = new Map<string, number>();
  #timer: Timer | undefined;
  #unwatch: (() => void) | undefined;
  #sweeping: Promise<void> | undefined;
  #again = false;
  #running = false;

  constructor(engine: Engine, options: DriverOptions = {}) {
    this.#engine = engine;
    this.#maxTrees = options.maxTrees ?? 1_024;
    this.#pollMs = options.pollMs ?? 2_000;
  }

  get running(): boolean {
    return this.#running;
  }

  /** Starts claiming; a second call does nothing (GD-30). Resolves after the first sweep. */
  async start(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    this.#unwatch = this.#engine.ports.store.watch(() => void this.wake());
    await this.wake();
  }

  /** Claims no more. What is held goes on until the engine is closed. */
  async stop(): Promise<void> {
    this.#running = false;
    this.#timer?.cancel();
    this.#unwatch?.();
    this.#unwatch = undefined;
    await this.#sweeping;
  }

  /** Looks for work now. */
  wake(): Promise<void> {
    if (!this.#running) return Promise.resolve();
    if (this.#sweeping !== undefined) {
      this.#again = true;
      return this.#sweeping;
    }
    this.#sweeping = this.#sweep().finally(() => {
      this.#sweeping = undefined;
      // Told of a change after the last look, while it was about to sleep: it would wait for the poll otherwise.
      if (this.#again) void this.wake();
    });
    return this.#sweeping;
  }

  async #sweep(): Promise<void> {
    this.#timer?.cancel();
    try {
      do {
        this.#again = false;
        while (this.#running && this.#engine.load < this.#maxTrees) {
          const room = Math.min(BATCH, this.#maxTrees - this.#engine.load);
          const claimed = await this.#engine.claimDue(room, (claim, tree) => void this.#drive(claim, tree));
          if (claimed < room) break;
        }
      } while (this.#again && this.#running);
    } catch (error) {
      // Transient store failure closes only this loop for a moment; it heals by the next poll (GD-31).
      this.#engine.options.log?.("warn", "the store could not be looked through for work", { error });
    }
    await this.#sleep();
  }

  async #drive(claim: Claim, loading: Promise<unknown>): Promise<void> {
    const root = claim.root_run_id;
    try {
      await loading;
      const tree = this.#engine.holds(root);
      if (tree !== undefined) await this.#engine.go(tree, "auto");
      this.#failures.delete(root);
    } catch (error) {
      await this.#setAside(claim, error);
    }
  }

  /** Gives a run that cannot be driven a later turn, so that it neither spins nor holds up others. */
  async #setAside(claim: Claim, error: unknown): Promise<void> {
    const { store, clock } = this.#engine.ports;
    const failures = (this.#failures.get(claim.root_run_id) ?? 0) + 1;
    this.#failures.set(claim.root_run_id, failures);
    const wake_at_ms = clock.now() + Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(failures, 16));
    this.#engine.options.log?.("error", "a run cannot be driven here", {
      root_run_id: claim.root_run_id,
      code: HoldfastError.is(error) ? error.code : "internal",
      error,
    });
    try {
      const again = await store.claim(claim.root_run_id, {
        owner: this.#engine.owner,
        leaseMs: this.#engine.limits.lease_ms,
        graceMs: this.#engine.limits.lease_ms,
      });
      if (again === undefined) return;
      await store.commit([
        {
          root_run_id: claim.root_run_id,
          fence: again.fence,
          runs: [],
          artifacts: [],
          signals_done: [],
          tree: { release: true, wake_at_ms },
        },
      ]);
    } catch {
      // The engine gives the lease up once the store takes it again (`Troubles`), or it runs out by itself.
    }
  }

  async #sleep(): Promise<void> {
    if (!this.#running) return;
    const { store, clock } = this.#engine.ports;
    const poll = clock.now() + this.#pollMs;
    let at = poll;
    try {
      at = Math.max(clock.now(), Math.min(poll, (await store.nextWakeMs()) ?? poll));
    } catch {
      // The poll is the backstop.
    }
    if (this.#running) this.#timer = clock.at(at, () => void this.wake());
  }
}
