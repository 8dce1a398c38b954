/**
 * One run tree in memory: its programs, its open work, its ledger and permits. Whoever holds the tree's lease
 * has exactly one of these; it is dropped when nothing is left to do but wait, and built anew from the journal.
 */
import { HoldfastError } from "../../domain/errors.ts";
import type { EventBody } from "../../domain/events.ts";
import type { Json } from "../../domain/json.ts";
import { addUsage, admitMap, type Ledger, reserveRetry } from "../../domain/ledger.ts";
import { compileSchema, type Definition, findCredential } from "../../domain/plan/index.ts";
import { type Failure, failure, isTerminal, type RunHeader, type Usage } from "../../domain/run.ts";
import { deadlineMs, haltedSteps, type RunState } from "../../domain/state.ts";
import type { Posture } from "../../ports/index.ts";
import { Dispatch } from "../dispatch/index.ts";
import type { LeaseGuard } from "../leases.ts";
import { LazyAbort } from "../lazy-abort.ts";
import { Permits } from "../permits.ts";
import {
  type CancelRequest,
  type LiveRun,
  type OpenRequest,
  ProgramHost,
  refusalKey,
  type Request,
  type RetryRequest,
} from "../program-host.ts";
import { planProgram } from "../programs/plan/index.ts";
import { type Delivery, NOTHING_RECORDED, type Outcome, type Recorded } from "../replay.ts";
import { clip } from "../values.ts";
import type { ActiveRun, EngineLimits, EnginePorts, Job, LateResult } from "../work.ts";
import type { JournalRun, TreeJournal } from "./journal.ts";
import { cancelGroup, stopOf, stopRun } from "./stopping.ts";
import { newWait, nextWakeMs, resumeWait } from "./waiting.ts";

export interface TreeServices {
  readonly ports: EnginePorts;
  readonly limits: EngineLimits;
  readonly lease: LeaseGuard;
  /** Resolves a definition of the tree's pinned bundle. */
  readonly definition: (key: string) => Definition;
  /** What the start of the root said about trust; a later revocation counts (RP-20). */
  readonly trusted: () => boolean;
  readonly workspace: string;
  readonly log: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
  /** The tree has nothing left to do here; it is released or about to be. */
  readonly onIdle: (tree: TreeExecutor) => void;
  /** Keeps an answer that came after the tree was let go. */
  readonly late: (rootRunId: string, late: LateResult) => void;
}

function newJob(run: ActiveRun, request: Job["request"]): Job {
  return {
    run,
    request,
    instance: request.instance,
    stage: "queued",
    stop: undefined,
    sideEffect: "read_only",
    abort: new LazyAbort(),
    done: Promise.resolve(),
    ended: false,
    givenUp: false,
    timers: [],
  };
}

function cancelling(run: ActiveRun): boolean {
  for (const group of run.cancels.values()) if (!group.waiting) return true;
  return false;
}

/** A timer of it is about to fire: letting the tree go now would only mean claiming it again. */
function isDue(run: ActiveRun, now: number): boolean {
  for (const job of run.jobs.values()) if (job.dueAtMs !== undefined && job.dueAtMs <= now && job.timers.length > 0) return true;
  return false;
}

export class TreeExecutor {
  readonly journal: TreeJournal;
  readonly services: TreeServices;
  readonly permits: Permits<Job>;
  readonly dispatch: Dispatch;
  readonly runs = new Map<string, ActiveRun>();
  ledger: Ledger;
  posture: Posture;
  /** Runs with an agent whose usage could not be observed (RP-44). */
  readonly unmeasured = new Set<string>();
  readonly sessionId: string;
  /** Recoveries without progress so far. */
  recoveries = 0;
  /** Stops that go on, by run. */
  readonly stops = new Map<string, Promise<void>>();
  /** Nothing new is dispatched: a pause, or the process is going away. */
  paused = false;
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
    if (outcome.type === "succeeded") this.append(job.run.runId, [{ type: "step_completed", step_id, output: outcome.output }]);
    else
      this.append(job.run.runId, [
        { type: "step_failed", step_id, failure: outcome.failure, ...(detail === undefined ? {} : { detail: clip(detail) }) },
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

  /** A reservation that was refused: recorded as a decision, no step event (RP-26, R-2d). */
  refuse(job: Job, reason: Failure): void {
    const again = (): void => this.#go(job.run, job.request);
    if (this.starve(job.run, reason, again)) return this.dropJob(job);
    this.append(job.run.runId, [
      { type: "decision", key: refusalKey(job.instance, job.request.visit), value: { ...reason } },
    ]);
    this.dropJob(job);
    job.run.host.refuse(job.request, reason);
  }

  /**
   * `on_exhausted: suspend` (DESIGN §6): what found a limit used up is not refused but waits for a raised one, and
   * the run stands still once nothing else of it goes on. False when the run fails on a used-up limit.
   */
  starve(run: ActiveRun, reason: Failure, again: () => void, instance?: string): boolean {
    if (this.ledger.limits.on_exhausted !== "suspend") return false;
    run.starved.push({ failure: reason, again, ...(instance === undefined ? {} : { instance }) });
    run.host.nudge();
    return true;
  }

  /** An agent step that found no room: it stays queued, and asks again once a limit is raised. */
  starveJob(job: Job, reason: Failure): boolean {
    const again = (): void => {
      job.request.resumed = true;
      this.#go(job.run, job.request);
    };
    if (!this.starve(job.run, reason, again, job.instance)) return false;
    this.dropJob(job);
    return true;
  }

  /** A limit was raised: what waited for it asks again. */
  feed(): void {
    for (const run of this.runs.values()) for (const { again } of run.starved.splice(0)) this.guard(again);
  }

  dropJob(job: Job): void {
    for (const timer of job.timers) timer.cancel();
    job.timers = [];
    if (job.run.jobs.get(job.instance) === job) job.run.jobs.delete(job.instance);
  }

  // ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Puts a run's program in memory; nothing happens until its host is started. */
  activate(header: RunHeader, recorded: Recorded = NOTHING_RECORDED): ActiveRun {
    const definition = this.services.definition(`${header.workflow_id}@${header.workflow_revision}`);
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
    active.host = new ProgramHost(planProgram(definition), header.args ?? null, recorded, this.#live(active));
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

  /** its time is over, so nothing of it is begun. */
  overdue(runId: string): boolean {
    const state = this.state(runId);
    return state.status === "running" && deadlineMs(state) <= this.now();
  }

  armWallTimer(run: ActiveRun): void {
    run.wallTimer?.cancel();
    run.wallTimer = this.ports.clock.at(deadlineMs(this.state(run.runId)), () => {
      if (this.state(run.runId).status === "running") this.background(stopRun(this, run.runId, { reason: "timeout" }));
    });
  }

  #live(run: ActiveRun): LiveRun {
    return {
      go: (request) => this.#go(run, request),
      isOpen: (request) => this.#isOpen(run, request),
      skip: (instance, visit, reason) => this.append(run.runId, [{ type: "step_skipped", step_id: instance, visit, reason }]),
      decided: (key, value) => this.append(run.runId, [{ type: "decision", key, value }]),
      admit: (items, leaves, again) => {
        const answer = admitMap(this.ledger, items, leaves);
        if (answer.ok) return undefined;
        return this.starve(run, answer.failure, again) ? "starved" : answer.failure;
      },
      reserveRetry: (key, dueAtMs, again) => this.#reserveRetry(run, key, dueAtMs, again),
      now: () => this.now(),
      nondeterminism: (message) => this.#nondeterminism(run, message),
      ready: () => this.guard(() => this.#ready(run)),
      quiet: () => this.guard(() => this.check(run)),
    };
  }

  /** The program is about to ask for more than the journal has open: a run that stood still goes on. */
  #ready(run: ActiveRun): void {
    const state = this.state(run.runId);
    if (state.status === "suspended" && state.stopping === undefined) this.wake(run);
  }

  #go(run: ActiveRun, request: Request): void {
    this.guard(() => {
      if (run.ended || run.stopping !== undefined || this.#closed) return;
      // a run that is being stopped goes nowhere; its open mutations can still be answered.
      const halted = this.state(run.runId).stopping !== undefined;
      if (halted && (request.kind === "retry" || request.kind === "cancel" || !request.resumed)) return;
      if (request.kind === "retry") return this.#delay(run, request);
      if (request.kind === "cancel") return this.#cancel(run, request);
      const job = newJob(run, request);
      run.jobs.set(job.instance, job);
      if (halted) this.#rejoin(job);
      else if (request.kind === "wait" && request.resumed) resumeWait(this, job);
      else job.done = this.background(this.dispatch.run(job));
    });
  }

  /** A step of a run that is being stopped: it can be answered, nothing more. */
  #rejoin(job: Job): void {
    job.stage = "waiting";
    const child = this.state(job.run.runId).steps.get(job.instance)?.child_run_id;
    const active = child === undefined ? undefined : this.runs.get(child);
    if (active !== undefined) active.host.goLive();
  }

  #isOpen(run: ActiveRun, request: OpenRequest): boolean {
    const step = this.state(run.runId).steps.get(request.instance);
    if (step === undefined || step.visit !== request.visit) return false;
    return step.status === "queued" || step.status === "running" || step.status === "suspended";
  }

  #reserveRetry(run: ActiveRun, key: string, dueAtMs: number, again: () => void): Failure | "starved" | undefined {
    const counted = reserveRetry(this.ledger);
    if (!counted.ok) {
      if (this.starve(run, counted.failure, again)) return "starved";
      this.append(run.runId, [{ type: "decision", key: refusalKey(key, 1), value: { ...counted.failure } }]);
      return counted.failure;
    }
    this.ledger = counted.ledger;
    this.append(run.runId, [{ type: "phase", name: "retry_reserved", key, due_at_ms: dueAtMs }]);
    return undefined;
  }

  #delay(run: ActiveRun, request: RetryRequest): void {
    const wake = (): void => {
      run.delays.delete(request.key);
      if (!request.dead && !run.ended) this.deliver(run, { type: "woke", key: request.key });
    };
    const dueAtMs = request.dueAtMs ?? this.now();
    const timer = this.ports.clock.at(dueAtMs, wake);
    run.delays.set(request.key, { dueAtMs, cancel: () => timer.cancel() });
  }

  #cancel(run: ActiveRun, request: CancelRequest): void {
    for (const target of request.targets) {
      if (target.kind !== "retry") this.#adopt(run, target);
      else {
        run.delays.get(target.key)?.cancel();
        run.delays.delete(target.key);
      }
    }
    this.background(cancelGroup(this, run, request.key, request.targets));
  }

  /** After a restart what a cancelled group has open was not asked for again: it can still be answered. */
  #adopt(run: ActiveRun, target: Job["request"]): void {
    const step = this.state(run.runId).steps.get(target.instance);
    if (run.jobs.has(target.instance) || step === undefined || !this.#isOpen(run, target)) return;
    const job = newJob(run, target);
    if (step.side_effect !== undefined) job.sideEffect = step.side_effect;
    job.stage = step.status === "running" || step.was === "running" ? "running" : "waiting";
    run.jobs.set(job.instance, job);
  }

  /** Called when the program can go no further by itself. */
  check(run: ActiveRun): void {
    if (run.ended || run.stopping !== undefined || this.#closed || this.paused) return;
    if (run.host.ended !== undefined) return this.#programEnded(run, run.host.ended);
    const state = this.state(run.runId);
    const queued = run.starved.flatMap(({ instance }) => (instance === undefined ? [] : [instance]));
    const stuck = state.active === queued.length && run.delays.size === 0 && !cancelling(run);
    if (!stuck || state.status !== "running") return;
    // Asked for and not written yet, or granted and not started yet: it is about to go on.
    for (const job of run.jobs.values()) if (job.stage !== "waiting") return;
    const wait = state.waits[0];
    const [starved] = run.starved;
    if (starved !== undefined) {
      const { message } = starved.failure;
      for (const step_id of queued.sort()) this.append(run.runId, [{ type: "step_suspended", step_id, reason: message }]);
      const budget = newWait(this, run.runId, { type: "budget", reason: message });
      this.append(run.runId, [{ type: "run_suspended", reason: "budget", wait: budget }]);
      return this.#stoodStill(run, wait?.type ?? "budget");
    }
    if (wait === undefined) {
      // Nothing queued, running or waited for, and the program has not ended: it waits for nothing we know.
      if (run.host.openRequests().length > 0) return;
      return this.finish(run, { type: "failed", failure: failure("execution_failed", "the program waits for nothing that can happen") });
    }
    this.append(run.runId, [{ type: "run_suspended", reason: wait.type }]);
    this.#stoodStill(run, wait.type);
  }

  #stoodStill(run: ActiveRun, on: string): void {
    run.wallTimer?.cancel();
    this.parentWaits(run, on);
    this.settleDown();
  }

  /** A child that waits makes its parent's step wait for it. */
  parentWaits(run: ActiveRun, reason: string): void {
    const job = this.parentJob(run);
    if (job === undefined || job.stage !== "running") return;
    job.stage = "waiting";
    const state = this.state(job.run.runId);
    this.append(job.run.runId, [
      {
        type: "step_suspended",
        step_id: job.instance,
        reason: "child",
        wait: {
          wait_id: `w-${state.last_sequence + 1}`,
          type: "child",
          run_id: job.run.runId,
          step_id: job.instance,
          since_ms: this.now(),
          child_run_id: run.runId,
          reason,
        },
      },
    ]);
    job.run.host.nudge();
  }

  /**
   * Brings a suspended run back to `running`, and its ancestors with it. What an interruption had
   * stopped besides goes on too, but for `except`, whose caller sees to it.
   */
  wake(run: ActiveRun, except?: Job): void {
    const state = this.state(run.runId);
    if (state.status === "suspended") {
      const halted = haltedSteps(state);
      this.append(run.runId, [{ type: "run_started" }]);
      this.armWallTimer(run);
      for (const step of halted) {
        const job = run.jobs.get(step.id);
        if (job !== undefined && job !== except) job.done = this.background(this.dispatch.goOn(job));
      }
    }
    const job = this.parentJob(run);
    if (job === undefined) return;
    this.wake(job.run);
    const step = this.state(job.run.runId).steps.get(job.instance);
    if (step?.status !== "suspended") return;
    job.stage = "running";
    this.append(job.run.runId, [
      { type: "step_started", step_id: job.instance, attempt: step.attempts, side_effect: "idempotent", input_hash: step.input_hash },
    ]);
  }

  parentJob(run: ActiveRun): Job | undefined {
    const { parent_run_id, parent_step_id } = this.journal.run(run.runId).header;
    if (parent_run_id === undefined || parent_step_id === undefined) return undefined;
    return this.runs.get(parent_run_id)?.jobs.get(parent_step_id);
  }

  #programEnded(run: ActiveRun, ended: NonNullable<ProgramHost["ended"]>): void {
    const open = run.host.openRequests();
    if (open.some((request) => this.#isOpen(run, request)) || run.cancels.size > 0) {
      // R-2f: what is still open is cancelled like fail-fast siblings, then the run ends.
      if (run.cancels.size === 0) this.background(cancelGroup(this, run, "end", open).then(() => run.host.nudge()));
      return;
    }
    for (const timer of run.delays.values()) timer.cancel();
    run.delays.clear();
    if (!ended.ok) return this.finish(run, { type: "failed", failure: ended.failure });
    const { output_schema } = run.definition;
    const fits = output_schema === undefined ? { ok: true as const } : compileSchema(output_schema).validate(ended.value);
    if (!fits.ok)
      return this.finish(run, {
        type: "failed",
        failure: failure("invalid_output", `the output does not fit the output schema at ${fits.path || "/"}: ${fits.message}`),
      });
    const leak = findCredential(ended.value, "output");
    if (leak !== undefined)
      return this.finish(run, {
        type: "failed",
        failure: failure("invalid_output", `the output holds what looks like a credential at ${leak.path}`),
      });
    this.finish(run, { type: "succeeded", output: ended.value });
  }

  /** Appends the terminal event and tells the parent (RP-45). */
  finish(run: ActiveRun, outcome: Outcome | { readonly type: "cancelled"; readonly reason?: string; readonly decided_by?: string }): void {
    if (run.ended) return;
    if (outcome.type === "succeeded") this.append(run.runId, [{ type: "run_succeeded", output: outcome.output }]);
    else if (outcome.type === "failed") this.append(run.runId, [{ type: "run_failed", failure: outcome.failure }]);
    else {
      const { type: _, ...rest } = outcome;
      this.append(run.runId, [{ type: "run_cancelled", ...rest }]);
    }
    this.ended(run);
  }

  /** After a run's terminal event is appended: its parent hears of it; the tree closes with its root. */
  ended(run: ActiveRun): void {
    run.ended = true;
    run.host.freeze();
    run.wallTimer?.cancel();
    for (const timer of run.delays.values()) timer.cancel();
    const job = this.parentJob(run);
    if (job !== undefined) this.#tellParent(job, run);
    this.settleDown();
  }

  #tellParent(job: Job, child: ActiveRun): void {
    const parent = this.state(job.run.runId);
    if (isTerminal(parent.status)) return;
    // it was kept from ending by what was open below it.
    if (parent.stopping !== undefined) {
      if (!this.stops.has(job.run.runId)) this.background(stopRun(this, job.run.runId, stopOf(parent.stopping)));
      return;
    }
    if (job.stop !== undefined || job.run.stopping !== undefined) return;
    // A parent that recovery or a pause has stopped hears of it when it goes on.
    if (parent.status === "suspended" && parent.waits.some((wait) => wait.step_id === undefined)) return;
    this.dispatch.childEnded(job, this.state(child.runId));
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
    if (this.#closing !== undefined || this.#closed || this.journal.poisoned !== undefined) return;
    let allEnded = true;
    for (const run of this.journal.runs.values()) {
      if (isTerminal(run.state.status)) continue;
      allEnded = false;
      if (run.state.status !== "suspended") return;
      const active = this.runs.get(run.header.run_id);
      if (active !== undefined && ((active.stopping !== undefined && !active.stopped && !this.paused) || active.host.busy || cancelling(active) || isDue(active, this.now()))) return;
    }
    this.journal.update({
      release: true,
      wake_at_ms: allEnded ? null : (nextWakeMs(this) ?? null),
      ...(allEnded ? { ended: true } : {}),
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

  #nondeterminism(run: ActiveRun, message: string): void {
    this.services.log("error", "nondeterminism", { run_id: run.runId, message });
    run.nondeterminism = message;
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
    return new HoldfastError("storage_unavailable", "Cannot go on with the run here: its lease could not be renewed in time");
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
