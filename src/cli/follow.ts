/**
 * Following a run to its end (interfaces §2): progress, approvals and inputs inline, waiting for time, and leaving well.
 * The first Ctrl-C pauses the run and says how to go on; it never cancels. The second ends this process.
 */
import type { Holdfast, Run } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import { isTerminal } from "../domain/run.ts";
import { answerByAsking } from "./ask-input.ts";
import { type Context, commandLine, decider } from "./context.ts";
import { askDecision, decide, isMeanwhile, openQuestions, openRepairs } from "./decide.ts";
import { EXIT, exitOf } from "./output.ts";
import { createProgress, type Progress } from "./progress.ts";
import { endLines, outputText } from "./render/run.ts";
import { waitCommands } from "./render/wait.ts";
import { printable } from "./text.ts";

/**
 * How long the pause of the first Ctrl-C may take. The engine gives what is running 5 s to settle and then stops
 * it; the rest is for writing that down.
 */
const SETTLE_MS = 8_000;
/** How long the last events may lag behind the answer that they led to. */
const LAG_MS = 1_000;

export interface FollowOptions {
  readonly workspace: string;
  /** Progress shows what comes after this sequence. */
  readonly since?: number;
  /** Stop following after this long; the run stays where it is and the status is 3. */
  readonly timeoutMs?: number;
}

type Left = "interrupt" | "terminate" | "timeout";

/** Follows, shows the end, answers the exit status. */
export async function follow(
  context: Context,
  holdfast: Holdfast,
  runId: string,
  options: FollowOptions,
): Promise<number> {
  const leaving = new Leaving(context, options.timeoutMs);
  const progress = createProgress(context.out, context.process.now);
  const watching = new AbortController();
  const watched = pump(holdfast, runId, options.since ?? 0, watching.signal, progress);
  try {
    const shown = (run: Run) => caughtUp(watched, progress, run.last_sequence);
    const run = await driveOn(context, holdfast, runId, options.workspace, leaving, shown);
    if (run !== undefined) await shown(run);
    watching.abort();
    progress.end();
    if (run === undefined) return await leave(context, holdfast, runId, options.workspace, leaving.why ?? "terminate");
    return showEnd(context, run, options.workspace);
  } finally {
    watching.abort();
    progress.end();
    leaving.done();
  }
}

/** The result: the output (or the whole run under `--json`) on stdout, how it ended on stderr. */
export function showEnd(context: Context, run: Run, workspace: string): number {
  const { out } = context;
  const status = exitOf(run.status);
  const lines = endLines(run, context, workspace);
  // Where a person must act or something failed, it is said whatever the verbosity.
  if (status === EXIT.succeeded) {
    if (out.terminal.watched || out.verbose) out.note(...lines);
  } else if (!out.json || out.terminal.watched) out.tell(...lines);
  if (out.json) out.document(run);
  else if (run.status === "succeeded" && run.output !== undefined) out.print(outputText(run.output));
  return status;
}

/**
 * The run when it has ended or only a person can move it; undefined when we are leaving before that.
 * @param shown resolves when progress has shown the run as it is: what comes later would be written into a question
 */
async function driveOn(
  context: Context,
  holdfast: Holdfast,
  runId: string,
  workspace: string,
  leaving: Leaving,
  shown: (run: Run) => Promise<void>,
): Promise<Run | undefined> {
  for (;;) {
    const run = await leaving.race(holdfast.runs.drive(runId, { signal: leaving.signal }));
    if (run === undefined) return undefined;
    if (isTerminal(run.status)) return run;
    const due = nextDue(run);
    if (due !== undefined) {
      if ((await leaving.race(until(due, leaving.signal, context.process.now))) === undefined) return undefined;
      continue;
    }
    if (context.out.terminal.canPrompt) await shown(run);
    if (!(await askedAndAnswered(context, holdfast, run, workspace, leaving)))
      return leaving.why === undefined ? run : undefined;
  }
}

/** When every open wait is for time alone: the earliest. Timers are waited for, whoever drives the run. */
function nextDue(run: Run): number | undefined {
  const times = run.waits.map((wait) => (wait.type === "timer" ? wait.due_at_ms : undefined));
  if (times.length === 0 || times.includes(undefined)) return undefined;
  return Math.min(...times.filter((time) => time !== undefined));
}

/** Longest single sleep: Node's timers overflow past 2^31 ms (C18). */
const NAP_MS = 3_600_000;

async function until(dueMs: number, signal: AbortSignal, now: () => number): Promise<true> {
  for (let left = dueMs - now(); left > 0 && !signal.aborted; left = dueMs - now())
    await nap(Math.min(left, NAP_MS), signal);
  return true;
}

function nap(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
  });
}

/** Asks about open approvals and inputs, oldest first. False: nobody can be asked, or nothing was decided. */
async function askedAndAnswered(
  context: Context,
  holdfast: Holdfast,
  run: Run,
  workspace: string,
  leaving: Leaving,
): Promise<boolean> {
  if (!context.out.terminal.canPrompt) return false;
  const [wait] = await openQuestions(holdfast, run);
  if (wait === undefined) return false;
  context.out.status("");
  try {
    if (wait.type === "input") {
      const answered = await answerByAsking(context, holdfast, wait, workspace, leaving.signal);
      return answered !== undefined && !answered.pending;
    }
    const word = await askDecision(context, wait, workspace, ["approve", "deny"], leaving.signal);
    if (word === undefined) return false;
    const verb = await decide(holdfast, wait, word, { reason: undefined, digest: wait.digest });
    // Nobody has taken it yet: asking again would ask for the same.
    return !verb.pending;
  } catch (error) {
    // Somebody else decided meanwhile: the run goes on by that decision, and we go on following.
    if (!isMeanwhile(error)) throw error;
    context.out.tell(printable(error.message));
  }
  return true;
}

/** Leaves a run that has not ended: paused after Ctrl-C, as it is after a timeout or SIGTERM. */
async function leave(
  context: Context,
  holdfast: Holdfast,
  runId: string,
  workspace: string,
  why: Left,
): Promise<number> {
  if (why === "interrupt") await pauseAndSettle(context, holdfast, runId);
  const run = await holdfast.runs.inspect(runId);
  if (isTerminal(run.status)) return showEnd(context, run, workspace);
  if (context.out.json) context.out.document(run);
  const repairs = await openRepairs(holdfast, run);
  if (repairs.length > 0) {
    context.out.tell(
      "Stopped following. Whether a step took effect is unknown; find out, then say so, and the run can go on:",
      ...repairs.flatMap((wait) => waitCommands(wait, context).map((command) => `  ${command}`)),
    );
    return EXIT.suspended;
  }
  const said = {
    interrupt: run.status === "suspended" ? "Paused" : "The pause is asked for and will take hold",
    terminate: "Stopped following",
    timeout: "Stopped following: the time given is over",
  }[why];
  context.out.tell(
    `${said}. The run is ${run.status}; nothing is lost. To go on:`,
    `  ${commandLine(context, "resume", runId)}`,
  );
  return EXIT.suspended;
}

/** The run once the pause has taken hold, or undefined when it did not within the time. */
async function pauseAndSettle(context: Context, holdfast: Holdfast, runId: string): Promise<Run | undefined> {
  context.out.tell("Pausing: waiting for what is running to settle, at most 5 s. Ctrl-C again leaves at once.");
  const patience = new AbortController();
  try {
    return await Promise.race([
      paused(holdfast, runId, patience.signal),
      nap(SETTLE_MS, patience.signal).then(() => undefined),
    ]);
  } catch (error) {
    // It ended, or was suspended already, between the key and the pause: what it is now is the answer.
    if (HoldfastError.is(error) && (error.code === "terminal" || error.code === "not_possible"))
      return await holdfast.runs.inspect(runId);
    throw error;
  } finally {
    patience.abort();
  }
}

async function paused(holdfast: Holdfast, runId: string, signal: AbortSignal): Promise<Run> {
  const { run } = await holdfast.runs.pause(runId, { decided_by: decider(), reason: "Ctrl-C" });
  if (run.status === "suspended" || isTerminal(run.status)) return run;
  return await holdfast.runs.drive(runId, { signal });
}

async function pump(
  holdfast: Holdfast,
  runId: string,
  since: number,
  signal: AbortSignal,
  progress: Progress,
): Promise<void> {
  try {
    for await (const event of holdfast.runs.follow(runId, { since, signal })) progress.event(event);
  } catch {
    // Progress is a courtesy: the drive answers for the run, and says what is wrong with the store.
  }
}

/** Waits until progress has shown the last event, but not long: it is only progress. */
async function caughtUp(watched: Promise<void>, progress: Progress, sequence: number): Promise<void> {
  const patience = new AbortController();
  const shown = async () => {
    for (let waited = 0; progress.sequence < sequence && waited < LAG_MS; waited += 10) await nap(10, patience.signal);
  };
  await Promise.race([watched, shown()]);
  patience.abort();
}

/** Why and when we leave: the two Ctrl-C, SIGTERM, the timeout. */
class Leaving {
  why: Left | undefined;
  readonly #controller = new AbortController();
  readonly #left: Promise<undefined>;
  readonly #cleanup: (() => void)[] = [];

  constructor(context: Context, timeoutMs: number | undefined) {
    this.#left = new Promise((resolve) => {
      this.signal.addEventListener("abort", () => resolve(undefined), { once: true });
    });
    const { onSignal, exit } = context.process;
    this.#cleanup.push(
      onSignal("SIGINT", () => (this.why === "interrupt" ? exit(EXIT.interrupted) : this.#leave("interrupt"))),
      onSignal("SIGTERM", () => this.#leave("terminate")),
    );
    if (timeoutMs === undefined) return;
    const over = new AbortController();
    this.#cleanup.push(() => over.abort());
    const end = context.process.now() + timeoutMs;
    void until(end, over.signal, context.process.now).then(() => {
      if (!over.signal.aborted) this.#leave("timeout");
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  #leave(why: Left): void {
    this.why = this.why === undefined || why === "interrupt" ? why : this.why;
    this.#controller.abort();
  }

  /** The answer, or undefined when we leave first; a late failure of it is then nobody's. */
  async race<T>(work: Promise<T>): Promise<T | undefined> {
    work.catch(() => {});
    try {
      return await Promise.race([work, this.#left]);
    } catch (error) {
      if (this.why !== undefined) return undefined;
      throw error;
    }
  }

  done(): void {
    for (const cleanup of this.#cleanup) cleanup();
  }
}
