/**
 * What is measured: Holdfast as its user opens it (`createHoldfast` over a SQLite file, tools made with `defineTool`),
 * with steps that do nothing, so that only the engine and the disk are left.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createHoldfast, defineTool, type Holdfast, type Run, type ToolContext } from "../src/index.ts";

const EMPTY = { type: "object", additionalProperties: false } as const;

/** Hears of every step body that runs; what it returns is awaited before the step ends. */
export type Heard = (context: ToolContext) => undefined | Promise<void>;

export interface SubjectOptions {
  /** Folder of this subject alone: the database and the workspace are made in it. */
  readonly folder: string;
  readonly workflows: readonly object[];
  readonly durability?: "standard" | "strict";
  readonly heard?: Heard;
}

/** Where the subject of a folder keeps its database. */
export function databaseOf(folder: string): string {
  return join(folder, "holdfast.db");
}

export function openSubject(options: SubjectOptions): Promise<Holdfast> {
  const workspace = join(options.folder, "workspace");
  mkdirSync(workspace, { recursive: true });
  const { heard } = options;
  const body = (_: unknown, context: ToolContext): object | Promise<object> => {
    const waiting = heard?.(context);
    return waiting === undefined ? {} : waiting.then(() => ({}));
  };
  return createHoldfast({
    store: `sqlite:${databaseOf(options.folder)}`,
    workspace,
    trust: true,
    permissions: { read: "allow", write: "allow" },
    limits: { concurrency: 1_024, steps: 100_000 },
    workflows: options.workflows,
    tools: [
      defineTool({
        name: "look",
        description: "Does nothing and says so.",
        input: EMPTY,
        sideEffect: "read_only",
        run: body,
      }),
      defineTool({
        name: "change",
        description: "Counts as a change.",
        input: EMPTY,
        sideEffect: "mutating",
        run: body,
      }),
    ],
    ...(options.durability === undefined ? {} : { durability: options.durability }),
  });
}

type Kind = "look" | "change";

function step(id: string, tool: Kind): object {
  return { id, type: "tool", tool, args: {}, capabilities: [tool === "look" ? "read" : "write"] };
}

function plan(id: string, steps: readonly object[], node: object, concurrency = 1): object {
  return {
    workflow_schema: 1,
    id,
    revision: 1,
    input_schema: EMPTY,
    budgets: {
      max_concurrency: concurrency,
      max_agents: 0,
      max_steps: steps.length,
      max_retries: 0,
      wall_time_ms: 86_400_000,
    },
    steps,
    plan: node,
  };
}

function leaves(ids: readonly string[]): object[] {
  return ids.map((id) => ({ type: "step", step: id }));
}

function names(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `s${i + 1}`);
}

/** Steps one after the other; each waits for the one before. */
export function sequenceOf(id: string, count: number, tool: Kind = "look"): object {
  const ids = names(count);
  return plan(
    id,
    ids.map((each) => step(each, tool)),
    { type: "sequence", nodes: leaves(ids) },
  );
}

/** Steps that are all at work at once. */
export function parallelOf(id: string, count: number): object {
  const ids = names(count);
  return plan(
    id,
    ids.map((each) => step(each, "look")),
    { type: "parallel", nodes: leaves(ids) },
    Math.min(count, 1_024),
  );
}

/** One step that sleeps until time alone wakes it. */
export function sleepOf(id: string, forMs: number): object {
  return plan(id, [{ id: "sleep", type: "wait", for_ms: forMs }], { type: "step", step: "sleep" });
}

/** Runs a workflow to its end. @throws Error when it did not succeed: a figure of failed work would be a lie */
export async function finish(holdfast: Holdfast, workflow: string): Promise<void> {
  demandSuccess(await holdfast.run({ workflow, args: {} }));
}

export function demandSuccess(run: Run): void {
  if (run.status !== "succeeded")
    throw new Error(
      `Cannot measure: the run ${run.run_id} is ${run.status}: ${JSON.stringify(run.failure ?? run.waits)}`,
    );
}

/** Does `count` pieces of work, `atOnce` at a time. */
export async function each(count: number, atOnce: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: Math.min(count, atOnce) }, lane));
}
