/** GD-13 … GD-18, GD-35, GD-39 … GD-41 by a tool that `defineTool` made: an owner with a job queue, outside the process. */
import { expect, test } from "vitest";
import type { Json } from "../../src/domain/json.ts";
import { aborted, type FakeTool, type Gate, gate, leaf } from "../../src/engine/fixture.ts";
import { planProgram } from "../../src/engine/programs/plan/index.ts";
import { defineTool, type ToolContext, ToolError } from "../../src/index.ts";
import type { OwnerAnswer } from "../../src/ports/index.ts";
import { type AnyTool, createToolRegistry } from "../../src/tools/index.ts";
import { eventually, NEVER, open, processOn, stepOf } from "./gs-world.ts";

/** What outlives every process: jobs by the key under which they were sent. */
class Queue {
  readonly jobs = new Map<
    string,
    { readonly id: number; state: "queued" | "done" | "cancelled"; readonly end: Gate }
  >();
  readonly intents: Json[] = [];
  readonly cancels: Json[] = [];
  readonly plans: string[] = [];
  full: Gate | undefined;
  /** Observations that are put off. */
  restarting = 0;
  observed = 0;
  /** Called once a job is accepted; `NEVER` holds its caller there. */
  onAccepted: () => Promise<void> = async () => undefined;

  end(state: "done" | "cancelled"): void {
    for (const job of this.jobs.values()) {
      job.state = state;
      job.end.open();
    }
  }

  tool(): AnyTool {
    return defineTool({
      name: "render",
      description: "Renders a film on the farm.",
      input: { type: "object", required: ["film"], properties: { film: { type: "string" } } },
      plan: ({ input: { film }, dispatch_id }) => {
        this.plans.push(dispatch_id);
        if (this.full !== undefined) return { type: "busy", waits_for: "a machine", free: this.full.promise };
        return { type: "ready", intent: { film, frames: 240 } };
      },
      run: (_, context) => this.#run(context),
      lookup: ({ dispatch_id }) => (this.jobs.has(dispatch_id) ? this.#word(dispatch_id) : { type: "absent" }),
      observe: ({ dispatch_id }) => {
        this.observed++;
        return this.restarting-- > 0 ? { type: "deferred", reason: "the farm restarts" } : this.#word(dispatch_id);
      },
      cancel: (query) => {
        this.cancels.push({ ...query });
        this.end("cancelled");
      },
    });
  }

  async #run({ dispatch_id, intent, receipt, signal }: ToolContext): Promise<Json> {
    this.intents.push(intent ?? "none");
    const job = this.jobs.get(dispatch_id) ?? { id: this.jobs.size + 1, state: "queued" as const, end: gate() };
    this.jobs.set(dispatch_id, job);
    await this.onAccepted();
    await receipt({ job: job.id });
    await Promise.race([job.end.promise, aborted({ signal })]);
    if (job.state !== "done") throw new Error("stopped");
    return { job: job.id };
  }

  #word(key: string): OwnerAnswer {
    const job = this.jobs.get(key);
    if (job === undefined) return { type: "unknown" };
    const receipt = { job: job.id };
    if (job.state === "done") return { type: "succeeded", output: receipt, receipt };
    return { type: job.state === "cancelled" ? "cancelled" : "running", receipt };
  }
}

/** The registry's port, as the fixture takes tools. */
function fake(tool: AnyTool): FakeTool {
  const port = createToolRegistry([{ source: "code", origin: "the test", tools: [tool] }]);
  return {
    side_effect: tool.sideEffect,
    capabilities: tool.capabilities,
    run: (call) => port.call(call),
    ...(tool.lookup === undefined ? {} : { lookup: port.lookup }),
    ...(tool.observe === undefined ? {} : { observe: port.observe }),
    ...(tool.plan === undefined ? {} : { plan: port.plan }),
    cancel: port.cancel,
  };
}

const document = (more: object = {}) => ({
  steps: [{ id: "film", type: "tool", tool: "render", args: { film: "one" }, ...more }],
  plan: leaf("film"),
});
const processWith = async (store: Awaited<ReturnType<typeof open>>, queue: Queue) =>
  processOn(store, { program: planProgram, tools: { render: fake(queue.tool()) } });

test("GD-13 GD-39 planned when there is room, its receipt observed after a crash, and told to stop by whoever recovered it", async () => {
  const store = await open();
  const queue = new Queue();
  queue.full = gate();
  const dying = await processWith(store, queue);
  const runId = await dying.start(document());
  await eventually(() => queue.plans.length > 0);
  await dying.engine.holds(runId)?.journal.barrier();
  // GD-14: nothing but the queued step is written while it is busy.
  expect([stepOf(await dying.state(runId), "film").status, queue.jobs.size]).toEqual(["queued", 0]);
  const { full } = queue;
  queue.full = undefined;
  full.open();
  await eventually(async () => stepOf(await dying.state(runId), "film").receipt !== undefined);
  await dying.kill();
  expect(queue.intents).toEqual([{ film: "one", frames: 240 }]);
  queue.restarting = 1;
  const f = await processWith(store, queue);
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  await f.engine.go(tree, "auto");
  await eventually(() => queue.observed > 1);
  expect(queue.cancels).toEqual([]);
  await f.signal(runId, "cancel");
  await f.engine.idle(runId);
  const [key] = queue.jobs.keys();
  expect([(await f.state(runId)).status, queue.cancels]).toEqual([
    "cancelled",
    [{ dispatch_id: key, receipt: { job: 1 } }],
  ]);
  expect([queue.jobs.size, queue.intents.length]).toEqual([1, 1]);
});

test("GD-18 a crash before the receipt: the lookup finds job and receipt, which is stored, and the job is done once", async () => {
  const store = await open();
  const queue = new Queue();
  const dying = await processWith(store, queue);
  queue.onAccepted = () => NEVER;
  const runId = await dying.start(document());
  await eventually(() => queue.jobs.size === 1);
  await dying.kill();
  const f = await processWith(store, queue);
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("not claimed");
  await f.engine.go(tree, "auto");
  await eventually(() => queue.observed > 0);
  expect(stepOf(await f.state(runId), "film").receipt).toEqual({ job: 1 });
  queue.end("done");
  await f.engine.idle(runId);
  expect(await f.state(runId)).toMatchObject({ status: "succeeded", output: { job: 1 } });
  expect([queue.jobs.size, queue.intents.length]).toEqual([1, 1]);
});

test("R-8 a plan that refuses or breaks off fails the step with nothing sent, and its own policy may try it again", async () => {
  const causes: (() => never)[] = [];
  let asked = 0;
  const tool = defineTool({
    ...{ name: "render", description: "Renders.", input: { type: "object" } as const },
    plan: () => {
      asked++;
      const cause = causes.shift();
      return cause === undefined ? { type: "ready", intent: 1 } : cause();
    },
    run: () => "rendered",
  });
  const f = await processOn(await open(), { program: planProgram, tools: { render: fake(tool) } });
  const refuse = (error: Error) => (): never => {
    throw error;
  };
  causes.push(refuse(new ToolError("no such film", { kind: "bad_arguments" })));
  const refused = await f.run(document());
  expect(refused.failure).toMatchObject({ code: "invalid_input", retryable: false });
  expect((await f.kinds(refused.header.run_id)).filter((kind) => kind === "handed_off")).toEqual([]);
  causes.push(refuse(new Error("a bug")));
  expect((await f.run(document())).failure).toMatchObject({ code: "execution_failed", retryable: true });
  causes.push(refuse(new Error("a bug")), refuse(new ToolError("down", { kind: "unavailable" })));
  const retry = { max_attempts: 3, initial_backoff_ms: 0, eligible_failures: ["owner_unavailable_before_acceptance"] };
  expect(await f.run(document({ retry }))).toMatchObject({ status: "succeeded", usage: { retries: 2 } });
  expect(asked).toBe(5);
});
