/** One MCP server instance: one connection on stdio, one request over HTTP. */

import { TASKS_EXTENSION_ID_V2 } from "@modelcontextprotocol/ext-tasks/core/v2";
import { Server } from "@modelcontextprotocol/server";
import { registerTools } from "./calls.ts";
import { registerPrompts } from "./prompts.ts";
import { registerResources } from "./resources.ts";
import type { McpService } from "./service.ts";
import { registerTasks } from "./tasks.ts";

const INSTRUCTIONS =
  "Holdfast runs durable workflows. Each workflow__… tool runs one workflow; a run outlives the call, and workflow_wait " +
  "goes on waiting for it. workflow_run lists, shows, starts, cancels and restarts runs. What a run asks of a person " +
  "is answered by that person, in a form if the client shows one, else elsewhere: no tool here answers, approves, " +
  "denies or repairs.";
const READ_ONLY_INSTRUCTIONS =
  "Holdfast runs durable workflows. Only reading is offered here: workflow_run with list, get and events, and workflow_wait.";

export function createServer(service: McpService): Server {
  const server = new Server(
    { name: "holdfast", title: "Holdfast", version: service.version ?? "0" },
    {
      capabilities: {
        tools: { listChanged: true },
        resources: { listChanged: true },
        prompts: {},
        extensions: { [TASKS_EXTENSION_ID_V2]: {} },
      },
      instructions: service.readOnly ? READ_ONLY_INSTRUCTIONS : INSTRUCTIONS,
    },
  );
  registerTools(server, service);
  registerTasks(server, service);
  registerResources(server, service);
  registerPrompts(server, service);
  return server;
}
