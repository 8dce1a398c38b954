/** What `holdfast.config.*` may say: types only, so that importing them costs nothing. */
import type { Durability, WaitType } from "../domain/run.ts";

export type ConfigPermission = "allow" | "ask" | "deny";

/** Ceilings of trusted workspaces and times; every key is optional, what is unsaid keeps its default. */
export interface ConfigLimits {
  /** Most step attempts of one run tree. */
  readonly steps?: number;
  /** Most steps of one run tree at work at once. */
  readonly concurrency?: number;
  /** Most agent attempts of one run tree. */
  readonly agents?: number;
  /** Most retries of one run tree. */
  readonly retries?: number;
  /** Deepest nesting of workflows. */
  readonly nesting_depth?: number;
  /** Longest wall time of one run, in ms. */
  readonly run_ms?: number;
  /** Most tokens of one run tree. */
  readonly tokens?: number;
  /** Highest cost of one run tree, in millionths of a currency unit. */
  readonly cost_micros?: number;
  /** Most runs of one session that have not ended. */
  readonly open_runs?: number;
  /** Most definitions of one bundle. */
  readonly definitions?: number;
  /** Largest bundle, in bytes as stored. */
  readonly bundle_bytes?: number;
  /** How long a worker process holds a run tree without renewing, in ms. */
  readonly lease_ms?: number;
  /** How long a stop waits for what is at work, in ms. */
  readonly stop_grace_ms?: number;
  readonly admission_timeout_ms?: number;
}

/** A tool as `defineTool` makes it. */
export interface ConfigTool {
  readonly name: string;
}

/** Whom to tell of waits that a person must end: a command that reads them, a webhook, or both. */
export interface ConfigNotify {
  /** Program and arguments; each notice is one line of JSON on its standard input. */
  readonly command?: readonly string[];
  /** Each notice is the JSON body of a POST. */
  readonly webhook?: {
    readonly url: string;
    readonly headers?: { readonly [name: string]: string | { readonly $secret: string } };
  };
  /** Types of waits; default: all that only a person can end. */
  readonly on?: readonly WaitType[];
  /** Time of one delivery, ms; default 10,000. */
  readonly timeout_ms?: number;
}

type Loose = { readonly [key: string]: unknown };

/** `export default { … } satisfies HoldfastConfig`; the key set is closed (R-30). */
export interface ConfigApprovals {
  /** People may decide through forms of their MCP client. */
  readonly mcp?: "elicit";
  /** Who started a run may not approve in it. */
  readonly not_by_starter?: boolean;
  /** An approval that a permission asks for counts as denied after this long (GD-51), ms. */
  readonly deadline_ms?: number;
  /** When its people are warned: this long before, ms; less than `deadline_ms`. */
  readonly warn_ms?: number;
}

export interface HoldfastConfig {
  /** `sqlite:PATH` or `postgres://…`; default: a SQLite file in the workspace's state folder. */
  readonly store?: string;
  /** The folder that runs work in, when it is not the one that holds this file; relative to it. */
  readonly workspace?: string;
  /** Per capability: `read`, `write`, `shell`, `network`, `agent` or one of a tool's own. */
  readonly permissions?: { readonly [capability: string]: ConfigPermission };
  /** Tools made with `defineTool`; only a .ts or .js configuration can have them. */
  readonly tools?: readonly ConfigTool[];
  readonly agents?: readonly unknown[] | Loose;
  readonly models?: Loose;
  readonly prices?: Loose;
  readonly mcp?: Loose;
  readonly limits?: ConfigLimits;
  /** Secrets that definitions may name, each with the environment variable that holds it. */
  readonly secrets?: { readonly env?: { readonly [name: string]: string } };
  /** What the server does with interrupted runs: go on where it is safe, or wait to be told. Default `auto`. */
  readonly recovery?: "auto" | "manual";
  /** `strict`: every event is on the disk before the next step. Default `standard`. */
  readonly durability?: Durability;
  readonly server?: Loose;
  readonly approvals?: ConfigApprovals;
  readonly retention?: Loose;
  readonly notify?: ConfigNotify;
  readonly telemetry?: Loose;
  readonly catalog?: Loose;
}
