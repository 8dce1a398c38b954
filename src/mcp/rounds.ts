/**
 * A call whose run waits for a person, for clients that have forms and no tasks: the questions are put as
 * forms, and the same call goes on with what they bring. In the 2026-07-28 revision the client is answered with the
 * questions and calls again; older ones are asked while their call is open. Both go through the same rounds.
 */
import {
  type InputRequests,
  type InputRequiredResult,
  inputRequired,
  ProtocolError,
  ProtocolErrorCode,
  type ServerContext,
} from "@modelcontextprotocol/server";
import * as z from "zod";
import {
  MAX_WAIT_MS,
  type RunOutcome,
  ToolCallError,
  type ToolCallOptions,
  type WorkflowTools,
} from "../access/index.ts";
import { isOwn, ownOutcome, type Responses, readResponses, refusalOf, takeAnswers } from "./answers.ts";
import { putForms } from "./forms.ts";
import type { Peer } from "./peer.ts";
import { openQuestions, type Question, visible } from "./questions.ts";
import type { McpService } from "./service.ts";

/** Most rounds of forms in one call; the SDK's clients give up after ten. */
const MAX_ROUNDS = 8;
/** How long forms may stay open in a call of an older client, ms, all its rounds together. */
const MAX_FORM_MS = 600_000;
/** How often a run is looked at that has been answered and has not moved yet, ms. */
const LOOK_EVERY_MS = 100;
/** Longest `requestState`, in characters, and longest word about an answer that did not fit. */
const MAX_STATE = 65_536;
const MAX_PROBLEM = 500;

export interface Call {
  readonly service: McpService;
  readonly tools: WorkflowTools;
  readonly peer: Peer;
  readonly context: ServerContext;
  /** False: the call only looks, so nobody is asked. */
  readonly waits: boolean;
  readonly options: ToolCallOptions;
}

/**
 * Where a call stands between two rounds. It comes back from the client, unsigned: it names a run, and that is
 * checked again like every run that a client names. So a false one gives nothing that `workflow_wait` would not, and
 * a true one still holds when the server was started again meanwhile.
 */
export type Round = z.infer<typeof roundSchema>;

const keys = z.array(z.string().max(300)).max(512);
const roundSchema = z.strictObject({
  run_id: z.string().min(1).max(128),
  /** What is left of the call's waiting. */
  left_ms: z.int().min(0).max(MAX_WAIT_MS),
  /** Rounds of forms so far, this one with them. */
  round: z.int().min(0).max(MAX_ROUNDS),
  /** Keys of this round's questions, and of those that are not put again in this call. */
  asked: keys,
  closed: keys,
});

export const firstRound = (run_id: string, left_ms: number): Round => ({
  run_id,
  left_ms,
  round: 0,
  asked: [],
  closed: [],
});

/**
 * The round that this request goes on with; undefined for a new call.
 * @param bound longest waiting of the whole call, ms, whatever the client says is left of it
 * @throws ProtocolError for what this server did not send, and for a run that is not this session's own
 */
export async function nextRound(
  { tools, context }: Pick<Call, "tools" | "context">,
  bound: number,
  fits: (outcome: RunOutcome) => boolean,
): Promise<Round | undefined> {
  const state = context.mcpReq.requestState<unknown>();
  if (state === undefined) {
    if (context.mcpReq.inputResponses === undefined) return undefined;
    throw refused("there are answers without the requestState of their questions");
  }
  const round = parseState(state);
  if (round === undefined) throw refused("its requestState is none that was sent from here");
  if (!fits(await ownOutcome(tools, round.run_id))) throw refused("its requestState belongs to another call");
  return { ...round, left_ms: Math.min(round.left_ms, bound) };
}

function parseState(state: unknown): Round | undefined {
  if (typeof state !== "string" || state.length > MAX_STATE) return undefined;
  try {
    return roundSchema.parse(JSON.parse(state));
  } catch {
    return undefined;
  }
}

function refused(why: string): ProtocolError {
  return new ProtocolError(
    ProtocolErrorCode.InvalidParams,
    `Cannot go on with the call: ${why}; call workflow_wait with the run's id`,
  );
}

/** Waits for the run, and asks in between. @throws ToolCallError, ProtocolError */
export async function inRounds(call: Call, first: Round): Promise<RunOutcome | InputRequiredResult> {
  const { service, peer, context } = call;
  const until = performance.now() + (service.maxFormMs ?? MAX_FORM_MS);
  let { since } = call.options;
  let round = first;
  let given: unknown = first.round === 0 ? undefined : (context.mcpReq.inputResponses ?? {});
  for (;;) {
    const answer = await turn(call, round, given, since);
    if (!("questions" in answer)) return answer;
    if (peer.modern) return inputRequired(onTheWire(answer));
    ({ round, since } = answer);
    given = await putForms(service, context, { run_id: round.run_id, since, until }, answer.questions);
  }
}

interface Asked {
  readonly round: Round;
  readonly questions: readonly Question[];
  /** Events up to this one were told. */
  readonly since: number;
}

function onTheWire({ round, questions }: Asked): { inputRequests: InputRequests; requestState: string } {
  const inputRequests = Object.fromEntries(questions.map(({ key, request }) => [key, request])) as unknown;
  return { inputRequests: inputRequests as InputRequests, requestState: JSON.stringify(round) };
}

async function turn(call: Call, round: Round, given: unknown, since?: number): Promise<RunOutcome | Asked> {
  const { service, tools, context } = call;
  const { run_id } = round;
  const until = performance.now() + round.left_ms;
  const { problems, answered, closed } = given === undefined ? NOTHING : await take(call, round, readResponses(given));
  const done = new Set([...round.closed, ...closed]);
  let told = since;
  for (;;) {
    const left = Math.max(0, Math.round(until - performance.now()));
    const outcome = await tools.wait(run_id, left, { ...call.options, ...(told === undefined ? {} : { since: told }) });
    told = outcome.run.last_sequence;
    if (!mayAsk(call) || outcome.run.status !== "suspended" || !isOwn(outcome)) return outcome;
    const { standing, open } = await look(service, run_id);
    const questions = open.filter(({ key }) => !done.has(key)).map((question) => withProblem(question, problems));
    const left_ms = Math.max(0, Math.round(until - performance.now()));
    if (standing && questions.length > 0 && round.round < MAX_ROUNDS) {
      const asked = questions.map(({ key }) => key);
      return { round: { run_id, left_ms, round: round.round + 1, asked, closed: [...done] }, questions, since: told };
    }
    // It goes on just now, or whoever drives it has not heard the answer yet.
    const moves = !standing || open.some(({ key }) => answered.has(key));
    if (!moves || left_ms === 0 || context.mcpReq.signal.aborted) return outcome;
    await new Promise((resolve) => setTimeout(resolve, Math.min(LOOK_EVERY_MS, left_ms)));
  }
}

function mayAsk({ service, peer, waits }: Call): boolean {
  return waits && peer.forms && !peer.tasks && !service.readOnly;
}

async function look(service: McpService, runId: string): Promise<{ standing: boolean; open: readonly Question[] }> {
  try {
    const run = await service.holdfast.runs.inspect(runId, service.session);
    return { standing: run.status === "suspended", open: await openQuestions(service, run) };
  } catch (error) {
    throw unavailable(service, runId, error);
  }
}

function withProblem(question: Question, problems: ReadonlyMap<string, string>): Question {
  const problem = problems.get(question.key);
  if (problem === undefined) return question;
  const { method, params } = question.request;
  return { ...question, request: { method, params: { ...params, message: `${problem}\n\n${params.message}` } } };
}

interface Taken {
  /** What is wrong with an answer, by its key: it is asked for again. */
  readonly problems: ReadonlyMap<string, string>;
  readonly answered: ReadonlySet<string>;
  /** Not put again in this call: taken, declined, closed, or not this client's to decide. */
  readonly closed: readonly string[];
}

const NOTHING: Taken = { problems: new Map(), answered: new Set(), closed: [] };

async function take(call: Call, { run_id, asked }: Round, given: Responses): Promise<Taken> {
  if (!mayAsk(call)) return NOTHING;
  const { service, peer } = call;
  const responses = new Map([...given].filter(([key]) => asked.includes(key)));
  const problems = new Map<string, string>();
  const late = new Set<string>();
  const answered = new Set([...responses].flatMap(([key, { action }]) => (action === "accept" ? [key] : [])));
  const refuse = (key: string, error: unknown): void => {
    const refusal = refusalOf(error);
    if (refusal === "failed") throw error;
    if (refusal === "misfit") problems.set(key, problemOf(error));
    if (refusal === "late") late.add(key);
    answered.delete(key);
  };
  try {
    await takeAnswers(service, run_id, responses, peer, refuse);
  } catch (error) {
    throw unavailable(service, run_id, error);
  }
  return { problems, answered, closed: asked.filter((key) => !problems.has(key) && !late.has(key)) };
}

/** For the person at the form, who sees what was asked: never for the model. */
function problemOf(error: unknown): string {
  return visible((error as Error).message.slice(0, MAX_PROBLEM));
}

/** Closed texts only (RP-83). */
function unavailable(service: McpService, runId: string, error: unknown): Error {
  if (ToolCallError.is(error) || error instanceof ProtocolError) return error;
  service.log?.("error", "the questions of a run cannot be read or answered", { run_id: runId, error });
  return new ToolCallError("Execution", "storage", "workflow storage unavailable");
}
