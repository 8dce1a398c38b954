/**
 * The tasks extension (`io.modelcontextprotocol/tasks`): a task is a run that a tool of this session started, and its
 * id is the run's, so that it outlives client and server (R-41, interfaces §3).
 */
import { ProtocolError, ProtocolErrorCode, type Server } from "@modelcontextprotocol/server";
import * as z from "zod";
import { type RunOutcome, ToolCallError, type WorkflowTools } from "../access/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import { JsonError, type JsonObject, normalizeJson } from "../domain/json.ts";
import { type Peer, peerOf } from "./peer.ts";
import { openQuestions, type Question } from "./questions.ts";
import { outcomeResult } from "./results.ts";
import type { McpService } from "./service.ts";

/** How often a client should look, ms. */
const POLL_INTERVAL_MS = 1_000;

const byId = z.object({ taskId: z.string().min(1).max(128) });
const update = byId.extend({ inputResponses: z.unknown().optional() });

/** The fields that every task has. */
export interface TaskFields {
  readonly taskId: string;
  readonly status: "working" | "input_required" | "completed" | "cancelled";
  readonly statusMessage: string;
  readonly createdAt: string;
  readonly lastUpdatedAt: string;
  readonly ttlMs: null;
  readonly pollIntervalMs: number;
}

/** The task of a run that was started just now. */
export function newTask({ run, sentence }: RunOutcome): TaskFields {
  return {
    taskId: run.run_id,
    status: "working",
    statusMessage: sentence,
    createdAt: run.created_at,
    lastUpdatedAt: run.updated_at,
    ttlMs: null,
    pollIntervalMs: POLL_INTERVAL_MS,
  };
}

export function registerTasks(server: Server, service: McpService): void {
  server.setRequestHandler("tasks/get", { params: byId }, async ({ taskId }, context) => {
    const peer = modernPeer(peerOf(server, context));
    const outcome = await outcomeOfTask(service, service.tools(peer.name), taskId);
    return { ...(await describe(service, outcome, peer)) };
  });
  server.setRequestHandler("tasks/cancel", { params: byId }, async ({ taskId }, context) => {
    const peer = modernPeer(peerOf(server, context));
    const tools = service.tools(peer.name);
    await outcomeOfTask(service, tools, taskId);
    try {
      await tools.cancel(taskId);
    } catch (error) {
      // It ended by itself meanwhile: there is nothing left to stop, and `tasks/get` says how it ended.
      if (!ToolCallError.is(error) || error.code !== "terminal") throw protocolError(error);
    }
    return {};
  });
  server.setRequestHandler("tasks/update", { params: update }, async ({ taskId, inputResponses }, context) => {
    const peer = modernPeer(peerOf(server, context));
    await outcomeOfTask(service, service.tools(peer.name), taskId);
    // The protocol layer lifts the responses out of the parameters; whatever comes is the client's word.
    await takeAnswers(service, taskId, context.mcpReq.inputResponses ?? inputResponses, peer);
    return {};
  });
}

/** Older revisions have other tasks under these names. */
function modernPeer(peer: Peer): Peer {
  if (!peer.modern) throw new ProtocolError(ProtocolErrorCode.MethodNotFound, "Method not found");
  return peer;
}

/** A run that nobody started by a tool is no task, also in the same session. */
async function outcomeOfTask(service: McpService, tools: WorkflowTools, taskId: string): Promise<RunOutcome> {
  await service.ready();
  let outcome: RunOutcome;
  try {
    outcome = await tools.outcome(taskId);
  } catch (error) {
    throw protocolError(error);
  }
  if (outcome.by_tool && outcome.run.parent_run_id === undefined) return outcome;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, "workflow run not found");
}

async function describe(service: McpService, outcome: RunOutcome, peer: Peer): Promise<JsonObject> {
  const fields = newTask(outcome);
  const { status } = outcome.run;
  if (status === "cancelled") return { ...fields, status };
  // A run that failed is a call that was completed with an error, as a tool's own failure is.
  if (status === "succeeded" || status === "failed")
    return { ...fields, status: "completed", result: outcomeResult(outcome) as unknown as JsonObject };
  const questions = peer.forms && status === "suspended" ? await questionsOf(service, outcome.run.run_id) : [];
  if (questions.length === 0) return { ...fields };
  const inputRequests = Object.fromEntries(questions.map(({ key, request }) => [key, { ...request }]));
  return { ...fields, status: "input_required", inputRequests };
}

async function questionsOf(service: McpService, runId: string): Promise<readonly Question[]> {
  return openQuestions(service, await service.holdfast.runs.inspect(runId, service.session));
}

/** Declined and cancelled forms decide nothing: the wait stays open, and silence never consents. */
async function takeAnswers(service: McpService, taskId: string, given: unknown, peer: Peer): Promise<void> {
  if (service.readOnly) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "only reading is offered here");
  const responses = readResponses(given);
  if (responses.size === 0) return;
  const questions = new Map((await questionsOf(service, taskId)).map((question) => [question.key, question]));
  for (const [key, response] of responses) {
    if (response.action !== "accept") continue;
    const question = questions.get(key);
    // Answered before, here or elsewhere: the first decision stands.
    if (question === undefined) continue;
    const content = response.content;
    try {
      await question.answer(typeof content === "object" && content !== null ? (content as JsonObject) : {}, peer.name);
    } catch (error) {
      service.log?.("info", "an answer was refused", { run_id: taskId, key, error });
      throw answerError(error);
    }
  }
}

function readResponses(given: unknown): ReadonlyMap<string, JsonObject> {
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

function answerError(error: unknown): ProtocolError {
  const code = HoldfastError.is(error) ? error.code : "internal";
  if (code === "input" || code === "usage")
    return new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      "the answer does not fit what was asked; the question stays open",
    );
  if (code === "forbidden")
    return new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      "this client may not decide that; it is decided elsewhere",
    );
  if (code === "conflict" || code === "not_possible" || code === "terminal" || code === "not_found")
    return new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      "what was asked was decided or changed meanwhile; look again",
    );
  return new ProtocolError(ProtocolErrorCode.InternalError, "workflow storage unavailable");
}

/** Closed texts only, also here (RP-83). */
function protocolError(error: unknown): ProtocolError {
  if (!ToolCallError.is(error))
    return new ProtocolError(ProtocolErrorCode.InternalError, "workflow storage unavailable");
  const code =
    error.kind === "InvalidArguments" || error.code === "not_found"
      ? ProtocolErrorCode.InvalidParams
      : ProtocolErrorCode.InternalError;
  return new ProtocolError(code, error.message);
}
