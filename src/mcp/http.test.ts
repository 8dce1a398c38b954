// Streamable HTTP with real clients, of this protocol's newest SDK and of the older one: everything that one does.
import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ASKED, connectAsked } from "../../test/fixtures/mcp-asked.ts";
import { openWorld, type World } from "../../test/fixtures/tools-world.ts";
import type { JsonObject } from "../domain/json.ts";
import type { Holdfast } from "../index.ts";
import { createMcpHttpHandler, type McpHttpHandler } from "./index.ts";

const ADDRESS = new URL("http://127.0.0.1:4777/mcp");
const GREET = `workflow_schema: 1
id: greet
revision: 1
invocation_policy: {explicit: true, automatic: true}
input_schema: {type: object, required: [who], additionalProperties: false, properties: {who: {type: string}}}
output_schema: {type: object, required: [ok], properties: {ok: {type: boolean}}}
steps: [{id: ask, type: tool, tool: inspect_it, args: {}, capabilities: [read]}]
plan: {type: step, step: ask}
`;
const ASK = `workflow_schema: 1
id: ask
revision: 1
invocation_policy: {explicit: true, automatic: true}
steps: [{id: sure, type: approval, prompt: Sure?}]
plan: {type: step, step: sure}
`;

const NAMED = `workflow_schema: 1
id: named
revision: 1
invocation_policy: {explicit: true, automatic: true}
steps: [{id: name, type: input, prompt: Whose?, schema: {type: object, required: [name], properties: {name: {type: string, pattern: '^[a-z]+$'}}}}]
plan: {type: step, step: name}
`;

/** What the two SDKs have in common, as far as the tests go. */
interface AnyClient {
  listTools(): Promise<{ tools: { name: string; inputSchema: object; outputSchema?: object | undefined }[] }>;
  callTool(
    call: { name: string; arguments: object },
    progress?: (sequence: number) => void,
    signal?: AbortSignal,
  ): Promise<Result>;
  listResources(): Promise<{ resources: { uri: string }[] }>;
  readResource(uri: string): Promise<JsonObject>;
  getPrompt(name: string, args: Record<string, string>): Promise<string>;
  close(): Promise<void>;
}

interface Result {
  readonly content: readonly { readonly type: string; readonly text: string }[];
  readonly structuredContent?: JsonObject;
  readonly isError?: boolean;
}

let world: World;
let holdfast: Holdfast;
let handler: McpHttpHandler;
/** Every byte that left the server. */
let sent: string[];

beforeEach(async () => {
  world = await openWorld();
  await world.write(".holdfast/workflows/greet.yaml", GREET);
  await world.write(".holdfast/workflows/ask.yaml", ASK);
  await world.write(".holdfast/workflows/named.yaml", NAMED);
  holdfast = await world.open({ worker: true });
  handler = createMcpHttpHandler(holdfast, { maxWaitMs: 2_000 });
  sent = [];
});
afterEach(async () => {
  await handler.close();
  await world[Symbol.asyncDispose]();
});

function fetchAs(role: "observer" | "operator"): (url: string | URL, init?: RequestInit) => Promise<Response> {
  return async (url, init) => {
    const response = await handler(new Request(url, init), { name: "tester", role });
    const [body, copy] = response.body?.tee() ?? [null, null];
    if (copy !== null)
      void new Response(copy).text().then(
        (text) => sent.push(text),
        () => undefined,
      );
    return new Response(body, { status: response.status, headers: response.headers });
  };
}

type Connect = (role: "observer" | "operator") => Promise<AnyClient>;

async function connectNew(role: "observer" | "operator", mode: "auto" | "legacy"): Promise<AnyClient> {
  const client = new NewClient({ name: "new", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(new NewTransport(ADDRESS, { fetch: fetchAs(role) }));
  return {
    listTools: () => client.listTools(),
    callTool: async (call, progress, signal) =>
      (await client.callTool(call as never, {
        ...(progress === undefined ? {} : { onprogress: (p) => progress(p.progress) }),
        ...(signal === undefined ? {} : { signal }),
      })) as Result,
    listResources: () => client.listResources(),
    readResource: async (uri) =>
      JSON.parse(
        (await client.readResource({ uri })).contents.map((c) => ("text" in c ? c.text : "")).join(""),
      ) as JsonObject,
    getPrompt: async (name, args) => JSON.stringify(await client.getPrompt({ name, arguments: args })),
    close: () => client.close(),
  };
}

async function connectOld(role: "observer" | "operator"): Promise<AnyClient> {
  const client = new OldClient({ name: "old", version: "1" });
  await client.connect(new OldTransport(ADDRESS, { fetch: fetchAs(role) }) as never);
  return {
    listTools: () => client.listTools(),
    callTool: async (call, progress, signal) =>
      (await client.callTool(call as never, undefined, {
        ...(progress === undefined ? {} : { onprogress: (p) => progress(p.progress) }),
        ...(signal === undefined ? {} : { signal }),
      })) as unknown as Result,
    listResources: () => client.listResources(),
    readResource: async (uri) =>
      JSON.parse(
        (await client.readResource({ uri })).contents.map((c) => ("text" in c ? c.text : "")).join(""),
      ) as JsonObject,
    getPrompt: async (name, args) => JSON.stringify(await client.getPrompt({ name, arguments: args })),
    close: () => client.close(),
  };
}

const clients: [string, Connect][] = [
  ["the new SDK, 2026-07-28", (role) => connectNew(role, "auto")],
  ["the new SDK, 2025-11-25", (role) => connectNew(role, "legacy")],
  ["the old SDK", connectOld],
];

describe.each(clients)("with %s", (_, connect) => {
  test("lists, starts, follows, waits, cancels", async () => {
    const client = await connect("operator");
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      "workflow_run",
      "workflow_wait",
      "workflow__ask",
      "workflow__greet",
      "workflow__named",
      "workflow__repo-overview",
      "workflow__review-flow",
    ]);
    const steps: number[] = [];
    const done = await client.callTool({ name: "workflow__greet", arguments: { who: "me" } }, (sequence) =>
      steps.push(sequence),
    );
    expect(done.isError ?? false).toBe(false);
    expect(done.structuredContent).toEqual({ ok: true });
    expect(done.content[0]?.text).toBe('{"ok":true}');
    expect(steps.length).toBeGreaterThan(0);
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
    world.mode = "block";
    const started = await client.callTool({
      name: "workflow_run",
      arguments: { action: "start", workflow_id: "review-flow", revision: 42 },
    });
    const run_id = started.structuredContent?.run_id as string;
    expect(JSON.parse(started.content[0]?.text ?? "")).toEqual(started.structuredContent);
    const waited = await client.callTool({ name: "workflow_wait", arguments: { run_id, timeout_ms: 20 } });
    expect(waited.structuredContent).toMatchObject({ run: { run_id, status: "running" } });
    const listed = await client.callTool({ name: "workflow_run", arguments: { action: "list" } });
    expect(listed.structuredContent).toMatchObject({ runs: [{ run_id }, {}] });
    expect(Array.isArray(JSON.parse(listed.content[0]?.text ?? ""))).toBe(true);
    const cancelled = await client.callTool({ name: "workflow_run", arguments: { action: "cancel", run_id } });
    expect(cancelled.structuredContent).toMatchObject({ status: "cancelled" });
    const events = await client.callTool({ name: "workflow_run", arguments: { action: "events", run_id, since: 2 } });
    expect(events.structuredContent).toMatchObject({
      events: expect.arrayContaining([expect.objectContaining({ sequence: 3 })]),
    });
    await client.close();
  });

  test("RP-81 RP-83 refusals are tool errors with their own texts", async () => {
    const client = await connect("operator");
    const refused = async (name: string, args: object): Promise<string> => {
      const result = await client.callTool({ name, arguments: args });
      expect(result.isError).toBe(true);
      return result.content[0]?.text ?? "";
    };
    expect(await refused("workflow_run", { action: "list", workspace_trusted: true })).toContain(
      'unknown field "workspace_trusted"',
    );
    expect(await refused("workflow_run", { action: "approve", run_id: "x" })).toContain("workflow input is invalid");
    expect(await refused("workflow_run", { action: "get", run_id: "x" })).toBe("workflow run not found");
    expect(await refused("workflow__greet", {})).toContain("workflow input is invalid");
    expect(await refused("workflow__nothing", {})).toContain("workflow run not found");
    await expect(client.callTool({ name: "approve", arguments: {} })).rejects.toThrow("Unknown tool");
    await client.close();
  });

  test("an observer only reads", async () => {
    const client = await connect("observer");
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["workflow_run", "workflow_wait"]);
    const refused = await client.callTool({
      name: "workflow_run",
      arguments: { action: "start", workflow_id: "greet", revision: 1, args: { who: "me" } },
    });
    expect(refused).toMatchObject({ isError: true });
    expect((await client.callTool({ name: "workflow__greet", arguments: { who: "me" } })).isError).toBe(true);
    expect((await client.callTool({ name: "workflow_run", arguments: { action: "list" } })).structuredContent).toEqual({
      runs: [],
    });
    expect((await holdfast.sessions.get("mcp")).orchestration_opt_in).toBe(false);
    await client.close();
  });

  test("a call that the client gives up ends its following and not the run", async () => {
    world.mode = "block";
    const client = await connect("operator");
    const left = new AbortController();
    const calling = client.callTool({ name: "workflow__review-flow", arguments: {} }, undefined, left.signal);
    await world.entered(1);
    left.abort();
    await expect(calling).rejects.toThrow();
    const { runs } = await holdfast.runs.list({ session: "mcp" });
    expect(runs).toMatchObject([{ workflow_id: "review-flow", status: "running" }]);
    await client.close();
  });

  test("R-40 nothing that a client can call approves", async () => {
    const client = await connect("operator");
    const asked = await client.callTool({ name: "workflow__ask", arguments: {} });
    const run_id = asked.structuredContent?.run_id as string;
    expect(asked.content[0]?.text).toContain("waits for an approval");
    const { tools } = await client.listTools();
    for (const { name } of tools) {
      for (const args of [
        { action: "approve", run_id },
        { action: "get", run_id, decision: "approve" },
        { run_id, decision: "approve" },
        { run_id, wait_id: "w-5", approve: true },
      ])
        await client.callTool({ name, arguments: args }).catch(() => undefined);
    }
    expect((await holdfast.runs.get(run_id, "mcp")).waits).toMatchObject([{ type: "approval" }]);
    await client.close();
  });

  test("workflows and runs are resources, in their public forms", async () => {
    const client = await connect("operator");
    const { run_id } = await holdfast
      .run({ workflow: "greet", args: { who: "PRIVATE-me" }, session: "mcp" })
      .catch(async () => {
        await holdfast.sessions.create({ name: "mcp" });
        return holdfast.run({ workflow: "greet", args: { who: "PRIVATE-me" }, session: "mcp" });
      });
    const uris = (await client.listResources()).resources.map(({ uri }) => uri);
    expect(uris).toContain("holdfast://workflows/greet");
    expect(uris).toContain(`holdfast://runs/${run_id}`);
    expect(await client.readResource("holdfast://workflows/greet")).toMatchObject({
      workflow_id: "greet",
      tool_name: "workflow__greet",
    });
    expect(await client.readResource(`holdfast://runs/${run_id}`)).toMatchObject({ status: "succeeded" });
    expect((await client.readResource(`holdfast://runs/${run_id}/events`)).events).toHaveLength(7);
    for (const uri of [
      "holdfast://runs/none",
      "holdfast://workflows/../secret",
      "file:///etc/passwd",
      "holdfast://workflows/%",
    ])
      await expect(client.readResource(uri)).rejects.toThrow();
    expect(await client.getPrompt("explain_run", { run_id })).toContain("The run succeeded");
    expect(await client.getPrompt("run_workflow", { workflow_id: "greet" })).toContain("workflow__greet");
    expect(sent.join()).not.toContain("PRIVATE-");
    expect(sent.join()).not.toContain(world.workspace);
    await client.close();
  });
});

describe.each(ASKED)("an input, with %s", (which) => {
  const transport = (role: "observer" | "operator") =>
    new (which === "the old SDK" ? OldTransport : NewTransport)(ADDRESS, { fetch: fetchAs(role) });

  // A request of the older revisions is served by itself, so nothing can be asked of its client in between.
  test(
    which.endsWith("2026-07-28") ? "is answered by a form" : "is not asked: the call ends with a sentence",
    async () => {
      const put: string[] = [];
      const client = await connectAsked(which, transport("operator"), ({ message }) => {
        put.push(message);
        return { action: "accept", content: { name: put.length === 1 ? "UP" : "mine" } };
      });
      const answer = await client.call("workflow__named");
      expect(answer.isError ?? false).toBe(false);
      if (which.endsWith("2026-07-28")) {
        expect(answer.structuredContent).toEqual({ name: "mine" });
        expect(put).toEqual(["Whose?", expect.stringContaining("Cannot answer")]);
      } else {
        expect(answer.structuredContent).toMatchObject({ status: "suspended" });
        expect(answer.content[0]?.text).toContain("call workflow_wait");
        expect(put).toEqual([]);
      }
      expect((await holdfast.runs.list({ session: "mcp" })).runs).toHaveLength(1);
      await client.close();
    },
  );

  test("is not asked of an observer", async () => {
    const operator = await connectAsked(which, transport("operator"), () => ({ action: "decline" }));
    const { run_id } = (await operator.call("workflow__named")).structuredContent as { run_id: string };
    const put: string[] = [];
    const observer = await connectAsked(which, transport("observer"), ({ message }) => {
      put.push(message);
      return { action: "accept", content: { name: "mine" } };
    });
    const waited = await observer.call("workflow_wait", { run_id });
    expect(waited.structuredContent).toMatchObject({ run: { status: "suspended" } });
    expect(put).toEqual([]);
    await observer.close();
    await operator.close();
  });
});

test("RP-74 no byte that leaves shows a word of a run that was not started here", async () => {
  await world.write(
    ".holdfast/workflows/secretive.yaml",
    `workflow_schema: 1
id: secretive
revision: 1
input_schema: {type: object, properties: {a: {type: string}}}
steps:
  - {id: inspect, type: tool, tool: inspect_it, args: {note: PRIVATE-template}, capabilities: [read], failure: continue_with_error}
  - {id: ask, type: approval, prompt: PRIVATE-prompt, details: {d: PRIVATE-details}}
plan: {type: sequence, nodes: [{type: step, step: inspect}, {type: step, step: ask}]}
`,
  );
  world.mode = "fail";
  const client = await connectNew("operator", "auto");
  await client.callTool({ name: "workflow_run", arguments: { action: "list" } });
  const { run_id } = await holdfast.run({ workflow: "secretive", args: { a: "PRIVATE-argument" }, session: "mcp" });
  for (const action of ["list", "get", "events", "restart", "cancel", "get"])
    await client.callTool({ name: "workflow_run", arguments: { action, ...(action === "list" ? {} : { run_id }) } });
  await client.callTool({ name: "workflow_wait", arguments: { run_id, timeout_ms: 0 } });
  await client.getPrompt("explain_run", { run_id });
  await client.readResource(`holdfast://runs/${run_id}`);
  await client.readResource(`holdfast://runs/${run_id}/events`);
  expect(sent.join()).toContain(run_id);
  for (const word of ["PRIVATE-", "inspect_it", world.workspace, "input_hash"]) expect(sent.join()).not.toContain(word);
  await client.close();
});
