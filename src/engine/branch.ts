/**
 * What a program holds in its hand: one branch of it, asking its host. A branch that was cancelled is silent, with all
 * that began below it: what it still asks is never answered.
 */
import { checkRetryPolicy } from "../domain/backoff.ts";
import type { Json } from "../domain/json.ts";
import { attemptsKey } from "../domain/plan/index.ts";
import { failure } from "../domain/run.ts";
import { type DefinitionRef, type ProgramContext, StepFailure, type StepSpec, type WaitSpec } from "./program.ts";
import type { ProgramHost } from "./program-host.ts";
import { withRetries } from "./retrying-steps.ts";

const NEVER: Promise<never> = new Promise(() => undefined);

export class BranchContext implements ProgramContext {
  readonly #host: ProgramHost;
  readonly #chain: readonly BranchContext[];
  closed = false;

  constructor(host: ProgramHost, parents: readonly BranchContext[]) {
    this.#host = host;
    this.#chain = [...parents, this];
  }

  get args(): Json {
    return this.#host.args;
  }

  get signal(): AbortSignal {
    return this.#host.signal;
  }

  get #silent(): boolean {
    return this.#chain.some((branch) => branch.closed);
  }

  step(instance: string, spec: StepSpec, input: Json): Promise<Json> {
    if (this.#silent) return NEVER;
    const once = (): Promise<Json> =>
      this.#silent ? NEVER : this.#host.ask(this.#chain, instance, input, { kind: "step", spec });
    const policy = spec.kind === "tool" ? spec.retry : undefined;
    if (policy === undefined) return once();
    const [problem] = checkRetryPolicy(policy);
    if (problem !== undefined)
      return Promise.reject(
        new StepFailure(failure("invalid_input", `Cannot retry "${instance}": ${problem.field} ${problem.message}`)),
      );
    const key = attemptsKey(instance, this.#host.visits(instance) + 1);
    const retry = (each: string, delayMs: number): Promise<void> => this.retry(each, delayMs);
    return withRetries({ policy, maxRetries: this.#host.maxRetries, key, once, retry });
  }

  wait(instance: string, spec: WaitSpec): Promise<Json> {
    if (this.#silent) return NEVER;
    return this.#host.ask(this.#chain, instance, spec as unknown as Json, { kind: "wait", spec });
  }

  child(instance: string, definition: DefinitionRef, args: Json): Promise<Json> {
    return this.#silent ? NEVER : this.#host.ask(this.#chain, instance, args, { kind: "child", definition });
  }

  skip(instance: string, reason: string): void {
    if (!this.#silent) this.#host.skip(instance, reason);
  }

  decide(key: string, compute: () => Json): Promise<Json> {
    return this.#silent ? NEVER : this.#host.decide(key, compute);
  }

  admit(key: string, items: number, leavesPerItem: number): Promise<void> {
    return this.#silent ? NEVER : this.#host.admit(key, items, leavesPerItem);
  }

  retry(key: string, delayMs: number): Promise<void> {
    return this.#silent ? NEVER : this.#host.retry(this.#chain, key, delayMs);
  }

  branch(): ProgramContext {
    return new BranchContext(this.#host, this.#chain);
  }

  cancel(branches: readonly ProgramContext[], key: string): Promise<void> {
    return this.#silent ? NEVER : this.#host.cancel(branches as readonly BranchContext[], key);
  }
}
