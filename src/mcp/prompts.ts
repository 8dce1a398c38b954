/** Prompts for people: what they would otherwise type to have a workflow run, or a run explained. */
import { type GetPromptResult, ProtocolError, ProtocolErrorCode, type Server } from "@modelcontextprotocol/server";
import { ToolCallError } from "../access/index.ts";
import { peerOf } from "./peer.ts";
import type { McpService } from "./service.ts";

const MAX_ARGUMENT = 4_096;

const PROMPTS = [
  {
    name: "run_workflow",
    title: "Run a workflow",
    description: "Run one of the workspace's workflows and report what came of it.",
    arguments: [
      { name: "workflow_id", description: "Which workflow.", required: true },
      { name: "request", description: "What it is to do, in your own words.", required: false },
    ],
  },
  {
    name: "explain_run",
    title: "Explain a run",
    description: "Say where a run stands, why, and what can be done.",
    arguments: [{ name: "run_id", description: "Which run.", required: true }],
  },
];

export function registerPrompts(server: Server, service: McpService): void {
  server.setRequestHandler("prompts/list", async () => ({ prompts: PROMPTS }));
  server.setRequestHandler("prompts/get", async (request, context): Promise<GetPromptResult> => {
    const given = new Map(Object.entries(request.params.arguments ?? {}));
    if (request.params.name === "run_workflow")
      return runWorkflow(argument(given, "workflow_id"), given.get("request"));
    if (request.params.name === "explain_run")
      return explainRun(service, peerOf(server, context).name, argument(given, "run_id"));
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, "there is no such prompt");
  });
}

function argument(given: ReadonlyMap<string, string>, name: string): string {
  const value = given.get(name);
  if (value !== undefined && value !== "" && value.length <= MAX_ARGUMENT) return value;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, `the argument ${name} is missing or too long`);
}

function runWorkflow(id: string, wish: string | undefined): GetPromptResult {
  const what = wish === undefined || wish === "" ? "" : ` It is to do this: ${wish.slice(0, MAX_ARGUMENT)}`;
  return userSays(
    `Run the workflow "${id}".${what}\nUse the tool workflow__${id} if it is offered, else workflow_run with the action start. ` +
      "If it has not ended in time, wait for it with workflow_wait. If it waits for a person, say for what and stop. " +
      "Then report what came of it.",
  );
}

async function explainRun(service: McpService, client: string, runId: string): Promise<GetPromptResult> {
  try {
    await service.ready();
    const { run, sentence } = await service.tools(client).outcome(runId);
    return userSays(
      `Explain where this workflow run stands, why, and what can be done about it, in plain words. ${sentence}\n\n${JSON.stringify(run)}`,
    );
  } catch (error) {
    if (ToolCallError.is(error)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, error.message);
    throw error;
  }
}

function userSays(text: string): GetPromptResult {
  return { messages: [{ role: "user", content: { type: "text", text } }] };
}
