// The handler in somebody else's server, with its own authentication, and MCP behind the same door.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createHoldfast, type Holdfast } from "../../src/index.ts";
import { createMcpHttpHandler } from "../../src/mcp/index.ts";
import { Served, WORKFLOWS } from "./server.fixture.ts";

const START = { workflow_id: "gate", revision: 1 };

describe("handler()", () => {
  let holdfast: Holdfast;
  let served: Served;
  beforeAll(async () => {
    served = new Served();
    holdfast = await createHoldfast({
      workspace: served.workspace,
      store: "sqlite::memory:",
      trust: true,
      workflows: [WORKFLOWS[4]],
    });
  });
  afterAll(async () => {
    await holdfast.close();
  });
  const request = (address: string, init: RequestInit = {}) => new Request(`https://app.test/holdfast${address}`, init);
  const post = (body: object, headers: Record<string, string> = {}) => ({
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", ...headers },
  });

  test("lets nobody in by default", async () => {
    const handle = holdfast.handler({ base_path: "/holdfast" });
    expect((await handle(request("/healthz"))).status).toBe(200);
    expect((await handle(request("/api/v1/sessions", { headers: { Authorization: "Bearer x" } }))).status).toBe(401);
  });

  test("takes the outer server's word for who asks, below its path, and names it in the journal", async () => {
    const handle = holdfast.handler({
      base_path: "/holdfast",
      authenticate: (asked) =>
        asked.headers.get("x-user") === "anna" ? { name: "anna", role: "operator" } : undefined,
    });
    const answer = await handle(request("/api/v1/sessions/default/workflow-runs", post(START, { "x-user": "anna" })));
    expect(answer.status).toBe(202);
    const location = answer.headers.get("location") as string;
    expect(location).toMatch(/^\/holdfast\/api\/v1\//);
    expect(
      (await handle(new Request(`https://app.test${location}/cancel`, post({}, { "x-user": "anna" })))).status,
    ).toBe(200);
    const [run_id] = location.split("/").slice(-1) as [string];
    expect(JSON.stringify(await holdfast.runs.events(run_id))).toContain("token:anna");
    expect((await handle(new Request("https://app.test/elsewhere", { headers: { "x-user": "anna" } }))).status).toBe(
      404,
    );
  });

  test("a page of another origin gets nothing, whatever the outer server's cookies say", async () => {
    const handle = holdfast.handler({ authenticate: () => ({ name: "cookie", role: "operator" }) });
    const evil = new Request(
      "https://app.test/api/v1/sessions/default/workflow-runs",
      post(START, { Origin: "https://evil.test" }),
    );
    expect((await handle(evil)).status).toBe(403);
    const plain = new Request("https://app.test/api/v1/sessions/default/workflow-runs", {
      method: "POST",
      body: JSON.stringify(START),
      headers: { "Content-Type": "text/plain" },
    });
    expect((await handle(plain)).status).toBe(415);
  });

  test("R-41 answers MCP at its /mcp, behind the same authentication", async () => {
    const handle = holdfast.handler({
      base_path: "/holdfast",
      authenticate: (asked) =>
        asked.headers.get("x-user") === "anna" ? { name: "anna", role: "operator" } : undefined,
    });
    const initialize = {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
    };
    const accept = { Accept: "application/json, text/event-stream" };
    const answer = await handle(request("/mcp", post(initialize, { "x-user": "anna", ...accept })));
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain("serverInfo");
    expect((await handle(request("/mcp", post(initialize, accept)))).status).toBe(401);
  });
});

describe("/mcp", () => {
  test("stands behind the token, the media type and the size that everything stands behind", async () => {
    const served = await (await mounted()).start();
    try {
      const initialize = {
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
      };
      const accept = { Accept: "application/json, text/event-stream" };
      const answer = await served.post("/mcp", initialize, accept);
      expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining("serverInfo") as string]);
      expect((await served.fetch("/mcp", { method: "POST", token: null, body: "{}" })).status).toBe(401);
      expect(
        (
          await served.fetch("/mcp", {
            method: "POST",
            body: JSON.stringify(initialize),
            headers: { "Content-Type": "text/plain" },
          })
        ).status,
      ).toBe(415);
      expect((await served.post("/mcp", { pad: "x".repeat(1_100_000) }, accept)).status).toBe(413);
      const call = { jsonrpc: "2.0", id: 2, method: "tools/list", params: {} };
      const tools = await (
        await served.post(
          "/mcp",
          call,
          { ...accept, "Mcp-Protocol-Version": "2025-06-18" },
          served.token("looker", "observer"),
        )
      ).text();
      expect(tools).not.toContain("workflow__");
    } finally {
      await served.remove();
    }
  });

  /** MCP needs the open Holdfast, which the fixture makes at its start. */
  async function mounted(): Promise<Served> {
    const handlers = new WeakMap<Holdfast, ReturnType<typeof createMcpHttpHandler>>();
    const served: Served = new Served({
      mcp: (asked, caller) => {
        const handler = handlers.get(served.holdfast) ?? createMcpHttpHandler(served.holdfast);
        handlers.set(served.holdfast, handler);
        return handler(asked, caller);
      },
    });
    return served;
  }
});
