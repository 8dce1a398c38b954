/**
 * The package's face and composition root: the only place, beside the command line, where the rooms are wired
 * together (DESIGN §3, R-39).
 */
import { join } from "node:path";
import type { HandlerOptions, Holdfast } from "./access/api.ts";
import {
  type AccessContext,
  createAccess,
  DEFAULT_ACCESS_LIMITS,
  Notifier,
  readNotify,
  refusedToday,
} from "./access/index.ts";
import { builtinFolder, openCatalog, readData } from "./catalog/index.ts";
import {
  type ConfigApprovals,
  type ConfigLimits,
  type ConfigNotify,
  configEditorSchema,
  configFiles,
  findWorkspace,
  type HoldfastConfig,
  holdfastHome,
  importConfig,
  loadConfig as loadConfigFile,
  openTrust,
  openWorkspaceFolder,
  osUser,
  prepareState,
  trustedOnce,
} from "./config/index.ts";
import { HoldfastError } from "./domain/errors.ts";
import { type Diagnostic, planEditorSchema } from "./domain/plan/index.ts";
import type { Budgets, Durability } from "./domain/run.ts";
import {
  Driver,
  Engine,
  type EngineLimits,
  openHealingStore,
  systemClock,
  systemIds,
  timedStore,
} from "./engine/index.ts";
import type { AgentPort, Clock, Ids, PolicyPort, RunStore, SecretPort, SessionStore, ToolPort } from "./ports/index.ts";
import {
  type AnyTool,
  createPolicy,
  createSecrets,
  createToolRegistry,
  denySecrets,
  fileTools,
  isTool,
  type Permissions,
} from "./tools/index.ts";
import type { McpServerConfig } from "./tools/mcp/index.ts";

export type * from "./access/api.ts";
export type {
  AiSdkTool,
  FunctionTool,
  RunOutcome,
  ToolSetOptions,
  WorkflowTool,
  WorkflowTools,
} from "./access/index.ts";
export { ToolCallError, WORKFLOW_RUN_SCHEMA } from "./access/index.ts";
export type { ConfigApprovals, ConfigNotify, HoldfastConfig } from "./config/index.ts";
export { ERRORS, type ErrorCode, type ErrorDoc, HoldfastError } from "./domain/errors.ts";
export type { Json, JsonObject } from "./domain/json.ts";
export type { Diagnostic } from "./domain/plan/index.ts";
export type { Budgets, Decision, Failure, RunStatus, SideEffect, StepStatus, Usage, Wait } from "./domain/run.ts";
export type * from "./ports/index.ts";
export type { CancelQuery, LookupQuery, ObserveQuery, PlanQuery } from "./tools/index.ts";
export { defineTool, type Tool, type ToolContext, ToolError, type ToolOptions } from "./tools/index.ts";
export type { McpServerConfig } from "./tools/mcp/index.ts";
export { configEditorSchema, configFiles, findWorkspace, openTrust, openWorkspaceFolder, planEditorSchema };

export interface HoldfastOptions {
  /** `sqlite:PATH`, `sqlite::memory:`, or a store of your own. Default: the workspace's state folder. */
  readonly store?: string | (RunStore & SessionStore);
  /** Folder that runs work in; default: found from the current one. */
  readonly workspace?: string;
  /** Nothing is trusted unless this is true. */
  readonly trust?: boolean;
  readonly permissions?: Permissions;
  readonly tools?: readonly AnyTool[];
  /** MCP servers whose tools may be used, as `mcp::SERVER::TOOL`; started only where the workspace is trusted. */
  readonly mcp?: { readonly [server: string]: McpServerConfig };
  /** Definitions given in code, as documents. */
  readonly workflows?: readonly unknown[];
  readonly agents?: AgentPort;
  /** Rules of your own in place of `permissions`. */
  readonly policy?: PolicyPort;
  readonly secrets?: SecretPort | { readonly env?: { readonly [name: string]: string } };
  readonly limits?: ConfigLimits;
  readonly recovery?: "auto" | "manual";
  /**
   * Also claims and drives runs that nobody else drives: interrupted, queued, woken by a timer or a signal. Default
   * true; false leaves this process with the runs that it starts or is told to drive.
   */
  readonly worker?: boolean;
  readonly durability?: Durability;
  /** Who may approve, and how long approvals that permissions ask for may take. */
  readonly approvals?: ConfigApprovals;
  /** Whom to tell of waits that a person must end; only a process that works (`worker`) tells. */
  readonly notify?: ConfigNotify;
  /** Who starts runs when a request does not say; default `os:` and the name of this process's user. */
  readonly started_by?: string;
  /** Session of requests that name none; default `default`. */
  readonly session?: string;
  readonly log?: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
  readonly clock?: Clock;
  readonly ids?: Ids;
}

/** Opens Holdfast in this process. It reads no configuration file and trusts nothing unless told to. */
export async function createHoldfast(options: HoldfastOptions = {}): Promise<Holdfast> {
  const workspace =
    options.workspace === undefined
      ? findWorkspace(process.cwd(), process.env)
      : openWorkspaceFolder(options.workspace);
  return compose({ ...options, workspaceRoot: workspace.root, needStore: true });
}

interface Composition extends HoldfastOptions {
  readonly leaves?: boolean;
  readonly workspaceRoot: string;
  readonly needStore: boolean;
  readonly readOnly?: boolean;
  readonly onCommit?: (ms: number) => void;
  readonly tellAfter?: Promise<unknown>;
  readonly configTools?: { readonly file: string; readonly tools: readonly AnyTool[] };
}

async function compose(options: Composition): Promise<Holdfast> {
  const { workspaceRoot: workspace } = options;
  const notify = options.notify === undefined ? undefined : readNotify(options.notify);
  const trusted = (): boolean => options.trust === true;
  const tools = await toolsOf(options);
  const limits = accessLimits(options.limits);
  const clock = options.clock ?? systemClock;
  const policy =
    options.policy ?? createPolicy(options.permissions === undefined ? {} : { permissions: options.permissions });
  const catalog = catalogOf(options, trusted() ? limits.ceilings.max_concurrency : 64, tools);
  const opened = options.needStore ? await openStore(options) : undefined;
  const ports = { clock, ids: options.ids ?? systemIds, tools, agents: options.agents, policy };
  const engine =
    opened === undefined
      ? undefined
      : new Engine({
          ports: { ...ports, store: opened.store, sessions: opened.store, secrets: secretsOf(options.secrets) },
          limits: engineLimits(options.limits),
          recovery: options.recovery ?? "auto",
          trusted,
          authorised: async (root, bundle) => (await refusedToday(context, root, bundle)) === undefined,
          workspace,
          approvals: options.approvals ?? {},
          ...(options.leaves === undefined ? {} : { leaves: options.leaves }),
          ...(options.log === undefined ? {} : { log: options.log }),
        });
  const context: AccessContext = {
    ...ports,
    engine,
    store: opened?.store,
    catalog,
    trusted,
    workspace,
    limits,
    engineLimits: engineLimits(options.limits),
    durability: options.durability ?? "standard",
    readOnly: options.readOnly ?? false,
    approvals: options.approvals ?? {},
    starter: options.started_by ?? osUser(),
    ...(options.log === undefined ? {} : { log: options.log }),
    session: options.session ?? "default",
  };
  const driver = engine === undefined || options.worker === false ? undefined : new Driver(engine);
  const notifier =
    driver === undefined || engine === undefined || opened === undefined
      ? undefined
      : notifierOf(options, notify, { engine, store: opened.store, clock });
  // Before anything is driven: nothing that comes to wait is missed.
  notifier?.start();
  await driver?.start();
  const access = createAccess(context, async () => {
    await notifier?.stop();
    await driver?.stop();
    await engine?.close();
    await tools.close?.();
    await opened?.close();
  });
  const holdfast: Holdfast = { ...access, handler: (mounted) => lazyHandler(holdfast, options, mounted) };
  return holdfast;
}

/** The server room is loaded with the first request: who mounts no handler never pays for it. */
function lazyHandler(
  holdfast: Holdfast,
  options: Composition,
  mounted: HandlerOptions | undefined,
): (request: Request) => Promise<Response> {
  let made: Promise<(request: Request) => Promise<Response>> | undefined;
  const make = async (): Promise<(request: Request) => Promise<Response>> => {
    const [{ mountedHandler }, { createMcpHttpHandler }] = await Promise.all([
      import("./server/index.ts"),
      import("./mcp/index.ts"),
    ]);
    const stateDir = lasts(options.store) ? prepareState(openWorkspaceFolder(options.workspaceRoot)) : undefined;
    const mcp = createMcpHttpHandler(holdfast, options.log === undefined ? {} : { log: options.log });
    return mountedHandler(holdfast, stateDir, mounted, mcp);
  };
  return async (request) => {
    made ??= make();
    return (await made)(request);
  };
}

/** Notices of a worker process, where somebody is to be told. */
function notifierOf(
  options: Composition,
  notify: ReturnType<typeof readNotify> | undefined,
  { engine, store, clock }: { engine: Engine; store: RunStore & SessionStore; clock: Clock },
): Notifier | undefined {
  if (notify === undefined) return undefined;
  const { workspaceRoot: workspace, log = () => undefined } = options;
  const file = join(openWorkspaceFolder(workspace).state_dir, "server.json");
  return new Notifier(
    {
      store,
      clock,
      workspace,
      log,
      secrets: secretsOf(options.secrets),
      observe: (listener) => engine.observe(listener),
      serverFile: file,
      ...(options.tellAfter === undefined ? {} : { after: options.tellAfter }),
    },
    notify,
  );
}

/** Whether the store outlives the process; what belongs beside it then goes to the state folder. */
function lasts(store: HoldfastOptions["store"]): boolean {
  return store === undefined || (typeof store === "string" && sqlitePath(store) !== ":memory:");
}

/** Tools of every kind behind one port. MCP servers are started by the first call, and only where they are trusted. */
async function toolsOf(options: Composition): Promise<ToolPort> {
  const tools = createToolRegistry([
    fileTools(),
    ...(options.configTools === undefined
      ? []
      : [{ source: "config" as const, origin: options.configTools.file, tools: options.configTools.tools }]),
    ...(options.tools === undefined
      ? []
      : [{ source: "code" as const, origin: "createHoldfast({ tools })", tools: options.tools }]),
  ]);
  if (options.mcp === undefined || options.trust !== true) return tools;
  const { createMcpTools, readMcpConfig, withMcpTools } = await import("./tools/mcp/index.ts");
  const mcp = createMcpTools(readMcpConfig(options.mcp), {
    secrets: secretsOf(options.secrets),
    workspace: options.workspaceRoot,
    ...(options.log === undefined ? {} : { log: options.log }),
  });
  return withMcpTools(tools, mcp);
}

function catalogOf(options: Composition, maxConcurrency: number, tools: ToolPort): ReturnType<typeof openCatalog> {
  const builtin = builtinFolder(import.meta.url);
  return openCatalog({
    workspace: options.workspaceRoot,
    home: holdfastHome(process.env),
    ...(builtin === undefined ? {} : { builtin }),
    ...(options.workflows === undefined ? {} : { definitions: options.workflows }),
    env: { tool: (name) => tools.describe(name), maxConcurrency },
    cwd: process.cwd(),
  });
}

/** Opens the store that the options name; one that was handed in stays its owner's to close. */
async function openStore(
  options: Composition,
): Promise<{ store: RunStore & SessionStore; close: () => Promise<void> }> {
  const { store: wanted } = options;
  if (typeof wanted === "object") {
    const store = options.onCommit === undefined ? wanted : timedStore(wanted, options.onCommit);
    return { store, close: async () => undefined };
  }
  const { openSqliteStore } = await import("./stores/sqlite/index.ts");
  const folder = openWorkspaceFolder(options.workspaceRoot);
  const state = options.readOnly === true ? folder.state_dir : undefined;
  const path = wanted === undefined ? join(state ?? prepareState(folder), "holdfast.db") : sqlitePath(wanted);
  const open = () =>
    openSqliteStore({ path, ...(options.readOnly === undefined ? {} : { readOnly: options.readOnly }) });
  // GD-31: what is here to stay begins without a store that another holds for now; a command says so and ends.
  const stays = options.worker !== false && options.readOnly !== true;
  const heal = { open, clock: systemClock, ...(options.log === undefined ? {} : { log: options.log }) };
  const opened = stays ? await openHealingStore(heal) : await open();
  const store = options.onCommit === undefined ? opened : timedStore(opened, options.onCommit);
  return { store, close: () => opened.close() };
}

function sqlitePath(url: string): string {
  if (url.startsWith("sqlite:")) return url.slice("sqlite:".length);
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(url))
    throw new HoldfastError(
      "usage",
      `Cannot open the store "${url.split("://")[0]}://…": this build knows sqlite:PATH`,
    );
  return url;
}

function secretsOf(secrets: HoldfastOptions["secrets"]): SecretPort {
  if (secrets === undefined) return denySecrets();
  if ("resolve" in secrets) return secrets;
  return createSecrets(secrets.env === undefined ? {} : { env: secrets.env }, process.env);
}

function accessLimits(limits: ConfigLimits = {}): typeof DEFAULT_ACCESS_LIMITS {
  const base = DEFAULT_ACCESS_LIMITS;
  const ceilings: Budgets = {
    max_concurrency: limits.concurrency ?? base.ceilings.max_concurrency,
    max_agents: limits.agents ?? base.ceilings.max_agents,
    max_steps: limits.steps ?? base.ceilings.max_steps,
    max_retries: limits.retries ?? base.ceilings.max_retries,
    max_nesting_depth: limits.nesting_depth ?? base.ceilings.max_nesting_depth,
    wall_time_ms: limits.run_ms ?? base.ceilings.wall_time_ms,
    ...(limits.tokens === undefined ? {} : { max_tokens: limits.tokens }),
    ...(limits.cost_micros === undefined ? {} : { max_cost_micros: limits.cost_micros }),
  };
  return {
    ceilings,
    open_runs: limits.open_runs ?? base.open_runs,
    definitions: limits.definitions ?? base.definitions,
    bundle_bytes: limits.bundle_bytes ?? base.bundle_bytes,
  };
}

function engineLimits(limits: ConfigLimits = {}): Partial<EngineLimits> {
  return {
    ...(limits.stop_grace_ms === undefined ? {} : { stop_grace_ms: limits.stop_grace_ms }),
    ...(limits.lease_ms === undefined ? {} : { lease_ms: limits.lease_ms }),
    ...(limits.admission_timeout_ms === undefined ? {} : { admission_timeout_ms: limits.admission_timeout_ms }),
  };
}

// ── the command line's way in ─────────────────────────────────────────────────────────────────────────────────

export interface OpenWorkspaceRequest {
  readonly cwd: string;
  readonly env: { readonly [name: string]: string | undefined };
  readonly workspace?: string;
  readonly store?: string;
  readonly session?: string;
  /** Trust for this opening only. */
  readonly trustOnce?: boolean;
  /** Nothing is created where nothing is. */
  readonly readOnly?: boolean;
  /** False: the catalog alone, no store. */
  readonly needStore?: boolean;
  /** Drive whatever wants driving, as a worker process does; default false. */
  readonly worker?: boolean;
  /** What the command sets going is left to other processes: it does not stay. */
  readonly leaves?: boolean;
  /** Hears how long each commit of the store took. */
  readonly onCommit?: (ms: number) => void;
  /** Nobody is told of waits before this (`notify`). */
  readonly tellAfter?: Promise<unknown>;
  readonly log?: NonNullable<HoldfastOptions["log"]>;
}

export interface OpenedWorkspace {
  readonly holdfast: Holdfast;
  /** Real path. */
  readonly workspace: string;
  readonly trusted: boolean;
  readonly config: HoldfastConfig;
  readonly configFile?: string;
  readonly diagnostics: readonly Diagnostic[];
}

/** Finds the workspace, its trust and its configuration, and opens Holdfast there. */
export async function openWorkspace(request: OpenWorkspaceRequest): Promise<OpenedWorkspace> {
  const found = await prepare(request);
  const holdfast = await compose(found.composition);
  return {
    holdfast,
    workspace: found.composition.workspaceRoot,
    trusted: found.composition.trust === true,
    config: found.config,
    ...(found.file === undefined ? {} : { configFile: found.file }),
    diagnostics: found.diagnostics,
  };
}

/** What is wrong with definition files, in the catalog or not; opens no store. */
export async function checkFiles(
  request: OpenWorkspaceRequest,
  files: readonly string[],
): Promise<readonly Diagnostic[]> {
  const { composition } = await prepare({ ...request, needStore: false });
  const tools = await toolsOf(composition);
  const limits = accessLimits(composition.limits);
  return catalogOf(composition, composition.trust === true ? limits.ceilings.max_concurrency : 64, tools).checkFiles(
    files,
  );
}

interface Prepared {
  readonly composition: Composition;
  readonly config: HoldfastConfig;
  readonly file?: string;
  readonly diagnostics: readonly Diagnostic[];
}

async function prepare(request: OpenWorkspaceRequest): Promise<Prepared> {
  const { env } = request;
  const folder =
    request.workspace === undefined ? findWorkspace(request.cwd, env) : openWorkspaceFolder(request.workspace);
  const trust = request.trustOnce === true || trustedOnce(env) || openTrust(env).isTrusted(folder.root);
  const loaded = await loadConfig(folder.root, { trusted: trust });
  const { config } = loaded;
  const store = request.store ?? env.HOLDFAST_STORE ?? config.store;
  const session = request.session ?? env.HOLDFAST_SESSION;
  const workspaceRoot =
    config.workspace === undefined ? folder.root : openWorkspaceFolder(join(folder.root, config.workspace)).root;
  const tools = (config.tools ?? []).filter(isTool);
  return {
    config,
    ...(loaded.file === undefined ? {} : { file: loaded.file }),
    diagnostics: loaded.diagnostics,
    composition: {
      worker: request.worker ?? false,
      ...(request.leaves === undefined ? {} : { leaves: request.leaves }),
      ...(request.onCommit === undefined ? {} : { onCommit: request.onCommit }),
      ...(request.log === undefined ? {} : { log: request.log }),
      ...(request.tellAfter === undefined ? {} : { tellAfter: request.tellAfter }),
      workspaceRoot,
      trust,
      needStore: request.needStore ?? true,
      ...(request.readOnly === undefined ? {} : { readOnly: request.readOnly }),
      ...(store === undefined ? {} : { store }),
      ...(session === undefined ? {} : { session }),
      ...(config.permissions === undefined ? {} : { permissions: config.permissions }),
      ...(config.limits === undefined ? {} : { limits: config.limits }),
      ...(config.recovery === undefined ? {} : { recovery: config.recovery }),
      ...(config.approvals === undefined ? {} : { approvals: config.approvals }),
      ...(config.notify === undefined ? {} : { notify: config.notify }),
      ...(config.durability === undefined ? {} : { durability: config.durability }),
      ...(config.secrets === undefined ? {} : { secrets: config.secrets }),
      // Read, and refused where it is wrong, when the tools are made.
      ...(config.mcp === undefined ? {} : { mcp: config.mcp as NonNullable<HoldfastOptions["mcp"]> }),
      ...(tools.length === 0 ? {} : { configTools: { file: loaded.file ?? "the configuration", tools } }),
    },
  };
}

/** Reads the configuration file of a workspace; `createHoldfast` never does so by itself. */
export async function loadConfig(
  workspace: string,
  options: { readonly trusted: boolean },
): Promise<{ readonly config: HoldfastConfig; readonly file?: string; readonly diagnostics: readonly Diagnostic[] }> {
  return loadConfigFile(openWorkspaceFolder(workspace), {
    ...options,
    readDocument: readData,
    packageEntry: import.meta.filename,
  });
}

/**
 * The tools that a file exports by default (`export default [defineTool({…}), …]`), for `holdfast test --tools`. Who
 * names a file on the command line trusts it, as with `node FILE`.
 * @param file absolute path
 * @throws HoldfastError `usage`: it cannot be loaded, or something in it is no tool
 */
export async function loadTools(file: string, workspace: string): Promise<readonly AnyTool[]> {
  const { root, state_dir } = openWorkspaceFolder(workspace);
  const found = await importConfig(file, { stateDir: state_dir, root, packageEntry: import.meta.filename });
  const list: readonly unknown[] = Array.isArray(found) ? found : [found];
  const wrong = list.findIndex((each) => !isTool(each));
  if (wrong >= 0)
    throw new HoldfastError(
      "usage",
      `Cannot use the tools of ${file}: item ${wrong + 1} is none; export default [defineTool({…}), …]`,
    );
  return list.filter(isTool);
}
