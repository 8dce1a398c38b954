/** Approvals on the command line: shown whole, decided by a word or by the digest of what was shown. */
import type { Holdfast, Run, Verb } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Wait } from "../domain/run.ts";
import { type Context, commandLine, decider } from "./context.ts";
import { ask, showWhole } from "./prompt.ts";
import { isDecision, waitCommands, waitLines, waitSubject } from "./render/wait.ts";

export type Word = "approve" | "deny";

/** A run waits for its children's waits: they are looked for this deep (RP's nesting ceiling) and no further. */
const MAX_DEPTH = 16;

/** Open approvals of a run and of the runs it waits for, oldest first. */
export function openDecisions(holdfast: Holdfast, run: Pick<Run, "waits">): Promise<Wait[]> {
  return openWaits(holdfast, run, isDecision, 0);
}

/** What a person can be asked inline: open approvals and inputs of a run and of the runs it waits for, oldest first. */
export function openQuestions(holdfast: Holdfast, run: Pick<Run, "waits">): Promise<Wait[]> {
  return openWaits(holdfast, run, (wait) => isDecision(wait) || wait.type === "input", 0);
}

/** Open inputs of a run and of the runs it waits for, oldest first. */
export function openInputs(holdfast: Holdfast, run: Pick<Run, "waits">): Promise<Wait[]> {
  return openWaits(holdfast, run, ({ type }) => type === "input", 0);
}

/** Outcomes that a person has to say, of a run and of the runs it waits for, oldest first. */
export function openRepairs(holdfast: Holdfast, run: Pick<Run, "waits">): Promise<Wait[]> {
  return openWaits(holdfast, run, ({ type }) => type === "repair" || type === "tool_running", 0);
}

async function openWaits(
  holdfast: Holdfast,
  run: Pick<Run, "waits">,
  wanted: (wait: Wait) => boolean,
  depth: number,
): Promise<Wait[]> {
  const found: Wait[] = [];
  for (const wait of run.waits) {
    // What was granted asks for nothing more: it goes when its run does.
    if (wait.granted !== undefined) continue;
    if (wanted(wait)) found.push(wait);
    else if (wait.type === "child" && wait.child_run_id !== undefined && depth < MAX_DEPTH)
      found.push(...(await openWaits(holdfast, await holdfast.runs.inspect(wait.child_run_id), wanted, depth + 1)));
  }
  return found.sort((a, b) => a.since_ms - b.since_ms);
}

/**
 * The approval or input that a command means: by wait or step id, or the only open one.
 * @throws HoldfastError `not_possible` when none is open, `not_found`, or `usage` with the list when several are
 */
export function chooseWait(
  waits: readonly Wait[],
  named: string | undefined,
  runId: string,
  word: Word | "answer",
  context: Context,
): Wait {
  const noun = word === "answer" ? "input" : "approval";
  const matching =
    named === undefined ? waits : waits.filter(({ wait_id, step_id }) => wait_id === named || step_id === named);
  const [only, ...others] = matching;
  if (only !== undefined && others.length === 0) return only;
  const list = waits
    .map((wait) => `\n  ${commandLine(context, word, wait.run_id, wait.wait_id)}   ${waitSubject(wait)}`)
    .join("");
  if (only !== undefined)
    throw new HoldfastError("usage", `Cannot ${word}: ${matching.length} ${noun}s are open; say which:${list}`, {
      details: { waits: matching.map(({ wait_id }) => wait_id) },
    });
  if (named === undefined || waits.length === 0)
    throw new HoldfastError(
      "not_possible",
      `Cannot ${word}: run ${runId} waits for no ${noun}; see ${commandLine(context, "why", runId)}`,
    );
  throw new HoldfastError(
    "not_found",
    `Cannot ${word}: run ${runId} has no open ${noun} ${JSON.stringify(named)}; open are:${list}`,
  );
}

/** Somebody else was first, or the wait ended with its time, its step or its run: the run goes on by that. */
export function isMeanwhile(error: unknown): error is HoldfastError {
  return HoldfastError.is(error) && ["conflict", "not_possible", "terminal"].includes(error.code);
}

/** Sends a decision on exactly what was shown: the digest goes with it, another one is a conflict. */
export async function decide(
  holdfast: Holdfast,
  wait: Pick<Wait, "run_id" | "wait_id">,
  word: Word,
  request: { reason: string | undefined; digest: string | undefined },
): Promise<Verb> {
  const body = {
    decided_by: decider(),
    ...(request.reason === undefined ? {} : { reason: request.reason }),
    ...(request.digest === undefined ? {} : { digest: request.digest }),
  };
  return await holdfast.waits[word](wait.run_id, wait.wait_id, body);
}

/**
 * Asks about one wait on a terminal. @returns the decision, or undefined when nothing was decided
 * (Enter alone is No, and No here means: not now; only the word denies).
 */
export async function askDecision(
  context: Context,
  wait: Wait,
  workspace: string,
  words: readonly Word[],
  signal?: AbortSignal,
): Promise<Word | undefined> {
  const lines = waitLines(wait, { workspace, nowMs: context.process.now(), style: context.out.style });
  if (!(await showWhole(context, lines.join("\n"), signal))) return undefined;
  const choice = words.map((word) => `"${word}"`).join(" or ");
  const answer = await ask(context, `Type ${choice}.`, "Enter alone is No: nothing is decided", signal);
  return words.find((word) => word === answer.toLowerCase());
}

/** What a decision needs where nobody can be asked: the wait, and the command that carries its digest. */
export function needsDigest(context: Context, wait: Wait, workspace: string, word: Word): HoldfastError {
  const lines = waitLines(wait, { workspace, nowMs: context.process.now(), style: context.out.style });
  context.out.tell(...lines);
  const command = waitCommands(wait, context)[word === "approve" ? 0 : 1] ?? "";
  return new HoldfastError(
    "usage",
    `Cannot ${word} without a terminal: --digest must name what was shown; read the above, then run: ${command}`,
    { details: { wait_id: wait.wait_id, digest: wait.digest ?? null } },
  );
}

/** @throws HoldfastError `usage` */
export function readDigest(text: string | undefined): string | undefined {
  if (text === undefined || /^[0-9a-f]{8,64}$/i.test(text)) return text?.toLowerCase();
  throw new HoldfastError(
    "usage",
    "Cannot read --digest: it takes 8 to 64 hexadecimal digits; copy them from what was shown",
  );
}
