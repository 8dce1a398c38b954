/**
 * Forms for clients of the 2025 revisions: `elicitation/create` while their call is open. The SDK would do it too, but
 * one form that times out or that the client refuses would end the whole call there, without the run's id and with
 * the other answers lost. Here each form stands for itself, and one that brings nothing is as good as closed.
 */
import type { ServerContext } from "@modelcontextprotocol/server";
import { questionsOf } from "./answers.ts";
import type { Question } from "./questions.ts";
import type { McpService } from "./service.ts";

export interface Asking {
  readonly run_id: string;
  /** Sequence of the run's last event when the questions were read. */
  readonly since: number;
  /** When the forms are taken back, by `performance.now()`. */
  readonly until: number;
}

/**
 * Puts all forms at once. What is decided elsewhere meanwhile is taken back.
 * @returns what came, by the keys of the questions; nothing for a form that brought nothing
 * @throws only when the call itself was given up
 */
export async function putForms(
  service: McpService,
  context: ServerContext,
  asking: Asking,
  questions: readonly Question[],
): Promise<{ readonly [key: string]: unknown }> {
  const takeBack = new Map(questions.map(({ key }) => [key, new AbortController()]));
  const answered = new AbortController();
  const watching = watch(service, asking, takeBack, answered.signal);
  try {
    const responses = await Promise.all(
      questions.map(async (question): Promise<[string, unknown][]> => {
        const response = await putForm(service, context, asking, question, takeBack.get(question.key)?.signal);
        return response === undefined ? [] : [[question.key, response]];
      }),
    );
    return Object.fromEntries(responses.flat());
  } finally {
    answered.abort();
    await watching;
  }
}

async function putForm(
  service: McpService,
  context: ServerContext,
  { run_id, until }: Asking,
  { key, request }: Question,
  takenBack: AbortSignal | undefined,
): Promise<unknown> {
  const { signal: givenUp, send } = context.mcpReq;
  const signal = takenBack === undefined ? givenUp : AbortSignal.any([givenUp, takenBack]);
  const timeout = Math.max(1, Math.round(until - performance.now()));
  try {
    return await send({ method: request.method, params: { ...request.params } }, { timeout, signal });
  } catch (error) {
    if (givenUp.aborted) throw error;
    service.log?.("info", "a form brought no answer", { run_id, key, error });
    return undefined;
  }
}

/** Takes the forms back whose question is open no longer. */
async function watch(
  service: McpService,
  { run_id, since }: Asking,
  forms: ReadonlyMap<string, AbortController>,
  signal: AbortSignal,
): Promise<void> {
  const { holdfast, session, log } = service;
  try {
    for await (const _ of holdfast.runs.followPublic(run_id, { since, signal }, session)) {
      const open = new Set((await questionsOf(service, run_id)).map(({ key }) => key));
      if (signal.aborted) return;
      for (const [key, form] of forms) if (!open.has(key)) form.abort();
    }
  } catch (error) {
    // The forms stay as they are: whoever answers one that is over hears so.
    log?.("warn", "a run whose questions are put cannot be followed", { run_id, error });
  }
}
