/** Tool steps: write the intent, hand over, judge the answer (DESIGN §6, R-8 … R-13). */
import { dispatchId, toolCallId } from "../../domain/journal.ts";
import { type Json, normalizeJson } from "../../domain/json.ts";
import { secretHandles } from "../../domain/plan/index.ts";
import { type Failure, failure, type SideEffect } from "../../domain/run.ts";
import type { StepState } from "../../domain/state.ts";
import type { Posture, ToolDescriptor } from "../../ports/index.ts";
import type { ToolSpec } from "../program.ts";
import type { StepRequest } from "../requests.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import { approvalWait, repairWait, suspendStep } from "../tree/waiting.ts";
import { isDropped, type Job } from "../work.ts";
import type { NotAdmitted } from "./admission.ts";
import {
  type Answer,
  couldNotPlan,
  type Failed,
  heardAfterStop,
  lateResult,
  reportedFailure,
  withKind,
} from "./answers.ts";
import { authorise, currentPosture, resolveSecrets } from "./authority.ts";
import { intent } from "./index.ts";
import { checkOutput } from "./output.ts";
import { keepLink, keepReceipt, ownerWord, type Word } from "./owners.ts";

interface Handover {
  readonly spec: ToolSpec;
  readonly tool: ToolDescriptor;
  readonly posture: Posture;
  readonly input: Json;
  readonly secrets: readonly string[];
  readonly attempt: number;
  readonly redispatch: number;
  /** A person has approved exactly this call. */
  readonly approved: boolean;
}

interface Cleared {
  readonly tool: ToolDescriptor;
  readonly posture: Posture;
  readonly secrets: { readonly input: Json; readonly values: readonly string[] };
}

interface Admitted {
  /** What its owner planned. */
  readonly intent?: Json;
  readonly missing?: NotAdmitted;
  /** It would not plan it: nothing was accepted. */
  readonly refused?: Failed;
}

export class ToolDispatch {
  readonly #tree: TreeExecutor;

  constructor(tree: TreeExecutor) {
    this.#tree = tree;
  }

  /** @returns what it has to wait for when it could not be begun; nothing is written then */
  async start(job: Job, spec: ToolSpec, grant: string | undefined): Promise<NotAdmitted | undefined> {
    const tree = this.#tree;
    const cleared = await this.#clear(job, spec, grant);
    if (cleared === undefined || isDropped(job)) return undefined;
    const { tool, posture, secrets } = cleared;
    const attempt = nextAttempt(tree, job);
    const planned =
      tool.can_handoff === true || spec.resources !== undefined ? await this.#admit(job, spec, tool, attempt) : {};
    if (planned.missing !== undefined) return planned.missing;
    if (isDropped(job) || tree.paused) {
      tree.dispatch.admission.giveBack(job, attempt);
      return undefined;
    }
    if (planned.refused !== undefined) return this.#refuseToPlan(job, spec, tool, planned.refused);
    const body = intent(tree, job, {
      side_effect: tool.side_effect,
      tool: spec.tool,
      ...(grant === undefined ? {} : { grant }),
      ...(planned.intent === undefined ? {} : { intent: planned.intent }),
    });
    tree.append(job.run.runId, [body], { control: tool.side_effect !== "read_only" });
    const approved = grant !== undefined;
    await this.#send(job, {
      spec,
      tool,
      posture,
      input: secrets.input,
      secrets: secrets.values,
      attempt,
      redispatch: 0,
      approved,
    });
    return undefined;
  }

  /** What a dispatch needs of policy and secrets; undefined when that refused it, or a person is asked first. */
  async #clear(job: Job, spec: ToolSpec, grant: string | undefined): Promise<Cleared | undefined> {
    const tree = this.#tree;
    const tool = tree.ports.tools.describe(spec.tool);
    const refuse = (side_effect: SideEffect, reason: Failure): undefined =>
      void this.#refuse(job, spec, side_effect, reason);
    if (tool === undefined) return refuse("mutating", failure("unknown_reference", `there is no tool "${spec.tool}"`));
    // Read-only work runs under every posture, so only work that a posture can forbid asks the store each time.
    const posture = tool.side_effect === "read_only" ? tree.posture : await currentPosture(tree);
    // Asking took a while: what was stopped or paused meanwhile is neither asked for nor refused.
    if (isDropped(job) || tree.paused || tree.closed) return undefined;
    if (posture === undefined)
      return refuse(tool.side_effect, failure("execution_failed", "the session's permissions could not be read", true));
    const answer = authorise(tree, spec, tool, posture);
    if (answer.type === "refuse") return refuse(tool.side_effect, answer.failure);
    if (answer.type === "ask" && grant === undefined) return void this.#ask(job, spec, tool, answer.reason);
    const { input } = job.request;
    const secrets =
      secretHandles(input).length > 0 ? await resolveSecrets(tree, job) : { ok: true as const, input, values: [] };
    return secrets.ok ? { tool, posture, secrets } : refuse(tool.side_effect, secrets.failure);
  }

  /** GD-13: its owner plans it without side effects, then what it claims is taken; either may have to be waited for. */
  async #admit(job: Job, spec: ToolSpec, tool: ToolDescriptor, attempt: number): Promise<Admitted> {
    const { tools } = this.#tree.ports;
    let intent = {};
    if (tools.plan !== undefined && tool.can_handoff === true) {
      const dispatch_id = dispatchId(job.run.runId, job.instance, attempt);
      const query = { dispatch_id, input: job.request.input, signal: job.abort.signal };
      const plan = await tools.plan(spec.tool, query).catch(couldNotPlan);
      if (plan.type === "failed") return { refused: plan };
      if (plan.type === "busy") return { missing: { ...plan, on: "owner" } };
      intent = { intent: normalizeJson(plan.intent) };
    }
    if (isDropped(job)) return intent;
    const got = await this.#tree.dispatch.admission.acquire(job, spec.resources ?? [], attempt);
    return got ? intent : { missing: { on: "lease" } };
  }

  /**
   * An attempt that was open when its process died (table of DESIGN §6). The caller holds a permit.
   * Observed or looked up where that can tell; sent again only where that is safe.
   */
  async recover(job: Job, step: StepState): Promise<void> {
    const tree = this.#tree;
    const { spec } = job.request as StepRequest & { spec: ToolSpec };
    const tool = tree.ports.tools.describe(spec.tool);
    job.stage = "running";
    const word = tool === undefined ? undefined : await ownerWord(tree, job, spec.tool, tool);
    // The owner was given them by the process that died, and may repeat them.
    const given = word === undefined ? undefined : await resolveSecrets(tree, job);
    const secrets = given?.ok === true ? given.values : [];
    if (tree.closed || job.run.ended) return;
    if (tool !== undefined && word !== undefined && (await this.#applyOwner(job, { spec, tool, secrets }, step, word)))
      return;
    if (isDropped(job) || tree.paused) return;
    if (step.side_effect === "mutating" || tool === undefined) {
      const reason =
        tool === undefined ? `the tool "${spec.tool}" is not there any more` : "its process ended before it answered";
      return suspendStep(tree, job, "outcome unknown", repairWait(tree, job, reason));
    }
    await this.#sendAgain(job, spec, tool, step);
  }

  /** True when the owner's answer settled the step or made it wait; false when the table goes on. */
  async #applyOwner(
    job: Job,
    { spec, tool, secrets }: Pick<Handover, "spec" | "tool" | "secrets">,
    step: StepState,
    answer: Word,
  ): Promise<boolean> {
    if (isDropped(job)) {
      heardAfterStop(job, spec, secrets, answer);
      return true;
    }
    switch (answer.type) {
      case "succeeded":
        this.#succeed(job, spec, tool, answer.output, secrets);
        return true;
      case "failed":
        this.#tree.fail(
          job,
          withKind(
            failure("execution_failed", `the tool "${spec.tool}" reported a failure`, answer.retryable),
            spec,
            tool,
          ),
          answer.message,
        );
        return true;
      case "cancelled":
        this.#tree.fail(job, failure("cancelled", `the owner of "${spec.tool}" cancelled it`));
        return true;
      case "absent":
        await this.#sendAgain(job, spec, tool, step);
        return true;
      case "running":
      case "unknown": {
        if (step.side_effect !== "mutating" && answer.type === "unknown") return false;
        const why = answer.type === "running" ? "it is still at work" : (answer.reason ?? "its owner does not know");
        suspendStep(this.#tree, job, "outcome unknown", repairWait(this.#tree, job, why, answer.type));
        return true;
      }
    }
  }

  /** the same attempt under the same dispatch_id, uncharged. */
  async #sendAgain(job: Job, spec: ToolSpec, tool: ToolDescriptor, step: StepState): Promise<void> {
    const posture = tool.side_effect === "read_only" ? this.#tree.posture : await currentPosture(this.#tree);
    const answer = posture === undefined ? undefined : authorise(this.#tree, spec, tool, posture);
    if (posture === undefined || answer?.type === "refuse")
      return this.#tree.fail(
        job,
        answer?.type === "refuse"
          ? answer.failure
          : failure("execution_failed", "the session's permissions could not be read", true),
      );
    const secrets = await resolveSecrets(this.#tree, job);
    if (!secrets.ok) return this.#tree.fail(job, secrets.failure);
    if (isDropped(job)) return;
    const redispatch = step.redispatch + 1;
    this.#tree.append(
      job.run.runId,
      [intent(this.#tree, job, { side_effect: tool.side_effect, tool: spec.tool, redispatch })],
      {
        control: tool.side_effect !== "read_only",
      },
    );
    // a barrier comes before sending anything again.
    const barrier = this.#tree.journal.barrier();
    if (barrier !== undefined) await barrier;
    await this.#send(job, {
      spec,
      tool,
      posture,
      input: secrets.input,
      secrets: secrets.values,
      attempt: step.attempts,
      redispatch,
      approved: false,
    });
  }

  /** Refused before anything was sent: the step starts and fails in one append, so RP-46's sequence holds. */
  #refuse(job: Job, spec: ToolSpec, side_effect: SideEffect, reason: Failure): void {
    const tree = this.#tree;
    tree.append(job.run.runId, [intent(tree, job, { side_effect, tool: spec.tool })]);
    tree.fail(job, reason);
  }

  /** Before the hand-over any word of its owner is a failure, whatever its side effect (R-8, RP-41). */
  #refuseToPlan(job: Job, spec: ToolSpec, tool: ToolDescriptor, said: Failed): undefined {
    const { side_effect } = tool;
    this.#tree.append(job.run.runId, [intent(this.#tree, job, { side_effect, tool: spec.tool })]);
    this.#tree.fail(job, withKind(reportedFailure(spec.tool, said), spec, tool, said.kind), said.message);
  }

  /** `step_started` followed by `step_suspended` is no intent. */
  #ask(job: Job, spec: ToolSpec, tool: ToolDescriptor, reason: string): void {
    const tree = this.#tree;
    tree.append(job.run.runId, [
      intent(tree, job, { side_effect: tool.side_effect, tool: spec.tool }),
      { type: "phase", name: "suspension_context_persisted", instance: job.instance },
    ]);
    suspendStep(tree, job, reason, approvalWait(tree, job, asked(spec, tool)));
  }

  /** The posture was changed after the step was allowed and before it was sent. */
  #forbiddenMeanwhile({ spec, tool, posture }: Handover): Failure | undefined {
    if (tool.side_effect === "read_only" || this.#tree.posture === posture) return undefined;
    const answer = authorise(this.#tree, spec, tool, this.#tree.posture);
    return answer.type === "refuse" ? answer.failure : undefined;
  }

  async #send(job: Job, handover: Handover): Promise<void> {
    const { tool } = handover;
    const tree = this.#tree;
    job.stage = "running";
    const outward = tool.capabilities.includes("network") || tool.capabilities.includes("shell");
    const barrier =
      tool.side_effect !== "read_only" || outward || tool.can_handoff === true
        ? tree.journal.barrier()
        : tree.strictBarrier(job.run.runId);
    if (barrier !== undefined) await barrier;
    if (isDropped(job)) return this.#neverSent(job);
    if (tool.can_handoff === true && !(await this.#handOff(job, tool))) return this.#neverSent(job);
    const forbidden = this.#forbiddenMeanwhile(handover);
    if (forbidden !== undefined) {
      job.ended = true;
      return tree.fail(job, forbidden);
    }
    // in the same tick as the hand-over. Without a lease the tree is another's: let it go.
    if (!tree.services.lease.mayDispatch()) return tree.broken(tree.leaseLost());
    const answer = await this.#call(job, handover);
    job.ended = true;
    if (isDropped(job)) return this.#afterStop(job, handover, answer);
    await this.#judge(job, handover, answer);
  }

  /**
   * GD-13: that the owner is about to be called is a fact of its own, in a transaction after the intent's.
   * @returns false when it was told to stop meanwhile
   */
  async #handOff(job: Job, tool: ToolDescriptor): Promise<boolean> {
    const tree = this.#tree;
    if (tree.state(job.run.runId).steps.get(job.instance)?.handed_off === true) return true;
    const control = tool.side_effect !== "read_only";
    tree.append(job.run.runId, [{ type: "handed_off", step_id: job.instance }], { control });
    await tree.journal.barrier();
    return !isDropped(job);
  }

  /** Told to stop between the intent and the hand-over: nothing was sent. */
  #neverSent(job: Job): void {
    job.ended = true;
  }

  async #call(job: Job, handover: Handover): Promise<Answer> {
    const { spec, input, posture, attempt, redispatch, approved } = handover;
    const tree = this.#tree;
    // Hashes are made when a tool asks for them: those that only read seldom do.
    const id = (): string => dispatchId(job.run.runId, job.instance, attempt);
    const prepared = tree.state(job.run.runId).steps.get(job.instance)?.intent;
    const call = tree.ports.tools
      .call({
        tool: spec.tool,
        input,
        get dispatch_id() {
          return id();
        },
        get tool_call_id() {
          return toolCallId(id(), redispatch);
        },
        run_id: job.run.runId,
        step_id: job.instance,
        attempt,
        redispatch,
        workspace: tree.services.workspace,
        posture,
        get signal() {
          return job.abort.signal;
        },
        ...(approved ? { approved } : {}),
        ...(prepared === undefined ? {} : { intent: prepared }),
        receipt: (receipt) => keepReceipt(tree, job, receipt),
        link: (session) => keepLink(tree, job, session),
      })
      .then(
        (outcome): Answer => outcome,
        (error: unknown): Answer => ({ type: "threw", error }),
      );
    if (spec.timeout_ms === undefined) return call;
    return this.#withTimeout(job, handover, spec.timeout_ms, call);
  }

  /** A step's own timeout: abort, then wait for the tool at most the grace. */
  async #withTimeout(job: Job, handover: Handover, timeoutMs: number, call: Promise<Answer>): Promise<Answer> {
    const { clock } = this.#tree.ports;
    const { stop_grace_ms } = this.#tree.services.limits;
    let late = false;
    const cut = new Promise<Answer>((resolve) => {
      job.timers.push(
        clock.at(clock.now() + timeoutMs, () => {
          late = true;
          job.abort.abort(new Error(`the step's timeout of ${timeoutMs} ms is over`));
          job.timers.push(clock.at(clock.now() + stop_grace_ms, () => resolve({ type: "timed_out" })));
        }),
      );
    });
    const answer = await Promise.race([call, cut]);
    if (!late) return answer;
    // A mutating tool that still reports its own word is believed; any other has timed out.
    if (job.sideEffect === "mutating" && (answer.type === "succeeded" || answer.type === "failed")) return answer;
    if (answer.type === "timed_out") void call.then((result) => this.#keepLate(job, handover, result));
    return { type: "timed_out" };
  }

  /** It answered after it was told to stop: within the grace the stop writes it down, later it is kept here. */
  #afterStop(job: Job, handover: Handover, answer: Answer): void {
    if (job.givenUp) return this.#keepLate(job, handover, answer);
    const late = lateResult(handover, answer);
    if (late !== undefined) job.late = late;
  }

  /** What an attempt answered after it was given up is evidence for who repairs it (DESIGN §6). */
  #keepLate(job: Job, handover: Handover, answer: Answer): void {
    const tree = this.#tree;
    const result = lateResult(handover, answer);
    if (result === undefined || job.run.ended) return;
    const late = { run_id: job.run.runId, step_id: job.instance, attempt: handover.attempt, result };
    if (tree.closed) return tree.services.late(tree.rootRunId, late);
    tree.guard(() => tree.appendLate(late));
  }

  #judge(job: Job, handover: Handover, answer: Answer): Promise<void> | void {
    const tree = this.#tree;
    const { spec, tool, secrets } = handover;
    switch (answer.type) {
      case "succeeded":
        return this.#succeed(job, spec, tool, answer.output, secrets);
      case "failed":
        return tree.fail(job, withKind(reportedFailure(spec.tool, answer), spec, tool, answer.kind), answer.message);
      case "needs_approval":
        tree.append(job.run.runId, [{ type: "phase", name: "suspension_context_persisted", instance: job.instance }]);
        return suspendStep(
          tree,
          job,
          answer.prompt ?? "the tool asks first",
          approvalWait(tree, job, asked(spec, tool), answer.prompt),
        );
      case "running":
        return void tree.background(this.#detached(job, spec, answer.kill));
      case "timed_out":
        if (tool.side_effect === "mutating")
          return this.#unknown(job, handover, `no answer within its timeout of ${spec.timeout_ms} ms`, false);
        return tree.fail(
          job,
          failure("execution_failed", `"${spec.tool}" did not answer within ${spec.timeout_ms} ms`, true),
        );
      case "threw": {
        const text = answer.error instanceof Error ? answer.error.message : String(answer.error);
        if (tool.side_effect === "mutating")
          return this.#unknown(job, handover, `it broke off: ${text}`, handover.redispatch === 0);
        return tree.fail(job, failure("execution_failed", `"${spec.tool}" broke off`, true), text);
      }
    }
  }

  /**
   * a mutation that did not say what became of it. Its owner is asked where it can tell (table of DESIGN §6), and
   * what it has never heard of is sent once more where `resend` allows; else a person says.
   */
  async #unknown(job: Job, handover: Handover, reason: string, resend: boolean): Promise<void> {
    const { spec, tool, secrets } = handover;
    const tree = this.#tree;
    // Whoever has taken the tree over meanwhile asks for itself.
    if (tree.closed) return;
    if (!tree.services.lease.mayDispatch()) return tree.broken(tree.leaseLost());
    // Until its owner has answered it counts as at work: whoever stops the run waits for it.
    job.ended = false;
    const word = await ownerWord(tree, job, spec.tool, tool);
    if (tree.closed || job.run.ended || tree.paused || isDropped(job)) {
      if (word !== undefined) heardAfterStop(job, spec, secrets, word);
      return;
    }
    const step = tree.state(job.run.runId).steps.get(job.instance);
    const settles = word?.type === "succeeded" || word?.type === "failed" || word?.type === "cancelled";
    if (step !== undefined && word !== undefined && (settles || (word.type === "absent" && resend)))
      return void (await this.#applyOwner(job, handover, step, word));
    job.ended = true;
    const more = word?.type === "unknown" && word.reason !== undefined ? `; ${word.reason}` : "";
    suspendStep(tree, job, "outcome unknown", repairWait(tree, job, `${reason}${more}`, word?.type));
  }

  #succeed(job: Job, spec: ToolSpec, tool: ToolDescriptor, value: Json, secrets: readonly string[]): void {
    const checked = checkOutput(spec.tool, value, spec.output_schema ?? tool.output_schema, secrets);
    if (checked.ok) this.#tree.settle(job, { type: "succeeded", output: checked.output });
    else this.#tree.fail(job, checked.failure);
  }

  /** RP-68: a detached tool is killed first, then shown as `tool_running`. A barrier comes before the kill. */
  async #detached(job: Job, spec: ToolSpec, kill: () => Promise<boolean>): Promise<void> {
    const tree = this.#tree;
    const barrier = tree.journal.barrier();
    if (barrier !== undefined) await barrier;
    const killed = await kill().catch(() => false);
    if (isDropped(job)) return;
    tree.append(job.run.runId, [{ type: "phase", name: "suspension_context_persisted", instance: job.instance }]);
    suspendStep(tree, job, "the tool runs on by itself", {
      // Its outcome is a person's to say as that of any other that is not known: with the same evidence and digest.
      ...repairWait(tree, job, "it went on by itself"),
      side_effect: job.sideEffect,
      type: "tool_running",
      tool: spec.tool,
      killed,
      tool_call_id: dispatchId(job.run.runId, job.instance, 1).slice(0, 16),
    });
  }
}

/** The number of the attempt that the next intent will have. */
function nextAttempt(tree: TreeExecutor, job: Job): number {
  const step = tree.state(job.run.runId).steps.get(job.instance);
  const fresh = step?.status === "queued" || step?.was === "queued";
  return (step?.attempts ?? 0) + (fresh ? 1 : 0);
}

function asked(spec: ToolSpec, tool: ToolDescriptor): Parameters<typeof approvalWait>[2] {
  return { name: spec.tool, side_effect: tool.side_effect, capabilities: [...tool.capabilities, ...spec.capabilities] };
}
