/**
 * Signals: what others ask of a run reaches whoever holds its tree. Those for trees held here are taken in as
 * they arrive, each once; whoever sends one waits until it is taken, and takes the tree itself when nobody holds it.
 */
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import type { Signal, SignalKind } from "../ports/index.ts";
import type { Custody } from "./custody.ts";
import { atMost, sleep } from "./timing.ts";
import type { TreeExecutor } from "./tree/executor.ts";
import { applySignal, needsPrograms } from "./tree/signals.ts";
import type { EngineOptions, How } from "./work.ts";

/** Callers of a signal are answered after this long with `pending`. */
export const SIGNAL_WAIT_MS = 5_000;

export class SignalBox {
  readonly #options: EngineOptions;
  readonly #custody: Custody;
  readonly #go: (tree: TreeExecutor, how: How) => Promise<void>;
  #looking = false;
  #lookAgain = false;

  constructor(options: EngineOptions, custody: Custody, go: (tree: TreeExecutor, how: How) => Promise<void>) {
    this.#options = options;
    this.#custody = custody;
    this.#go = go;
  }

  // ── taking ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** Takes in the signals of the trees held here; bursts of changes are looked at once. */
  async look(): Promise<void> {
    if (this.#looking) {
      this.#lookAgain = true;
      return;
    }
    this.#looking = true;
    try {
      do {
        this.#lookAgain = false;
        if (this.#custody.size === 0 || this.#custody.closed) break;
        for (const signal of await this.#options.ports.store.signals({ owner: this.#custody.owner }))
          void this.#take(signal);
      } while (this.#lookAgain);
    } catch (error) {
      this.#options.log?.("warn", "signals could not be read", { error });
    } finally {
      this.#looking = false;
    }
  }

  /** An intent had not seen every signal: they are taken in. @returns the control version that has them */
  async controlMoved(rootRunId: string): Promise<number> {
    const { store } = this.#options.ports;
    const record = await store.getTree(rootRunId);
    if (record === undefined) throw new HoldfastError("conflict", `Cannot go on with the run ${rootRunId}: it is gone`);
    await this.#lookAtPosture(rootRunId, record.session_id);
    for (const signal of await store.signals({ root_run_id: rootRunId })) void this.#take(signal);
    return record.control_version;
  }

  /** A posture that was changed meanwhile counts for what was prepared and not sent yet. */
  async #lookAtPosture(rootRunId: string, sessionId: string): Promise<void> {
    const session = await this.#options.ports.sessions.getSession(sessionId);
    const held = this.#custody.held(rootRunId);
    if (session !== undefined && held !== undefined) held.tree.posture = session.posture;
  }

  /** Takes in what was asked while nobody held the tree: what ends or pauses it comes before it goes on. */
  async hear(tree: TreeExecutor): Promise<void> {
    const signals = await this.#options.ports.store.signals({ root_run_id: tree.rootRunId });
    for (const signal of signals) if (!needsPrograms(tree, signal)) await this.#take(signal);
    for (const signal of signals) if (needsPrograms(tree, signal)) await this.#take(signal);
  }

  /** Applies a signal to a held tree, once. What it stops is told before this returns; the rest goes on behind. */
  #take(signal: Signal): Promise<void> | undefined {
    const held = this.#custody.held(signal.root_run_id);
    if (held === undefined || held.inHand.has(signal.signal_id) || held.tree.closing) return undefined;
    held.inHand.add(signal.signal_id);
    const { tree } = held;
    return tree.background(this.#apply(tree, held.reviving, signal));
  }

  async #apply(tree: TreeExecutor, reviving: Promise<void> | undefined, signal: Signal): Promise<void> {
    tree.hearing++;
    try {
      // What is being started or revived is told when it is there: half of it would not hear.
      if (reviving !== undefined) await reviving.catch(() => undefined);
      // GD-38: a run that is being stopped takes nothing; what becomes of the stop is the answer.
      if (needsPrograms(tree, signal)) await tree.stops.get(signal.run_id)?.catch(() => undefined);
      if (tree.closed) return;
      if (needsPrograms(tree, signal) && tree.runs.size === 0) await this.#go(tree, "woken");
      if (tree.closed) return;
      await applySignal(tree, signal);
      // DESIGN §6: a raised limit goes on from there.
      const raised = signal.kind === "budget" && tree.runs.size === 0 && this.#options.leaves !== true;
      if (raised && !tree.closed) await this.#go(tree, "raised");
    } finally {
      tree.hearing--;
    }
    // At once, so that its sender hears of a tree that is done; and again when what it set going has had its turn.
    tree.settleDown();
    tree.settleDownSoon();
  }

  // ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────

  /** @returns false when no holder took it within `waitMs`; it stays and will be taken */
  async send(
    target: { readonly root_run_id: string; readonly run_id: string },
    kind: SignalKind,
    payload: Json,
    waitMs: number,
    signal_id: string,
  ): Promise<boolean> {
    const { store, clock } = this.#options.ports;
    const signal: Signal = { ...target, signal_id, kind, payload, created_at_ms: clock.now() };
    await store.putSignal(signal, kind === "cancel" || kind === "pause" || kind === "posture");
    const until = clock.now() + waitMs;
    for (let pause = 4; ; pause = Math.min(50, pause * 2)) {
      await this.#deliver(signal);
      if (!(await store.signalExists(signal.signal_id))) return true;
      if (clock.now() >= until) return false;
      await sleep(clock, pause);
    }
  }

  async #deliver(signal: Signal): Promise<void> {
    const held = this.#custody.held(signal.root_run_id);
    if (held !== undefined) {
      const taken = this.#take(signal);
      if (taken !== undefined) await atMost(this.#options.ports.clock, SIGNAL_WAIT_MS, taken);
      if (!held.tree.closed) await held.tree.journal.barrier()?.catch(() => undefined);
      if (held.tree.closing) await held.idle;
      return;
    }
    const tree = await this.#custody.attach(signal.root_run_id);
    if (tree === undefined) return;
    const taken = this.#custody.held(signal.root_run_id);
    await (this.#take(signal) ?? Promise.resolve());
    await tree.journal.barrier()?.catch(() => undefined);
    // Whoever sends a signal does what it asks and leaves the rest to a driver, but for what that set going.
    if (taken !== undefined && tree.closing) await taken.idle;
  }
}
