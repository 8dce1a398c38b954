/**
 * The executor's side of a program host: what a program asks becomes a job, a delay, a cancellation, or a line in the
 * journal. What a used-up limit refuses is refused here too, or asked again once the limit is raised.
 */
import type { Json } from "../../domain/json.ts";
import { admitMap, reserveRetry } from "../../domain/ledger.ts";
import type { Failure } from "../../domain/run.ts";
import { LazyAbort } from "../lazy-abort.ts";
import { refusalKey } from "../replay.ts";
import type { CancelRequest, LiveRun, OpenRequest, Request, RetryRequest } from "../requests.ts";
import type { ActiveRun, Job } from "../work.ts";
import type { TreeExecutor } from "./executor.ts";
import { wake } from "./parents.ts";
import { starve } from "./starving.ts";
import { cancelGroup } from "./stopping.ts";
import { resumeWait } from "./waiting.ts";

export function liveRun(tree: TreeExecutor, run: ActiveRun): LiveRun {
  return {
    get maxRetries() {
      const { budget } = tree.journal.run(run.runId).header;
      // Where a used-up limit is waited for, it is the ledger that says no, and what waits can be raised.
      return budget.on_exhausted === "suspend" ? Number.POSITIVE_INFINITY : budget.max_retries;
    },
    go: (request) => ask(tree, run, request),
    isOpen: (request) => isOpen(tree, run, request),
    skip: (instance, visit, reason) =>
      tree.append(run.runId, [{ type: "step_skipped", step_id: instance, visit, reason }]),
    decided: (key, value) => decided(tree, run, key, value),
    admit: (items, leaves, again) => {
      const answer = admitMap(tree.ledger, items, leaves);
      if (answer.ok) return undefined;
      return starve(tree, run, answer.failure, again) ? "starved" : answer.failure;
    },
    reserveRetry: (key, dueAtMs, again) => reserve(tree, run, key, dueAtMs, again),
    now: () => tree.now(),
    nondeterminism: (message) => {
      tree.services.log("error", "nondeterminism", { run_id: run.runId, message });
      run.nondeterminism = message;
    },
    ready: () => tree.guard(() => ready(tree, run)),
    quiet: () => tree.guard(() => tree.check(run)),
  };
}

function decided(tree: TreeExecutor, run: ActiveRun, key: string, value: Json): void {
  tree.append(run.runId, [{ type: "decision", key, value }]);
}

/** The program is about to ask for more than the journal has open: a run that stood still goes on. */
function ready(tree: TreeExecutor, run: ActiveRun): void {
  const state = tree.state(run.runId);
  if (state.status === "suspended" && state.stopping === undefined) wake(tree, run);
}

function ask(tree: TreeExecutor, run: ActiveRun, request: Request): void {
  tree.guard(() => {
    if (run.ended || run.stopping !== undefined || tree.closed) return;
    // a run that is being stopped goes nowhere; its open mutations can still be answered.
    const halted = tree.state(run.runId).stopping !== undefined;
    if (halted && request.kind === "cancel") return readopt(tree, run, request);
    if (halted && (request.kind === "retry" || !request.resumed)) return;
    if (request.kind === "retry") return delay(tree, run, request);
    if (request.kind === "cancel") return cancel(tree, run, request);
    const job = newJob(run, request);
    run.jobs.set(job.instance, job);
    if (halted) rejoin(tree, job);
    else if (request.kind === "wait" && request.resumed) resumeWait(tree, job);
    else job.done = tree.background(tree.dispatch.run(job));
  });
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

/** A step of a run that is being stopped: it can be answered, nothing more. */
function rejoin(tree: TreeExecutor, job: Job): void {
  job.stage = "waiting";
  const child = tree.state(job.run.runId).steps.get(job.instance)?.child_run_id;
  const active = child === undefined ? undefined : tree.runs.get(child);
  if (active !== undefined) tree.goLive(active);
}

/** Whether the journal has the request's visit queued, running or suspended. */
export function isOpen(tree: TreeExecutor, run: ActiveRun, request: OpenRequest): boolean {
  const step = tree.state(run.runId).steps.get(request.instance);
  if (step === undefined || step.visit !== request.visit) return false;
  return step.status === "queued" || step.status === "running" || step.status === "suspended";
}

// ── retries and cancellations ─────────────────────────────────────────────────────────────────────────────────

function reserve(
  tree: TreeExecutor,
  run: ActiveRun,
  key: string,
  dueAtMs: number,
  again: () => void,
): Failure | "starved" | undefined {
  const counted = reserveRetry(tree.ledger);
  if (!counted.ok) {
    if (starve(tree, run, counted.failure, again)) return "starved";
    decided(tree, run, refusalKey(key, 1), { ...counted.failure });
    return counted.failure;
  }
  tree.ledger = counted.ledger;
  tree.append(run.runId, [{ type: "phase", name: "retry_reserved", key, due_at_ms: dueAtMs }]);
  return undefined;
}

function delay(tree: TreeExecutor, run: ActiveRun, request: RetryRequest): void {
  const over = (): void => {
    run.delays.delete(request.key);
    if (!request.dead && !run.ended) tree.deliver(run, { type: "woke", key: request.key });
  };
  const dueAtMs = request.dueAtMs ?? tree.now();
  const timer = tree.ports.clock.at(dueAtMs, over);
  run.delays.set(request.key, { dueAtMs, cancel: () => timer.cancel() });
}

function cancel(tree: TreeExecutor, run: ActiveRun, request: CancelRequest): void {
  for (const target of request.targets) {
    if (target.kind !== "retry") adopt(tree, run, target);
    else {
      run.delays.get(target.key)?.cancel();
      run.delays.delete(target.key);
    }
  }
  void tree.background(cancelGroup(tree, run, request.key, request.targets));
}

/** The run's own stop has overtaken the group's; what of it is open can still be answered. */
function readopt(tree: TreeExecutor, run: ActiveRun, request: CancelRequest): void {
  for (const target of request.targets) {
    if (target.kind !== "retry") adopt(tree, run, target);
    const job = run.jobs.get(target.kind === "retry" ? "" : target.instance);
    if (job !== undefined) rejoin(tree, job);
  }
}

/** After a restart what a cancelled group has open was not asked for again: it can still be answered. */
function adopt(tree: TreeExecutor, run: ActiveRun, target: Job["request"]): void {
  const step = tree.state(run.runId).steps.get(target.instance);
  if (run.jobs.has(target.instance) || step === undefined || !isOpen(tree, run, target)) return;
  const job = newJob(run, target);
  job.adopted = true;
  if (step.side_effect !== undefined) job.sideEffect = step.side_effect;
  job.stage = step.status === "running" || step.was === "running" ? "running" : "waiting";
  run.jobs.set(job.instance, job);
  // A child that is being stopped already may have an open mutation of its own to be answered.
  const child = step.child_run_id === undefined ? undefined : tree.runs.get(step.child_run_id);
  if (child !== undefined && tree.state(child.runId).stopping !== undefined) tree.goLive(child);
}

// ── no room ───────────────────────────────────────────────────────────────────────────────────────────────────

/** A reservation that was refused: recorded as a decision, no step event (RP-26, R-2d). */
export function refuse(tree: TreeExecutor, job: Job, reason: Failure): void {
  const again = (): void => ask(tree, job.run, job.request);
  if (starve(tree, job.run, reason, again)) return tree.dropJob(job);
  decided(tree, job.run, refusalKey(job.instance, job.request.visit), { ...reason });
  tree.dropJob(job);
  job.run.host.refuse(job.request, reason);
}

/** An agent step that found no room: it stays queued and asks again once a limit is raised, or it fails. */
export function starveOrFail(tree: TreeExecutor, job: Job, reason: Failure): void {
  const again = (): void => {
    job.request.resumed = true;
    ask(tree, job.run, job.request);
  };
  if (starve(tree, job.run, reason, again, job.instance)) tree.dropJob(job);
  else tree.fail(job, reason);
}
