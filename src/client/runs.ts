/** `runs.*` over HTTP. */
import { randomUUID } from "node:crypto";
import type {
  OperatorEvent,
  PublicEvent,
  PublicRun,
  Run,
  RunHandle,
  RunSummary,
  RunsApi,
  StepDetail,
  StepRow,
  Verb,
  Why,
} from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import { endsByItself, isTerminal } from "../domain/run.ts";
import { addressOf, notOffered } from "./addresses.ts";
import { followRun } from "./event-stream.ts";
import { pause, type Sent, type Transport } from "./transport.ts";

const PAGE = 200;
const MAX_SUFFIX_PAGES = 25;
const MIN_SUFFIX = 6;
/** A queued run that nobody takes for so long is asked to be driven by the server itself. */
const QUEUED_MS = 2_000;
/** How often a run that is being cancelled is looked at. */
const CANCEL_LOOK_MS = 250;

export class Runs implements RunsApi {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  #at(runId: string, session: string | undefined): string {
    return `${addressOf(session ?? this.#transport.session)}/workflow-runs/${encodeURIComponent(runId)}`;
  }

  async list(query: Parameters<RunsApi["list"]>[0] = {}): ReturnType<RunsApi["list"]> {
    const { session, parent_run_id, limit = 20, ...rest } = query;
    if (parent_run_id !== undefined)
      return this.#transport.json(`${this.#at(parent_run_id, session)}/children`, {
        query: { limit, cursor: rest.cursor },
      });
    return this.#transport.json(`${addressOf(session ?? this.#transport.session)}/workflow-runs`, {
      query: { ...rest, limit },
    });
  }

  /** As `RunsApi.find`; a suffix is looked for among the newest 5,000 runs. */
  async find(ref: string, session?: string): Promise<string> {
    if (ref === "last" || ref.startsWith("last:")) return this.#last(ref, session);
    if (!/^[A-Za-z0-9_-]{1,128}$/.test(ref))
      throw new HoldfastError(
        "usage",
        "Cannot read this run reference: give an id, the last 6 or more characters of one, or `last`",
      );
    if (await this.#exists(ref, session)) return ref;
    if (ref.length < MIN_SUFFIX)
      throw new HoldfastError(
        "usage",
        `Cannot find the run "${ref}": give at least the last ${MIN_SUFFIX} characters of its id`,
      );
    const found = await this.#bySuffix(ref, session);
    if (found.length > 1)
      throw new HoldfastError(
        "usage",
        `Cannot tell which run "${ref}" is: ${found.slice(0, 3).join(", ")} all end so; give more characters`,
      );
    const [one] = found;
    if (one === undefined)
      throw new HoldfastError(
        "not_found",
        `Cannot find the run "${ref}" in the session "${session ?? this.#transport.session}"; see: holdfast list`,
      );
    return one;
  }

  async #last(ref: string, session: string | undefined): Promise<string> {
    const workflow_id = ref === "last" ? undefined : ref.slice("last:".length);
    const { runs } = await this.list({
      limit: 1,
      ...(workflow_id === undefined ? {} : { workflow_id }),
      ...(session === undefined ? {} : { session }),
    });
    if (runs[0] !== undefined) return runs[0].run_id;
    throw new HoldfastError(
      "not_found",
      `Cannot find "${ref}": there is no such run yet; start one with: holdfast run`,
    );
  }

  async #exists(runId: string, session: string | undefined): Promise<boolean> {
    try {
      await this.get(runId, session);
      return true;
    } catch (error) {
      if (HoldfastError.is(error) && error.code === "not_found") return false;
      throw error;
    }
  }

  async #bySuffix(suffix: string, session: string | undefined): Promise<string[]> {
    const found: string[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < MAX_SUFFIX_PAGES; page++) {
      const answer: { readonly runs: readonly RunSummary[]; readonly next_cursor?: string } = await this.list({
        children: true,
        limit: PAGE,
        ...(cursor === undefined ? {} : { cursor }),
        ...(session === undefined ? {} : { session }),
      });
      found.push(...answer.runs.map((run) => run.run_id).filter((id) => id.endsWith(suffix)));
      cursor = answer.next_cursor;
      if (cursor === undefined) break;
    }
    return found;
  }

  get(runId: string, session?: string): Promise<PublicRun> {
    return this.#transport.json(this.#at(runId, session));
  }

  inspect(runId: string, session?: string): Promise<Run> {
    return this.#transport.json(`${this.#at(runId, session)}/inspect`);
  }

  step(runId: string, stepId: string, session?: string): Promise<StepDetail> {
    return this.#transport.json(`${this.#at(runId, session)}/steps/${encodeURIComponent(stepId)}`);
  }

  steps(
    runId: string,
    query: Parameters<RunsApi["steps"]>[1] = {},
    session?: string,
  ): Promise<{ readonly steps: readonly StepRow[]; readonly next_cursor?: string }> {
    return this.#transport.json(`${this.#at(runId, session)}/steps`, { query });
  }

  events(
    runId: string,
    query: { since?: number; limit?: number } = {},
    session?: string,
  ): Promise<readonly OperatorEvent[]> {
    return this.#transport.json(`${this.#at(runId, session)}/events`, { query: { ...query, view: "operator" } });
  }

  publicEvents(
    runId: string,
    query: { since?: number; limit?: number } = {},
    session?: string,
  ): Promise<readonly PublicEvent[]> {
    return this.#transport.json(`${this.#at(runId, session)}/events`, { query });
  }

  follow(
    runId: string,
    options: { since?: number; signal?: AbortSignal } = {},
    session?: string,
  ): AsyncIterable<OperatorEvent> {
    return this.#follow<OperatorEvent>(runId, "operator", options, session);
  }

  followPublic(
    runId: string,
    options: { since?: number; signal?: AbortSignal } = {},
    session?: string,
  ): AsyncIterable<PublicEvent> {
    return this.#follow<PublicEvent>(runId, "public", options, session);
  }

  #follow<T extends PublicEvent | OperatorEvent>(
    run_id: string,
    view: "public" | "operator",
    options: { since?: number; signal?: AbortSignal },
    session: string | undefined,
  ): AsyncIterable<T> {
    const { since = 0, signal } = options;
    return followRun<T>(this.#transport, {
      address: this.#at(run_id, session),
      run_id,
      since,
      view,
      ...(signal === undefined ? {} : { signal }),
    });
  }

  output(runId: string, session?: string): Promise<Json> {
    return this.#transport.json(`${this.#at(runId, session)}/output`);
  }

  /** What the token's role may see, so `public` is the server's to decide. */
  why(runId: string, session?: string): Promise<Why> {
    return this.#transport.json(`${this.#at(runId, session)}/why`);
  }

  /** The server drives; here it is only followed. */
  async drive(runId: string, options: { signal?: AbortSignal } = {}, session?: string): Promise<Run> {
    const { signal } = options;
    let asked = false;
    for (;;) {
      const run = await this.inspect(runId, session);
      if (isTerminal(run.status) || signal?.aborted === true) return run;
      if (run.status === "suspended" && !goesOnByItself(run)) return run;
      const moved = await this.#moved(run, signal, run.status === "queued" && !asked ? QUEUED_MS : undefined, session);
      if (moved || run.status !== "queued" || asked) continue;
      asked = true;
      // Nobody drives the store's queue: the server takes this one on, or says why not when it is looked at next.
      await this.resume(runId, {}, session).catch(() => undefined);
    }
  }

  /** True once the run has a newer event; false after `limitMs` or when `signal` aborts. */
  async #moved(
    run: Run,
    signal: AbortSignal | undefined,
    limitMs: number | undefined,
    session: string | undefined,
  ): Promise<boolean> {
    const limits = [
      ...(signal === undefined ? [] : [signal]),
      ...(limitMs === undefined ? [] : [AbortSignal.timeout(limitMs)]),
    ];
    const options = limits.length === 0 ? {} : { signal: AbortSignal.any(limits) };
    for await (const _ of this.follow(run.run_id, { since: run.last_sequence, ...options }, session)) return true;
    return false;
  }

  async cancel(runId: string, options: Parameters<RunsApi["cancel"]>[1] = {}, session?: string): Promise<Verb> {
    // The time is for all of it: the first answer may take 5 s of it.
    const until = performance.now() + (options.wait_ms ?? 0);
    const verb = await this.#verb(runId, "cancel", withReason(options.reason), session);
    let { run } = verb;
    while (verb.pending && !isTerminal(run.status) && !standsInRepair(run) && performance.now() < until) {
      await pause(Math.max(0, Math.min(CANCEL_LOOK_MS, until - performance.now())));
      run = await this.inspect(runId, session);
    }
    const heard = isTerminal(run.status) || run.waits.some((wait) => wait.stop_reason === "cancelled");
    return heard ? { run, pending: false } : { ...verb, run };
  }

  pause(runId: string, options: { reason?: string } = {}, session?: string): Promise<Verb> {
    return this.#verb(runId, "pause", withReason(options.reason), session);
  }

  resume(runId: string, _options: object = {}, session?: string): Promise<Verb> {
    return this.#verb(runId, "resume", {}, session);
  }

  async raiseBudget(
    runId: string,
    budget: Parameters<RunsApi["raiseBudget"]>[1],
    _options: object = {},
    session?: string,
  ): Promise<Verb> {
    return this.asVerb(
      runId,
      await this.#transport.json(`${this.#at(runId, session)}/budget`, { method: "PATCH", body: budget }),
      session,
    );
  }

  async restart(
    runId: string,
    session?: string,
    origin: "explicit" | "automatic" = "explicit",
    key?: string,
  ): Promise<RunHandle> {
    if (origin === "automatic") throw notOffered("start runs in the name of a model");
    return this.#made(`${this.#at(runId, session)}/restart`, {}, key ?? randomUUID(), session);
  }

  async retry(runId: string, stepId?: string, session?: string): Promise<RunHandle> {
    return this.#made(
      `${this.#at(runId, session)}/retry`,
      stepId === undefined ? {} : { step_id: stepId },
      randomUUID(),
      session,
    );
  }

  /** A POST that makes a run. */
  async #made(address: string, body: object, key: string, session: string | undefined): Promise<RunHandle> {
    const answer = await this.#transport.answer(address, { method: "POST", body, key });
    const { run_id } = (await answer.json()) as PublicRun;
    return this.handleOf(run_id, answer.headers.get("idempotent-replay") === "true", session);
  }

  handleOf(run_id: string, replayed: boolean, session: string | undefined): RunHandle {
    return {
      run_id,
      replayed,
      result: () => this.drive(run_id, {}, session),
      events: (options = {}) => this.follow(run_id, options, session),
    };
  }

  async #verb(runId: string, name: string, body: object, session: string | undefined): Promise<Verb> {
    return this.post(runId, `/${name}`, body, session);
  }

  /** A POST below the run that answers with it, or says that it waits for its holder. */
  async post(runId: string, below: string, body: object, session: string | undefined): Promise<Verb> {
    const sent: Sent = { method: "POST", body };
    return this.asVerb(runId, await this.#transport.json(`${this.#at(runId, session)}${below}`, sent), session);
  }

  async asVerb(
    runId: string,
    answer: { readonly pending?: boolean; readonly signal_id?: string },
    session: string | undefined,
  ): Promise<Verb> {
    const run = await this.inspect(runId, session);
    if (answer.pending !== true) return { run, pending: false };
    return { run, pending: true, ...(answer.signal_id === undefined ? {} : { signal_id: answer.signal_id }) };
  }

  async artifact(runId: string, sha256: string, session?: string): Promise<Uint8Array> {
    const answer = await this.#transport.answer(`${this.#at(runId, session)}/artifacts/${encodeURIComponent(sha256)}`, {
      headers: { Accept: "application/octet-stream" },
    });
    return new Uint8Array(await answer.arrayBuffer());
  }

  async *journal(
    runId: string,
    options: { readonly since?: number } = {},
    session?: string,
  ): ReturnType<RunsApi["journal"]> & AsyncGenerator {
    const answer = await this.#transport.answer(`${this.#at(runId, session)}/journal`, {
      query: options,
      headers: { Accept: "application/x-ndjson" },
    });
    let lines: string[] = [];
    for await (const line of linesOf(answer)) {
      if (!line.startsWith('{"segment":')) lines.push(line);
      else {
        yield {
          text: lines.join("\n"),
          segment: (JSON.parse(line) as { segment: { first: number; last: number; prev: string; hash: string } })
            .segment,
        };
        lines = [];
      }
    }
    if (lines.length > 0)
      throw new HoldfastError(
        "storage",
        `Cannot read the journal of ${runId}: it ends within a segment; it is damaged, or the server was stopped`,
      );
  }

  attempts(
    runId: string,
    query: Parameters<RunsApi["attempts"]>[1] = {},
    session?: string,
  ): ReturnType<RunsApi["attempts"]> {
    return this.#transport.json(`${this.#at(runId, session)}/attempts`, { query: { ...query } });
  }

  doctor(runId: string, limit?: number, session?: string): ReturnType<RunsApi["doctor"]> {
    return this.#transport.json(`${this.#at(runId, session)}/doctor`, { query: { limit } });
  }

  async verify(): Promise<never> {
    throw notOffered("verify journals");
  }

  async bundle(): Promise<never> {
    throw notOffered("read bundles");
  }

  async export(): Promise<never> {
    throw notOffered("export runs");
  }

  async import(): Promise<never> {
    throw notOffered("import runs");
  }
}

/** What was at work did not end in time: only a person's word on it ends the run now. */
function standsInRepair({ status, waits }: Run): boolean {
  const held = waits.flatMap((wait) => wait.child_waits ?? [wait]);
  return status === "suspended" && held.some(({ type }) => type === "repair" || type === "tool_running");
}

/** As where a run is driven: neither it nor any run below it waits for a person. */
function goesOnByItself({ waits }: Run): boolean {
  const held = waits.flatMap((wait) => wait.child_waits ?? [wait]);
  return held.length > 0 && held.every(endsByItself);
}

function withReason(reason: string | undefined): { readonly reason?: string } {
  return reason === undefined ? {} : { reason };
}

async function* linesOf(answer: Response): AsyncGenerator<string> {
  if (answer.body === null) return;
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() as string;
    yield* lines;
  }
  if (rest !== "") yield rest;
}
