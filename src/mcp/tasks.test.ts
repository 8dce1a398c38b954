// The tasks extension, with a scripted client over the stdio server: a task is a run, and a person answers its waits.
import { PassThrough } from "node:stream";
import { isCreateTaskResultV2, isDetailedTaskV2, TASKS_EXTENSION_ID_V2 } from "@modelcontextprotocol/ext-tasks/core/v2";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ScriptedPeer } from "../../test/fixtures/mcp-peer.ts";
import { openWorld, type World } from "../../test/fixtures/tools-world.ts";
import type { JsonObject } from "../domain/json.ts";
import type { Holdfast } from "../index.ts";
import { type StdioOptions, serveMcpStdio } from "./index.ts";

const QUESTIONS = `workflow_schema: 1
id: questions
revision: 1
invocation_policy: {explicit: true, automatic: true}
output_schema: {type: object}
steps:
  - {id: name, type: input, prompt: "Whose?", schema: {type: object, required: [name], additionalProperties: false, properties: {name: {type: string, maxLength: 5}}}}
  - {id: sure, type: approval, prompt: "Sure?", details: {for: {from: step, step: name, pointer: /name}}}
plan: {type: sequence, nodes: [{type: step, step: name}, {type: step, step: sure}]}
`;

let world: World;
let holdfast: Holdfast;
const ends: (() => Promise<void>)[] = [];

beforeEach(async () => {
  world = await openWorld();
  await world.write(".holdfast/workflows/questions.yaml", QUESTIONS);
  holdfast = await world.open({ worker: true });
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  await world[Symbol.asyncDispose]();
});

function connect(options: StdioOptions = {}, how: { capabilities?: JsonObject } = {}): ScriptedPeer {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const served = serveMcpStdio(holdfast, { ...options, input, output });
  ends.push(async () => {
    input.end();
    await served;
  });
  return new ScriptedPeer(output, input, how);
}

const start = async (peer: ScriptedPeer, name: string): Promise<string> => (await peer.call(name, {})).taskId as string;
const answer = (peer: ScriptedPeer, taskId: string, key: string, content: JsonObject) =>
  peer.request("tasks/update", { taskId, inputResponses: { [key]: { action: "accept", content } } });

describe("tasks", () => {
  test("a typed tool answers with a task whose id is the run's, and the result arrives", async () => {
    const peer = connect();
    const discovered = await peer.result("server/discover");
    expect((discovered.capabilities as JsonObject).extensions).toHaveProperty([TASKS_EXTENSION_ID_V2]);
    const created = await peer.call("workflow__review-flow", {});
    expect(created.resultType).toBe("task");
    expect(isCreateTaskResultV2(created)).toBe(true);
    const task = await peer.taskUntil(created.taskId as string, "completed");
    expect(isDetailedTaskV2(task)).toBe(true);
    expect(task.result).toMatchObject({ structuredContent: { ok: true } });
    expect((await holdfast.runs.get(created.taskId as string, "mcp")).status).toBe("succeeded");
  });

  test("a failed run is a completed task with an error, a cancelled one is cancelled", async () => {
    const peer = connect();
    world.mode = "fail";
    const failed = await peer.taskUntil(await start(peer, "workflow__review-flow"), "completed");
    expect(failed.result).toMatchObject({ isError: true });
    expect(JSON.stringify(failed)).not.toContain("PRIVATE-");
    world.mode = "block";
    const taskId = await start(peer, "workflow__review-flow");
    expect(await peer.result("tasks/get", { taskId })).toMatchObject({ status: "working" });
    await peer.result("tasks/cancel", { taskId });
    expect(await peer.result("tasks/get", { taskId })).toMatchObject({ status: "cancelled" });
    // Cancelling again, and what has ended by itself, is no error: there is nothing left to stop.
    expect((await peer.request("tasks/cancel", { taskId })).error).toBeUndefined();
  });

  test("notifications/cancelled ends a call and never its run", async () => {
    world.mode = "block";
    const peer = connect({ maxWaitMs: 5_000 }, { capabilities: {} });
    const id = peer.nextId;
    void peer.request("tools/call", { name: "workflow__review-flow", arguments: {} });
    await world.entered(1);
    peer.notify("notifications/cancelled", { requestId: id });
    const listed = (await peer.call("workflow_run", { action: "list" })).structuredContent as JsonObject;
    expect((listed.runs as JsonObject[])[0]).toMatchObject({ status: "running" });
  });

  test("runs of others, runs not started by a tool, and older clients have no tasks", async () => {
    const peer = connect();
    await peer.call("workflow_run", { action: "list" });
    const byHand = await holdfast.run({ workflow: "review-flow", args: {}, session: "mcp" });
    const elsewhere = await holdfast.run({ workflow: "review-flow", args: {} });
    for (const taskId of [byHand.run_id, elsewhere.run_id, "none"])
      for (const method of ["tasks/get", "tasks/cancel", "tasks/update"])
        expect((await peer.request(method, { taskId, inputResponses: {} })).error?.message).toBe(
          "workflow run not found",
        );
  });
});

describe("waits that a person answers", () => {
  test("an input is asked by a form; what does not fit is refused and stays asked", async () => {
    const peer = connect();
    const taskId = await start(peer, "workflow__questions");
    const task = await peer.taskUntil(taskId, "input_required");
    expect(isDetailedTaskV2(task)).toBe(true);
    const [[key = "", asked] = []] = Object.entries(task.inputRequests as JsonObject);
    expect(key).toMatch(/^w-\d+$/);
    expect(asked).toMatchObject({ method: "elicitation/create", params: { mode: "form", message: "Whose?" } });
    expect((await answer(peer, taskId, key, { name: "too long" })).error?.message).toContain("does not fit");
    expect((await answer(peer, taskId, key, { nam: "x" })).error?.message).toContain("does not fit");
    await peer.result("tasks/update", { taskId, inputResponses: { [key]: { action: "decline" } } });
    expect((await peer.result("tasks/get", { taskId })).status).toBe("input_required");
    expect((await answer(peer, taskId, key, { name: "mine" })).error).toBeUndefined();
    // the approval behind it is not asked here, because the configuration does not say so.
    let working: JsonObject;
    do working = await peer.taskUntil(taskId, "working");
    while (!String(working.statusMessage).includes("waits for an approval"));
    const [wait] = (await holdfast.runs.inspect(taskId, "mcp")).waits;
    await answer(peer, taskId, wait?.wait_id ?? "", { decision: "approve", digest: (wait?.digest ?? "").slice(0, 16) });
    expect((await holdfast.runs.inspect(taskId, "mcp")).waits).toMatchObject([{ type: "approval" }]);
  });

  test("R-40 with approvals by elicitation a person decides on what is shown, and the journal says who", async () => {
    await holdfast.close();
    holdfast = await world.open({ worker: true, approvals: { mcp: "elicit" } });
    const peer = connect({ approvals: "elicit" });
    const taskId = await start(peer, "workflow__questions");
    const first = await peer.taskUntil(taskId, "input_required");
    await answer(peer, taskId, Object.keys(first.inputRequests as JsonObject)[0] ?? "", { name: "a\u202eb" });
    let task: JsonObject;
    do task = await peer.taskUntil(taskId, "input_required");
    while (!JSON.stringify(task.inputRequests).includes("Sure?"));
    const [[key = "", asked] = []] = Object.entries(task.inputRequests as JsonObject);
    const { message, requestedSchema } = (asked as JsonObject).params as {
      message: string;
      requestedSchema: JsonObject;
    };
    for (const word of ["Sure?", "questions@1", "step sure", world.workspace, taskId]) expect(message).toContain(word);
    // Hidden and bidirectional characters are shown as what they are.
    expect(message).toContain("\\u{202e}");
    expect(message).not.toContain("\u202e");
    const digest = ((requestedSchema.properties as JsonObject).digest as { enum: string[] }).enum[0] ?? "";
    expect(digest).toMatch(/^[0-9a-f]{16}$/);
    expect((await answer(peer, taskId, key, { decision: "approve" })).error?.message).toContain("does not fit");
    expect((await answer(peer, taskId, key, { decision: "approve", digest: "0".repeat(16) })).error?.message).toContain(
      "changed meanwhile",
    );
    expect((await answer(peer, taskId, key, { decision: "approve", digest })).error).toBeUndefined();
    await peer.taskUntil(taskId, "completed");
    expect(JSON.stringify(await holdfast.runs.events(taskId, {}, "mcp"))).toContain('"decided_by":"mcp:scripted"');
  });

  test("a client without forms, and one that only reads, is asked nothing", async () => {
    const forms = connect();
    const taskId = await start(forms, "workflow__questions");
    const task = await forms.taskUntil(taskId, "input_required");
    const [key = ""] = Object.keys(task.inputRequests as JsonObject);
    const plain = connect({}, { capabilities: { extensions: { [TASKS_EXTENSION_ID_V2]: {} } } });
    expect(await plain.result("tasks/get", { taskId })).toMatchObject({ status: "working" });
    const reading = connect({ readOnly: true });
    expect(await reading.result("tasks/get", { taskId })).toMatchObject({ status: "working" });
    expect((await answer(reading, taskId, key, { name: "x" })).error?.message).toContain("only reading");
    expect((await holdfast.runs.get(taskId, "mcp")).status).toBe("suspended");
  });
});
