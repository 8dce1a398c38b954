/**
 * What keeps a queued step from being begun though there is a permit for it (GD-27, GD-53): resources that another
 * attempt holds, or an owner that takes nothing now. Such a step stays queued, holds nothing meanwhile, and is tried
 * again when something was freed or after a while. When nothing else of its tree goes on for longer than the
 * admission timeout, the tree is let go of and tried later, so that it holds up nobody.
 */

import type { EventBody } from "../../domain/events.ts";
import { dispatchId } from "../../domain/journal.ts";
import { openSteps } from "../../domain/questions.ts";
import { isTerminal } from "../../domain/run.ts";
import type { ResourceClaim, Timer } from "../../ports/index.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import { newWait } from "../tree/waiting.ts";
import { type ActiveRun, isDropped, type Job } from "../work.ts";

/** Behind the notifications, for what they miss, ms. */
const POLL_MS = 2_000;
/** An owner that does not say when it is free is asked this soon again, doubling up to the poll. */
const FIRST_ASK_MS = 100;
/** A tree that was let go of is tried again after its admission timeout, but within these. */
const SOONEST_MS = 100;
const LATEST_MS = 10_000;

export const ADMISSION_TIMED_OUT = "admission timed out";

/** Why a step was not begun. */
export type NotAdmitted =
  | { readonly on: "lease" }
  | { readonly on: "owner"; readonly waits_for?: string; readonly free?: Promise<void> };

interface Waiter {
  readonly job: Job;
  readonly sinceMs: number;
  readonly why: NotAdmitted;
  tries: number;
  /** False while it is being tried. */
  parked: boolean;
  wake: (again: boolean) => void;
}

export class Admission {
  readonly #tree: TreeExecutor;
  readonly #waiting = new Map<Job, Waiter>();
  #unwatch: (() => void) | undefined;
  #timer: Timer | undefined;

  constructor(tree: TreeExecutor) {
    this.#tree = tree;
  }

  /** Jobs that wait, and on what. */
  get waiting(): readonly { readonly job: Job; readonly why: NotAdmitted }[] {
    return [...this.#waiting.values()].filter(({ job }) => wanted(this.#tree, job));
  }

  /**
   * Takes what a job claims, under the dispatch id of the attempt that is about to begin; a barrier of its own, since
   * it is durable when it returns. False when others hold some of it: then it holds nothing.
   */
  async acquire(job: Job, claims: readonly ResourceClaim[], attempt: number): Promise<boolean> {
    if (claims.length === 0) return true;
    const { journal, ports } = this.#tree;
    const id = dispatchId(job.run.runId, job.instance, attempt);
    if (!(await ports.store.acquireLeases(journal.rootRunId, journal.fence, id, claims))) return false;
    journal.leases.add(id);
    return true;
  }

  /** Gives back what a job took and does not need: it was told to stop before it began. */
  giveBack(job: Job, attempt: number): void {
    const id = dispatchId(job.run.runId, job.instance, attempt);
    if (this.#tree.closed || this.#tree.journal.poisoned !== undefined) return;
    this.#tree.journal.freeLease(id);
  }

  /** Resolves with true when the job may try again, with false when nobody wants it any more. */
  async wait(job: Job, why: NotAdmitted): Promise<boolean> {
    const before = this.#waiting.get(job);
    const again = await new Promise<boolean>((resolve) => {
      const waiter: Waiter = {
        job,
        why,
        sinceMs: before?.sinceMs ?? this.#tree.now(),
        tries: (before?.tries ?? 0) + 1,
        parked: true,
        wake: resolve,
      };
      this.#waiting.set(job, waiter);
      if (why.on === "owner")
        void why.free?.then(
          () => this.#wake(waiter),
          () => undefined,
        );
      this.#watch();
      this.#arm();
    });
    if (again) return true;
    this.#waiting.delete(job);
    return false;
  }

  /** It was begun, or ended before that. */
  done(job: Job): void {
    this.#waiting.delete(job);
    if (this.#waiting.size === 0) this.#rest();
  }

  /** Lets go of those who were told to stop while they waited. */
  sweep(): void {
    for (const waiter of [...this.#waiting.values()])
      if (!wanted(this.#tree, waiter.job)) {
        this.#waiting.delete(waiter.job);
        waiter.wake(false);
      }
    if (this.#waiting.size === 0) this.#rest();
  }

  #wake(waiter: Waiter): void {
    if (this.#waiting.get(waiter.job) !== waiter || !waiter.parked) return;
    waiter.parked = false;
    waiter.wake(wanted(this.#tree, waiter.job));
  }

  #watch(): void {
    this.#unwatch ??= this.#tree.ports.store.watch(() => {
      this.sweep();
      for (const waiter of [...this.#waiting.values()]) if (waiter.why.on === "lease") this.#wake(waiter);
    });
  }

  #rest(): void {
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** One timer a tree: the next poll, or the end of somebody's admission. */
  #arm(): void {
    this.#timer?.cancel();
    const now = this.#tree.now();
    const limit = this.#tree.services.limits.admission_timeout_ms;
    let at = now + POLL_MS;
    for (const { sinceMs, tries, why } of this.#waiting.values()) {
      if (why.on === "owner" && why.free === undefined)
        at = Math.min(at, now + FIRST_ASK_MS * 2 ** Math.min(tries - 1, 10));
      if (sinceMs + limit > now) at = Math.min(at, sinceMs + limit);
    }
    this.#timer = this.#tree.ports.clock.at(at, () => this.#due());
  }

  #due(): void {
    this.#timer = undefined;
    this.sweep();
    if (this.#waiting.size === 0) return;
    const tree = this.#tree;
    tree.guard(() => {
      if (this.#timedOut() && letGo(tree, (job) => this.#waiting.get(job)?.parked === true)) return this.sweep();
      for (const waiter of [...this.#waiting.values()]) this.#wake(waiter);
      this.#arm();
    });
  }

  #timedOut(): boolean {
    const limit = this.#tree.now() - this.#tree.services.limits.admission_timeout_ms;
    return [...this.#waiting.values()].every(({ sinceMs }) => sinceMs <= limit);
  }
}

function wanted(tree: TreeExecutor, job: Job): boolean {
  return !isDropped(job) && !tree.closed && !tree.paused;
}

/**
 * GD-27: nothing of the tree goes on but what waits for its admission. It is suspended as recovery, which uses up no
 * retry and is no lost worker, and wants to be claimed again soon. False when something else goes on.
 */
function letGo(tree: TreeExecutor, waits: (job: Job) => boolean): boolean {
  if (tree.closing || tree.journal.poisoned !== undefined || tree.stops.size > 0) return false;
  for (const { state, header } of tree.journal.runs.values()) {
    if (state.status !== "running") continue;
    const run = tree.runs.get(header.run_id);
    if (run === undefined || !standsBut(tree, run, waits)) return false;
  }
  tree.paused = true;
  const due = tree.now() + Math.min(LATEST_MS, Math.max(SOONEST_MS, tree.services.limits.admission_timeout_ms));
  for (const run of tree.runs.values()) {
    run.host.pause();
    run.wallTimer?.cancel();
  }
  for (const { state, header } of [...tree.journal.runs.values()].reverse())
    if (!isTerminal(state.status) && state.status === "running") suspendRun(tree, header.run_id, due);
  for (const run of tree.runs.values()) {
    run.stopping = "paused";
    for (const job of run.jobs.values()) job.stop ??= "paused";
  }
  tree.settleDown();
  return true;
}

/** Whether all that a run has open waits: for its admission, for the outside, or for a child of which that is true. */
function standsBut(tree: TreeExecutor, run: ActiveRun, waits: (job: Job) => boolean): boolean {
  if (run.host.busy || run.delays.size > 0 || run.cancels.size > 0 || run.stopping !== undefined) return false;
  for (const job of run.jobs.values()) {
    const child =
      job.request.kind === "child" ? tree.state(run.runId).steps.get(job.instance)?.child_run_id : undefined;
    if (job.stage !== "waiting" && !waits(job) && child === undefined) return false;
  }
  return true;
}

function suspendRun(tree: TreeExecutor, runId: string, due_at_ms: number): void {
  const state = tree.state(runId);
  const reason = ADMISSION_TIMED_OUT;
  const open = openSteps(state, ["queued", "running"]);
  const events: EventBody[] = open.map((step) => ({ type: "step_suspended", step_id: step.id, reason }));
  const wait_id = `w-${state.last_sequence + events.length + 1}`;
  events.push({
    type: "run_suspended",
    reason,
    wait: { ...newWait(tree, runId, { type: "recovery", reason, due_at_ms }), wait_id },
  });
  tree.append(runId, events);
}
