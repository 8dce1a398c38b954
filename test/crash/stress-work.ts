// Owns what the processes of the stress test work on: the workflows, and tools whose effects are lines in one file.
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { defineTool, type HoldfastOptions } from "../../src/index.ts";
import { GO } from "./child-request.ts";

export const LEASE_MS = 1_000;

export interface StressRequest {
  readonly folder: string;
  readonly slot: number;
  readonly workflow: string;
  /** Runs `from` … `to - 1` are started by this process, one every `every_ms`. */
  readonly from: number;
  readonly to: number;
  readonly every_ms: number;
}

export interface Line {
  readonly tool: string;
  readonly run_id: string;
  readonly step_id: string;
  readonly dispatch_id: string;
  readonly pid: number;
}

export function linesIn(folder: string): Line[] {
  const file = join(folder, "effects");
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Line);
}

const step = (id: string, tool: string): object => ({ id, type: "tool", tool, capabilities: [], args: { n: id } });
const leaf = (id: string): object => ({ type: "step", step: id });
const plan = (id: string, steps: readonly object[], node: object): object => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps,
  plan: node,
});

const WORKFLOWS = [
  plan(
    "mixed",
    [
      step("first", "Transfer"),
      step("left", "Transfer"),
      step("right", "Put"),
      { id: "nap", type: "wait", for_ms: 30 },
      step("charge", "Charge"),
      step("last", "Transfer"),
    ],
    {
      type: "sequence",
      nodes: [
        leaf("first"),
        { type: "parallel", nodes: [leaf("left"), leaf("right")] },
        leaf("nap"),
        leaf("charge"),
        leaf("last"),
      ],
    },
  ),
  plan("sleeps", [step("a", "Transfer"), { id: "nap", type: "wait", for_ms: 1_500 }, step("b", "Transfer")], {
    type: "sequence",
    nodes: [leaf("a"), leaf("nap"), leaf("b")],
  }),
  plan("slow", [step("a", "Transfer"), step("slow", "Slow"), step("b", "Transfer")], {
    type: "sequence",
    nodes: [leaf("a"), leaf("slow"), leaf("b")],
  }),
];

/**
 * @param say hears when a slow tool has begun
 * @returns what every process of one folder opens Holdfast with
 */
export function openStress(folder: string, say: (document: object) => void = () => undefined): HoldfastOptions {
  const claims = join(folder, "claims");
  mkdirSync(claims, { recursive: true });
  const effect = (tool: string, at: { run_id: string; step_id: string; dispatch_id: string }): void => {
    const { run_id, step_id, dispatch_id } = at;
    const file = openSync(join(folder, "effects"), "a");
    writeSync(file, `${JSON.stringify({ tool, run_id, step_id, dispatch_id, pid: process.pid })}\n`);
    closeSync(file);
  };
  const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1 + Math.random() * 20));
  const has = (dispatchId: string): boolean => linesIn(folder).some((line) => line.dispatch_id === dispatchId);
  /** True for the first who asks with this id, in whatever process: what R-10 wants of an owner that says `absent`. */
  const claim = (dispatchId: string): boolean => {
    try {
      closeSync(openSync(join(claims, dispatchId), "wx"));
      return true;
    } catch {
      return false;
    }
  };
  const input = { type: "object" } as const;
  const tools = [
    defineTool({
      name: "Transfer",
      description: "mutates; its owner can be asked, and takes an id once",
      input,
      run: async (value, at) => {
        await pause();
        if (claim(at.dispatch_id)) effect("Transfer", at);
        // Another call of this id is before this one: what becomes of it is not known here.
        else if (!has(at.dispatch_id)) throw new Error("this id is being worked on elsewhere");
        await pause();
        return value;
      },
      lookup: async ({ dispatch_id, input: value }) => {
        if (has(dispatch_id)) return { type: "succeeded", output: value as never };
        return existsSync(join(claims, dispatch_id)) ? { type: "unknown" } : { type: "absent" };
      },
    }),
    defineTool({
      name: "Put",
      description: "the same again does nothing more",
      input,
      sideEffect: "idempotent",
      run: async (value, at) => {
        await pause();
        if (claim(at.dispatch_id)) effect("Put", at);
        return value;
      },
    }),
    defineTool({
      name: "Charge",
      description: "mutates, and nobody can be asked",
      input,
      run: async (value, at) => {
        await pause();
        effect("Charge", at);
        await pause();
        return value;
      },
    }),
    defineTool({
      name: "Slow",
      description: "says that it began, and takes until it is told to go",
      input,
      sideEffect: "idempotent",
      run: async (value, { step_id, run_id, signal }) => {
        say({ slow: step_id, run_id });
        while (!existsSync(join(folder, GO)) && !signal.aborted) await new Promise((resolve) => setTimeout(resolve, 5));
        signal.throwIfAborted();
        return value;
      },
    }),
  ];
  return {
    store: `sqlite:${join(folder, "holdfast.db")}`,
    workspace: folder,
    trust: true,
    permissions: { write: "allow" },
    workflows: WORKFLOWS,
    tools,
  };
}
