import { expect, test } from "vitest";
import { readYaml } from "../catalog/index.ts";
import { configEditorSchema } from "../config/index.ts";
import { type Json, normalizeJson } from "../domain/json.ts";
import { compilePlan } from "../domain/plan/index.ts";
import { type AnyTool, fileTools } from "../tools/index.ts";
import { demoTools } from "./demo/tools.ts";
import { DEMO_PLAN } from "./demo/workflow.ts";
import { CONFIG_YAML, HELLO_YAML } from "./init-files.ts";

function compile(document: Json, tools: readonly AnyTool[]) {
  const described = new Map(
    tools.map(({ name, inputSchema, outputSchema }) => [
      name,
      { input_schema: inputSchema, ...(outputSchema === undefined ? {} : { output_schema: outputSchema }) },
    ]),
  );
  return compilePlan(document, { tool: (name) => described.get(name), maxConcurrency: 64 });
}

function yaml(text: string): Json {
  const read = readYaml(text, "shipped.yaml");
  expect(read.diagnostics).toBeUndefined();
  return read.value as Json;
}

test("the workflow that init writes compiles without a warning", () => {
  const { definition, problems } = compile(yaml(HELLO_YAML), fileTools().tools);
  expect([problems, definition?.id]).toEqual([[], "hello"]);
});

test("the configuration that init writes uses keys that there are", async () => {
  const { properties } = (await configEditorSchema()) as unknown as { properties: Record<string, unknown> };
  expect(Object.keys(properties)).toEqual(expect.arrayContaining(Object.keys(yaml(CONFIG_YAML) as object)));
});

test("the demonstration's workflow compiles without a warning, and uses map, parallel, choice and retry", () => {
  const tools = [...fileTools().tools, ...demoTools({ pauseMs: 0, beforeMeasure: async () => {} })];
  const { definition, problems } = compile(normalizeJson(DEMO_PLAN), tools);
  expect(problems).toEqual([]);
  const text = JSON.stringify(definition?.plan);
  for (const type of ["map", "parallel", "choice", "retry"]) expect(text).toContain(`"type":"${type}"`);
  for (const tool of demoTools({ pauseMs: 0, beforeMeasure: async () => {} }))
    expect(tool.sideEffect).toBe("read_only");
});
