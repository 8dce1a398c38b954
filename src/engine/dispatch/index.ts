/**
 * The one door to the outside (DESIGN §6): resolve, reserve, queue, room, permit, authorise, intent, dispatch,
 * receipt, validate, settle. No other code dispatches.
 */
import type { EventBody } from "../../domain/events.ts";
import type { Json } from "../../domain/json.ts";
import { reserveStep } from "../../domain/ledger.ts";
import type { RunState } from "../../domain/state.ts";
import type { ToolSpec } from "../program.ts";
import type { ChildRequest, StepRequest } from "../requests.ts";
import { refuse } from "../tree/asking.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import { armWait, openWait } from "../tree/waiting.ts";
import { isDropped, type Job } from "../work.ts";
import { Admission, type NotAdmitted } from "./admission.ts";
import { AgentDispatch } from "./agent.ts";
import { childEnded, resumeChild, startChild } from "./child.ts";
import { ToolDispatch } from "./tool.ts";

export class Dispatch {
  readonly #tree: TreeExecutor;
  readonly tools: ToolDispatch;
  readonly agents: AgentDispatch;
  readonly admission: Admission;

  constructor(tree: TreeExecutor) {
    this.#tree = tree;
    this.admission = new Admission(tree);
    this.tools = new ToolDispatch(tree);
    this.agents = new AgentDispatch(tree);
  }

  /** Takes a step or child from where the journal has it to its settlement, or to a wait. */
  async run(job: Job): Promise<void> {
    if (job.request.resumed) return this.#resume(job);
    // what lags behind the disk is bounded, also where a program asks for thousands of steps at once.
    for (let room = this.#tree.journal.room(); room !== undefined; room = this.#tree.journal.room()) await room;
    // Told to stop while it waited: nothing of it is written.
    if (job.request.dead || isDropped(job) || this.#tree.closed) return this.#tree.dropJob(job);
    if (job.request.kind === "wait") return openWait(this.#tree, job);
    if (!reserveAndQueue(this.#tree, job)) return;
    // `strict`: a tool's reservation and intent are one append, since nothing happens between them.
    const strict = job.request.kind === "child" ? this.#tree.strictBarrier(job.run.runId) : undefined;
    if (strict !== undefined) await strict;
    if (job.request.kind === "child") return startChild(this.#tree, job as Job & { request: ChildRequest });
    await this.#fromQueue(job);
  }

  /** A step that an interruption had stopped goes on where the journal has it. */
  async goOn(job: Job): Promise<void> {
    return this.#resume(job);
  }

  /** An agent's tokens are reserved with no permit held; a tool only needs the permit. */
  async #fromQueue(job: Job): Promise<void> {
    if (this.#tree.services.leaves) return;
    const { spec } = job.request as StepRequest;
    if (spec.kind === "agent") return this.agents.run(job, spec, undefined);
    await this.#admitted(job, spec, undefined);
  }

  /** No permit is held while it waits for resources or for its owner (GD-53, GD-27). */
  async #admitted(job: Job, spec: ToolSpec, grant: string | undefined): Promise<void> {
    for (;;) {
      let missing: NotAdmitted | undefined;
      await this.#withPermit(job, async () => {
        missing = await this.#start(job, spec, grant);
      });
      if (missing === undefined || !(await this.admission.wait(job, missing))) return this.admission.done(job);
    }
  }

  async #resume(job: Job): Promise<void> {
    const step = this.#tree.state(job.run.runId).steps.get(job.instance);
    if (step === undefined) return;
    if (step.side_effect !== undefined) job.sideEffect = step.side_effect;
    if (job.request.kind === "child") return resumeChild(this.#tree, job as Job & { request: ChildRequest }, step);
    if (step.status === "suspended") {
      job.stage = "waiting";
      const wait = this.#tree.state(job.run.runId).waits.find((w) => w.step_id === job.instance);
      // What a pause or an interruption has stopped sends nothing before it is continued, granted or not (GD-62).
      const goes = this.#tree.state(job.run.runId).status === "running";
      if (goes && wait?.granted !== undefined) return this.granted(job, wait.wait_id);
      armWait(this.#tree, job);
      return;
    }
    if (step.status === "queued") return this.#fromQueue(job);
    if (this.#tree.services.leaves) return;
    const { spec } = job.request as StepRequest;
    if (spec.kind === "agent") return this.agents.resume(job, spec);
    await this.#withPermit(job, () => this.tools.recover(job, step));
  }

  /** After a person granted it: the grant is consumed by the start in the same append; until then it may queue. */
  async granted(job: Job, waitId: string): Promise<void> {
    job.stage = "queued";
    if (this.#tree.services.leaves) return;
    const { spec } = job.request as StepRequest;
    if (spec.kind === "agent") return this.agents.run(job, spec, waitId);
    await this.#admitted(job, spec, waitId);
  }

  /** After a person gave an open attempt up: the next one is a new attempt (GD-74). */
  async again(job: Job): Promise<void> {
    job.stage = "queued";
    await this.#fromQueue(job);
  }

  async #withPermit(job: Job, work: () => Promise<void>): Promise<void> {
    const queued = this.#tree.permits.acquire(() => !isDropped(job) && !this.#tree.paused, job);
    if (queued !== undefined && !(await queued)) return;
    try {
      if (isDropped(job) || this.#tree.paused || this.#tree.closed) return;
      await work();
    } finally {
      this.#tree.permits.release();
    }
  }

  async #start(job: Job, spec: ToolSpec, grant: string | undefined): Promise<NotAdmitted | undefined> {
    const room = this.#tree.journal.room();
    if (room !== undefined) await room;
    if (isDropped(job) || this.#tree.paused) return undefined;
    return this.tools.start(job, spec, grant);
  }

  childEnded(job: Job, child: RunState): void {
    childEnded(this.#tree, job, child);
  }
}

/** RP-26: one step is reserved before it is queued, in one append; false when the budget refused it. */
export function reserveAndQueue(tree: TreeExecutor, job: Job): boolean {
  const counted = reserveStep(tree.ledger);
  if (!counted.ok) {
    refuse(tree, job, counted.failure);
    return false;
  }
  tree.ledger = counted.ledger;
  tree.append(job.run.runId, [
    { type: "phase", name: "step_reserved" },
    { type: "step_queued", step_id: job.instance, visit: job.request.visit },
  ]);
  return true;
}

/** The intent (DESIGN §4). A `null` input is left out. */
export function intent(
  tree: TreeExecutor,
  job: Job,
  facts: {
    readonly side_effect: Job["sideEffect"];
    readonly tool?: string;
    readonly grant?: string;
    readonly redispatch?: number;
    readonly intent?: Json;
  },
): EventBody {
  const step = tree.state(job.run.runId).steps.get(job.instance);
  const fresh = step?.status === "queued" || step?.was === "queued";
  const { side_effect, ...rest } = facts;
  job.sideEffect = side_effect;
  return {
    type: "step_started",
    step_id: job.instance,
    attempt: (step?.attempts ?? 0) + (fresh ? 1 : 0),
    side_effect,
    input_hash: job.request.inputHash,
    ...(job.request.input === null ? {} : { input: job.request.input }),
    ...(rest.tool === undefined ? {} : { tool: rest.tool }),
    ...(rest.grant === undefined ? {} : { grant: rest.grant }),
    ...(rest.intent === undefined ? {} : { intent: rest.intent }),
    ...(rest.redispatch === undefined ? {} : { redispatch: rest.redispatch }),
  };
}
