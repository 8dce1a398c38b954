/**
 * Asking whoever took an attempt what became of it (R-10, GD-17 … GD-21, GD-39): by receipt where it gave one, else
 * by dispatch id, again for as long as it is at work or cannot say, and telling it to stop when the run stops.
 */
import { HoldfastError } from "../../domain/errors.ts";
import { dispatchId } from "../../domain/journal.ts";
import { canonicalJson, type Json, normalizeJson } from "../../domain/json.ts";
import type { StepState } from "../../domain/state.ts";
import type { OwnerAnswer, ToolDescriptor } from "../../ports/index.ts";
import { atMost, sleep } from "../timing.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import type { Job } from "../work.ts";

/** Pauses between two questions about work that goes on: doubling from the first to the longest. */
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;
/** A lookup that has not answered by then cannot say; `observe` may take its time, since it is work that goes on. */
const LOOKUP_MS = 60_000;

const pauseMs = (asked: number): number => Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(asked, 16));

/** What an owner says in the end; `running` only from one that is asked once. */
export type Word = Exclude<OwnerAnswer, { type: "deferred" }>;

type How = "observe" | "lookup";

/** An attempt that is asked about; there need not be a call of it here. */
interface Asked {
  readonly runId: string;
  readonly instance: string;
  readonly input: Json;
}

const askedOf = ({ run, instance, request }: Job): Asked => ({ runId: run.runId, instance, input: request.input });

/** How an attempt's owner can be asked; undefined when nobody can. */
function howToAsk(tool: ToolDescriptor, step: Pick<StepState, "receipt" | "side_effect">): How | undefined {
  if (step.receipt !== undefined && tool.can_observe) return "observe";
  const worth = step.side_effect === "mutating" || tool.can_handoff === true;
  return worth && tool.can_lookup ? "lookup" : undefined;
}

/** Whether an attempt that its process or a pause broke off can still be answered without a person. */
export function canBeAsked(tool: ToolDescriptor | undefined, step: Pick<StepState, "receipt">): boolean {
  return (tool?.can_observe === true && step.receipt !== undefined) || tool?.can_lookup === true;
}

/**
 * The owner's last word on an attempt: undefined when it cannot be asked, or when nobody waits for it any more. What
 * is at work is asked again; a plain tool without receipt or plan is looked up once (DESIGN §6).
 */
export async function ownerWord(
  tree: TreeExecutor,
  job: Job,
  name: string,
  tool: ToolDescriptor,
): Promise<Word | undefined> {
  let told = false;
  // Of an attempt whose time is over already, only the asking itself is still to be waited for.
  const signal = job.abort.signal.aborted ? new AbortController().signal : job.abort.signal;
  for (let n = 0; ; n++) {
    const step = tree.state(job.run.runId).steps.get(job.instance);
    const how = step === undefined ? undefined : howToAsk(tool, step);
    if (step === undefined || how === undefined) return undefined;
    const answer = await askOnce(tree, askedOf(job), name, how, step, signal);
    if (nobodyWaits(tree, job)) return undefined;
    if ("receipt" in answer && answer.receipt !== undefined && step.receipt === undefined)
      await keepReceipt(tree, job, answer.receipt);
    if (answer.type === "running" && how === "lookup" && tool.can_handoff !== true && !canObserve(tree, job, tool))
      return answer;
    if (answer.type !== "running" && answer.type !== "deferred") return answer;
    if (job.abort.signal.aborted && !told) {
      told = true;
      await tellToStop(tree, askedOf(job), name, step);
    }
    await untilAskedAgain(tree, job, pauseMs(n));
    if (nobodyWaits(tree, job)) return undefined;
  }
}

function canObserve(tree: TreeExecutor, job: Job, tool: ToolDescriptor): boolean {
  return tool.can_observe && tree.state(job.run.runId).steps.get(job.instance)?.receipt !== undefined;
}

function nobodyWaits(tree: TreeExecutor, job: Job): boolean {
  return tree.closed || tree.paused || job.run.ended || job.givenUp;
}

async function askOnce(
  tree: TreeExecutor,
  { runId, instance, input }: Asked,
  name: string,
  how: How,
  step: StepState,
  signal: AbortSignal,
): Promise<OwnerAnswer> {
  const { tools } = tree.ports;
  const dispatch_id = dispatchId(runId, instance, step.attempts);
  try {
    if (how === "lookup") {
      let answer: OwnerAnswer = { type: "unknown", reason: `it has not answered within ${LOOKUP_MS / 1_000} s` };
      const asked = tools.lookup(name, { dispatch_id, input, signal }).then((given) => {
        answer = given;
      });
      await atMost(tree.ports.clock, LOOKUP_MS, asked);
      return answer;
    }
    const said = await tools.observe(name, { dispatch_id, receipt: step.receipt as Json, signal });
    // It gave a receipt, so it has taken the work: that it no longer knows of it is no leave to send it again.
    return said.type === "absent" ? { type: "unknown", reason: "it no longer knows the receipt that it gave" } : said;
  } catch (error) {
    return { type: "unknown", reason: `asking it failed: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** GD-39: outside any transaction; a signal that fails is not termination, and what goes on is asked on. */
async function tellToStop(
  tree: TreeExecutor,
  { runId, instance }: Asked,
  name: string,
  step: StepState,
): Promise<void> {
  const dispatch_id = dispatchId(runId, instance, step.attempts);
  const query = { dispatch_id, ...(step.receipt === undefined ? {} : { receipt: step.receipt }) };
  await tree.ports.tools.cancel?.(name, query).catch((error: unknown) => {
    tree.services.log("warn", "an owner could not be told to stop", {
      run_id: runId,
      step_id: instance,
      error,
    });
  });
}

/**
 * What the owner of an attempt says that nobody here is in a call with and that is to be stopped (GD-39, GD-40): it is
 * told once, and asked until the work has ended or `over` aborts.
 * @returns undefined when there is no last word by then
 */
export async function stoppedWord(
  tree: TreeExecutor,
  runId: string,
  step: StepState,
  tool: ToolDescriptor,
  over: AbortSignal,
): Promise<Word | undefined> {
  const asked = { runId, instance: step.id, input: step.input ?? null };
  let { receipt } = step;
  for (let n = 0; !over.aborted && !tree.closed; n++) {
    const known = receipt === undefined ? step : { ...step, receipt };
    const how = howToAsk(tool, known);
    if (how === undefined) return undefined;
    const answer = await askOnce(tree, asked, tool.name, how, known, over);
    if ("receipt" in answer) receipt ??= answer.receipt;
    if (answer.type !== "running" && answer.type !== "deferred") return answer;
    if (n === 0) await tellToStop(tree, asked, tool.name, known);
    await sleep(tree.ports.clock, pauseMs(n));
  }
  return undefined;
}

/** Ends early when the job is told to stop: its owner is told then, not after the pause. */
function untilAskedAgain(tree: TreeExecutor, job: Job, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const { signal } = job.abort;
    const over = (): void => {
      timer.cancel();
      signal.removeEventListener("abort", over);
      resolve();
    };
    const timer = tree.ports.clock.at(tree.now() + ms, over);
    job.timers.push(timer);
    if (!signal.aborted) signal.addEventListener("abort", over, { once: true });
  });
}

/** GD-17: one receipt an attempt. @throws HoldfastError `conflict` */
export async function keepReceipt(tree: TreeExecutor, job: Job, given: Json): Promise<void> {
  const { runId } = job.run;
  const refuse = (why: string): never => {
    throw new HoldfastError(
      "conflict",
      `Cannot keep the receipt of "${job.instance}": ${why}; the one that is stored stands`,
    );
  };
  const receipt = normalizeJson(given);
  const step = tree.closed || job.run.ended ? undefined : tree.state(runId).steps.get(job.instance);
  const open =
    step !== undefined && step.visit === job.request.visit && (step.status === "running" || step.was === "running");
  if (!open || job.ended || job.givenUp) return refuse("the attempt has ended");
  if (step.receipt === undefined) tree.append(runId, [{ type: "receipt", step_id: job.instance, receipt }]);
  else if (canonicalJson(step.receipt) !== canonicalJson(receipt)) {
    tree.appendLate({
      run_id: runId,
      step_id: job.instance,
      attempt: step.attempts,
      result: { type: "another_receipt", receipt },
    });
    await tree.journal.barrier();
    return refuse("its owner gave another one before");
  }
  await tree.journal.barrier();
}

const MAX_SESSION_BYTES = 512;

/** GD-42: one session an attempt, and only of an attempt that is there and open. @throws HoldfastError `conflict`, `usage` */
export async function keepLink(
  tree: TreeExecutor,
  job: Job,
  { session_id, shared = false }: { readonly session_id: string; readonly shared?: boolean },
): Promise<void> {
  const cannot = `Cannot link "${job.instance}" to a session:`;
  if (typeof session_id !== "string" || session_id.trim() === "" || Buffer.byteLength(session_id) > MAX_SESSION_BYTES)
    throw new HoldfastError("usage", `${cannot} its id is not text of 1 to ${MAX_SESSION_BYTES} bytes; give one`);
  const { runId } = job.run;
  const step = tree.closed || job.run.ended ? undefined : tree.state(runId).steps.get(job.instance);
  const open = step?.visit === job.request.visit && (step.status === "running" || step.was === "running");
  if (step === undefined || !open || job.ended || job.givenUp)
    throw new HoldfastError("conflict", `${cannot} the attempt has ended; link it while it is at work`);
  // The attempt is on the disk before anything points at it.
  await tree.journal.barrier();
  await tree.ports.store.linkSession(tree.journal.fence, {
    root_run_id: tree.rootRunId,
    run_id: runId,
    step_id: job.instance,
    attempt: step.attempts,
    dispatch_id: dispatchId(runId, job.instance, step.attempts),
    session_id,
    shared,
    created_at_ms: tree.now(),
  });
}

/** Whether the hand-over of a planned dispatch had not begun: nobody can have accepted it (GD-41). */
export function neverHandedOff(step: Pick<StepState, "intent" | "handed_off" | "receipt">): boolean {
  return step.intent !== undefined && step.handed_off !== true && step.receipt === undefined;
}
