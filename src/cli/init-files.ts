/** The files that `holdfast init` writes: real ones, that run as they are. */

export const HELLO_YAML = `# yaml-language-server: $schema=../plan.schema.json
#
# A first look at a project: what lies in a folder, and where work was left open. It only reads.
#   holdfast run hello
#   holdfast run hello --input dir=src --input pattern='TODO|FIXME'
workflow_schema: 1
id: hello
revision: 1
title: A first look at a project
description: Lists a folder and finds the markers of unfinished work in it.
invocation_policy: {explicit: true, automatic: true}

input_schema:
  type: object
  additionalProperties: false
  properties:
    dir: {type: string, default: ".", description: "Folder to look at, relative to the workspace"}
    pattern: {type: string, default: "TODO|FIXME|XXX", description: "What marks unfinished work"}

budgets: {max_concurrency: 4, max_agents: 0, max_steps: 20, max_retries: 2, wall_time_ms: 60000}

# What can be done: each step names a tool, and where its arguments come from.
steps:
  - id: files
    type: tool
    tool: Glob
    args: {pattern: "**/*", path: {from: args, pointer: /dir}, limit: 500}
    capabilities: [read]
  - id: folder
    type: tool
    tool: list_directory
    args: {path: {from: args, pointer: /dir}}
    capabilities: [read]
  - id: open_markers
    type: tool
    tool: Grep
    args: {pattern: {from: args, pointer: /pattern}, path: {from: args, pointer: /dir}, limit: 100}
    capabilities: [read]

# In which order: all three at once; the search is tried again if the disk is slow to answer.
# The output is what they found, in the order written here.
plan:
  type: parallel
  nodes:
    - {type: step, step: files}
    - {type: step, step: folder}
    - {type: retry, max_attempts: 2, delay_ms: 200, node: {type: step, step: open_markers}}
`;

export const CONFIG_YAML = `# yaml-language-server: $schema=.holdfast/config.schema.json
#
# Takes effect once you trust this workspace: holdfast trust
# Per capability: allow, ask (a person decides) or deny. Unsaid: reading and agents are allowed, all else is asked.
permissions:
  read: allow
  write: ask
  shell: ask
  network: ask

# Ceilings for every run of this workspace.
limits:
  concurrency: 16
  steps: 10000
`;

export const CONFIG_TS = `// Takes effect once you trust this workspace: holdfast trust
import { defineTool } from "holdfast";

/** A tool of your own: plans call it by its name, with arguments that fit its input schema. */
const wordCount = defineTool({
  name: "word_count",
  description: "Counts the words of a text.",
  input: { type: "object", required: ["text"], additionalProperties: false, properties: { text: { type: "string" } } },
  output: { type: "object", required: ["words"], additionalProperties: false, properties: { words: { type: "integer" } } },
  sideEffect: "read_only",
  run: async ({ text }: { text: string }) => ({ words: text.split(/\\s+/).filter(Boolean).length }),
});

export default {
  // Per capability: allow, ask (a person decides) or deny. Unsaid: reading and agents are allowed, all else is asked.
  permissions: { read: "allow", write: "ask", shell: "ask", network: "ask" },
  tools: [wordCount],
  limits: { concurrency: 16, steps: 10_000 },
};
`;
