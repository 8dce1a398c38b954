// The model's tools (RP-80 … RP-83): schema, fields, flags, errors, and what the providers' converters make of them.
import { createOpenAI } from "@ai-sdk/openai";
import { mcpToTool } from "@google/genai";
import { describe, expect, test } from "vitest";
import { HoldfastError } from "../domain/errors.ts";
import {
  classifyWorkflowRun,
  parseWorkflowRun,
  parseWorkflowWait,
  ToolCallError,
  WORKFLOW_RUN_SCHEMA,
} from "./index.ts";
import { toolCallError } from "./tool-errors.ts";

/** The text of RP-80, its lines joined. */
const RP_80 =
  '{"type":"object","properties":{' +
  '"action":{"type":"string","enum":["start","list","get","events","cancel","restart"]},' +
  '"workflow_id":{"type":"string","minLength":1},"revision":{"type":"integer","minimum":1},' +
  '"args":{"type":"object","default":{}},' +
  '"budget":{"type":"object","properties":{' +
  '"max_concurrency":{"type":"integer","minimum":1},"max_agents":{"type":"integer","minimum":0},' +
  '"max_steps":{"type":"integer","minimum":1},"max_retries":{"type":"integer","minimum":0},' +
  '"max_nesting_depth":{"type":"integer","minimum":1},"wall_time_ms":{"type":"integer","minimum":1},' +
  '"max_tokens":{"type":"integer","minimum":0},"max_cost_micros":{"type":"integer","minimum":0}},' +
  '"required":["max_concurrency","max_agents","max_steps","max_retries","max_nesting_depth","wall_time_ms"],' +
  '"additionalProperties":false},' +
  '"run_id":{"type":"string"},"since":{"type":"integer","minimum":0}},' +
  '"required":["action"],"additionalProperties":false}';

const BUDGET = {
  max_concurrency: 1,
  max_agents: 0,
  max_steps: 2,
  max_retries: 0,
  max_nesting_depth: 1,
  wall_time_ms: 5000,
};
const START = { action: "start", workflow_id: "review-flow", revision: 42 };

function refusal(call: unknown, parse: (call: unknown) => unknown = parseWorkflowRun): ToolCallError {
  try {
    parse(call);
  } catch (error) {
    if (ToolCallError.is(error)) return error;
    throw error;
  }
  throw new Error(`accepted ${JSON.stringify(call)}`);
}

describe("the schema", () => {
  test("SC-8 is RP-80 byte for byte and has no root combinators", () => {
    expect(JSON.stringify(WORKFLOW_RUN_SCHEMA)).toBe(RP_80);
    for (const word of ["oneOf", "anyOf", "allOf"]) expect(WORKFLOW_RUN_SCHEMA).not.toHaveProperty(word);
  });

  test("SC-9 goes through the OpenAI conversion unchanged, with 7 properties", async () => {
    let sent: { tools: { function: { name: string; parameters: { properties: object } } }[] } | undefined;
    const provider = createOpenAI({
      apiKey: "none",
      baseURL: "http://127.0.0.1:9",
      fetch: async (_, init) => {
        sent = JSON.parse(String(init?.body)) as typeof sent;
        throw new Error("nothing is sent");
      },
    });
    const call = provider.chat("gpt-test").doGenerate({
      prompt: [{ role: "user", content: [{ type: "text", text: "go" }] }],
      tools: [{ type: "function", name: "workflow_run", inputSchema: WORKFLOW_RUN_SCHEMA as never }],
    });
    await expect(call).rejects.toThrow();
    const [tool] = sent?.tools ?? [];
    expect(tool?.function.name).toBe("workflow_run");
    expect(JSON.stringify(tool?.function.parameters)).toBe(RP_80);
    expect(Object.keys(tool?.function.parameters.properties ?? {})).toHaveLength(7);
  });

  test("SC-10 goes through the Gemini conversion as JSON schema, without legacy parameters", async () => {
    const client = {
      listTools: async () => ({
        tools: [{ name: "workflow_run", description: "runs", inputSchema: WORKFLOW_RUN_SCHEMA }],
      }),
    };
    const converted = await mcpToTool(client as never).tool();
    const [declaration] = converted.functionDeclarations ?? [];
    expect(declaration?.name).toBe("workflow_run");
    expect(JSON.stringify(declaration?.parametersJsonSchema)).toBe(RP_80);
    expect(declaration).not.toHaveProperty("parameters");
  });
});

describe("calls", () => {
  test("SC-13 workspace_trusted is an unknown field", () => {
    const error = refusal({ ...START, workspace_trusted: true });
    expect(error.kind).toBe("InvalidArguments");
    expect(error.message).toContain("unknown field");
    expect(error.message).toContain("workspace_trusted");
  });

  test.each([
    [{ action: "list", run_id: "x" }, "run_id"],
    [{ action: "get", run_id: "x", since: 1 }, "since"],
    [{ action: "events", run_id: "x", workflow_id: "w" }, "workflow_id"],
    [{ action: "cancel", run_id: "x", revision: 1 }, "revision"],
    [{ action: "restart", run_id: "x", budget: BUDGET }, "budget"],
    [{ ...START, run_id: "x" }, "run_id"],
    [{ ...START, budget: { ...BUDGET, max_everything: 1 } }, "max_everything"],
  ])("SC-14 %j: unknown field", (call, field) => {
    expect(refusal(call).message).toMatch(new RegExp(`^workflow input is invalid: unknown field "${field}"`));
  });

  test("SC-14 a bare list parses", () => expect(parseWorkflowRun({ action: "list" })).toEqual({ action: "list" }));

  test("SC-15 omitted args are {}, and the limits that may be 0 may be 0", () => {
    expect(parseWorkflowRun(START)).toEqual({ ...START, args: {} });
    const budget = { ...BUDGET, max_tokens: 0, max_cost_micros: 0 };
    expect(parseWorkflowRun({ ...START, budget })).toEqual({ ...START, args: {}, budget });
  });

  test.each([
    [{}, "action"],
    [{ action: "approve", run_id: "x" }, "action"],
    [{ action: "__proto__" }, "action"],
    [{ action: "start", workflow_id: "w" }, "revision is missing"],
    [{ action: "start", workflow_id: "", revision: 1 }, "workflow_id"],
    [{ action: "start", workflow_id: "w", revision: 1.5 }, "revision"],
    [{ ...START, args: [] }, "args"],
    [{ ...START, budget: { ...BUDGET, max_steps: 0 } }, "max_steps"],
    [{ ...START, budget: { max_steps: 1 } }, "max_concurrency is missing"],
    [{ action: "get" }, "run_id is missing"],
    [{ action: "events", run_id: "x", since: -1 }, "since"],
    ["not json", "JSON"],
    [[1], "object"],
    [{ action: "get", run_id: "x".repeat(300) }, "run_id"],
  ])("%j is refused", (call, words) => {
    const error = refusal(call);
    expect(error.kind).toBe("InvalidArguments");
    expect(error.message).toMatch(/^workflow input is invalid: /);
    expect(error.message).toContain(words);
  });

  test("arguments as JSON text are read like the object", () => {
    expect(parseWorkflowRun(JSON.stringify(START))).toEqual({ ...START, args: {} });
    expect(refusal(`{"action":"list","x":"${"a".repeat(1_100_000)}"}`).message).toContain("too large");
  });

  test("workflow_wait waits 30 s unless told, at most 50 s", () => {
    expect(parseWorkflowWait({ run_id: "r" })).toEqual({ run_id: "r", timeout_ms: 30_000 });
    expect(parseWorkflowWait({ run_id: "r", timeout_ms: 0 }).timeout_ms).toBe(0);
    expect(refusal({ run_id: "r", timeout_ms: 50_001 }, parseWorkflowWait).message).toContain("from 0 to 50000");
    expect(refusal({ run_id: "r", decision: "approve" }, parseWorkflowWait).message).toContain("unknown field");
  });

  test("RP-82 only get, list and events are read-only and parallel-safe", () => {
    for (const action of ["get", "list", "events"])
      expect(classifyWorkflowRun({ action })).toEqual({ read_only: true, parallel_safe: true });
    for (const call of [
      { action: "start" },
      { action: "cancel" },
      { action: "restart" },
      { action: "x" },
      {},
      null,
      "get",
    ])
      expect(classifyWorkflowRun(call)).toEqual({ read_only: false, parallel_safe: false });
  });
});

describe("errors", () => {
  const secret = "/home/someone/PRIVATE-path";

  test.each([
    ["storage", "Execution", "workflow storage unavailable"],
    ["input", "InvalidArguments", "workflow input is invalid"],
    ["preflight", "InvalidArguments", "workflow preflight failed"],
    ["definition", "InvalidArguments", "workflow definition is invalid"],
    ["not_found", "Execution", "workflow run not found"],
    ["terminal", "Execution", "workflow run is already terminal"],
    ["workflow_monetary_budget_unsupported", "InvalidArguments", "workflow preflight failed"],
    ["internal", "Execution", "workflow storage unavailable"],
  ] as const)("SC-7 %s shows only its closed text", (code, kind, text) => {
    const logged: unknown[] = [];
    const error = toolCallError(
      new HoldfastError(code, `Cannot read ${secret}`, { details: { path: secret } }),
      (...line) => logged.push(line),
      "workflow_run",
    );
    expect([error.kind, error.message]).toEqual([kind, text]);
    expect(JSON.stringify(error)).not.toContain("PRIVATE");
    expect(logged).toHaveLength(1);
  });

  test("RP-83 an error that is not ours is a storage error, told to the log only", () => {
    expect(toolCallError(new TypeError(secret), undefined, "x").message).toBe("workflow storage unavailable");
  });

  test.each([
    ["opt_in", "opt-in"],
    ["invocation", "invocation_policy.automatic"],
    ["index_full", "workflow run index is full of active runs"],
  ])("R-41 a preflight refused for %s says what to set", (refused, words) => {
    const error = toolCallError(new HoldfastError("preflight", secret, { details: { refused } }), undefined, "x");
    expect(error.message).toMatch(/^workflow preflight failed: /);
    expect(error.message).toContain(words);
    expect(error.message).not.toContain("PRIVATE");
  });
});
