/** Where a run stands, for whoever started it by a tool: bounded waiting, and the outcome (interfaces §3 "MCP tools"). */
import type { Json } from "../domain/json.ts";
import { isTerminal, type WaitType } from "../domain/run.ts";
import { loadHeader } from "../engine/index.ts";
import type { PublicRun } from "./api.ts";
import { type AccessContext, needStore } from "./context.ts";
import { driveRun, followEvents } from "./driving.ts";
import { getRun, inspectRun, runsApi } from "./runs.ts";
import { recordOf } from "./views.ts";

export interface RunOutcome {
  readonly run: PublicRun;
  /** Why it stands where it does, without a word of the definition (RP-74). */
  readonly sentence: string;
  /** Only for a run that a tool of the session started, once it has succeeded. */
  readonly output?: Json;
  /** A tool started it, so its output and its questions are its caller's. */
  readonly by_tool: boolean;
}

/** Waits that end by themselves: whoever waits for the run waits through them. */
const PASSING: ReadonlySet<WaitType | undefined> = new Set<WaitType>(["timer", "child"]);

/**
 * Until the run has ended or stands still for a person, at most `timeoutMs`. It never ends the run.
 * @param how `drive`: also moves it on here when nobody else does
 */
export async function waitForRun(
  context: AccessContext,
  runId: string,
  how: { readonly timeoutMs: number; readonly drive: boolean; readonly signal?: AbortSignal },
): Promise<void> {
  const time = new AbortController();
  const timer = context.clock.at(context.clock.now() + how.timeoutMs, () => time.abort());
  const signal = how.signal === undefined ? time.signal : AbortSignal.any([time.signal, how.signal]);
  try {
    if (how.drive && how.timeoutMs > 0) await driveRun(context, runId, { signal });
    else await watchRun(context, runId, signal);
  } finally {
    timer.cancel();
  }
}

async function watchRun(context: AccessContext, runId: string, signal: AbortSignal): Promise<void> {
  const record = await needStore(context).getRun(runId);
  if (record === undefined || (await standsStill(context, runId))) return;
  for await (const _ of followEvents(context, runId, record.last_sequence, signal))
    if (await standsStill(context, runId)) return;
}

async function standsStill(context: AccessContext, runId: string): Promise<boolean> {
  const record = await needStore(context).getRun(runId);
  if (record === undefined || isTerminal(record.status)) return true;
  return record.status === "suspended" && !PASSING.has(record.suspension);
}

/** @throws not_found for another session's run */
export async function outcomeOf(
  context: AccessContext,
  runId: string,
  session: string | undefined,
): Promise<RunOutcome> {
  const { record } = await recordOf(context, runId, session);
  const { sentence } = await runsApi(context).why(runId, session, { public: true });
  const run = await getRun(context, runId, session);
  const by_tool = (await loadHeader(needStore(context), record)).origin === "automatic";
  if (!by_tool || run.status !== "succeeded") return { run, sentence, by_tool };
  return { run, sentence, by_tool, output: (await inspectRun(context, runId, session)).output ?? null };
}
