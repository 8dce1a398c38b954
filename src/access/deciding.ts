/**
 * Decisions of people: the first one stands, and each is bound to what was shown. Whoever sends
 * the same decision again gets the same answer; whoever decided otherwise hears who was first.
 */
import type { ErrorCode } from "../domain/errors.ts";
import { HoldfastError } from "../domain/errors.ts";
import { canonicalJson, type Json, JsonError, normalizeJson } from "../domain/json.ts";
import { compileSchema, findCredential } from "../domain/plan/index.ts";
import {
  type Allowance as Decided,
  decideAnswer,
  decideApprove,
  decideDeny,
  decideRepair,
  type RunView,
  rfc3339,
} from "../domain/projections/index.ts";
import type { Wait } from "../domain/run.ts";
import type { RunRecord, SignalKind } from "../ports/index.ts";
import type { DecisionRequest, Resolution, Verb } from "./api.ts";
import { type Closing, closingOf, repairedWait } from "./closings.ts";
import { type AccessContext, needEngine } from "./context.ts";
import { outputCheck } from "./outputs.ts";
import { inspectRun } from "./runs.ts";
import { recordOf, viewOf } from "./views.ts";

/** what models speak through may ask and look, and answer for a person only where the configuration says so. */
function demandPerson(context: AccessContext, act: "approve" | "deny" | "repair", decidedBy: string): void {
  const byModel = decidedBy === "model" || decidedBy.startsWith("model:");
  const byClient = decidedBy.startsWith("mcp:") && (act === "repair" || context.approvals.mcp !== "elicit");
  if (!byModel && !byClient) return;
  throw new HoldfastError(
    "forbidden",
    `Cannot ${act} as ${decidedBy}: a model's session never does; decide on the command line or over HTTP`,
  );
}

/** `approvals.not_by_starter`: somebody else than the starter has to say yes. No is always allowed. */
function demandNotStarter(context: AccessContext, view: RunView, decidedBy: string): void {
  if (context.approvals.not_by_starter !== true) return;
  const { started_by } = view.state.header;
  if (started_by !== undefined && started_by !== decidedBy) return;
  const who = started_by === undefined ? "who started this run is not recorded" : `${started_by} started this run`;
  throw new HoldfastError(
    "forbidden",
    `Cannot approve: ${who} and approvals.not_by_starter is set; somebody else has to approve it`,
  );
}

function waitIn(decided: Decided): Wait {
  if (!decided.ok)
    throw new HoldfastError(
      decided.code,
      decided.reason,
      decided.details === undefined ? {} : { details: decided.details },
    );
  if (decided.wait === undefined)
    throw new HoldfastError("not_possible", "Cannot decide: nothing waits for a decision");
  return decided.wait;
}

/** One decision on its way: what it is, and how to know it again in the journal. */
interface Deciding {
  /** As the sentence of a refusal has it: `approve`, `answer`, `repair the step x`. */
  readonly act: string;
  readonly kind: SignalKind;
  readonly check: (view: RunView) => Decided;
  readonly payload: (wait: Wait) => { readonly [key: string]: Json };
  readonly isSame: (closing: Closing) => boolean;
  /** Refuses what would be ignored, before it is sent. */
  readonly demand?: (wait: Wait) => void;
  readonly digest: string | undefined;
  /** The wait that is meant, where it is known; it may be over. */
  readonly waitId: string | undefined;
}

async function decide(
  context: AccessContext,
  record: RunRecord,
  view: RunView,
  session: string | undefined,
  deciding: Deciding,
): Promise<Verb> {
  const answered = async (): Promise<Verb> => ({
    run: await inspectRun(context, record.run_id, session),
    pending: false,
  });
  if (deciding.waitId !== undefined && isOver(view, deciding.waitId)) {
    const closing = await closingOf(context, record.run_id, deciding.waitId);
    if (closing !== undefined) {
      demandStands(deciding, closing, view);
      return answered();
    }
  }
  if (view.state.stopping?.reason === "cancelled" && deciding.kind !== "repair") throw cancelled(deciding.act);
  const wait = waitIn(deciding.check(view));
  if (wait.granted !== undefined) return answered();
  deciding.demand?.(wait);
  const signal_id = context.ids.uuid();
  const target = { root_run_id: record.root_run_id, run_id: record.run_id };
  const taken = await sent(
    needEngine(context).signal(target, deciding.kind, deciding.payload(wait), undefined, signal_id),
  );
  if (!taken) return { run: await inspectRun(context, record.run_id, session), pending: true, signal_id };
  // The holder has heard it. Whether it stands is the journal's to say: another may have come first (C14, C36).
  const closing = await closingOf(context, record.run_id, wait.wait_id);
  const now = await viewOf(context, (await recordOf(context, record.run_id, session)).record);
  if (closing !== undefined) demandStands(deciding, closing, now);
  else if (now.state.status === "cancelled" || now.state.stopping?.reason === "cancelled")
    throw cancelled(deciding.act);
  else {
    waitIn(deciding.check(now));
    // What is left is what only the holder can judge: an output that may not be stored.
    throw new HoldfastError(
      "input",
      `Cannot ${deciding.act}: the run did not take it, for what was given may not be stored; correct it and try again`,
    );
  }
  return answered();
}

/** A tree whose last run has just ended takes no signals; the journal then says what became of the wait. */
async function sent(signal: Promise<boolean>): Promise<boolean> {
  try {
    return await signal;
  } catch (error) {
    if (HoldfastError.is(error) && error.code === "terminal") return true;
    throw error;
  }
}

function isOver(view: RunView, waitId: string): boolean {
  return !view.state.waits.some((wait) => wait.wait_id === waitId);
}

function cancelled(act: string): HoldfastError {
  return new HoldfastError("conflict", `Cannot ${act}: run cancelled; nothing of it will be sent any more`);
}

/** Nothing when the wait ended by this very decision. @throws conflict, terminal */
function demandStands(deciding: Deciding, closing: Closing, view: RunView): void {
  const { act, digest } = deciding;
  const { wait } = closing;
  const refuse = (
    code: ErrorCode,
    state: string,
    next: string,
    details: { readonly [key: string]: Json } = {},
  ): never => {
    throw new HoldfastError(code, `Cannot ${act}: ${state}; ${next}`, {
      details: { wait_id: wait.wait_id, ...details },
    });
  };
  if (digest !== undefined && wait.digest !== undefined && !wait.digest.startsWith(digest))
    refuse("conflict", `what was asked there is ${wait.digest}, and it is over`, "see how the run went on", {
      digest: wait.digest,
    });
  if (closing.how === "stopped") {
    if (view.state.status === "cancelled" || view.state.stopping?.reason === "cancelled") throw cancelled(act);
    refuse(
      "conflict",
      `the wait ${wait.wait_id} ended with its step at ${rfc3339(closing.at_ms)}`,
      "see how the run went on",
    );
  }
  if (closing.how === "expired")
    refuse("conflict", `its time was over at ${rfc3339(closing.at_ms)}, which counts as No`, "see how the run went on");
  if (deciding.isSame(closing)) return;
  refuse(
    "conflict",
    `it was ${closing.how} meanwhile by ${closing.decided_by ?? "somebody else"}`,
    "the first decision stands; load the run again",
    {
      decided: closing.how,
      ...(closing.decided_by === undefined ? {} : { decided_by: closing.decided_by }),
    },
  );
}

export async function decideApproval(
  context: AccessContext,
  runId: string,
  waitId: string | undefined,
  request: DecisionRequest,
  session: string | undefined,
  kind: "approve" | "deny",
): Promise<Verb> {
  demandPerson(context, kind, request.decided_by);
  const { record } = await recordOf(context, runId, session);
  const view = await viewOf(context, record);
  if (kind === "approve") demandNotStarter(context, view, request.decided_by);
  const choose = kind === "approve" ? decideApprove : decideDeny;
  return decide(context, record, view, session, {
    act: kind,
    kind,
    waitId,
    digest: request.digest,
    check: (now) => choose(now, waitId, request.digest),
    isSame: ({ how }) => how === (kind === "approve" ? "approved" : "denied"),
    payload: (wait) => ({
      wait_id: wait.wait_id,
      decided_by: request.decided_by,
      ...(request.reason === undefined ? {} : { reason: request.reason }),
      ...(request.digest === undefined ? {} : { digest: request.digest }),
    }),
  });
}

/** GD-49: what does not fit is refused with its place, and the wait stays as it is. */
export async function decideInput(
  context: AccessContext,
  runId: string,
  waitId: string | undefined,
  request: { readonly value: unknown; readonly decided_by: string; readonly digest?: string },
  session: string | undefined,
): Promise<Verb> {
  const { record } = await recordOf(context, runId, session);
  const value = readJson(request.value);
  return decide(context, record, await viewOf(context, record), session, {
    act: "answer",
    kind: "answer",
    waitId,
    digest: request.digest,
    check: (now) => decideAnswer(now, waitId, request.digest),
    isSame: (closing) => closing.how === "answered" && canonicalJson(closing.value ?? null) === canonicalJson(value),
    demand: (wait) => demandFits(wait, value),
    payload: (wait) => ({
      wait_id: wait.wait_id,
      value,
      decided_by: request.decided_by,
      ...(request.digest === undefined ? {} : { digest: request.digest }),
    }),
  });
}

function demandFits(wait: Wait, value: Json): void {
  const fits = compileSchema((wait.schema ?? {}) as Json).validate(value);
  if (!fits.ok)
    throw new HoldfastError(
      "input",
      `Cannot answer: the value does not fit at ${fits.path || "/"}: ${fits.message}; correct it and answer again`,
      {
        details: { path: fits.path },
      },
    );
  if (findCredential(value, "args") !== undefined)
    throw new HoldfastError(
      "input",
      "Cannot answer: the value holds what looks like a credential; pass a secret handle instead",
    );
}

/** GD-74: the word of a person on one exact attempt whose outcome is not known. */
export async function decideRepairOf(
  context: AccessContext,
  runId: string,
  stepId: string,
  request: Resolution & { readonly decided_by: string; readonly digest?: string; readonly dispatch_id?: string },
  session: string | undefined,
): Promise<Verb> {
  demandPerson(context, "repair", request.decided_by);
  const { record } = await recordOf(context, runId, session);
  const view = await viewOf(context, record);
  const output = request.resolution === "succeeded" ? readJson(request.output) : undefined;
  const said = "message" in request ? request.message : "reason" in request ? request.reason : undefined;
  const misfit = output === undefined ? undefined : (await outputCheck(context, view.state.header))(stepId, output);
  return decide(context, record, view, session, {
    act: `repair the step "${stepId}"`,
    kind: "repair",
    waitId: mayBeRepeated(view, stepId) ? await repairedWait(context, record.run_id, stepId) : undefined,
    digest: request.digest,
    check: (now) => sameAttempt(decideRepair(now, stepId, request.digest), stepId, request.dispatch_id),
    demand: () => {
      if (misfit !== undefined)
        throw new HoldfastError(
          "input",
          `Cannot repair the step "${stepId}": the output does not fit ${misfit}; correct it and repair again`,
        );
    },
    isSame: (closing) =>
      closing.how === `repaired as ${request.resolution}` &&
      (request.dispatch_id === undefined || closing.wait.evidence?.dispatch_id === request.dispatch_id) &&
      (output === undefined || canonicalJson(closing.value ?? null) === canonicalJson(output)),
    payload: (wait) => ({
      wait_id: wait.wait_id,
      resolution: request.resolution,
      decided_by: request.decided_by,
      ...(output === undefined ? {} : { output }),
      ...(said === undefined ? {} : request.resolution === "retry" ? { reason: said } : { message: said }),
      ...(request.digest === undefined ? {} : { digest: request.digest }),
    }),
  });
}

/** The digest binds what was asked, the dispatch the one attempt at it. */
function sameAttempt(decided: Decided, stepId: string, dispatchId: string | undefined): Decided {
  if (!decided.ok || dispatchId === undefined || decided.wait?.evidence?.dispatch_id === dispatchId) return decided;
  return {
    ok: false,
    code: "conflict",
    reason: `Cannot repair the step "${stepId}": another attempt of it is open now; look at it and decide again`,
  };
}

/** The step is known and asks for nothing now: what is sent may be a repair that was made before. */
function mayBeRepeated(view: RunView, stepId: string): boolean {
  return view.state.steps.has(stepId) && !view.state.waits.some((wait) => wait.step_id === stepId);
}

function readJson(value: unknown): Json {
  try {
    return normalizeJson(value);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new HoldfastError("input", `Cannot use this value: it is not JSON at ${error.path}: ${error.reason}`);
  }
}
