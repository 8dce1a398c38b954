/**
 * Prometheus figures (interfaces §3 `/metrics`), in a registry of this server's own. Labels come from closed sets:
 * no name that an author or a caller chose, so that neither their number nor their text can surprise.
 */
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Committed, Holdfast } from "../access/api.ts";
import { isTerminal, type RunStatus } from "../domain/run.ts";

const STATUSES: readonly RunStatus[] = ["queued", "running", "suspended"];
/** Pages of 200 that one scrape counts per status; beyond it the gauge says this much and no more. */
const MAX_PAGES = 25;

const STEP_OUTCOMES: ReadonlyMap<string, string> = new Map([
  ["step_started", "started"],
  ["step_completed", "succeeded"],
  ["step_failed", "failed"],
  ["step_cancelled", "cancelled"],
  ["step_skipped", "skipped"],
  ["step_suspended", "suspended"],
]);

export class Metrics {
  readonly registry = new Registry();
  readonly #runs = this.#counter("holdfast_run_events_total", "Runs that this process started, ended or suspended", [
    "event",
  ]);
  readonly #steps = this.#counter("holdfast_steps_total", "Steps by what happened to them in this process", [
    "outcome",
  ]);
  readonly #requests = this.#counter("holdfast_http_requests_total", "HTTP requests by method and status", [
    "method",
    "status",
  ]);
  readonly #seconds = new Histogram({
    name: "holdfast_http_request_seconds",
    help: "Time to the head of the answer",
    labelNames: ["method"],
    buckets: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5],
    registers: [this.registry],
  });
  readonly #commits = new Histogram({
    name: "holdfast_commit_seconds",
    help: "Time of one group commit of the store",
    buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1],
    registers: [this.registry],
  });
  readonly #streams = new Gauge({
    name: "holdfast_sse_subscribers",
    help: "Event streams that are open",
    registers: [this.registry],
  });

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({ name, help, labelNames, registers: [this.registry] });
  }

  request(method: string, status: number, seconds: number): void {
    this.#requests.inc({ method, status: String(status) });
    this.#seconds.observe({ method }, seconds);
  }

  commit(seconds: number): void {
    this.#commits.observe(seconds);
  }

  streamOpened(): void {
    this.#streams.inc();
  }

  streamClosed(): void {
    this.#streams.dec();
  }

  /** Follows what this process commits, and counts open runs at each scrape. Answers how to stop. */
  attach(holdfast: Holdfast): () => void {
    const gauge = new Gauge({
      name: "holdfast_runs",
      help: `Root runs that have not ended, by status (counted up to ${MAX_PAGES * 200} each and session)`,
      labelNames: ["status"],
      registers: [this.registry],
      collect: async () => {
        for (const status of STATUSES) gauge.set({ status }, await countRuns(holdfast, status));
      },
    });
    return holdfast.observe((committed) => this.#count(committed));
  }

  #count({ events, status }: Committed): void {
    for (const event of events) {
      const outcome = STEP_OUTCOMES.get(event.type);
      if (outcome !== undefined) this.#steps.inc({ outcome });
      else if (event.type === "run_queued") this.#runs.inc({ event: "created" });
      else if (event.type === "run_suspended") this.#runs.inc({ event: "suspended" });
    }
    if (isTerminal(status) && events.some((event) => event.type.startsWith("run_"))) this.#runs.inc({ event: status });
  }

  async text(): Promise<string> {
    return this.registry.metrics();
  }
}

async function countRuns(holdfast: Holdfast, status: RunStatus): Promise<number> {
  let total = 0;
  for (const session of await holdfast.sessions.list()) {
    let cursor: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const { runs, next_cursor } = await holdfast.runs.list({
        session: session.session_id,
        status: [status],
        limit: 200,
        ...(cursor === undefined ? {} : { cursor }),
      });
      total += runs.length;
      cursor = next_cursor;
      if (cursor === undefined) break;
    }
  }
  return total;
}
