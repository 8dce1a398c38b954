/**
 * A process with a Holdfast of its own over a SQLite file, so that it can be killed: started as
 * `node run-child.mjs '{"act": …}'`. What it did outside is one line each in the file `effects`; what it has to say
 * is one JSON document a line on stdout. It dies by itself where `die` says so; the hook is here, not in the product.
 */
import { appendFileSync, existsSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createHoldfast, defineTool, type Holdfast, type Run } from "../../src/index.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { checkRules, EffectLedger, type FaultPlan, faultyStore, readHistory } from "../../src/testing/index.ts";
import { type ChildRequest, GO } from "./child-request.ts";
import { WORKFLOWS } from "./workflows.ts";

const request = JSON.parse(process.argv[2] ?? "{}") as ChildRequest;
const effects = join(request.folder, "effects");

function say(document: object): void {
  writeSync(1, `${JSON.stringify(document)}\n`);
}

function effect(tool: string, dispatchId: string, step: string): void {
  appendFileSync(effects, `${JSON.stringify({ tool, dispatch_id: dispatchId, step, pid: process.pid })}\n`);
}

function happened(dispatchId: string): boolean {
  return existsSync(effects) && readFileSync(effects, "utf8").includes(`"${dispatchId}"`);
}

const input = { type: "object" } as const;
const tools = [
  defineTool({ name: "Look", description: "reads", input, sideEffect: "read_only", run: async (value) => value }),
  defineTool({
    name: "Charge",
    description: "mutates, and nobody can be asked",
    input,
    run: async (value, { dispatch_id, step_id }) => {
      effect("Charge", dispatch_id, step_id);
      return value;
    },
  }),
  defineTool({
    name: "Transfer",
    description: "mutates, and its owner can be asked",
    input,
    run: async (value, { dispatch_id, step_id }) => {
      if (!happened(dispatch_id)) effect("Transfer", dispatch_id, step_id);
      return value;
    },
    lookup: async ({ dispatch_id, input: value }) =>
      happened(dispatch_id) ? { type: "succeeded", output: value as never } : { type: "absent" },
  }),
  defineTool({
    name: "Slow",
    description: "says that it began, waits, then acts",
    input,
    run: async (value, { dispatch_id, step_id, signal }) => {
      say({ slow: step_id, pid: process.pid });
      while (!existsSync(join(request.folder, GO)) && !signal.aborted)
        await new Promise((resolve) => setTimeout(resolve, 5));
      signal.throwIfAborted();
      effect("Slow", dispatch_id, step_id);
      return value;
    },
  }),
  defineTool({
    name: "Exit",
    description: "takes its process with it",
    input,
    sideEffect: "read_only",
    run: async (value, { step_id }) => {
      // Once for each step, or always where the workflow says so.
      const mark = join(request.folder, `exited-${step_id}`);
      const always = (value as { always?: boolean }).always === true;
      if (always || !existsSync(mark)) {
        writeFileSync(mark, "");
        process.exit((value as { status?: number }).status ?? 1);
      }
      return value;
    },
  }),
  defineTool({
    name: "Gone",
    description: "acts, then takes its process with it",
    input,
    run: async (_, { dispatch_id, step_id }) => {
      effect("Gone", dispatch_id, step_id);
      process.exit(82);
    },
  }),
];

function faults(): FaultPlan {
  const { die, exit_after } = request;
  let act = (): void => void process.kill(process.pid, "SIGKILL");
  return {
    onStop: () => act(),
    write: (n, _, group) => {
      if (
        exit_after !== undefined &&
        JSON.stringify(
          group.flatMap((tree) => tree.runs.map((run) => Buffer.from(run.segment.bytes).toString())),
        ).includes(`\\"step_id\\":\\"${exit_after.step}\\",\\"type\\":\\"step_completed\\"`)
      ) {
        act = () => process.exit(exit_after.status);
        return { kind: "stop", when: "after" };
      }
      if (die?.write !== n) return undefined;
      if (die.how !== "stop") return { kind: "stop", when: die.when };
      say({ stopped: n });
      process.kill(process.pid, "SIGSTOP");
      return undefined;
    },
  };
}

const raw = await openSqliteStore({ path: join(request.folder, "holdfast.db") });
const faulty = faultyStore(raw, faults());
const holdfast = await createHoldfast({
  store: faulty.store,
  workspace: request.folder,
  trust: true,
  permissions: { write: "allow" },
  tools,
  workflows: WORKFLOWS,
  worker: request.act !== "start",
  ...(request.lease_ms === undefined ? {} : { limits: { lease_ms: request.lease_ms } }),
  ...(request.recovery === undefined ? {} : { recovery: request.recovery }),
  log: (level, message, details) => {
    const { error, ...rest } = details;
    if (level !== "info")
      say({ log: level, message, ...rest, error: error instanceof Error ? error.message : undefined });
  },
});

const acts: Record<ChildRequest["act"], () => Promise<void>> = {
  async start() {
    const handle = await holdfast.start({
      workflow: request.workflow ?? "",
      key: request.key ?? "k",
      ...(request.durability === undefined ? {} : { durability: request.durability }),
    });
    say({ run_id: handle.run_id });
    tell(await handle.result().catch((error: Error) => ({ error: error.message })));
    await holdfast.close();
  },
  async serve() {
    say({ serving: process.pid });
    process.on("SIGTERM", () => void holdfast.close().then(() => process.exit(0)));
    setInterval(() => undefined, 60_000);
  },
  async finish() {
    const { run_id } =
      (await holdfast.runs.list({ limit: 1 })).runs[0] ??
      (await holdfast.start({ workflow: request.workflow ?? "", key: request.key ?? "k" }));
    const run = await finish(holdfast, run_id);
    const history = await readHistory(raw, run_id, ledger());
    say({
      status: run.status,
      output: run.output,
      rules: checkRules(history).map((fault) => `${fault.rule} at ${fault.sequence}: ${fault.why}`),
      writes: faulty.writes,
    });
    await holdfast.close();
  },
};

function tell(run: Run | { error: string }): void {
  say(
    "error" in run
      ? run
      : { status: run.status, output: run.output, writes: faulty.writes, waits: run.waits.map((wait) => wait.type) },
  );
}

/** Answers what stands still, by looking at what really happened. */
async function finish(on: Holdfast, runId: string): Promise<Run> {
  for (let answers = 0; ; answers++) {
    const run = await on.runs.drive(runId);
    if (run.status !== "suspended" || answers > 10) return run;
    const [wait] = run.waits;
    if (wait?.type === "recovery") await on.runs.resume(runId);
    if (wait?.type !== "repair" || wait.step_id === undefined) continue;
    const evidence = await on.waits.evidence(runId, wait.step_id);
    const done = happened(evidence.dispatch_id);
    const how = done
      ? { resolution: "succeeded" as const, output: wait.input ?? null }
      : { resolution: "retry" as const, reason: "it did not happen" };
    await on.waits.repair(runId, wait.step_id, { ...how, decided_by: "os:test" });
  }
}

function ledger(): EffectLedger {
  const book = new EffectLedger();
  const lines = existsSync(effects) ? readFileSync(effects, "utf8").trim().split("\n") : [];
  for (const line of lines.filter((each) => each !== "")) {
    const { tool, dispatch_id, step } = JSON.parse(line) as { tool: string; dispatch_id: string; step: string };
    book.effects.push({
      tool,
      dispatch_id,
      step_id: step,
      side_effect: "mutating",
      run_id: "",
      attempt: 0,
      key: `${tool} ${step}`,
      output: null,
      at_ms: 0,
      process: "",
    });
  }
  return book;
}

await acts[request.act]();
