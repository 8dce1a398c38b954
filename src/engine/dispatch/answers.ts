/** What the answers of tools and their owners mean: failures, kinds that a retry policy knows, and evidence. */
import type { Json } from "../../domain/json.ts";
import { type Failure, failure } from "../../domain/run.ts";
import type { ToolDescriptor, ToolOutcome } from "../../ports/index.ts";
import type { ToolSpec } from "../program.ts";
import { clip } from "../values.ts";
import type { Job } from "../work.ts";
import { checkOutput } from "./output.ts";
import type { Word } from "./owners.ts";

/** What came of a call. */
export type Answer = ToolOutcome | { readonly type: "threw"; readonly error: unknown } | { readonly type: "timed_out" };

export type Failed = Extract<ToolOutcome, { type: "failed" }>;

/**
 * What a step's own policy goes by (GD-59): nothing was accepted, or the owner says that trying again may help and is
 * one whose attempts can be told apart. Never a timeout, a denial, an output that does not fit, or an unknown outcome.
 */
export function withKind(reason: Failure, spec: ToolSpec, tool: ToolDescriptor, kind?: string): Failure {
  if (spec.retry === undefined || !reason.retryable) return reason;
  if (kind === "unavailable") return { ...reason, kind: "owner_unavailable_before_acceptance" };
  const told = tool.side_effect !== "mutating" || tool.can_observe || tool.can_lookup;
  return told ? { ...reason, kind: "owner_reported_retryable" } : reason;
}

/** An owner's word on an attempt that was told to stop: it has ended, and what it did is kept (GD-40). */
export function heardAfterStop(job: Job, spec: ToolSpec, secrets: readonly string[], word: Word): void {
  if (word.type === "running" || word.type === "unknown") return;
  job.ended = true;
  if (word.type === "succeeded" || word.type === "failed") job.late = evidence(spec.tool, secrets, word);
}

export function couldNotPlan(error: unknown): Failed {
  const message = error instanceof Error ? error.message : String(error);
  return { type: "failed", kind: "unavailable", retryable: true, message };
}

/** RP-41; the tool's own text goes beside the failure, never into it. */
export function reportedFailure(tool: string, answer: Failed): Failure {
  if (answer.kind === "not_found") return failure("unknown_reference", `there is no tool "${tool}"`);
  if (answer.kind === "bad_output") return failure("invalid_output", `the output of "${tool}" is not what it declares`);
  if (answer.kind === "unavailable")
    return failure("execution_failed", `"${tool}" could not be reached and has taken nothing`, answer.retryable);
  if (answer.kind === "bad_arguments") return failure("invalid_input", `the arguments do not fit the tool "${tool}"`);
  return failure("execution_failed", `the tool "${tool}" reported a failure`, answer.retryable);
}

export function lateResult(
  { spec, secrets }: { readonly spec: ToolSpec; readonly secrets: readonly string[] },
  answer: Answer,
): Json | undefined {
  return answer.type === "failed" || answer.type === "succeeded" ? evidence(spec.tool, secrets, answer) : undefined;
}

/** In the form in which it may be stored: what could not be a step's output is named and left out (RP-7, RP-42). */
export function evidence(
  tool: string,
  secrets: readonly string[],
  said: { readonly type: "succeeded"; readonly output: Json } | { readonly type: "failed"; readonly message: string },
): Json {
  if (said.type === "failed") return { type: "failed", message: clip(said.message) };
  const checked = checkOutput(tool, said.output, undefined, secrets);
  return checked.ok
    ? { type: "succeeded", output: checked.output }
    : { type: "succeeded", unstorable: checked.failure.message };
}
