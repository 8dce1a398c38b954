/**
 * Agent steps (RP-43, RP-44, R-16): room for tokens and money first, with no permit held; then the permit, the
 * intent together with `agent_reserved`, the call, and the books.
 */
import type { EventBody } from "../../domain/events.ts";
import { dispatchId } from "../../domain/journal.ts";
import { dropReservation, reserveAgent, settleAgent } from "../../domain/ledger.ts";
import { secretHandles } from "../../domain/plan/index.ts";
import { type Failure, failure } from "../../domain/run.ts";
import type { Reservation, StepState } from "../../domain/state.ts";
import type { AgentEstimate, AgentOutcome, AgentPort } from "../../ports/index.ts";
import type { AgentSpec } from "../program.ts";
import { starveOrFail } from "../tree/asking.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import { approvalWait, suspendStep } from "../tree/waiting.ts";
import { isDropped, type Job } from "../work.ts";
import { intent } from "./index.ts";
import { checkOutput } from "./output.ts";

/** One try at a fitting output, under the grant that allowed the step, if it needed one. */
interface Round {
  readonly n: number;
  readonly grant: string | undefined;
}

interface Waiter {
  readonly job: Job;
  readonly estimate: AgentEstimate;
  readonly resolve: (room: Reservation | Failure | undefined) => void;
}

export class AgentDispatch {
  readonly #tree: TreeExecutor;
  #waiting: Waiter[] = [];

  constructor(tree: TreeExecutor) {
    this.#tree = tree;
  }

  /** From queued to settled: each try at a fitting output is one agent of the budget. */
  async run(job: Job, spec: AgentSpec, grant: string | undefined): Promise<void> {
    const port = this.#tree.ports.agents;
    if (port === undefined) return this.#refuse(job, failure("unknown_reference", "this build has no agents"));
    if (secretHandles(job.request.input).length > 0)
      return this.#refuse(job, failure("permission_denied", "a secret may not be put into an agent's prompt"));
    if (grant === undefined && !(await this.#authorise(job, spec))) return;
    for (let n = 1; n <= spec.structured_output_attempts; n++) {
      const settled = await this.#attempt(job, spec, port, { n, grant });
      if (settled) return;
    }
    this.#tree.fail(
      job,
      failure(
        "invalid_output",
        `the agent "${spec.agent}" gave no value that fits its output schema in ${spec.structured_output_attempts} tries`,
      ),
    );
  }

  /** A call that was in flight when its process died is booked at its full reservation, then asked again. */
  async resume(job: Job, spec: AgentSpec): Promise<void> {
    const state = this.#tree.state(job.run.runId);
    const lost = state.reservations.get(job.instance);
    if (lost !== undefined) {
      this.#tree.ledger = settleAgent(this.#tree.ledger, lost, lost).ledger;
      this.#tree.append(job.run.runId, [
        { type: "phase", name: "agent_usage_recorded", instance: job.instance, ...lost, estimated: true },
      ]);
    }
    await this.run(job, spec, undefined);
  }

  /** RP-20: policy is asked at every dispatch; what the agent may use was judged with its profile in preflight (RP-43). */
  async #authorise(job: Job, spec: AgentSpec): Promise<boolean> {
    const tree = this.#tree;
    const session = await tree.ports.sessions.getSession(tree.sessionId).catch(() => undefined);
    if (isDropped(job)) return false;
    if (session === undefined) {
      this.#refuse(job, failure("execution_failed", "the session's permissions could not be read", true));
      return false;
    }
    tree.posture = session.posture;
    const trusted = tree.services.trusted();
    const answer = tree.ports.policy.decide({
      kind: "agent",
      target: spec.agent,
      declared: spec.capabilities,
      capabilities: [],
      side_effect: "idempotent",
      trusted,
      posture: session.posture,
    });
    if (answer.decision === "allow") return true;
    if (answer.decision === "ask") this.#askPerson(job, spec, answer.reason);
    else if (answer.cause === "plan_mode")
      this.#refuse(
        job,
        failure("execution_failed", `"${spec.agent}" is blocked: the session is in Plan mode, which only reads`),
      );
    else
      this.#refuse(
        job,
        failure(
          trusted ? "permission_denied" : "untrusted_workspace",
          `"${spec.agent}" is not allowed: ${answer.reason}`,
        ),
      );
    return false;
  }

  /** `step_started` followed by `step_suspended` is no intent. */
  #askPerson(job: Job, spec: AgentSpec, reason: string): void {
    const tree = this.#tree;
    tree.append(job.run.runId, [
      intent(tree, job, { side_effect: "idempotent" }),
      { type: "phase", name: "suspension_context_persisted", instance: job.instance },
    ]);
    suspendStep(
      tree,
      job,
      reason,
      approvalWait(tree, job, { name: spec.agent, side_effect: "idempotent", capabilities: spec.capabilities }),
    );
  }

  async #attempt(job: Job, spec: AgentSpec, port: AgentPort, round: Round): Promise<boolean> {
    const tree = this.#tree;
    const { n } = round;
    const estimate = await this.#estimate(job, spec, port, n);
    if (isDropped(job)) return true;
    const room = await this.#room(job, estimate);
    if (room === undefined) return true;
    if ("code" in room) {
      starveOrFail(tree, job, room);
      return true;
    }
    const queued = tree.permits.acquire(() => !isDropped(job) && !tree.paused, job);
    if (queued !== undefined && !(await queued)) {
      this.#giveBack(room);
      return true;
    }
    try {
      if (isDropped(job) || tree.paused || tree.closed) {
        this.#giveBack(room);
        return true;
      }
      return await this.#call(job, spec, port, round, room);
    } finally {
      tree.permits.release();
    }
  }

  /** Never written down: whoever waits for room may have it. */
  #giveBack(room: Reservation): void {
    this.#tree.ledger = dropReservation(this.#tree.ledger, room);
    this.#reconsider();
  }

  async #estimate(job: Job, spec: AgentSpec, port: AgentPort, n: number): Promise<AgentEstimate> {
    try {
      return await port.estimate(this.#request(job, spec, n));
    } catch {
      return {};
    }
  }

  #request(job: Job, spec: AgentSpec, n: number): Parameters<AgentPort["estimate"]>[0] {
    const step = this.#tree.state(job.run.runId).steps.get(job.instance);
    return {
      agent: spec.agent,
      prompt: job.request.input,
      ...(spec.model === undefined ? {} : { model: spec.model }),
      ...(spec.effort === undefined ? {} : { effort: spec.effort }),
      ...(spec.output_schema === undefined ? {} : { output_schema: spec.output_schema }),
      run_id: job.run.runId,
      step_id: job.instance,
      attempt: Math.max(1, step?.attempts ?? 1),
      output_attempt: n,
      workspace: this.#tree.services.workspace,
    };
  }

  /** what does not fit waits while another reservation is open, first come first served; else it is refused. */
  #room(job: Job, estimate: AgentEstimate): Promise<Reservation | Failure | undefined> {
    return new Promise((resolve) => {
      this.#waiting.push({ job, estimate, resolve });
      this.#reconsider();
    });
  }

  #reconsider(): void {
    this.#waiting = this.#waiting.filter((waiter) => {
      if (!isDropped(waiter.job)) return true;
      waiter.resolve(undefined);
      return false;
    });
    while (this.#waiting.length > 0) {
      const waiter = this.#waiting[0] as Waiter;
      const room = reserveAgent(this.#tree.ledger, waiter.estimate);
      if (room.type === "wait") return;
      this.#waiting.shift();
      if (room.type === "refused") waiter.resolve(room.failure);
      else {
        this.#tree.ledger = room.ledger;
        waiter.resolve(room.reservation);
      }
    }
  }

  async #call(job: Job, spec: AgentSpec, port: AgentPort, { n, grant }: Round, room: Reservation): Promise<boolean> {
    const tree = this.#tree;
    const step = tree.state(job.run.runId).steps.get(job.instance) as StepState;
    const reserved: EventBody = { type: "phase", name: "agent_reserved", instance: job.instance, ...room };
    if (step.status !== "running")
      tree.append(
        job.run.runId,
        [intent(tree, job, { side_effect: "idempotent", ...(grant === undefined ? {} : { grant }) }), reserved],
        { control: true },
      );
    else tree.append(job.run.runId, [reserved], { control: true });
    job.stage = "running";
    // a barrier comes before a model request.
    const barrier = tree.journal.barrier();
    if (barrier !== undefined) await barrier;
    if (isDropped(job)) {
      this.#book(job, room, { tokens: 0, cost_micros: 0 });
      job.ended = true;
      return true;
    }
    if (!tree.services.lease.mayDispatch()) {
      tree.broken(tree.leaseLost());
      return true;
    }
    const outcome = await this.#ask(job, spec, port, n);
    if (tree.closed) return true;
    return this.#judge(job, spec, outcome, room, n);
  }

  async #ask(job: Job, spec: AgentSpec, port: AgentPort, n: number): Promise<AgentOutcome> {
    const { clock } = this.#tree.ports;
    if (spec.timeout_ms !== undefined)
      job.timers.push(
        clock.at(clock.now() + spec.timeout_ms, () => job.abort.abort(new Error("the step's timeout is over"))),
      );
    const attempt = this.#tree.state(job.run.runId).steps.get(job.instance)?.attempts ?? 1;
    try {
      return await port.call({
        ...this.#request(job, spec, n),
        dispatch_id: dispatchId(job.run.runId, job.instance, attempt),
        signal: job.abort.signal,
      });
    } catch (error) {
      return { type: "failed", message: error instanceof Error ? error.message : String(error) };
    } finally {
      for (const timer of job.timers) timer.cancel();
      job.timers = [];
    }
  }

  /** Books first, even for a failed or stopped call (RP-27, RP-44); true when the job is done with. */
  #judge(job: Job, spec: AgentSpec, outcome: AgentOutcome, room: Reservation, n: number): boolean {
    const tree = this.#tree;
    if (outcome.usage === undefined && isDropped(job)) tree.unmeasured.add(job.run.runId);
    const used = outcome.usage ?? { tokens: room.tokens, cost_micros: null };
    const overshoot = this.#book(job, room, used, outcome.usage === undefined);
    if (isDropped(job)) {
      job.ended = true;
      return true;
    }
    if (overshoot !== undefined) tree.fail(job, overshoot);
    else if (outcome.type === "stopped")
      tree.fail(
        job,
        failure("execution_failed", `the agent "${spec.agent}" was stopped by its timeout`, true),
        outcome.message,
      );
    else if (outcome.type === "failed")
      tree.fail(job, failure("execution_failed", `the agent "${spec.agent}" failed`), outcome.message);
    else {
      const checked = checkOutput(spec.agent, outcome.output, spec.output_schema, []);
      if (checked.ok) tree.settle(job, { type: "succeeded", output: checked.output });
      else if (n < spec.structured_output_attempts) return false;
      else tree.fail(job, checked.failure);
    }
    return true;
  }

  #book(
    job: Job,
    room: Reservation,
    used: { readonly tokens: number; readonly cost_micros: number | null },
    estimated = false,
  ): Failure | undefined {
    const settled = settleAgent(this.#tree.ledger, room, used);
    this.#tree.ledger = settled.ledger;
    this.#tree.append(job.run.runId, [
      {
        type: "phase",
        name: "agent_usage_recorded",
        instance: job.instance,
        tokens: used.tokens,
        cost_micros: used.cost_micros,
        ...(estimated ? { estimated: true as const } : {}),
      },
    ]);
    this.#reconsider();
    return settled.overshoot;
  }

  #refuse(job: Job, reason: Failure): void {
    const step = this.#tree.state(job.run.runId).steps.get(job.instance);
    if (step?.status === "queued")
      this.#tree.append(job.run.runId, [intent(this.#tree, job, { side_effect: "idempotent" })]);
    this.#tree.fail(job, reason);
  }

  /** Jobs that wait for tokens or money, first come first. */
  get waiting(): readonly Job[] {
    return this.#waiting.flatMap(({ job }) => (isDropped(job) ? [] : [job]));
  }

  /** Jobs that were told to stop leave the queue for room; a raised limit may let others in. */
  sweep(): void {
    this.#reconsider();
  }
}
