/** For tests of the tools: fixture F of the specification in a workspace on disk, over a store that outlives its openings. */
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Json } from "../domain/json.ts";
import { createHoldfast, defineTool, type Holdfast, type HoldfastOptions } from "../index.ts";
import type { RunStore, SessionStore } from "../ports/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";

/** Fixture F; `changes` are lines of YAML in place of those with the same key. */
export function reviewFlow(policy = "{explicit: true, automatic: true}"): string {
  return `workflow_schema: 1
id: review-flow
revision: 42
invocation_policy: ${policy}
input_schema: {type: object, additionalProperties: true}
budgets: {max_concurrency: 2, max_agents: 1, max_steps: 4, max_retries: 2, max_nesting_depth: 2, wall_time_ms: 10000, max_tokens: 1000, max_cost_micros: 1000}
steps:
  - {id: inspect, type: tool, tool: inspect_it, args: {}, capabilities: [read], output_schema: {type: object, additionalProperties: true}}
plan: {type: step, step: inspect}
`;
}

export interface World {
  readonly workspace: string;
  readonly store: RunStore & SessionStore;
  /** Resolves when the tool has been entered so often. */
  entered(times: number): Promise<void>;
  /** `block`: the tool waits until it is aborted. */
  mode: "answer" | "block" | "fail";
  write(path: string, text: string): Promise<void>;
  open(options?: Partial<HoldfastOptions>): Promise<Holdfast>;
  [Symbol.asyncDispose](): Promise<void>;
}

export async function openWorld(): Promise<World> {
  const workspace = await realpath(await mkdtemp(join(tmpdir(), "holdfast access ")));
  const store = await openSqliteStore({ path: ":memory:" });
  const opened: Holdfast[] = [];
  const waiting: { readonly times: number; readonly resolve: () => void }[] = [];
  let calls = 0;
  const inspectIt = defineTool({
    name: "inspect_it",
    description: "Answers, blocks or fails.",
    input: { type: "object" },
    sideEffect: "read_only",
    async run(_, { signal }): Promise<Json> {
      calls++;
      for (const one of waiting) if (one.times <= calls) one.resolve();
      if (world.mode === "fail") throw new Error("PRIVATE-tool-words");
      if (world.mode === "answer") return { ok: true };
      return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    },
  });
  const world: World = {
    workspace,
    store,
    mode: "answer",
    entered: (times) =>
      new Promise((resolve) => {
        if (calls >= times) resolve();
        else waiting.push({ times, resolve });
      }),
    async write(path, text) {
      await mkdir(dirname(join(workspace, path)), { recursive: true });
      await writeFile(join(workspace, path), text);
    },
    async open(options = {}) {
      const holdfast = await createHoldfast({ workspace, store, trust: true, tools: [inspectIt], worker: false, limits: { stop_grace_ms: 200 }, ...options });
      opened.push(holdfast);
      return holdfast;
    },
    async [Symbol.asyncDispose]() {
      for (const holdfast of opened) await holdfast.close();
      await store.close();
      await rm(workspace, { recursive: true, force: true });
    },
  };
  await world.write(".holdfast/workflows/review-flow.yaml", reviewFlow());
  return world;
}

/** The session, opted in unless told otherwise. */
export async function optIn(holdfast: Holdfast, name = "default", optedIn = true): Promise<void> {
  await holdfast.sessions.update(name, { orchestration_opt_in: optedIn });
}
