// `holdfast mcp` as an agent host starts it: a real process on stdio, real clients, and a server that is killed.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { Client as NewClient } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewTransport } from "@modelcontextprotocol/client/stdio";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { JsonObject } from "../../src/domain/json.ts";
import { ScriptedPeer } from "../fixtures/mcp-peer.ts";
import { BIN, Place } from "./cli.fixture.ts";

const LOOK = `workflow_schema: 1
id: look
revision: 1
description: Reads a file.
invocation_policy: {explicit: true, automatic: true}
input_schema: {type: object, required: [path], additionalProperties: false, properties: {path: {type: string}}}
output_schema: {type: object, additionalProperties: true}
steps: [{id: read, type: tool, tool: read_file, capabilities: [read], args: {path: {from: args, pointer: /path}}}]
plan: {type: step, step: read}
`;
const NAP = `workflow_schema: 1
id: nap
revision: 1
invocation_policy: {explicit: true, automatic: true}
steps:
  - {id: nap, type: wait, for_ms: 1500}
  - {id: read, type: tool, tool: read_file, capabilities: [read], args: {path: note.txt}}
plan: {type: sequence, nodes: [{type: step, step: nap}, {type: step, step: read}]}
`;
const ASK = `workflow_schema: 1
id: ask
revision: 1
invocation_policy: {explicit: true, automatic: true}
steps: [{id: sure, type: approval, prompt: Sure?}]
plan: {type: step, step: sure}
`;

let place: Place;
const children: ChildProcess[] = [];

beforeEach(() => {
  place = new Place();
  place.write(".holdfast/workflows/look.yaml", LOOK);
  place.write(".holdfast/workflows/nap.yaml", NAP);
  place.write(".holdfast/workflows/ask.yaml", ASK);
  place.write("note.txt", "remember\n");
});
afterEach(async () => {
  for (const child of children.splice(0))
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  place.remove();
});

const command = (...flags: string[]) => ({
  command: process.execPath,
  args: [BIN, "mcp", ...flags],
  cwd: place.folder,
  env: place.env as Record<string, string>,
});

function server(): { readonly child: ChildProcess; readonly peer: ScriptedPeer } {
  const child = spawn(process.execPath, [BIN, "mcp"], {
    cwd: place.folder,
    env: place.env,
    stdio: ["pipe", "pipe", "inherit"],
  });
  children.push(child);
  if (child.stdin === null || child.stdout === null) throw new Error("no pipes");
  return { child, peer: new ScriptedPeer(child.stdout, child.stdin) };
}

test("the new SDK: initialize, list, start, follow, wait, cancel", async () => {
  const client = new NewClient({ name: "new", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new NewTransport(command()));
  expect(client.getServerVersion()?.name).toBe("holdfast");
  const { tools } = await client.listTools();
  expect(tools.map(({ name }) => name)).toContain("workflow__look");
  const read = await client.callTool({ name: "workflow__look", arguments: { path: "note.txt" } });
  expect(read.structuredContent).toMatchObject({ path: "note.txt", content: "remember\n" });
  const started = await client.callTool({
    name: "workflow_run",
    arguments: { action: "start", workflow_id: "nap", revision: 1 },
  });
  const { run_id } = started.structuredContent as { run_id: string };
  const waited = await client.callTool({ name: "workflow_wait", arguments: { run_id, timeout_ms: 10_000 } });
  expect(waited.structuredContent).toMatchObject({ run: { status: "succeeded" }, output: { content: "remember\n" } });
  const asked = await client.callTool({ name: "workflow__ask", arguments: {} });
  expect(JSON.stringify(asked.content)).toContain("waits for an approval");
  const ask = (asked.structuredContent as { run_id: string }).run_id;
  const cancelled = await client.callTool({ name: "workflow_run", arguments: { action: "cancel", run_id: ask } });
  expect(cancelled.structuredContent).toMatchObject({ status: "cancelled" });
  await client.close();
  // Runs of MCP clients are kept in a session of their own.
  expect((await place.json<{ runs: unknown[] }>("list", "--session", "mcp")).runs).toHaveLength(3);
});

test("the old SDK: the same, and it hears of a new workflow", async () => {
  const client = new OldClient({ name: "old", version: "1" });
  const changed = new Promise<void>((resolve) =>
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => resolve()),
  );
  await client.connect(new OldTransport(command()) as never);
  const read = await client.callTool({ name: "workflow__look", arguments: { path: "note.txt" } });
  expect(read.structuredContent).toMatchObject({ content: "remember\n" });
  const refused = await client.callTool({ name: "workflow_run", arguments: { action: "list", run_id: "x" } });
  expect(refused.isError).toBe(true);
  expect(JSON.stringify(refused.content)).toContain("unknown field");
  place.write(".holdfast/workflows/another.yaml", LOOK.replace("id: look", "id: another"));
  await changed;
  expect((await client.listTools()).tools.map(({ name }) => name)).toContain("workflow__another");
  await client.close();
});

test("--read-only withholds what starts", async () => {
  const client = new NewClient({ name: "reader", version: "1" });
  await client.connect(new NewTransport(command("--read-only")));
  expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["workflow_run", "workflow_wait"]);
  const refused = await client.callTool({
    name: "workflow_run",
    arguments: { action: "start", workflow_id: "look", revision: 1, args: { path: "note.txt" } },
  });
  expect(refused.isError).toBe(true);
  await client.close();
});

test("a task outlives its server: killed and started again, the same id answers and the result arrives", async () => {
  const first = server();
  const { taskId } = (await first.peer.call("workflow__nap", {})) as { taskId: string };
  expect(await first.peer.result("tasks/get", { taskId })).toMatchObject({ status: "working" });
  first.child.kill("SIGKILL");
  await once(first.child, "exit");
  const second = server();
  expect(["working", "completed"]).toContain((await second.peer.result("tasks/get", { taskId })).status);
  const task = await second.peer.taskUntil(taskId, "completed");
  expect(task.result).toMatchObject({ structuredContent: { content: "remember\n" } });
  // The end of the input is the end of the server, with nothing but the protocol on its output.
  second.child.stdin?.end();
  expect(await once(second.child, "exit")).toEqual([0, null]);
  for (const line of `${first.peer.received}${second.peer.received}`.trim().split("\n"))
    expect((JSON.parse(line) as JsonObject).jsonrpc).toBe("2.0");
});

test("SIGTERM ends the server and leaves its runs to go on", async () => {
  const one = server();
  const { taskId } = (await one.peer.call("workflow__nap", {})) as { taskId: string };
  one.child.kill("SIGTERM");
  expect(await once(one.child, "exit")).toEqual([0, null]);
  const { status } = await place.json<{ status: string }>("show", taskId, "--session", "mcp");
  expect(status).toBe("suspended");
  const again = server();
  await again.peer.taskUntil(taskId, "completed");
});
