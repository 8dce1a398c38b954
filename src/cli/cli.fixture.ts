/** For the tests of this room: one call of the command, with streams in memory and a scripted `Holdfast`. */
import { PassThrough } from "node:stream";
import type { Holdfast, OperatorEvent, Run, WorkflowEntry } from "../access/api.ts";
import { ACTION_NAMES } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import { DEFAULT_BUDGETS, NO_USAGE, type Wait } from "../domain/run.ts";
import { runCli } from "./cli.ts";
import type { Process } from "./context.ts";
import type { CompositionRoot } from "./root.ts";

export const RUN_ID = "0197f0a0-1111-7222-8333-123456789abc";
export const NOW = Date.parse("2026-01-02T03:04:05.000Z");

export function makeRun(changes: Partial<Run> = {}): Run {
  return {
    run_id: RUN_ID,
    root_run_id: RUN_ID,
    session_id: "0197f0a0-0000-7000-8000-000000000001",
    workflow_id: "hello",
    workflow_revision: 1,
    definition_bundle_hash: "0".repeat(64),
    kind: "plan",
    status: "succeeded",
    can_cancel: false,
    can_restart_as_new_run: false,
    planned_steps: [{ id: "look", kind: "tool" }],
    plan: { type: "step", step: "look" },
    steps: [{ id: "look", status: "succeeded", attempts: 1 }],
    budget: DEFAULT_BUDGETS,
    usage: { ...NO_USAGE, steps: 1 },
    child_agent_count: 0,
    last_sequence: 3,
    args: {},
    created_at: "2026-01-02T03:04:00.000Z",
    updated_at: "2026-01-02T03:04:01.500Z",
    actions: ACTION_NAMES.map((name) => ({ name, allowed: false, reason: "it has ended" })),
    waits: [],
    ...changes,
  };
}

export function makeApproval(changes: Partial<Wait> = {}): Wait {
  return {
    wait_id: "w-4",
    type: "tool_approval",
    run_id: RUN_ID,
    step_id: "publish",
    since_ms: NOW - 60_000,
    tool: "publish_package",
    input: { version: "1.10" },
    side_effect: "mutating",
    capabilities: ["network"],
    digest: "9c1f00ab".repeat(8),
    ...changes,
  };
}

export function makeEvent(
  sequence: number,
  type: string,
  fields: { [name: string]: string | number } = {},
): OperatorEvent {
  return { run_id: RUN_ID, sequence, at: "2026-01-02T03:04:00.000Z", type, ...fields } as OperatorEvent;
}

const ENTRY: WorkflowEntry = {
  workflow_id: "hello",
  revision: 1,
  kind: "plan",
  source: "workspace",
  invocation_policy: { explicit: true, automatic: false },
  input_schema: {
    type: "object",
    required: ["dir"],
    additionalProperties: false,
    properties: { dir: { type: "string" }, depth: { type: "integer" } },
  },
  state: "valid",
  diagnostics: [],
};

export interface Script {
  /** What `runs.inspect` and `runs.drive` answer. */
  readonly run?: Run;
  readonly events?: readonly OperatorEvent[];
  readonly entry?: WorkflowEntry;
  readonly drive?: Holdfast["runs"]["drive"];
  readonly start?: Holdfast["start"];
  readonly runs?: Partial<Holdfast["runs"]>;
  readonly waits?: Partial<Holdfast["waits"]>;
  readonly root?: Partial<CompositionRoot>;
  readonly openError?: HoldfastError;
  readonly env?: NodeJS.ProcessEnv;
  readonly tty?: boolean;
  readonly stdin?: string;
  /** Typed one by one, each when a question has been asked; then the input ends. A function does something first. */
  readonly answers?: readonly (string | (() => Promise<string>))[];
  /** Called with each listener for SIGINT. */
  readonly onSigint?: (listener: () => void) => void;
}

/** Anything that the script does not answer is a mistake of the test. */
function strict<T extends object>(what: string, known: Partial<T>): T {
  return new Proxy(known as T, {
    get: (target, key) => {
      // `await` asks every value whether it is a promise.
      if (Object.hasOwn(target, key) || key === "then") return Reflect.get(target, key);
      throw new Error(`the script has no ${what}.${String(key)}`);
    },
  });
}

export function scripted(script: Script, calls: unknown[][] = []): Holdfast {
  const run = script.run ?? makeRun();
  const note =
    <A extends unknown[], R>(name: string, answer: (...args: A) => R) =>
    (...args: A): R => {
      calls.push([name, ...args]);
      return answer(...args);
    };
  const handle = { run_id: run.run_id, replayed: false, result: async () => run, events: () => follow() };
  async function* follow(): AsyncGenerator<OperatorEvent> {
    for (const event of script.events ?? []) yield event;
  }
  return strict<Holdfast>("holdfast", {
    start: note("start", script.start ?? (async () => handle)),
    runs: strict<Holdfast["runs"]>("runs", {
      find: async (ref: string) => {
        if (ref === "missing")
          throw new HoldfastError("not_found", 'Cannot find run "missing": there is none; check the id');
        return run.run_id;
      },
      inspect: async () => run,
      drive: note("drive", script.drive ?? (async () => run)),
      follow: () => follow(),
      ...script.runs,
    }),
    waits: strict<Holdfast["waits"]>("waits", { ...script.waits }),
    workflows: strict<Holdfast["workflows"]>("workflows", {
      get: async () => script.entry ?? ENTRY,
      list: async () => [script.entry ?? ENTRY],
    }),
    close: async () => {},
  });
}

export interface Called {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly calls: readonly unknown[][];
}

export async function call(words: readonly string[], script: Script = {}): Promise<Called> {
  const calls: unknown[][] = [];
  const begun = performance.now();
  const out = { stdout: "", stderr: "" };
  const stream = (name: "stdout" | "stderr") => {
    const made = Object.assign(new PassThrough(), { isTTY: script.tty === true, columns: 80 });
    made.setEncoding("utf8");
    made.on("data", (text: string) => {
      out[name] += text;
    });
    return made;
  };
  const stdin = Object.assign(new PassThrough(), { isTTY: script.tty === true });
  const answers = [...(script.answers ?? [])];
  const stderr = stream("stderr");
  if (script.answers === undefined) stdin.end(script.stdin ?? "");
  else
    stderr.on("data", (text: string) => {
      if (!text.endsWith(") ")) return;
      const answer = answers.shift();
      if (answer === undefined) stdin.end();
      else if (typeof answer === "string") stdin.write(`${answer}\n`);
      else void answer().then((line) => stdin.write(`${line}\n`));
    });
  const root = strict<CompositionRoot>("root", {
    openWorkspace: async (request) => {
      calls.push(["openWorkspace", request]);
      if (script.openError !== undefined) throw script.openError;
      return { holdfast: scripted(script, calls), workspace: "/work/shop", trusted: true, diagnostics: [] };
    },
    findWorkspace: (cwd) => ({ root: cwd, state_dir: `${cwd}/no-state` }),
    openWorkspaceFolder: (folder) => ({ root: folder, state_dir: `${folder}/no-state` }),
    ...script.root,
  });
  const process: Process = {
    streams: { stdin, stdout: stream("stdout"), stderr },
    env: script.env ?? {},
    cwd: "/work/shop",
    program: "holdfast",
    entry: "/nowhere",
    load: async () => root,
    onSignal: (signal, listener) => {
      if (signal === "SIGINT") script.onSigint?.(listener);
      return () => {};
    },
    exit: (status) => calls.push(["exit", status]),
    now: () => NOW + performance.now() - begun,
  };
  const status = await runCli(words, process);
  return { status, ...out, calls };
}
