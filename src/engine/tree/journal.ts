/**
 * The journals of one run tree in memory: the only place where events get their number and where a run's state
 * changes. What is appended here is ahead of the disk until `barrier()` says otherwise.
 *
 * A commit that is refused or whose outcome is unknown poisons the tree: nothing more is appended, whoever
 * waits is told, and the engine loads the tree anew from what is durable.
 */
import { assert, type HoldfastError } from "../../domain/errors.ts";
import type { EventBase, EventBody, RunEvent } from "../../domain/events.ts";
import { dispatchId, genesisHash } from "../../domain/journal.ts";
import { canonicalJson, type Json } from "../../domain/json.ts";
import type { RunHeader, Usage, Wait } from "../../domain/run.ts";
import { snapshotOf } from "../../domain/snapshot.ts";
import { evolve, initialState, type RunState } from "../../domain/state.ts";
import type { RunCommit, TreeCommit, TreeCreation, TreeUpdate } from "../../ports/index.ts";
import type { JournalWriter } from "../journal-writer.ts";
import { type Artifact, encodeEvent, INLINE_LIMIT, packSegment, packText } from "../values.ts";

/** What may lag behind the program before appends wait. */
const MAX_LAG_EVENTS = 1_000;
const MAX_LAG_BYTES = 1024 * 1024;
/** A snapshot is written when the journal has grown by this much, and by so many times its own size, since the last one. */
const SNAPSHOT_BYTES = 256 * 1024;
const SNAPSHOT_GROWTH = 4;

export interface JournalRun {
  readonly header: RunHeader;
  state: RunState;
  /** Hash of the last durable or pending segment. */
  tip: string;
  /** Last sequence the store has, or will have once the commit in flight lands. */
  committed: number;
  created: boolean;
  pending: RunEvent[];
  /** Rises with every append of the tree: whose last word was later. */
  touched: number;
  text: string;
  shownWaits: readonly Wait[];
  snapshotAfter: number;
  sinceSnapshot: number;
}

/** Events are published only once they are durable (RP-55). */
export type Publish = (runId: string, events: readonly RunEvent[], state: RunState) => void;

interface Gate {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

function gate(): Gate {
  let resolve: () => void = () => undefined;
  let reject: (error: Error) => void = () => undefined;
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  promise.catch(() => undefined); // a gate nobody waits at must not end the process
  return { promise, resolve, reject };
}

export interface TreeJournalOptions {
  readonly rootRunId: string;
  readonly fence: number;
  readonly controlVersion: number;
  readonly writer: JournalWriter;
  readonly now: () => number;
  readonly publish: Publish;
  /** Told once, when the tree is poisoned. */
  readonly onPoison: (error: HoldfastError) => void;
  /** A commit was refused because `control_version` moved: look at the signals, answer the new version. */
  readonly onControl: () => Promise<number>;
}

export class TreeJournal {
  readonly rootRunId: string;
  readonly runs = new Map<string, JournalRun>();
  /** Dispatch ids of the tree that hold resource leases; each ends in the commit of its attempt's settlement (GD-53). */
  readonly leases = new Set<string>();
  controlVersion: number;
  readonly #fence: number;
  readonly #options: TreeJournalOptions;
  #creation: TreeCreation | undefined;
  #bundle: { hash: string; bytes: Uint8Array } | undefined;
  #artifacts: Artifact[] = [];
  #signalsDone: string[] = [];
  #leasesFreed: string[] = [];
  #update: TreeUpdate = {};
  #needsControl = false;
  #dirty = false;
  #lagEvents = 0;
  #lagBytes = 0;
  #appends = 0;
  #pendingGate: Gate | undefined;
  #inFlight:
    | { commit: TreeCommit; gate: Gate | undefined; published: [JournalRun, RunEvent[], RunState][] }
    | undefined;
  #poison: HoldfastError | undefined;

  constructor(options: TreeJournalOptions) {
    this.#options = options;
    this.rootRunId = options.rootRunId;
    this.#fence = options.fence;
    this.controlVersion = options.controlVersion;
  }

  get fence(): number {
    return this.#fence;
  }

  /** Its creation has not reached the store yet. */
  get unborn(): boolean {
    return this.#creation !== undefined || this.#inFlight?.commit.create !== undefined;
  }

  get poisoned(): HoldfastError | undefined {
    return this.#poison;
  }

  run(runId: string): JournalRun {
    const run = this.runs.get(runId);
    assert(run !== undefined, `run ${runId} is not in the tree ${this.rootRunId}`);
    return run;
  }

  state(runId: string): RunState {
    return this.run(runId).state;
  }

  /** Takes a run as loaded from the store. */
  adopt(state: RunState, tip: string): void {
    this.runs.set(state.header.run_id, this.#entry(state, tip, state.last_sequence, true));
  }

  /** A new tree: session, bundle, first events and claim are one transaction. */
  createTree(header: RunHeader, creation: TreeCreation, bundle: { hash: string; bytes: Uint8Array } | undefined): void {
    this.#creation = creation;
    this.#bundle = bundle;
    this.createRun(header);
  }

  createRun(header: RunHeader): void {
    assert(!this.runs.has(header.run_id), `run ${header.run_id} is created twice`);
    let stored = header;
    if (header.args !== undefined) {
      const text = canonicalJson(header.args);
      if (text.length > INLINE_LIMIT) {
        const { args: _, ...rest } = header;
        this.#artifacts.push({ sha256: header.args_hash, bytes: Buffer.from(text, "utf8") });
        stored = rest;
      }
    }
    const run = this.#entry(initialState(header), genesisHash(header), 0, false);
    this.runs.set(header.run_id, stored === header ? run : { ...run, header: stored });
  }

  #entry(state: RunState, tip: string, committed: number, created: boolean): JournalRun {
    return {
      header: state.header,
      state,
      tip,
      committed,
      created,
      pending: [],
      touched: 0,
      text: "",
      shownWaits: state.waits,
      snapshotAfter: SNAPSHOT_BYTES,
      sinceSnapshot: 0,
    };
  }

  /**
   * Numbers, checks and queues events; the run's state has moved when it returns, the disk has not.
   * @throws HoldfastError what poisoned the tree, or `internal` for an illegal event
   */
  append(
    runId: string,
    bodies: readonly (EventBody & Pick<EventBase, "woke">)[],
    options: { control?: boolean; woke?: readonly string[] } = {},
  ): void {
    if (this.#poison !== undefined) throw this.#poison;
    const run = this.run(runId);
    const at_ms = this.#options.now();
    let woke = options.woke;
    for (const body of bodies) {
      const sequence = run.state.last_sequence + 1;
      const event: RunEvent = woke === undefined ? { ...body, sequence, at_ms } : { ...body, sequence, at_ms, woke };
      woke = undefined;
      const line = encodeEvent(event, (artifact) => this.#artifacts.push(artifact));
      if (this.leases.size > 0)
        for (const attempt of attemptsEnded(run.state, event))
          this.freeLease(dispatchId(runId, attempt.step_id, attempt.attempt));
      run.state = evolve(run.state, event);
      run.pending.push(event);
      run.text += line;
      this.#lagEvents++;
      this.#lagBytes += line.length;
    }
    run.touched = ++this.#appends;
    if (options.control === true) this.#needsControl = true;
    this.#touch();
  }

  /** These signals are answered by what is appended in this turn. */
  signalDone(signalId: string): void {
    this.#signalsDone.push(signalId);
    this.#touch();
  }

  /** Its resource leases end with the next commit. */
  freeLease(id: string): void {
    if (!this.leases.delete(id)) return;
    this.#leasesFreed.push(id);
    this.#touch();
  }

  /** Changes the tree's row with the next commit. */
  update(update: TreeUpdate): void {
    if (update.ended === true) for (const id of [...this.leases]) this.freeLease(id);
    this.#update = { ...this.#update, ...update };
    this.#touch();
  }

  /** Undefined when everything appended so far is durable; else resolves when it is, rejects when it never will be. */
  barrier(): Promise<void> | undefined {
    if (this.#poison !== undefined) return Promise.reject(this.#poison);
    if (this.#dirty) {
      this.#pendingGate ??= gate();
      return this.#pendingGate.promise;
    }
    if (this.#inFlight === undefined) return undefined;
    this.#inFlight.gate ??= gate();
    return this.#inFlight.gate.promise;
  }

  /** Waits while too much lags behind. */
  room(): Promise<void> | undefined {
    return this.#lagEvents >= MAX_LAG_EVENTS || this.#lagBytes >= MAX_LAG_BYTES ? this.barrier() : undefined;
  }

  #touch(): void {
    this.#dirty = true;
    if (this.#inFlight === undefined) this.#options.writer.enqueue(this);
  }

  /** What gathered since the last commit; called by the writer. */
  take(usage: (run: JournalRun) => Usage, ledger: () => Json): TreeCommit {
    assert(this.#inFlight === undefined, "a commit is in flight already");
    const published: [JournalRun, RunEvent[], RunState][] = [];
    const runs: RunCommit[] = [];
    for (const run of this.runs.values()) {
      if (run.pending.length === 0) continue;
      published.push([run, run.pending, run.state]);
      runs.push(this.#runCommit(run, usage(run)));
    }
    // A tree that ends as a whole is heard to end from below (C09); the store needs parents first.
    if (published.length > 1) published.sort(([a], [b]) => a.touched - b.touched);
    const commit: TreeCommit = {
      root_run_id: this.rootRunId,
      ...(this.#creation === undefined ? {} : { create: this.#creation }),
      fence: this.#fence,
      ...(this.#needsControl ? { control_version: this.controlVersion } : {}),
      runs,
      ...(this.#bundle === undefined ? {} : { bundle: this.#bundle }),
      artifacts: this.#artifacts,
      signals_done: this.#signalsDone,
      ...(this.#leasesFreed.length === 0 ? {} : { leases_freed: this.#leasesFreed }),
      // The cached ledger is for who reads the tree's row while nobody holds it: it goes with what changes that row.
      ...(Object.keys(this.#update).length === 0 ? {} : { tree: { ledger: ledger(), ...this.#update } }),
    };
    this.#inFlight = { commit, gate: this.#pendingGate, published };
    this.#pendingGate = undefined;
    this.#creation = undefined;
    this.#bundle = undefined;
    this.#artifacts = [];
    this.#signalsDone = [];
    this.#leasesFreed = [];
    this.#update = {};
    this.#needsControl = false;
    this.#dirty = false;
    this.#lagEvents = 0;
    this.#lagBytes = 0;
    return commit;
  }

  #runCommit(run: JournalRun, usage: Usage): RunCommit {
    const { state } = run;
    const first = run.committed + 1;
    const packed = packSegment(run.tip, run.text);
    run.sinceSnapshot += run.text.length;
    const commit: RunCommit = {
      run_id: run.header.run_id,
      ...(run.created ? {} : { header: run.header }),
      expected: run.committed,
      segment: { first, last: state.last_sequence, ...packed },
      row: {
        status: state.status,
        ...(state.status === "suspended" && state.waits[0] !== undefined ? { suspension: state.waits[0].type } : {}),
        wait_count: state.waits.length,
        usage,
        last_sequence: state.last_sequence,
        updated_at_ms: state.updated_at_ms,
      },
      ...(run.shownWaits === state.waits ? {} : { waits: state.waits }),
      ...this.#snapshot(run),
    };
    run.tip = packed.hash;
    run.committed = state.last_sequence;
    run.created = true;
    run.shownWaits = state.waits;
    run.pending = [];
    run.text = "";
    return commit;
  }

  #snapshot(run: JournalRun): Pick<RunCommit, "snapshot"> {
    if (run.sinceSnapshot < run.snapshotAfter) return {};
    const text = JSON.stringify(snapshotOf(run.state));
    run.sinceSnapshot = 0;
    run.snapshotAfter = Math.max(SNAPSHOT_BYTES, SNAPSHOT_GROWTH * text.length);
    return { snapshot: { sequence: run.state.last_sequence, ...packText(text) } };
  }

  /** The commit landed: subscribers hear of it, then whoever waited goes on. */
  committed(): void {
    // Poisoned while it was on its way, as when the lease was lost: whoever loads the tree anew finds what landed.
    if (this.#poison !== undefined) return;
    const done = this.#inFlight;
    assert(done !== undefined, "a commit landed that was not in flight");
    this.#inFlight = undefined;
    for (const [run, events, state] of done.published) this.#options.publish(run.header.run_id, events, state);
    done.gate?.resolve();
    if (this.#dirty) this.#options.writer.enqueue(this);
  }

  /** Someone signalled the tree meanwhile: what they want is taken in first, then the same bytes go again. */
  async controlMoved(): Promise<TreeCommit | undefined> {
    if (this.#poison !== undefined) return undefined;
    const pending = this.#inFlight;
    assert(pending !== undefined, "control moved without a commit in flight");
    this.controlVersion = await this.#options.onControl();
    if (this.#poison !== undefined) return undefined;
    pending.commit = { ...pending.commit, control_version: this.controlVersion };
    return pending.commit;
  }

  poison(error: HoldfastError): void {
    if (this.#poison !== undefined) return;
    this.#poison = error;
    this.#inFlight?.gate?.reject(error);
    this.#pendingGate?.reject(error);
    this.#inFlight = undefined;
    this.#pendingGate = undefined;
    this.#options.onPoison(error);
  }
}

/**
 * Attempts that an event ends, or sends away for a person's approval: what they held is free with it. A step that had
 * not begun yet may have claimed for the attempt that was to come.
 */
function attemptsEnded(
  state: RunState,
  event: RunEvent,
): readonly { readonly step_id: string; readonly attempt: number }[] {
  const asks = event.type === "step_suspended" && event.wait?.type === "tool_approval";
  const again = event.type === "repaired" && event.resolution === "retry";
  if (
    event.type !== "step_completed" &&
    event.type !== "step_failed" &&
    event.type !== "step_cancelled" &&
    !asks &&
    !again
  )
    return [];
  const { step_id } = event;
  const attempts = state.steps.get(step_id)?.attempts ?? 0;
  return [attempts, attempts + 1].map((attempt) => ({ step_id, attempt }));
}
