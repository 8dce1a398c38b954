/**
 * A process that runs a tree of runs whose tools each start a process of the operating system, and waits for its end:
 * started as `node tree-child.mjs '{"folder": …}'`. It says each process it starts, and how the
 * run ended.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeSync } from "node:fs";
import { join } from "node:path";
import { createHoldfast, defineTool } from "../../src/index.ts";
import { leaf, plan } from "./workflows.ts";

const request = JSON.parse(process.argv[2] ?? "{}") as { readonly folder: string };

function say(document: object): void {
  writeSync(1, `${JSON.stringify(document)}\n`);
}

const call = (id: string, workflow_id: string): object => ({
  id,
  type: "workflow",
  workflow_id,
  revision: 1,
  args: {},
});
const parallel = (...nodes: readonly object[]): object => ({ type: "parallel", nodes });

const workflows = [
  plan("sleeps", [{ id: "sleep", type: "tool", tool: "Sleep", capabilities: [], args: {} }], leaf("sleep")),
  plan("two", [call("one", "sleeps"), call("other", "sleeps")], parallel(leaf("one"), leaf("other"))),
  plan("asks", [{ id: "gate", type: "approval", prompt: "go on?" }], leaf("gate")),
  // Six steps may be at work at once: once they are, what is let go is a child whose step is queued.
  plan(
    "top",
    [
      ...["a", "b", "c"].map((id) => call(id, "two")),
      call("asking", "asks"),
      { id: "go", type: "input", prompt: "go?", schema: { type: "boolean" } },
      call("late", "sleeps"),
    ],
    parallel(...["a", "b", "c", "asking"].map(leaf), { type: "sequence", nodes: [leaf("go"), leaf("late")] }),
    { budgets: { max_concurrency: 6 } },
  ),
];

const sleeps = defineTool({
  name: "Sleep",
  description: "starts a process that sleeps, and waits for it",
  input: { type: "object" },
  run: async (value, { run_id, signal }) => {
    const sleeper = spawn("sleep", ["60"], { stdio: "ignore" });
    const end = (): void => void sleeper.kill();
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    say({ sleeper: sleeper.pid, run_id });
    await once(sleeper, "exit");
    signal.throwIfAborted();
    return value;
  },
});

const holdfast = await createHoldfast({
  store: `sqlite:${join(request.folder, "holdfast.db")}`,
  workspace: request.folder,
  trust: true,
  permissions: { write: "allow" },
  workflows,
  tools: [sleeps],
  worker: false,
});
const handle = await holdfast.start({ workflow: "top" });
say({ run_id: handle.run_id });
// It waits for a person too: driven on until the run has ended.
for (let run = await holdfast.runs.drive(handle.run_id); ; run = await holdfast.runs.drive(handle.run_id)) {
  if (run.status === "suspended") continue;
  say({ status: run.status });
  break;
}
await holdfast.close();
