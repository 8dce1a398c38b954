/**
 * One run tree in memory: its programs, its open work, its ledger and permits. Whoever holds the tree's lease
 * has exactly one of these; it is dropped when nothing is left to do but wait, and built anew from the journal.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { EventBody } from "../../domain/events.ts";
import type { Json } from "../../domain/json.ts";
import { addUsage, type Ledger } from "../../domain/ledger.ts";
import { type Definition, definitionKey } from "../../domain/plan/index.ts";
import { deadlineMs, isPaused } from "../../domain/questions.ts";
import { type Failure, isTerminal, type RunHeader, type Usage } from "../../domain/run.ts";
import type { RunState } from "../../domain/state.ts";
import type { Posture } from "../../ports/index.ts";
import { Dispatch } from "../dispatch/index.ts";
import type { LeaseGuard } from "../leases.ts";
import { Permits } from "../permits.ts";
import type { Program } from "../program.ts";
import { type Ended, ProgramHost } from "../program-host.ts";
import { type Delivery, NOTHING_RECORDED, type Outcome, type Recorded } from "../replay.ts";
import { clip } from "../values.ts";
import type { ActiveRun, EngineLimits, EnginePorts, Job, LateResult } from "../work.ts";
import { isOpen, liveRun } from "./asking.ts";
import type { JournalRun, TreeJournal } from "./journal.ts";
import { outcomeOf } from "./outcome.ts";
import { parentJob, wake } from "./parents.ts";
import { restOf, standStill } from "./resting.ts";
import { cancelGroup, finishCancel, stopOf, stopRun } from "./stopping.ts";
import { nextWakeMs } from "./waiting.ts";

export interface TreeServices {
  readonly ports: EnginePorts;
  readonly limits: EngineLimits;
  readonly lease: LeaseGuard;
  /** Resolves a definition of the tree's pinned bundle. */
  readonly definition: (key: string) => Definition;
  /** What the start of the root said about trust; a later revocation counts (RP-20). */
  readonly trusted: () => boolean;
  readonly workspace: string;
  readonly program: (definition: Definition) => Program;
  /** How long an approval that a permission asks for may take (GD-51), and how long before people are warned, ms. */
  readonly approvals: { readonly deadline_ms?: number; readonly warn_ms?: number };
  /** Calls of tools and agents are left to other processes. */
  readonly leaves: boolean;
  readonly log: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
  /** The tree has nothing left to do here; it is released or about to be. */
  readonly onIdle: (tree: TreeExecutor) => void;
  /** Keeps an answer that came after the tree was let go. */
  readonly late: (rootRunId: string, late: LateResult) => void;
}

export class TreeExecutor {
  readonly journal: TreeJournal;
  readonly services: TreeServices;
  readonly permits: Permits<Job>;
  readonly dispatch: Dispatch;
  readonly runs = new Map<string, ActiveRun>();
  ledger: Ledger;
  posture: Posture;
  /** The control_version under which the posture was read. */
  postureSeen: number | undefined;
  /** Runs with an agent whose usage could not be observed (RP-44). */
  readonly unmeasured = new Set<string>();
  readonly sessionId: string;
  /** Recoveries without progress so far. */
  recoveries = 0;
  /** Stops that go on, by run. */
  readonly stops = new Map<string, Promise<void>>();
  /** Signals that are being taken: until they are, the tree is not let go of. */
  hearing = 0;
  /** Nothing new is dispatched: a pause, or the process is going away. */
  paused = false;
  /** Only a person's word goes on with it: no deadline that passes meanwhile wakes a driver, which would wake in vain. */
  dormant = false;
  #closing: Promise<void> | undefined;
  #closed = false;

  constructor(journal: TreeJournal, services: TreeServices, ledger: Ledger, session: { id: string; posture: Posture }) {
    this.journal = journal;
    this.services = services;
    this.ledger = ledger;
    this.posture = session.posture;
    this.sessionId = session.id;
    this.permits = new Permits(ledger.limits.max_concurrency);
    this.dispatch = new Dispatch(this);
  }

  get rootRunId(): string {
    return this.journal.rootRunId;
  }

  get ports(): EnginePorts {
    return this.services.ports;
  }

  get closed(): boolean {
    return this.#closed;
  }

  state(runId: string): RunState {
    return this.journal.state(runId);
  }

  now(): number {
    return this.ports.clock.now();
  }

  // ── what the journal's rows show ────────────────────────────────────────────────────────────────────────────

  /** A root shows the whole tree's usage; a child its own. */
  usage(run: JournalRun): Usage {
    return run.header.parent_run_id === undefined ? this.ledger.spent : run.state.usage;
  }

  /** Usage that was copied in with a settled prefix counts for this tree too (R-2j). */
  absorb(runId: string): void {
    this.ledger = { ...this.ledger, spent: addUsage(this.ledger.spent, this.state(runId).usage) };
  }

  ledgerJson(): Json {
    return { spent: { ...this.ledger.spent }, reserved: { ...this.ledger.reserved } };
  }

  // ── appending ───────────────────────────────────────────────────────────────────────────────────────────────

  append(runId: string, bodies: readonly EventBody[], options: { control?: boolean } = {}): void {
    const woke = this.runs.get(runId)?.host.takeWoke();
    this.journal.append(runId, bodies, woke === undefined ? options : { ...options, woke });
  }

  /** Undefined unless every append has to wait for the disk (`durability: "strict"`). */
  strictBarrier(runId: string): Promise<void> | undefined {
    return this.journal.run(runId).header.durability === "strict" ? this.journal.barrier() : undefined;
  }

  /** Records a job's outcome and lets the program hear of it, in that order (R-2a). */
  settle(job: Job, outcome: Outcome, detail?: string): void {
    const step_id = job.instance;
    if (outcome.type === "succeeded")
      this.append(job.run.runId, [{ type: "step_completed", step_id, output: outcome.output }]);
    else
      this.append(job.run.runId, [
        {
          type: "step_failed",
          step_id,
          failure: outcome.failure,
          ...(detail === undefined ? {} : { detail: clip(detail) }),
        },
      ]);
    this.dropJob(job);
    this.#progressed();
    this.deliver(job.run, { type: "outcome", instance: job.instance, visit: job.request.visit, outcome });
  }

  /** Lets the program hear of what was appended, in that order; `strict` programs once it is durable. */
  deliver(run: ActiveRun, delivery: Delivery): void {
    if (this.journal.run(run.runId).header.durability !== "strict") return run.host.deliver(delivery);
    void (this.journal.barrier() ?? Promise.resolve()).then(
      () => run.host.deliver(delivery),
      () => undefined,
    );
  }

  /** a durable settlement resets the count of recoveries without progress. */
  #progressed(): void {
    if (this.recoveries === 0) return;
    this.recoveries = 0;
    this.journal.update({ recoveries: 0 });
  }

  /** Evidence for whoever repairs the step. */
  appendLate(late: LateResult): void {
    const state = this.journal.runs.get(late.run_id)?.state;
    if (state === undefined || isTerminal(state.status)) return;
    const { step_id, attempt, result } = late;
    this.append(late.run_id, [{ type: "late_result", step_id, attempt, result }]);
  }

  fail(job: Job, reason: Failure, detail?: string): void {
    this.settle(job, { type: "failed", failure: reason }, detail);
  }

  dropJob(job: Job): void {
    for (const timer of job.timers) timer.cancel();
    job.timers = [];
    if (job.run.jobs.get(job.instance) === job) job.run.jobs.delete(job.instance);
  }

  // ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Puts a run's program in memory; nothing happens until its host is started. */
  activate(header: RunHeader, recorded: Recorded = NOTHING_RECORDED): ActiveRun {
    const definition = this.services.definition(definitionKey(header.workflow_id, header.workflow_revision));
    const run: Omit<ActiveRun, "host"> & { host?: ProgramHost } = {
      runId: header.run_id,
      definition,
      jobs: new Map(),
      delays: new Map(),
      cancels: new Map(),
      starved: [],
      stopping: undefined,
      stopped: false,
      ended: false,
    };
    const active = run as ActiveRun;
    active.host = new ProgramHost(
      this.services.program(definition),
      header.args ?? null,
      recorded,
      liveRun(this, active),
    );
    this.runs.set(header.run_id, active);
    return active;
  }

  /** A fresh run goes: its first events are appended already. */
  async begin(run: ActiveRun): Promise<void> {
    if (this.overdue(run.runId)) return stopRun(this, run.runId, { reason: "timeout" });
    await run.host.start();
    if (this.#closed || run.ended || run.stopping !== undefined) return;
    this.armWallTimer(run);
    run.host.goLive();
  }

  /** What a program asks for is real from here on; of a paused run only what can be answered is. */
  goLive(run: ActiveRun): void {
    if (isPaused(this.state(run.runId))) run.host.standBy();
    else run.host.goLive();
  }

  /** its time is over, so nothing of it is begun. */
  overdue(runId: string): boolean {
    const state = this.state(runId);
    return state.status === "running" && deadlineMs(state) <= this.now();
  }

  armWallTimer(run: ActiveRun): void {
    run.wallTimer?.cancel();
    run.wallTimer = this.ports.clock.at(deadlineMs(this.state(run.runId)), () => {
      if (this.state(run.runId).status === "running")
        void this.background(stopRun(this, run.runId, { reason: "timeout" }));
    });
  }

  /** Called when the program can go no further by itself. */
  check(run: ActiveRun): void {
    if (run.ended || run.stopping !== undefined || this.#closed) return;
    const state = this.state(run.runId);
    // A pause or an interruption came, perhaps when all was done but the end: it ends when it is continued (GD-62).
    const stands = state.status === "suspended" && state.waits.some((wait) => wait.step_id === undefined);
    if (this.paused || stands) return this.settleDown();
    if (run.host.ended === undefined) standStill(this, run);
    else this.#programEnded(run, run.host.ended);
  }

  #programEnded(run: ActiveRun, ended: Ended): void {
    const open = run.host.openRequests();
    if (open.some((request) => isOpen(this, run, request)) || run.cancels.size > 0) {
      // R-2f: what is still open is cancelled like fail-fast siblings, then the run ends.
      if (run.cancels.size === 0)
        void this.background(cancelGroup(this, run, "end", open).then(() => run.host.nudge()));
      return;
    }
    for (const timer of run.delays.values()) timer.cancel();
    run.delays.clear();
    this.finish(run, outcomeOf(run.definition, ended));
  }

  /** Appends the terminal event and tells the parent (RP-45). */
  finish(run: ActiveRun, outcome: Outcome): void {
    if (run.ended) return;
    if (outcome.type === "succeeded") this.append(run.runId, [{ type: "run_succeeded", output: outcome.output }]);
    else this.append(run.runId, [{ type: "run_failed", failure: outcome.failure }]);
    this.ended(run);
  }

  /** After a run's terminal event is appended: its parent hears of it; the tree closes with its root. */
  ended(run: ActiveRun): void {
    run.ended = true;
    run.host.freeze();
    run.wallTimer?.cancel();
    for (const timer of run.delays.values()) timer.cancel();
    const job = parentJob(this, run);
    if (job !== undefined) this.#tellParent(job, run);
    this.settleDown();
  }

  #tellParent(job: Job, child: ActiveRun): void {
    const parent = this.state(job.run.runId);
    if (isTerminal(parent.status)) return;
    // it was kept from ending by what was open below it.
    if (parent.stopping !== undefined) {
      if (!this.stops.has(job.run.runId)) void this.background(stopRun(this, job.run.runId, stopOf(parent.stopping)));
      return;
    }
    if (job.run.stopping !== undefined) return;
    // A parent that recovery or a pause has stopped hears of it when it goes on.
    if (parent.status === "suspended" && parent.waits.some((wait) => wait.step_id === undefined)) return;
    if (job.stop !== undefined) return this.#tellGroup(job);
    this.dispatch.childEnded(job, this.state(child.runId));
  }

  /** The group that a sibling's failure stopped has waited for this child: with its last it is done (RP-32, R-12). */
  #tellGroup(job: Job): void {
    for (const [key, group] of [...job.run.cancels]) {
      if (!group.waiting || !group.instances.has(job.instance)) continue;
      wake(this, job.run, job);
      finishCancel(this, job.run, key);
    }
  }

  // ── standing still ──────────────────────────────────────────────────────────────────────────────────────────

  /** True once the tree is on its way out of memory: a signal for it waits, then claims it anew. */
  get closing(): boolean {
    return this.#closing !== undefined || this.#closed;
  }

  /** `settleDown`, once what was just set going has had its turn. */
  settleDownSoon(): void {
    setImmediate(() => this.guard(() => this.settleDown()));
  }

  /** Lets go of the tree once every run of it has ended or waits for the outside. */
  settleDown(): void {
    if (this.closing || this.hearing > 0 || this.journal.poisoned !== undefined) return;
    const rest = restOf(this);
    if (rest === undefined) return;
    this.journal.update({
      release: true,
      ...(rest === "ended"
        ? { wake_at_ms: null, ended: true }
        : { wake_at_ms: this.dormant ? null : (nextWakeMs(this) ?? null) }),
    });
    this.#closing = this.#close();
  }

  async #close(): Promise<void> {
    try {
      await this.journal.barrier();
    } catch {
      return; // poisoned: the engine hears of it from the journal
    }
    this.drop();
  }

  /** Ends everything in memory; the journal keeps what counts. */
  drop(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const run of this.runs.values()) {
      run.host.freeze();
      run.wallTimer?.cancel();
      for (const timer of run.delays.values()) timer.cancel();
      for (const job of run.jobs.values()) {
        for (const timer of job.timers) timer.cancel();
        if (!job.ended) job.abort.abort(new Error("the run tree is no longer held by this process"));
      }
    }
    this.services.onIdle(this);
  }

  // ── failures of the machinery itself ────────────────────────────────────────────────────────────────────────

  /** Runs `act`; what it throws is a poisoned tree, which the journal has reported, or a bug, which poisons it. */
  guard(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.broken(error);
    }
  }

  background(work: Promise<void>): Promise<void> {
    return work.catch((error: unknown) => this.broken(error));
  }

  leaseLost(): HoldfastError {
    return new HoldfastError(
      "storage_unavailable",
      "Cannot go on with the run here: its lease could not be renewed in time",
    );
  }

  broken(error: unknown): void {
    if (this.#closed || this.journal.poisoned !== undefined) return;
    this.services.log("error", "run tree broken", { root_run_id: this.rootRunId, error });
    this.journal.poison(
      HoldfastError.is(error)
        ? error
        : new HoldfastError("internal", `Bug in Holdfast: ${error instanceof Error ? error.message : String(error)}`, {
            cause: error,
          }),
    );
  }
}
