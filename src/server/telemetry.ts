/**
 * OpenTelemetry traces of runs and steps, off unless the configuration names an exporter (issue C point 5). Spans are
 * made from committed events alone, so what is traced happened. They hold ids, kinds and statuses, never values.
 *
 * The SDK is large and optional: it is loaded only here and only then.
 */
import { context, type Span, SpanStatusCode, type Tracer, trace } from "@opentelemetry/api";
import type { Committed, Holdfast } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { RunEvent } from "../domain/events.ts";
import { isTerminal } from "../domain/run.ts";
import { GEN_AI_OPERATION, INVOKE_AGENT, USAGE_COST_MICROS, USAGE_ESTIMATED, USAGE_TOKENS } from "./gen-ai.ts";

export interface Telemetry {
  stop(): Promise<void>;
}

/** Span attributes; names of our own, since no convention covers workflows. */
const RUN_ID = "holdfast.run.id";
const WORKFLOW = "holdfast.workflow.id";
const REVISION = "holdfast.workflow.revision";
const STATUS = "holdfast.status";
const STEP_ID = "holdfast.step.id";
const ATTEMPT = "holdfast.step.attempt";
const SIDE_EFFECT = "holdfast.step.side_effect";
/** Open spans kept; a run beyond them goes untraced. */
const MAX_SPANS = 10_000;
const STOP_MS = 5_000;

interface Provider {
  getTracer(name: string, version?: string): Tracer;
  shutdown(): Promise<void>;
}

/**
 * @param config the configuration's `telemetry`
 * @returns undefined when it names no exporter
 * @throws HoldfastError `usage`: a wrong key, or the SDK is not installed
 */
export async function startTelemetry(
  holdfast: Holdfast,
  config: { readonly [key: string]: unknown } | undefined,
  version: string,
): Promise<Telemetry | undefined> {
  const endpoint = endpointOf(config);
  if (endpoint === undefined) return undefined;
  const provider = await loadProvider(endpoint);
  const spans = new RunSpans(provider.getTracer("holdfast", version));
  const unobserve = holdfast.observe((committed) => spans.take(committed));
  return {
    stop: async () => {
      unobserve();
      spans.endAll();
      await Promise.race([
        provider.shutdown().catch(() => undefined),
        new Promise((resolve) => setTimeout(resolve, STOP_MS).unref()),
      ]);
    },
  };
}

function endpointOf(config: { readonly [key: string]: unknown } | undefined): string | undefined {
  if (config === undefined) return undefined;
  const unknown = Object.keys(config).find((key) => key !== "otlp_endpoint");
  if (unknown !== undefined)
    throw new HoldfastError(
      "usage",
      `Cannot use the configuration: \`telemetry.${unknown}\` is no key of it; known: otlp_endpoint`,
    );
  const { otlp_endpoint } = config;
  if (otlp_endpoint === undefined) return undefined;
  if (
    typeof otlp_endpoint === "string" &&
    URL.canParse(otlp_endpoint) &&
    /^https?:$/.test(new URL(otlp_endpoint).protocol)
  )
    return otlp_endpoint.replace(/\/+$/, "");
  throw new HoldfastError(
    "usage",
    "Cannot use the configuration: `telemetry.otlp_endpoint` must be an http or https address",
  );
}

const PACKAGES = ["@opentelemetry/sdk-trace-node", "@opentelemetry/exporter-trace-otlp-http"] as const;

/** The parts of the two packages that are used. */
interface SdkModule {
  readonly NodeTracerProvider: new (options: { spanProcessors: readonly object[]; resource?: object }) => Provider;
  readonly BatchSpanProcessor: new (exporter: object) => object;
}
interface ExporterModule {
  readonly OTLPTraceExporter: new (options: { url: string }) => object;
}

async function loadProvider(endpoint: string): Promise<Provider> {
  try {
    const [sdk, exporter] = (await Promise.all(PACKAGES.map((name) => import(name)))) as [SdkModule, ExporterModule];
    const url = endpoint.endsWith("/v1/traces") ? endpoint : `${endpoint}/v1/traces`;
    return new sdk.NodeTracerProvider({
      spanProcessors: [new sdk.BatchSpanProcessor(new exporter.OTLPTraceExporter({ url }))],
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new HoldfastError(
      "usage",
      `Cannot send traces: the OpenTelemetry SDK is not installed; run: npm install ${PACKAGES.join(" ")}`,
      { cause: error },
    );
  }
}

/** Spans that are open, by run and by step; children are nested under their parents' runs by trace. */
export class RunSpans {
  readonly #tracer: Tracer;
  readonly #runs = new Map<string, Span>();
  readonly #steps = new Map<string, Span>();

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  take(committed: Committed): void {
    for (const event of committed.events) this.#step(committed, event);
    const last = committed.events.at(-1);
    if (last !== undefined && isTerminal(committed.status)) this.#endRun(committed, last.at_ms);
  }

  #run({ run_id, root_run_id, workflow_id, workflow_revision }: Committed, atMs: number): Span | undefined {
    const open = this.#runs.get(run_id);
    if (open !== undefined) return open;
    if (this.#runs.size >= MAX_SPANS) return undefined;
    const root = run_id === root_run_id ? undefined : this.#runs.get(root_run_id);
    const span = this.#tracer.startSpan(
      `workflow ${workflow_id}`,
      { startTime: atMs, attributes: { [RUN_ID]: run_id, [WORKFLOW]: workflow_id, [REVISION]: workflow_revision } },
      root === undefined ? context.active() : trace.setSpan(context.active(), root),
    );
    this.#runs.set(run_id, span);
    return span;
  }

  #step(committed: Committed, event: RunEvent): void {
    const run = this.#run(committed, event.at_ms);
    if (run !== undefined && event.type === "phase") return this.#agent(committed, event);
    if (run === undefined || !("step_id" in event) || event.step_id === undefined) return;
    const key = `${committed.run_id}\0${event.step_id}`;
    if (event.type === "step_started") {
      this.#steps.get(key)?.end(event.at_ms);
      if (this.#steps.size >= MAX_SPANS) return;
      this.#steps.set(
        key,
        this.#tracer.startSpan(
          "step",
          {
            startTime: event.at_ms,
            attributes: {
              [RUN_ID]: committed.run_id,
              [STEP_ID]: event.step_id,
              [ATTEMPT]: event.attempt,
              [SIDE_EFFECT]: event.side_effect,
            },
          },
          trace.setSpan(context.active(), run),
        ),
      );
      return;
    }
    const status = ENDS.get(event.type);
    const span = this.#steps.get(key);
    if (status === undefined || span === undefined) return;
    this.#steps.delete(key);
    finish(span, status, event.at_ms);
  }

  /** A call of an agent, from its reservation to its books, below its step. */
  #agent({ run_id }: Committed, event: Extract<RunEvent, { type: "phase" }>): void {
    if (event.name !== "agent_reserved" && event.name !== "agent_usage_recorded") return;
    const step = this.#steps.get(`${run_id}\0${event.instance}`);
    const key = `${run_id}\0${event.instance}\0agent`;
    if (event.name === "agent_reserved") {
      if (step === undefined || this.#steps.size >= MAX_SPANS) return;
      const attributes = { [RUN_ID]: run_id, [STEP_ID]: event.instance, [GEN_AI_OPERATION]: INVOKE_AGENT };
      const parent = trace.setSpan(context.active(), step);
      this.#steps.set(key, this.#tracer.startSpan(INVOKE_AGENT, { startTime: event.at_ms, attributes }, parent));
      return;
    }
    const call = this.#steps.get(key);
    if (call === undefined) return;
    this.#steps.delete(key);
    call.setAttribute(USAGE_TOKENS, event.tokens);
    if (event.cost_micros !== null) call.setAttribute(USAGE_COST_MICROS, event.cost_micros);
    if (event.estimated === true) call.setAttribute(USAGE_ESTIMATED, true);
    call.end(event.at_ms);
  }

  #endRun({ run_id, status }: Committed, atMs: number): void {
    const span = this.#runs.get(run_id);
    if (span === undefined) return;
    this.#runs.delete(run_id);
    for (const [key, step] of this.#steps) {
      if (!key.startsWith(`${run_id}\0`)) continue;
      this.#steps.delete(key);
      step.end(atMs);
    }
    finish(span, status, atMs);
  }

  /** What is open goes on elsewhere or later: it is sent as far as it came. */
  endAll(): void {
    for (const span of [...this.#steps.values(), ...this.#runs.values()]) span.end();
    this.#steps.clear();
    this.#runs.clear();
  }
}

const ENDS: ReadonlyMap<string, string> = new Map([
  ["step_completed", "succeeded"],
  ["step_failed", "failed"],
  ["step_cancelled", "cancelled"],
  ["step_suspended", "suspended"],
]);

function finish(span: Span, status: string, atMs: number): void {
  span.setAttribute(STATUS, status);
  if (status === "failed") span.setStatus({ code: SpanStatusCode.ERROR });
  span.end(atMs);
}
