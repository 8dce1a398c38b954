// `holdfast mcp` as an agent host starts it: a real process on stdio, real clients, and a server that is killed.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { Client as NewClient } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewTransport } from "@modelcontextprotocol/client/stdio";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { JsonObject } from "../../src/domain/json.ts";
import { ASKED, type Asked, type AskedClient, connectAsked, type Fill, type Form } from "../fixtures/mcp-asked.ts";
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

/** `pattern` is beyond a form, so what breaks it comes as far as the run. */
const NAME = "{type: object, required: [name], properties: {name: {type: string, pattern: '^[a-z]+$'}}}";
const NAMED = `workflow_schema: 1
id: named
revision: 1
invocation_policy: {explicit: true, automatic: true}
steps: [{id: name, type: input, prompt: Whose?, schema: ${NAME}}]
plan: {type: step, step: name}
`;
const ABOVE = `workflow_schema: 1
id: above
revision: 1
invocation_policy: {explicit: true, automatic: true}
steps:
  - {id: below, type: workflow, workflow_id: named, revision: 1, args: {}}
  - {id: many, type: input, prompt: How many?, schema: {type: integer}}
plan: {type: parallel, nodes: [{type: step, step: below}, {type: step, step: many}]}
`;

let place: Place;
const children: ChildProcess[] = [];

beforeEach(() => {
  place = new Place();
  place.write(".holdfast/workflows/look.yaml", LOOK);
  place.write(".holdfast/workflows/nap.yaml", NAP);
  place.write(".holdfast/workflows/ask.yaml", ASK);
  place.write(".holdfast/workflows/named.yaml", NAMED);
  place.write(".holdfast/workflows/above.yaml", ABOVE);
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

describe.each(ASKED)("R-40 with forms and no tasks, %s", (which: Asked) => {
  const connect = (fill: Fill): Promise<AskedClient> =>
    connectAsked(which, new (which === "the old SDK" ? OldTransport : NewTransport)(command()), fill);
  const statusOf = async (run_id: unknown) =>
    await place.json<{ status: string }>("show", String(run_id), "--session", "mcp");

  test("an input is answered in the call, also after one that did not fit, and two at once", async () => {
    const put: string[] = [];
    const client = await connect(({ message }) => {
      put.push(message);
      if (message === "How many?") return { action: "accept", content: { value: 3 } };
      return { action: "accept", content: { name: put.length === 1 ? "UP" : "mine" } };
    });
    const named = await client.call("workflow__named");
    expect(named.structuredContent).toEqual({ name: "mine" });
    expect(put).toEqual(["Whose?", expect.stringMatching(/^Cannot answer: .*\n\nWhose\?$/s)]);
    put.splice(0);
    // One of the two is asked by a run that this run waits for.
    const above = await client.call("workflow__above");
    expect(JSON.parse(above.content[0]?.text ?? "")).toEqual([{ name: "mine" }, 3]);
    expect(put.slice(0, 2).sort()).toEqual(["How many?", "Whose?"]);
    await client.close();
    const { runs } = await place.json<{ runs: { workflow_id: string }[] }>("list", "--session", "mcp");
    expect(runs.filter(({ workflow_id }) => workflow_id === "above")).toHaveLength(1);
  });

  test("a declined form decides nothing; workflow_wait asks again", async () => {
    let declines = true;
    const client = await connect(() =>
      declines ? { action: "decline" } : { action: "accept", content: { name: "mine" } },
    );
    const declined = await client.call("workflow__named");
    expect(declined.isError ?? false).toBe(false);
    const { run_id } = declined.structuredContent as { run_id: string };
    expect(declined.content[0]?.text).toContain(`The run is ${run_id}; call workflow_wait`);
    declines = false;
    const waited = await client.call("workflow_wait", { run_id });
    expect(waited.structuredContent).toMatchObject({ run: { status: "succeeded" }, output: { name: "mine" } });
    await client.close();
  });

  test("an approval only with approvals: {mcp: elicit}, with the digest that was shown", async () => {
    const put: Form[] = [];
    const fill: Fill = (form) => {
      put.push(form);
      const digest = /Digest: (\w+)/.exec(form.message)?.[1] ?? "";
      return { action: "accept", content: { decision: "approve", digest } };
    };
    const first = await connect(fill);
    const never = await first.call("workflow__ask");
    expect(never.structuredContent).toMatchObject({ status: "suspended" });
    expect(put).toEqual([]);
    await first.close();
    place.write("holdfast.config.yaml", "approvals: {mcp: elicit}\n");
    expect((await place.call("trust", "--yes")).status).toBe(0);
    const second = await connect(fill);
    const asked = await second.call("workflow_wait", { run_id: never.structuredContent?.run_id ?? "" });
    expect(asked.structuredContent).toMatchObject({ run: { status: "succeeded" } });
    expect(put).toHaveLength(1);
    await second.close();
    expect((await statusOf(never.structuredContent?.run_id)).status).toBe("succeeded");
  });
});
