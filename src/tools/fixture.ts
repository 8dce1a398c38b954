/** For this room's tests only: a workspace on disk beside things that must stay unseen, and calls into it. */
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Json, JsonObject } from "../domain/json.ts";
import type { ToolCall, ToolOutcome } from "../ports/index.ts";
import type { ToolContext } from "./define.ts";
import { fileTools } from "./files/index.ts";
import { createToolRegistry } from "./registry.ts";

export interface Sandbox {
  /** Real path of the workspace, `…/ws`; what is beside it is outside. */
  readonly root: string;
  write(path: string, content: string | Uint8Array): Promise<void>;
  call(tool: string, input: Json, more?: Partial<ToolCall>): Promise<ToolOutcome>;
  /** The output of a call that must succeed. */
  output(tool: string, input: Json): Promise<JsonObject>;
  [Symbol.asyncDispose](): Promise<void>;
}

export async function openSandbox(files: { readonly [path: string]: string } = {}): Promise<Sandbox> {
  const top = await realpath(await mkdtemp(join(tmpdir(), "holdfast tools ")));
  const root = join(top, "ws");
  await mkdir(root);
  const registry = createToolRegistry([fileTools()]);
  const sandbox: Sandbox = {
    root,
    async write(path, content) {
      await mkdir(dirname(join(root, path)), { recursive: true });
      await writeFile(join(root, path), content);
    },
    call: (tool, input, more = {}) => registry.call({ ...toolCall(tool, input), workspace: root, ...more }),
    async output(tool, input) {
      const outcome = await sandbox.call(tool, input);
      if (outcome.type !== "succeeded") throw new Error(`${tool}: ${JSON.stringify(outcome)}`);
      return outcome.output as JsonObject;
    },
    [Symbol.asyncDispose]: () => rm(top, { recursive: true, force: true }),
  };
  for (const [path, content] of Object.entries(files)) await sandbox.write(path, content);
  return sandbox;
}

export function toolContext(more: Partial<ToolContext> = {}): ToolContext {
  return {
    dispatch_id: "d".repeat(64),
    signal: new AbortController().signal,
    workspace: "/",
    run_id: "run",
    step_id: "step",
    attempt: 1,
    redispatch: 0,
    posture: "ask",
    receipt: async () => {},
    link: async () => {},
    ...more,
  };
}

export function toolCall(tool: string, input: Json): ToolCall {
  return { ...toolContext(), tool, input, tool_call_id: "workflow-1" };
}
