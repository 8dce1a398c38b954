// MCP servers that misbehave: each way of failing has its name, none hangs, and nothing is done twice by accident.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { afterEach, describe, expect, test, vi } from "vitest";
import { HoldfastError } from "../../domain/errors.ts";
import type { Json } from "../../domain/json.ts";
import { createHoldfast, defineTool } from "../../index.ts";
import type { ToolOutcome } from "../../ports/index.ts";
import { toolCall } from "../fixture.ts";
import { createSecrets, createToolRegistry, fileTools } from "../index.ts";
import { createMcpTools, type McpTools, readMcpConfig, withMcpTools } from "./index.ts";

const SERVER = fileURLToPath(new URL("../../../test/fixtures/mcp-server.mjs", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "holdfast mcp "));
const opened: McpTools[] = [];
let logs = 0;

afterEach(async () => {
  for (const tools of opened.splice(0)) await tools.close();
});
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

interface Opened {
  readonly tools: McpTools;
  /** What the server process wrote down. */
  said(): string[];
  readonly warnings: string[];
  /** Moves the clock of the pauses. */
  later(ms: number): void;
  call(tool: string, input?: Json, signal?: AbortSignal): Promise<ToolOutcome>;
}

function open(mode = "", more: object = {}, env: Record<string, string> = {}): Opened {
  const log = join(folder, `log-${++logs}`);
  const config = {
    srv: { command: process.execPath, args: [SERVER, log, ...(mode === "" ? [] : [mode])], timeout_ms: 400, ...more },
  };
  const warnings: string[] = [];
  let now = 0;
  const tools = createMcpTools(readMcpConfig(config), {
    secrets: createSecrets({ env: { key: "THE_KEY" } }, { THE_KEY: "PRIVATE-key", ...env }),
    workspace: folder,
    connectMs: 3_000,
    maxMessageBytes: 200_000,
    now: () => now,
    log: (_level, message, details) => warnings.push(`${message} ${JSON.stringify(details)}`),
  });
  opened.push(tools);
  return {
    tools,
    warnings,
    said: () => readFileSync(log, "utf8").trim().split("\n"),
    later: (ms) => {
      now += ms;
    },
    call: (tool, input = {}, signal) =>
      tools.call({ ...toolCall(`mcp::srv::${tool}`, input), ...(signal === undefined ? {} : { signal }) }),
  };
}

const words = (outcome: ToolOutcome): string =>
  outcome.type === "failed" ? `${outcome.kind}: ${outcome.message}` : outcome.type;

describe("calls", () => {
  test("answer texts, other blocks and structured content", async () => {
    const { call, said } = open();
    expect(await call("echo", { a: 1 })).toEqual({
      type: "succeeded",
      output: { text: '{"a":1}', content: [], structured: { echoed: { a: 1 } } },
    });
    expect(said().filter((line) => line.startsWith("started"))).toHaveLength(1);
  });

  test("R-8 a server's own word is a failure, of a mutating tool never to be retried", async () => {
    const { call } = open("", { tools: { error: { side_effect: "read_only", capabilities: ["read"] } } });
    expect(await call("refuse")).toEqual({
      type: "failed",
      kind: "execution",
      retryable: false,
      message: "I will not",
    });
    expect(await call("error")).toMatchObject({ type: "failed", kind: "execution", retryable: true });
    expect(await call("bad_arguments")).toMatchObject({ type: "failed", kind: "bad_arguments", retryable: false });
    expect(await call("echo", [1])).toMatchObject({ type: "failed", kind: "bad_arguments" });
  });

  test("one that hangs is an unknown outcome within its time, and the server is started anew", async () => {
    const { call, said } = open();
    await expect(call("hang")).rejects.toThrow('the MCP server "srv" has not answered within 400 ms');
    expect(await call("echo")).toMatchObject({ type: "succeeded" });
    expect(said().filter((line) => line.startsWith("started"))).toHaveLength(2);
  });

  test("one that dies in a call is an unknown outcome; the next is told, then it is started again", async () => {
    const { call, later, said } = open();
    await expect(call("die")).rejects.toThrow(/clos/i);
    expect(words(await call("echo"))).toMatch(/^execution: .*"srv" failed 1 times \(it ended.*tried again in 1 s$/);
    later(1_000);
    expect(await call("echo")).toMatchObject({ type: "succeeded" });
    expect(said().filter((line) => line === "call die")).toHaveLength(1);
  });

  test("an aborted call ends at once", async () => {
    const { call } = open("", { timeout_ms: 60_000 });
    await call("echo");
    const stop = new AbortController();
    const calling = call("hang", {}, stop.signal);
    setImmediate(() => stop.abort(new Error("stopped")));
    await expect(calling).rejects.toThrow();
  });

  test("an answer beyond the bound is no answer", async () => {
    const { call, later } = open("", { timeout_ms: 10_000 });
    await expect(call("big")).rejects.toThrow();
    later(60_000);
    expect(await call("echo")).toMatchObject({ type: "succeeded" });
  });

  test("a tool that the server has no more is named, and one it never had", async () => {
    const { call } = open();
    expect(await call("echo")).toMatchObject({ type: "succeeded" });
    await call("forget_echo");
    await vi.waitFor(async () => expect(words(await call("echo"))).toMatch(/^not_found: .*offers no tool "echo"/));
    expect(words(await call("never"))).toMatch(/^not_found:/);
    expect(words(await open().tools.call(toolCall("mcp::other::x", {})))).toMatch(/^not_found: .*no such MCP server/);
  });
});

describe("servers that cannot be used", () => {
  test.each([
    ["mute", {}, /has not answered within 300 ms|timed out/i],
    ["dies", {}, /no licence found/],
    ["dies-on-list", {}, /does not list its tools/],
  ])("%s: a named failure that may be tried again, with growing pauses", async (mode, more, reason) => {
    const one = open(mode, more);
    const tools = createMcpTools(
      readMcpConfig({ srv: { command: process.execPath, args: [SERVER, join(folder, `x-${mode}`), mode] } }),
      {
        secrets: createSecrets({}, {}),
        workspace: folder,
        connectMs: 300,
        now: () => 0,
      },
    );
    opened.push(tools);
    const first = await tools.call(toolCall("mcp::srv::echo", {}));
    expect(first).toMatchObject({ type: "failed", kind: "execution", retryable: true });
    expect(words(first)).toMatch(reason);
    expect(words(await tools.call(toolCall("mcp::srv::echo", {})))).toContain("it is tried again in");
    void one;
  });

  test("a command that there is none of", async () => {
    const { call } = open("", { command: join(folder, "no such program") });
    expect(words(await call("echo"))).toMatch(/^execution: .*cannot be reached: .*ENOENT/);
  });

  test("noise between messages is passed over and told to the log once", async () => {
    const { call, warnings } = open("noisy");
    expect(await call("echo")).toMatchObject({ type: "succeeded" });
    expect(await call("echo")).toMatchObject({ type: "succeeded" });
    expect(warnings.filter((line) => line.includes("no message"))).toHaveLength(1);
  });

  test("children end when the tools are closed", async () => {
    const { call, tools, said } = open();
    await call("echo");
    await tools.close();
    expect(said().at(-1)).toMatch(/^ended/);
    expect(words(await call("echo"))).toContain("is closed");
  });

  test("probe says what each offers, or why not", async () => {
    const good = await open().tools.probe();
    expect(good).toMatchObject([{ server: "srv", ok: true }]);
    expect(good[0]?.tools).toContain("echo");
    expect(await open("dies").tools.probe()).toMatchObject([{ ok: false, tools: [] }]);
  });
});

describe("what is said of a tool", () => {
  test("R-3 R-13 unsaid is mutating with the server's own capability, whatever the server hints", async () => {
    const { tools, call } = open("", { tools: { echo: { side_effect: "read_only", capabilities: ["network"] } } });
    expect(tools.describe("mcp::srv::refuse")).toMatchObject({
      side_effect: "mutating",
      capabilities: ["mcp::srv"],
      source: "mcp",
    });
    const before = tools.describe("mcp::srv::echo");
    expect(before).toMatchObject({ side_effect: "read_only", capabilities: ["network"] });
    await call("echo");
    // The same before and after the server was asked, so that definitions keep their hash.
    expect(tools.describe("mcp::srv::echo")).toEqual(before);
    expect(tools.list().map(({ name }) => name)).toContain("mcp::srv::hang");
    expect(tools.describe("mcp::other::echo")).toBeUndefined();
    expect(tools.describe("mcp::srv::a b")).toBeUndefined();
  });

  test("one port for all tools; mcp:: names come only from the configuration", async () => {
    const { tools } = open();
    const port = withMcpTools(createToolRegistry([fileTools()]), tools);
    expect(port.describe("Read")?.source).toBe("builtin");
    expect(port.describe("mcp::srv::echo")?.source).toBe("mcp");
    expect(await port.call(toolCall("mcp::srv::echo", {}))).toMatchObject({ type: "succeeded" });
    expect(() => defineTool({ name: "mcp::srv::echo", description: "x", input: {}, run: () => null })).toThrow(
      HoldfastError,
    );
  });

  test("GD-13 GD-39 beside MCP servers a tool's own plan and cancel are reached; those of servers have none", async () => {
    const { tools } = open();
    const told: unknown[] = [];
    const render = defineTool({
      ...{ name: "render", description: "Renders.", input: {}, run: () => null },
      plan: () => ({ type: "ready", intent: 240 }),
      cancel: (query) => void told.push(query),
    });
    const port = withMcpTools(createToolRegistry([{ source: "code", origin: "here", tools: [render] }]), tools);
    const query = { dispatch_id: "d", input: {}, signal: new AbortController().signal };
    expect(await port.plan?.("render", query)).toEqual({ type: "ready", intent: 240 });
    await port.cancel?.("render", { dispatch_id: "d" });
    await port.cancel?.("mcp::srv::echo", { dispatch_id: "d" });
    expect([told, port.describe("mcp::srv::echo")?.can_handoff]).toEqual([[{ dispatch_id: "d" }], undefined]);
  });

  test("secrets reach the server's environment from the configuration only, and no message", async () => {
    const { call, warnings } = open("", { env: { TOKEN: { $secret: "key" }, PLAIN: "yes" } });
    const outcome = await call("environment");
    const seen = JSON.parse((outcome as unknown as { output: { text: string } }).output.text) as Record<string, string>;
    expect([seen.TOKEN, seen.PLAIN]).toEqual(["PRIVATE-key", "yes"]);
    expect(seen).not.toHaveProperty("THE_KEY");
    expect(warnings.join()).not.toContain("PRIVATE-");
    expect(words(await open("", { env: { TOKEN: { $secret: "other" } } }).call("echo"))).toContain(
      'no secret "other" is configured',
    );
  });

  test.each([
    [{ "a b": { command: "x" } }, "mcp.a b"],
    [{ s: {} }, "mcp.s"],
    [{ s: { command: "x", url: "http://y" } }, "mcp.s"],
    [{ s: { command: "x", argz: [] } }, 'did you mean "args"'],
    [{ s: { command: "x", args: [1] } }, "mcp.s.args[0]"],
    [{ s: { url: "ftp://y" } }, "mcp.s.url"],
    [{ s: { url: "http://user:pass@y" } }, "mcp.s.url"],
    [{ s: { command: "x", timeout_ms: 0 } }, "mcp.s.timeout_ms"],
    [{ s: { command: "x", env: { A: { secret: "k" } } } }, "mcp.s.env.A"],
    [{ s: { command: "x", tools: { t: { side_effect: "none" } } } }, "mcp.s.tools.t.side_effect"],
    [{ s: { command: "x", tools: { t: { capabilities: [] } } } }, "mcp.s.tools.t.capabilities"],
    [[], "mcp"],
  ])("a wrong configuration is refused with its place: %j", (config, at) => {
    expect(() => readMcpConfig(config)).toThrow(at);
  });

  test("__proto__ is a name like any other", () => {
    const config = readMcpConfig(
      JSON.parse('{"s": {"command": "x", "tools": {"__proto__": {"side_effect": "read_only"}}}}'),
    );
    const tools = createMcpTools(config, { secrets: createSecrets({}, {}), workspace: folder });
    expect(tools.describe("mcp::s::anything")?.side_effect).toBe("mutating");
    expect(tools.describe("mcp::s::__proto__")?.side_effect).toBe("read_only");
  });
});

describe("over HTTP", () => {
  test("streamable HTTP with headers from secrets; redirects are not followed", async () => {
    const handler = createMcpHandler(() => {
      const server = new McpServer({ name: "web", version: "1" });
      server.registerTool("hello", {}, async () => ({ content: [{ type: "text", text: "hello" }] }));
      return server;
    });
    const seen: (string | null)[] = [];
    vi.stubGlobal("fetch", async (url: string | URL, init?: RequestInit) => {
      expect(init?.redirect).toBe("error");
      const request = new Request(url, init);
      seen.push(request.headers.get("x-key"));
      return handler.fetch(request);
    });
    try {
      const tools = createMcpTools(
        readMcpConfig({ web: { url: "http://127.0.0.1:1/mcp", headers: { "x-key": { $secret: "key" } } } }),
        {
          secrets: createSecrets({ env: { key: "K" } }, { K: "abc" }),
          workspace: folder,
        },
      );
      opened.push(tools);
      expect(await tools.call(toolCall("mcp::web::hello", {}))).toMatchObject({
        type: "succeeded",
        output: { text: "hello" },
      });
      expect(new Set(seen)).toEqual(new Set(["abc"]));
    } finally {
      vi.unstubAllGlobals();
    }
  });

  test("a server that is not there", async () => {
    const tools = createMcpTools(readMcpConfig({ web: { url: "http://127.0.0.1:9/mcp" } }), {
      secrets: createSecrets({}, {}),
      workspace: folder,
    });
    opened.push(tools);
    expect(words(await tools.call(toolCall("mcp::web::hello", {})))).toMatch(/^execution: .*cannot be reached/);
  });
});

describe("in a run", () => {
  const plan = {
    workflow_schema: 1,
    id: "use-mcp",
    revision: 1,
    invocation_policy: { explicit: true, automatic: false },
    steps: [{ id: "say", type: "tool", tool: "mcp::srv::echo", args: { a: 1 }, capabilities: [] }],
    plan: { type: "step", step: "say" },
  };
  const mcp = (log: string) => ({ srv: { command: process.execPath, args: [SERVER, join(folder, log)] } });

  test("an undeclared tool is asked for; granted, it runs; untrusted, it is refused and nothing is started", async () => {
    await using holdfast = await createHoldfast({
      workspace: folder,
      store: "sqlite::memory:",
      trust: true,
      mcp: mcp("run"),
      workflows: [plan],
      worker: false,
    });
    const asked = await holdfast.run({ workflow: "use-mcp" });
    expect(asked.suspension?.type).toBe("tool_approval");
    expect(() => readFileSync(join(folder, "run"))).toThrow();
    await holdfast.waits.approve(asked.run_id, undefined, { decided_by: "os:tester" });
    const done = await holdfast.runs.drive(asked.run_id);
    expect(done).toMatchObject({ status: "succeeded", output: { structured: { echoed: { a: 1 } } } });
    await using untrusted = await createHoldfast({
      workspace: folder,
      store: "sqlite::memory:",
      mcp: mcp("untrusted"),
      workflows: [plan],
      worker: false,
    });
    await expect(untrusted.run({ workflow: "use-mcp" })).rejects.toThrow(/not trusted/);
    expect(() => readFileSync(join(folder, "untrusted"))).toThrow();
  });

  test("permissions can name the server", async () => {
    await using holdfast = await createHoldfast({
      workspace: folder,
      store: "sqlite::memory:",
      trust: true,
      mcp: mcp("allowed"),
      permissions: { "mcp::srv": "allow", write: "allow" },
      workflows: [plan],
      worker: false,
    });
    expect((await holdfast.run({ workflow: "use-mcp" })).status).toBe("succeeded");
  });
});
