/**
 * What a client brings back to questions, whichever way it was asked: for which runs it may, what of it is an
 * answer, and what becomes of each. A form that is declined or closed decides nothing: silence never consents.
 */
import { ProtocolError, ProtocolErrorCode } from "@modelcontextprotocol/server";
import { type RunOutcome, ToolCallError, type WorkflowTools } from "../access/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import { JsonError, type JsonObject, normalizeJson } from "../domain/json.ts";
import type { Peer } from "./peer.ts";
import { openQuestions, type Question } from "./questions.ts";
import type { McpService } from "./service.ts";

/** Responses of a client by the keys of the questions; each is an object, and nothing else of it is known. */
export type Responses = ReadonlyMap<string, JsonObject>;

/** A run that nobody started by a tool is nobody's to answer for here, also in the same session. */
export async function ownOutcome(tools: WorkflowTools, runId: string): Promise<RunOutcome> {
  let outcome: RunOutcome;
  try {
    outcome = await tools.outcome(runId);
  } catch (error) {
    throw protocolError(error);
  }
  if (isOwn(outcome)) return outcome;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, "workflow run not found");
}

export function isOwn(outcome: RunOutcome): boolean {
  return outcome.by_tool && outcome.run.parent_run_id === undefined;
}

export async function questionsOf(service: McpService, runId: string): Promise<readonly Question[]> {
  return openQuestions(service, await service.holdfast.runs.inspect(runId, service.session));
}

/**
 * Applies what was accepted, one after the other.
 * @param refused told of each answer that was not taken; what it throws ends the taking
 */
export async function takeAnswers(
  service: McpService,
  runId: string,
  responses: Responses,
  peer: Peer,
  refused: (key: string, error: unknown) => void,
): Promise<void> {
  if (service.readOnly) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "only reading is offered here");
  if (responses.size === 0) return;
  const questions = new Map((await questionsOf(service, runId)).map((question) => [question.key, question]));
  for (const [key, response] of responses) {
    if (response.action !== "accept") continue;
    const question = questions.get(key);
    // Answered before, here or elsewhere: the first decision stands.
    if (question === undefined) continue;
    const content = response.content;
    try {
      await question.answer(typeof content === "object" && content !== null ? (content as JsonObject) : {}, peer.name);
    } catch (error) {
      service.log?.("info", "an answer was refused", { run_id: runId, key, error });
      refused(key, error);
    }
  }
}

/** @throws ProtocolError when it is no object of answers */
export function readResponses(given: unknown): Responses {
  try {
    const value = normalizeJson(given ?? {});
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      const entries = Object.entries(value as JsonObject).filter(
        (entry): entry is [string, JsonObject] =>
          typeof entry[1] === "object" && entry[1] !== null && !Array.isArray(entry[1]),
      );
      return new Map(entries);
    }
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
  }
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, "inputResponses is no object of answers");
}

/** Why an answer was not taken: it can be corrected, it came too late, it is not this client's to give, or none of it. */
export type Refusal = "misfit" | "late" | "forbidden" | "failed";

export function refusalOf(error: unknown): Refusal {
  switch (HoldfastError.is(error) ? error.code : "internal") {
    case "input":
    case "usage":
      return "misfit";
    case "forbidden":
      return "forbidden";
    case "conflict":
    case "not_possible":
    case "terminal":
    case "not_found":
      return "late";
    default:
      return "failed";
  }
}

/** Closed texts only, also here (RP-83). */
export function protocolError(error: unknown): ProtocolError {
  if (!ToolCallError.is(error))
    return new ProtocolError(ProtocolErrorCode.InternalError, "workflow storage unavailable");
  const code =
    error.kind === "InvalidArguments" || error.code === "not_found"
      ? ProtocolErrorCode.InvalidParams
      : ProtocolErrorCode.InternalError;
  return new ProtocolError(code, error.message);
}
