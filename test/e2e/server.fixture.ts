// Owns a server in this process over a workspace of its own, with tools that tests can hold back, and calls to it.
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { createHoldfast, defineTool, type Holdfast, type HoldfastOptions } from "../../src/index.ts";
import { createLog, type RunningServer, type ServeOptions, startServer, TokenFolder } from "../../src/server/index.ts";

const EMPTY = { type: "object", additionalProperties: false, properties: {} } as const;
const ANY = { type: "object", additionalProperties: true } as const;

function plan(id: string, steps: object[], node: object, more: object = {}): object {
  return {
    workflow_schema: 1,
    id,
    revision: 1,
    input_schema: EMPTY,
    budgets: { max_steps: 4_000, max_retries: 4, wall_time_ms: 3_600_000 },
    steps,
    plan: node,
    ...more,
  };
}

const step = (id: string, tool: string, more: object = {}): object => ({
  id,
  type: "tool",
  tool,
  args: {},
  capabilities: ["read"],
  ...more,
});

/** `many` reads its list from its arguments, so that a test chooses how many events there are. */
export const WORKFLOWS = [
  plan("quick", [step("look", "look")], { type: "step", step: "look" }),
  plan(
    "echo",
    [step("echo", "echo", { args: { value: { from: "args", pointer: "/value" } } })],
    { type: "step", step: "echo" },
    {
      input_schema: { type: "object", required: ["value"], additionalProperties: false, properties: { value: {} } },
    },
  ),
  plan("hold", [step("wait", "hold")], { type: "step", step: "wait" }),
  plan("ask", [step("write", "write", { capabilities: ["write"] })], { type: "step", step: "write" }),
  plan("gate", [{ id: "gate", type: "approval", prompt: "Go on?" }], { type: "step", step: "gate" }),
  plan("failing", [step("fail", "fail")], { type: "step", step: "fail" }),
  plan(
    "many",
    [step("each", "paced")],
    { type: "map", source: { from: "args", pointer: "/items" }, item: "item", body: { type: "step", step: "each" } },
    {
      input_schema: {
        type: "object",
        required: ["items"],
        additionalProperties: false,
        properties: { items: { type: "array", maxItems: 2_000, items: { type: "integer" } } },
      },
    },
  ),
] as const;

export class Served {
  readonly folder: string;
  readonly workspace: string;
  readonly stateDir: string;
  readonly written: unknown[] = [];
  readonly logged: string[] = [];
  holdfast!: Holdfast;
  server!: RunningServer;
  /** Steps of the tool `hold` and `paced` wait for this. */
  #open: () => void = () => undefined;
  #gate: Promise<void> = Promise.resolve();
  readonly #serveOptions: Partial<ServeOptions>;
  readonly #openOptions: Partial<HoldfastOptions>;

  constructor(options: Partial<Omit<ServeOptions, "holdfast">> & { readonly open?: Partial<HoldfastOptions> } = {}) {
    this.folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), "holdfast-server-")));
    this.workspace = path.join(this.folder, "shop");
    this.stateDir = path.join(this.workspace, ".holdfast", "state");
    mkdirSync(this.stateDir, { recursive: true });
    const { open, ...serve } = options;
    this.#serveOptions = serve;
    this.#openOptions = open ?? {};
    this.hold();
  }

  /** From now on held steps wait. */
  hold(): void {
    this.#gate = new Promise((resolve) => {
      this.#open = resolve;
    });
  }

  /** What waits goes on, and nothing waits any more. */
  release(): void {
    this.#open();
  }

  async start(): Promise<this> {
    this.holdfast = await createHoldfast({
      workspace: this.workspace,
      trust: true,
      permissions: { read: "allow", write: "ask" },
      workflows: WORKFLOWS,
      tools: this.#tools(),
      ...this.#openOptions,
    });
    const log = createLog({ write: (line) => void this.logged.push(line) });
    this.server = await startServer({
      stateDir: this.stateDir,
      port: 0,
      log,
      stop_ms: 3_000,
      ...this.#serveOptions,
      holdfast: this.holdfast,
    });
    return this;
  }

  #tools() {
    const common = {
      description: "A tool of the tests.",
      input: ANY,
      capabilities: ["read"],
      sideEffect: "read_only",
    } as const;
    return [
      defineTool({ ...common, name: "look", run: () => ({ seen: true }) }),
      defineTool({ ...common, name: "echo", run: (input: { value?: unknown }) => (input.value ?? null) as never }),
      defineTool({ ...common, name: "fail", run: () => Promise.reject(new Error("PRIVATE-failure")) }),
      defineTool({
        ...common,
        name: "hold",
        run: async (_: unknown, { signal }) => {
          await Promise.race([
            this.#gate,
            new Promise((_, reject) =>
              signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true }),
            ),
          ]);
          return { held: true };
        },
      }),
      defineTool({ ...common, name: "paced", run: () => this.#gate.then(() => ({ ok: true })) }),
      defineTool({
        name: "write",
        description: "Writes once.",
        input: ANY,
        capabilities: ["write"],
        sideEffect: "mutating",
        run: (input) => {
          this.written.push(input);
          return { wrote: true };
        },
      }),
    ];
  }

  /** Ends the server and this Holdfast in good order; `start` brings both back on the same state. */
  async stop(): Promise<void> {
    await this.server.stop();
    await this.holdfast.close();
  }

  token(name: string, role: "observer" | "operator"): string {
    return new TokenFolder(this.stateDir).add(name, role, Date.now()).token;
  }

  get port(): number {
    return Number(new URL(this.server.url).port);
  }

  async fetch(address: string, init: RequestInit & { token?: string | null } = {}): Promise<Response> {
    const { token = this.server.token, headers, ...rest } = init;
    return fetch(`${this.server.url}${address}`, {
      ...rest,
      headers: {
        ...(token === null ? {} : { Authorization: `Bearer ${token}` }),
        ...(headers as Record<string, string>),
      },
    });
  }

  async post(address: string, body?: unknown, headers: Record<string, string> = {}, token?: string): Promise<Response> {
    return this.fetch(address, {
      method: "POST",
      headers: { ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(token === undefined ? {} : { token }),
    });
  }

  async startRun(workflow_id: string, args?: unknown, headers: Record<string, string> = {}): Promise<string> {
    const answer = await this.post(
      "/api/v1/sessions/default/workflow-runs",
      { workflow_id, revision: 1, ...(args === undefined ? {} : { args }) },
      headers,
    );
    const run = (await answer.json()) as { run_id?: string };
    if (run.run_id === undefined) throw new Error(`not started: ${JSON.stringify(run)}`);
    return run.run_id;
  }

  async remove(): Promise<void> {
    this.release();
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export const RUNS = "/api/v1/sessions/default/workflow-runs";
