/**
 * The workflow of the demonstration, as an author would write it. Text and not a file, so that it is there
 * whatever this was bundled into.
 */
import { SOURCE_PATTERN } from "./sources.ts";

export const DEMO_ID = "holdfast-demo";

export const DEMO_PLAN = {
  workflow_schema: 1,
  id: DEMO_ID,
  revision: 1,
  title: "What is in this project?",
  description: "Finds the source files, measures and searches them, and reports what a person would want to know.",
  input_schema: { type: "object", additionalProperties: false, properties: {} },
  budgets: { max_concurrency: 6, max_agents: 0, max_steps: 500, max_retries: 3, wall_time_ms: 600_000 },
  steps: [
    { id: "find", type: "tool", tool: "Glob", args: { pattern: SOURCE_PATTERN, limit: 5000 }, capabilities: ["read"] },
    { id: "pick", type: "tool", tool: "demo_pick", args: { files: from("find", "/files") }, capabilities: ["read"] },
    { id: "folder", type: "tool", tool: "list_directory", args: { path: "." }, capabilities: ["read"] },
    {
      id: "markers",
      type: "tool",
      tool: "Grep",
      args: { pattern: "\\b(TODO|FIXME|XXX)\\b", glob: SOURCE_PATTERN, limit: 1000 },
      capabilities: ["read"],
    },
    {
      id: "measure",
      type: "tool",
      tool: "demo_measure",
      args: { path: { from: "item", name: "file" } },
      capabilities: ["read"],
    },
    {
      id: "report",
      type: "tool",
      tool: "demo_summarise",
      args: { measured: from("sizes"), markers: from("markers", "/matches"), left_out: from("pick", "/left_out") },
      capabilities: ["read"],
    },
    {
      id: "nothing",
      type: "tool",
      tool: "demo_summarise",
      args: { measured: [], markers: [], left_out: from("pick", "/left_out") },
      capabilities: ["read"],
    },
  ],
  plan: {
    type: "sequence",
    nodes: [
      { type: "step", step: "find" },
      { type: "step", step: "pick" },
      {
        type: "choice",
        condition: from("pick", "/found"),
        then_branch: {
          type: "sequence",
          nodes: [
            {
              type: "parallel",
              nodes: [
                { type: "step", step: "folder" },
                { type: "step", step: "markers" },
                {
                  type: "map",
                  id: "sizes",
                  source: from("pick", "/files"),
                  item: "file",
                  body: { type: "step", step: "measure" },
                },
              ],
            },
            { type: "retry", max_attempts: 3, delay_ms: 400, node: { type: "step", step: "report" } },
          ],
        },
        else_branch: { type: "step", step: "nothing" },
      },
    ],
  },
} as const;

function from<const S extends string, const P extends string = "">(step: S, pointer?: P) {
  return pointer === undefined ? { from: "step" as const, step } : { from: "step" as const, step, pointer };
}
