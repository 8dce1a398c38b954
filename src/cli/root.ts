/**
 * What the command line needs of the composition root, and how it gets it: late, because `--help` and refusals
 * must not wait for the engine, the store driver and the parsers to load (DESIGN §15).
 */
import type { Holdfast } from "../access/api.ts";
import type { HoldfastConfig } from "../config/index.ts";
import type { JsonObject } from "../domain/json.ts";
import type { Diagnostic } from "../domain/plan/index.ts";
import type { AnyTool } from "../tools/index.ts";

export interface OpenRequest {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  readonly workspace?: string;
  readonly store?: string;
  readonly session?: string;
  /** `HOLDFAST_TRUST=1`: this command only. */
  readonly trustOnce?: boolean;
  /** The command only reads: nothing is created where nothing is. */
  readonly readOnly?: boolean;
  /** False: the catalog alone; no store is opened. */
  readonly needStore?: boolean;
  /** Drive whatever wants driving, as a worker process does; default false. */
  readonly worker?: boolean;
  /** What the command sets going is left to other processes: it does not stay. */
  readonly leaves?: boolean;
  /** Hears how long each commit of the store took, ms. */
  readonly onCommit?: (ms: number) => void;
  /** For servers: nobody is told of waits before this, so that a notice says where they are answered. */
  readonly tellAfter?: Promise<unknown>;
  /** For servers: what their callers are not told. */
  readonly log?: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
}

export interface Opened {
  readonly holdfast: Holdfast;
  /** Real path. */
  readonly workspace: string;
  readonly trusted: boolean;
  readonly config?: HoldfastConfig;
  /** The configuration file in use, when there is one. */
  readonly configFile?: string;
  /** What is wrong with, or left out of, configuration and catalog; warnings for the most part. */
  readonly diagnostics: readonly Diagnostic[];
}

/** A folder that runs work in. */
export interface WorkspaceFolder {
  /** Real path. */
  readonly root: string;
  readonly state_dir: string;
}

export interface TrustList {
  /** The file that holds the list. */
  readonly path: string;
  isTrusted(workspace: string): boolean;
  /** Why the list trusts nothing though it may name workspaces. */
  problem(): string | undefined;
  list(): readonly { readonly path: string; readonly trusted_at_ms: number }[];
  trust(workspace: string, nowMs: number): unknown;
  /** False when it was not trusted. */
  revoke(workspace: string): boolean;
}

/** What the demonstration asks of `createHoldfast`: a store and tools of its own, no configuration. */
export interface CreateRequest {
  readonly store: string;
  readonly workspace: string;
  readonly tools: readonly AnyTool[];
  readonly workflows: readonly unknown[];
  readonly trust: boolean;
  readonly permissions: { readonly [capability: string]: "allow" | "ask" | "deny" };
}

export interface CompositionRoot {
  createHoldfast(request: CreateRequest): Promise<Holdfast>;
  openWorkspace(request: OpenRequest): Promise<Opened>;
  /** What is wrong with definition files, in the catalog or not. */
  checkFiles(request: OpenRequest, files: readonly string[]): Promise<readonly Diagnostic[]>;
  /** The tools that a file exports by default: naming the file is trusting it. */
  loadTools(file: string, workspace: string): Promise<readonly AnyTool[]>;
  planEditorSchema(): JsonObject;
  configEditorSchema(): Promise<JsonObject>;
  findWorkspace(cwd: string, env: NodeJS.ProcessEnv): WorkspaceFolder;
  openWorkspaceFolder(folder: string): WorkspaceFolder;
  configFiles(folder: string): readonly string[];
  openTrust(env: NodeJS.ProcessEnv): TrustList;
}
