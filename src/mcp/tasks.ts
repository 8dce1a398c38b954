/**
 * The tasks extension (`io.modelcontextprotocol/tasks`): a task is a run that a tool of this session started, and its
 * id is the run's, so that it outlives client and server (R-41, interfaces §3).
 */
import { ProtocolError, ProtocolErrorCode, type Server } from "@modelcontextprotocol/server";
import * as z from "zod";
import { type RunOutcome, ToolCallError, type WorkflowTools } from "../access/index.ts";
import type { JsonObject } from "../domain/json.ts";
import {
  ownOutcome,
  protocolError,
  questionsOf,
  type Refusal,
  readResponses,
  refusalOf,
  takeAnswers,
} from "./answers.ts";
import { type Peer, peerOf } from "./peer.ts";
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
    const responses = readResponses(context.mcpReq.inputResponses ?? inputResponses);
    await takeAnswers(service, taskId, responses, peer, (_, error) => {
      throw new ProtocolError(...REFUSED[refusalOf(error)]);
    });
    return {};
  });
}

/** Older revisions have other tasks under these names. */
function modernPeer(peer: Peer): Peer {
  if (!peer.modern) throw new ProtocolError(ProtocolErrorCode.MethodNotFound, "Method not found");
  return peer;
}

async function outcomeOfTask(service: McpService, tools: WorkflowTools, taskId: string): Promise<RunOutcome> {
  await service.ready();
  return ownOutcome(tools, taskId);
}

async function describe(service: McpService, outcome: RunOutcome, peer: Peer): Promise<JsonObject> {
  const fields = newTask(outcome);
  const { status } = outcome.run;
  if (status === "cancelled") return { ...fields, status };
  // A run that failed is a call that was completed with an error, as a tool's own failure is.
  if (status === "succeeded" || status === "failed")
    return { ...fields, status: "completed", result: outcomeResult(outcome) as unknown as JsonObject };
  const asks = peer.forms && !service.readOnly;
  const questions = asks && status === "suspended" ? await questionsOf(service, outcome.run.run_id) : [];
  if (questions.length === 0) return { ...fields };
  const inputRequests = Object.fromEntries(questions.map(({ key, request }) => [key, { ...request }]));
  return { ...fields, status: "input_required", inputRequests };
}

const REFUSED: { readonly [refusal in Refusal]: readonly [ProtocolErrorCode, string] } = {
  misfit: [ProtocolErrorCode.InvalidParams, "the answer does not fit what was asked; the question stays open"],
  forbidden: [ProtocolErrorCode.InvalidParams, "this client may not decide that; it is decided elsewhere"],
  late: [ProtocolErrorCode.InvalidParams, "what was asked was decided or changed meanwhile; look again"],
  failed: [ProtocolErrorCode.InternalError, "workflow storage unavailable"],
};
