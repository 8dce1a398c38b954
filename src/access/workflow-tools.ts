/**
 * What `Holdfast.tools()` gives: `workflow_run`, `workflow_wait` and one typed `workflow__<id>` for each workflow that
 * a model may start, for one session. The same objects serve an AI SDK loop, an OpenAI-style function list and MCP
 * (R-39, R-41). None of them approves, denies or repairs (R-40).
 */
import type { CatalogEntry } from "../catalog/index.ts";
import { parseRef, UNTRUSTED_BUNDLE_LIMITS } from "../catalog/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import { applyDefaults, type Bundle, compileSchema } from "../domain/plan/index.ts";
import { publicEvent } from "../domain/projections/index.ts";
import type { PublicEvent, PublicRun } from "./api.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";
import { followEvents } from "./driving.ts";
import { preflightError } from "./preflight.ts";
import { outcomeOf, type RunOutcome, waitForRun } from "./run-outcome.ts";
import { getRun, runsApi } from "./runs.ts";
import { startRun } from "./starting.ts";
import { invalidCall, ToolCallError, toolCallError, unknownField } from "./tool-errors.ts";
import { publishedSchema, resultSchema } from "./tool-schemas.ts";
import {
  type AiSdkTool,
  aiSdkSchema,
  type FunctionTool,
  type ToolAnnotations,
  type ToolCallOptions,
  type ToolSetOptions,
  type WorkflowTool,
  type WorkflowTools,
} from "./tool-types.ts";
import { recordOf } from "./views.ts";
import {
  classifyWorkflowRun,
  MAX_WAIT_MS,
  parseWorkflowRun,
  parseWorkflowWait,
  readCall,
  WORKFLOW_RUN,
  WORKFLOW_RUN_DESCRIPTION,
  WORKFLOW_RUN_SCHEMA,
  WORKFLOW_WAIT,
  WORKFLOW_WAIT_SCHEMA,
  type WorkflowRunCall,
} from "./workflow-run.ts";

/** Most runs that `list` answers: as many as a session may have open (RP-76). */
const MAX_LISTED = 256;
const PAGE = 128;
/** Most typed tools: a client that gets more than it can show shows none. */
const MAX_TYPED = 500;

export function createTools(context: AccessContext, options: ToolSetOptions = {}): WorkflowTools {
  return new ToolSet(context, options);
}

class ToolSet implements WorkflowTools {
  readonly #context: AccessContext;
  readonly #options: ToolSetOptions;
  readonly #session: string;
  readonly #schemas = new Map<string, JsonObject>();
  #typed: { readonly revision: number; readonly tools: readonly WorkflowTool[] } | undefined;

  constructor(context: AccessContext, options: ToolSetOptions) {
    this.#context = context;
    this.#options = options;
    // RP-82: a session is required.
    this.#session = options.session ?? context.session;
  }

  list(): readonly WorkflowTool[] {
    return [this.#runTool(), this.#waitTool(), ...this.#typedTools()];
  }

  find(name: string): WorkflowTool | undefined {
    return this.list().find((tool) => tool.name === name);
  }

  async call(name: string, args: unknown, options: ToolCallOptions = {}): Promise<Json> {
    const tool = this.find(name);
    if (tool === undefined) throw this.#noTool(name);
    return tool.execute(args, options);
  }

  aiSdk(): { readonly [name: string]: AiSdkTool } {
    return Object.fromEntries(
      this.list().map((tool): [string, AiSdkTool] => [
        tool.name,
        {
          description: tool.description,
          inputSchema: aiSdkSchema(tool.inputSchema),
          execute: (input, { abortSignal } = {}) =>
            tool.execute(input, abortSignal === undefined ? {} : { signal: abortSignal }),
        },
      ]),
    );
  }

  functions(): readonly FunctionTool[] {
    return this.list().map(({ name, description, inputSchema }) => ({
      type: "function",
      function: { name, description, parameters: inputSchema },
    }));
  }

  begin(tool: WorkflowTool, args: unknown): Promise<string> {
    const { workflow } = tool;
    if (workflow === undefined) throw invalidCall("this tool starts no run");
    return this.#guarded(tool.name, async () => {
      // What is published says the same in words that every client knows; this is what the workflow declares.
      const call = checkArgs(this.#schemas.get(tool.name) ?? tool.inputSchema, readCall(args));
      return this.#start({ action: "start", ...workflow, args: call });
    });
  }

  wait(runId: string, timeoutMs: number, options: ToolCallOptions = {}): Promise<RunOutcome> {
    return this.#guarded("wait", async () => {
      const { record } = await recordOf(this.#context, runId, this.#session);
      const done = new AbortController();
      const { signal, onEvent } = options;
      const ends = signal === undefined ? done.signal : AbortSignal.any([done.signal, signal]);
      const told =
        onEvent === undefined ? undefined : this.#tell(runId, options.since ?? record.last_sequence, onEvent, ends);
      try {
        await waitForRun(this.#context, runId, {
          timeoutMs,
          drive: this.#drives,
          ...(signal === undefined ? {} : { signal }),
        });
      } finally {
        done.abort();
        await told;
      }
      return outcomeOf(this.#context, runId, this.#session);
    });
  }

  outcome(runId: string): Promise<RunOutcome> {
    return this.#guarded("outcome", () => outcomeOf(this.#context, runId, this.#session));
  }

  cancel(runId: string): Promise<PublicRun> {
    return this.#guarded("cancel", async () => {
      await runsApi(this.#context).cancel(runId, { decided_by: this.#caller }, this.#session);
      return getRun(this.#context, runId, this.#session);
    });
  }

  // ── the tools ───────────────────────────────────────────────────────────────────────────────────────────────

  #runTool(): WorkflowTool {
    return {
      name: WORKFLOW_RUN,
      title: "Workflow runs",
      description: WORKFLOW_RUN_DESCRIPTION,
      inputSchema: WORKFLOW_RUN_SCHEMA,
      outputSchema: { type: "object" },
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
      classify: classifyWorkflowRun,
      execute: (args) => this.#guarded(WORKFLOW_RUN, async () => asJson(await this.#run(parseWorkflowRun(args)))),
    };
  }

  #waitTool(): WorkflowTool {
    return {
      name: WORKFLOW_WAIT,
      title: "Wait for a run",
      description:
        "Wait until a workflow run has ended or needs a person, at most timeout_ms. Answers with where the run stands, " +
        "and with its output if a tool of this session started it. Call it again while the run goes on.",
      inputSchema: WORKFLOW_WAIT_SCHEMA,
      outputSchema: {
        type: "object",
        required: ["run", "sentence"],
        properties: { run: { type: "object" }, sentence: { type: "string" }, output: {} },
      },
      annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
      classify: () => ({ read_only: true, parallel_safe: true }),
      execute: (args, options) =>
        this.#guarded(WORKFLOW_WAIT, async () => {
          const { run_id, timeout_ms } = parseWorkflowWait(args);
          const { run, sentence, output } = await this.wait(run_id, timeout_ms, options);
          return asJson({ run, sentence, ...(output === undefined ? {} : { output }) });
        }),
    };
  }

  #typedTools(): readonly WorkflowTool[] {
    if (this.#options.readOnly === true) return [];
    const { catalog } = this.#context;
    const revision = catalog.reload().publication_revision;
    if (this.#typed?.revision === revision) return this.#typed.tools;
    const tools = catalog
      .entries()
      .flatMap((entry) => this.#typedTool(entry) ?? [])
      .slice(0, MAX_TYPED);
    this.#typed = { revision, tools };
    return tools;
  }

  /** A typed tool for what a model may start; the rest would only be refused (RP-15). */
  #typedTool(entry: CatalogEntry): WorkflowTool | undefined {
    const { tool_name: name, input_schema, output_schema, workflow_id, revision } = entry;
    if (entry.state !== "valid" || name === undefined || entry.invocation_policy.automatic !== true) return undefined;
    if (input_schema?.type !== "object") return undefined;
    const outputSchema = resultSchema(output_schema);
    this.#schemas.set(name, input_schema);
    const tool: WorkflowTool = {
      name,
      title: entry.title ?? workflow_id,
      description: `${entry.description ?? `Run the workflow "${workflow_id}".`} A durable workflow: when it has not ended in time, the answer has its run_id; go on with ${WORKFLOW_WAIT}.`,
      inputSchema: publishedSchema(input_schema),
      ...(outputSchema === undefined ? {} : { outputSchema }),
      annotations: this.#effectsOf(entry),
      workflow: { workflow_id, revision },
      classify: () => ({ read_only: false, parallel_safe: false }),
      execute: async (args, options) => {
        const runId = await this.begin(tool, args);
        const outcome = await this.wait(runId, this.#options.maxWaitMs ?? MAX_WAIT_MS, { since: 0, ...options });
        if (outcome.run.status === "succeeded") return outcome.output ?? null;
        const { run, sentence } = outcome;
        return { run_id: runId, status: run.status, sentence };
      },
    };
    return tool;
  }

  #effectsOf(entry: CatalogEntry): ToolAnnotations {
    let bundle: Bundle;
    try {
      bundle = this.#context.catalog.pin(`${entry.workflow_id}@${entry.revision}`, {
        reload: false,
        limits: UNTRUSTED_BUNDLE_LIMITS,
      }).bundle;
    } catch {
      // It cannot be started as it stands; until then nothing good is promised of it.
      return { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true };
    }
    const effects = Object.values(bundle.definitions)
      .flatMap((definition) => definition.steps)
      .flatMap((step) => {
        if (step.type === "agent") return [{ effect: "idempotent", open: true }];
        if (step.type !== "tool") return [];
        const tool = this.#context.tools.describe(step.tool);
        const open = tool === undefined || tool.capabilities.some((name) => name !== "read" && name !== "write");
        return [{ effect: tool?.side_effect ?? "mutating", open }];
      });
    return {
      readOnlyHint: effects.every(({ effect }) => effect === "read_only"),
      destructiveHint: effects.some(({ effect }) => effect === "mutating"),
      idempotentHint: effects.every(({ effect }) => effect !== "mutating"),
      openWorldHint: effects.some(({ open }) => open),
    };
  }

  // ── what they do ────────────────────────────────────────────────────────────────────────────────────────────

  async #run(call: WorkflowRunCall): Promise<unknown> {
    const runs = runsApi(this.#context);
    switch (call.action) {
      case "list":
        return this.#list();
      case "get":
        return runs.get(call.run_id, this.#session);
      case "events":
        return runs.publicEvents(call.run_id, { since: call.since }, this.#session);
      case "start":
        return getRun(this.#context, await this.#start(call), this.#session);
      case "cancel":
        this.#needWriting(call.action);
        return this.cancel(call.run_id);
      case "restart": {
        this.#needWriting(call.action);
        const { run_id } = await runs.restart(call.run_id, this.#session, "automatic", undefined, {
          started_by: this.#caller,
        });
        return runs.get(run_id, this.#session);
      }
    }
  }

  async #start(call: Extract<WorkflowRunCall, { action: "start" }>): Promise<string> {
    this.#needWriting("start");
    const workflow = `${call.workflow_id}@${call.revision}`;
    // A model names what the catalog has; a path or a hash never gets that far.
    if (!isCatalogId(call.workflow_id, workflow)) throw noWorkflow();
    try {
      const { run_id } = await startRun(this.#context, {
        workflow,
        args: call.args,
        origin: "automatic",
        session: this.#session,
        queue: !this.#drives,
        started_by: this.#caller,
        ...(call.budget === undefined ? {} : { budget: call.budget }),
      });
      return run_id;
    } catch (error) {
      if (HoldfastError.is(error) && error.code === "not_found" && (await this.#hasSession())) throw noWorkflow();
      throw error;
    }
  }

  /** Newest first, of this session only (RP-79). */
  async #list(): Promise<readonly unknown[]> {
    const listed: unknown[] = [];
    let cursor: string | undefined;
    do {
      const page = await runsApi(this.#context).list({
        session: this.#session,
        limit: PAGE,
        ...(cursor === undefined ? {} : { cursor }),
      });
      listed.push(...page.runs);
      cursor = page.next_cursor;
    } while (cursor !== undefined && listed.length < MAX_LISTED);
    return listed;
  }

  get #caller(): string {
    return this.#options.caller ?? "model";
  }

  get #drives(): boolean {
    return this.#options.readOnly !== true && this.#options.drives !== false;
  }

  async #hasSession(): Promise<boolean> {
    return (await needStore(this.#context).getSession(this.#session)) !== undefined;
  }

  #needWriting(action: string): void {
    if (this.#options.readOnly === true) throw withheld(action);
  }

  async #tell(runId: string, since: number, onEvent: (event: PublicEvent) => void, signal: AbortSignal): Promise<void> {
    try {
      for await (const event of followEvents(this.#context, runId, since, signal)) onEvent(publicEvent(runId, event));
    } catch (error) {
      // Progress is a courtesy: the wait itself says what is wrong.
      this.#context.log?.("warn", "the progress of a run could not be told", { run_id: runId, error });
    }
  }

  /** Says of a typed tool that is not offered what would have to be set (R-41). */
  #noTool(name: string): ToolCallError {
    if (!name.startsWith("workflow__"))
      return new ToolCallError("InvalidArguments", "usage", "workflow input is invalid: there is no such tool");
    if (this.#options.readOnly === true) return withheld("start");
    const entry = this.#context.catalog
      .entries()
      .find(({ tool_name, state }) => tool_name === name && state === "valid");
    if (entry === undefined) return noWorkflow();
    const error = preflightError(
      "invocation",
      `Cannot start "${entry.workflow_id}": its invocation_policy does not allow automatic starts`,
    );
    return toolCallError(error, this.#context.log, name);
  }

  async #guarded<T>(what: string, act: () => Promise<T>): Promise<T> {
    try {
      // RP-79: a session that there is none of is told by `sessionOf` as not found.
      await sessionOf(this.#context, this.#session);
      return await act();
    } catch (error) {
      throw toolCallError(error, this.#context.log, what);
    }
  }
}

function withheld(action: string): ToolCallError {
  return new ToolCallError(
    "InvalidArguments",
    "preflight",
    `workflow preflight failed: only reading is offered here, and ${action} is withheld`,
  );
}

function isCatalogId(id: string, ref: string): boolean {
  try {
    const parsed = parseRef(ref);
    return parsed.by === "revision" && parsed.id === id;
  } catch {
    return false;
  }
}

function noWorkflow(): ToolCallError {
  return new ToolCallError(
    "Execution",
    "not_found",
    "workflow run not found: the catalog has no such workflow at that revision",
  );
}

/** The schema of a typed tool is known to its caller, so the fault is named with its place. */
function checkArgs(schema: JsonObject, given: JsonObject): JsonObject {
  const properties: unknown = schema.properties;
  const known = typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
  if (schema.additionalProperties === false)
    for (const name of Object.keys(given)) if (!known.includes(name)) throw unknownField(name, "this workflow", known);
  const fits = compileSchema(schema).validate(applyDefaults(schema, given));
  if (!fits.ok) throw invalidCall(`at ${fits.path || "/"}: ${fits.message}`);
  return given;
}

/** Projections are JSON by construction: plain objects of plain values. */
function asJson(value: unknown): Json {
  return value as Json;
}
