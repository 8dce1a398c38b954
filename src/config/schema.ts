/**
 * The schema of the configuration file: the closed key set, what each key may hold, and the words for what
 * it may not. Heavy (zod): loaded only when there is a file to read or a schema to print.
 */
import { z } from "zod";
import { nearest } from "../domain/nearest.ts";
import { WAIT_TYPES } from "../domain/run.ts";
import type { HoldfastConfig } from "./definition.ts";

const count = (most: number) => z.int().min(1).max(most);
const SAFE = Number.MAX_SAFE_INTEGER;
const DAY_MS = 86_400_000;

const limits = z.strictObject({
  steps: count(10_000_000).describe("Most step attempts of one run tree (default 100,000)").optional(),
  concurrency: count(65_536).describe("Most steps of one run tree at work at once (default 1,024)").optional(),
  agents: z.int().min(0).max(10_000_000).describe("Most agent attempts of one run tree").optional(),
  retries: z.int().min(0).max(10_000_000).describe("Most retries of one run tree").optional(),
  nesting_depth: count(64).describe("Deepest nesting of workflows").optional(),
  run_ms: count(3_650 * DAY_MS)
    .describe("Longest wall time of one run in ms (default 30 days)")
    .optional(),
  tokens: z.int().min(0).max(SAFE).describe("Most tokens of one run tree").optional(),
  cost_micros: z.int().min(0).max(SAFE).describe("Highest cost of one run tree in millionths").optional(),
  open_runs: count(SAFE).describe("Most runs of one session that have not ended (default 1,000,000)").optional(),
  definitions: count(65_536).describe("Most definitions of one bundle (default 256)").optional(),
  bundle_bytes: count(268_435_456).describe("Largest bundle in bytes (default 16 MiB)").optional(),
  lease_ms: z
    .int()
    .min(500)
    .max(3_600_000)
    .describe("How long a worker process holds a run tree without renewing (default 30,000)")
    .optional(),
  stop_grace_ms: z
    .int()
    .min(0)
    .max(3_600_000)
    .describe("How long a stop waits for what is at work (default 5,000)")
    .optional(),
  admission_timeout_ms: z
    .int()
    .min(10)
    .max(3_600_000)
    .describe("How long a step waits for what others hold before its run is let go of for a while (default 30,000)")
    .optional(),
});

const capabilityName = z.string().regex(/^[A-Za-z][A-Za-z0-9_.:-]{0,63}$/);
const loose = z.record(z.string(), z.unknown());

const word = z.string().max(8_192);
const notify = z.strictObject({
  command: z
    .array(word)
    .min(1)
    .max(64)
    .describe("Program and arguments; each notice is a line of JSON on its standard input")
    .optional(),
  webhook: z
    .strictObject({
      url: z.string().regex(/^https?:\/\/.+$/),
      headers: z
        .record(
          z.string().regex(/^[A-Za-z0-9-]{1,128}$/),
          z.union([word, z.strictObject({ $secret: z.string().min(1) })]),
        )
        .optional(),
    })
    .describe("Each notice is the JSON body of a POST")
    .optional(),
  on: z
    .array(z.enum(WAIT_TYPES))
    .max(10)
    .describe("Types of waits (default: all that only a person can end)")
    .optional(),
  timeout_ms: z.int().min(1).max(60_000).describe("Time of one delivery in ms (default 10,000)").optional(),
});

/** A tool as `defineTool` makes it; the tool room checks the rest. */
const tool = z.custom<{ readonly name: string }>(
  (value) => {
    const { name, run } = Object(value) as { name?: unknown; run?: unknown };
    return typeof name === "string" && typeof run === "function";
  },
  { error: "is no tool: make it with defineTool({…}) in a .ts or .js configuration" },
);

const permissionsText = "What each capability (read, write, shell, network, agent or a tool's own) may do";

export const configSchema = z.strictObject({
  store: z
    .string()
    .regex(/^(?:sqlite:.+|postgres(?:ql)?:\/\/.+)$/)
    .describe("sqlite:PATH or postgres://…")
    .optional(),
  workspace: z.string().min(1).describe("The folder that runs work in, relative to this file").optional(),
  permissions: z
    .record(capabilityName, z.enum(["allow", "ask", "deny"]))
    .describe(permissionsText)
    .optional(),
  tools: z.array(tool).max(1_000).describe("Tools made with defineTool; only in a .ts or .js configuration").optional(),
  agents: z
    .union([z.array(z.unknown()), loose])
    .describe("Agents made with defineAgent")
    .optional(),
  models: loose.describe("Model tiers and providers").optional(),
  prices: loose.describe("Prices of models").optional(),
  mcp: loose.describe("MCP servers whose tools may be used").optional(),
  limits: limits.describe("Ceilings and times of trusted workspaces").optional(),
  secrets: z
    .strictObject({
      env: z
        .record(z.string().min(1).max(128), z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/))
        .describe("Name of the secret to the environment variable that holds it")
        .optional(),
    })
    .describe("Secrets that definitions may name")
    .optional(),
  recovery: z.enum(["auto", "manual"]).describe("What is done with interrupted runs (default auto)").optional(),
  durability: z.enum(["standard", "strict"]).describe("When a step waits for the disk (default standard)").optional(),
  server: loose.describe("The HTTP server").optional(),
  approvals: z
    .strictObject({
      mcp: z.literal("elicit").describe("MCP clients may answer approvals by elicitation").optional(),
      not_by_starter: z.boolean().describe("Who started a run may not approve in it").optional(),
      deadline_ms: z
        .int()
        .min(1)
        .describe("An approval that a permission asks for counts as No after this long")
        .optional(),
      warn_ms: z.int().min(1).describe("People are warned this long before; less than deadline_ms").optional(),
    })
    .refine(
      ({ deadline_ms, warn_ms }) => warn_ms === undefined || (deadline_ms !== undefined && warn_ms < deadline_ms),
      {
        path: ["warn_ms"],
        message: "must be less than deadline_ms, which must be given too",
      },
    )
    .describe("Who may approve, and how")
    .optional(),
  retention: loose.describe("How long ended runs are kept").optional(),
  notify: notify.describe("Whom to tell of waits that a person must end").optional(),
  telemetry: loose.describe("Traces and metrics").optional(),
  catalog: loose.describe("Where definitions are found").optional(),
});

export const CONFIG_KEYS: readonly string[] = Object.keys(configSchema.shape);

export interface ConfigFault {
  readonly path: readonly (string | number)[];
  readonly at_key: boolean;
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
}

export type ConfigCheck =
  | { readonly config: HoldfastConfig; readonly faults?: undefined }
  | { readonly config?: undefined; readonly faults: readonly ConfigFault[] };

/** Checks a value against the schema; never changes it. */
export function checkConfig(value: unknown): ConfigCheck {
  const parsed = configSchema.safeParse(value, { reportInput: true });
  // The value itself, not the parse's copy: tools and models are live objects.
  if (parsed.success) return { config: value as HoldfastConfig };
  return { faults: parsed.error.issues.flatMap(explain) };
}

type Issue = z.core.$ZodIssue;

function explain(issue: Issue): ConfigFault[] {
  const path = issue.path.map((part) => (typeof part === "number" ? part : String(part)));
  const where = path.length === 0 ? "the configuration" : `\`${path.join(".")}\``;
  const fault = (message: string, hint?: string): ConfigFault[] => [
    { path, at_key: false, code: "config", message: `${where} ${message}`, ...(hint === undefined ? {} : { hint }) },
  ];
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => unknownKey(path, key));
    case "invalid_type":
      return fault(`must be ${TYPE_WORDS.get(issue.expected) ?? issue.expected}`);
    case "invalid_value": {
      const values = issue.values.map(String);
      const given = typeof issue.input === "string" ? nearest(issue.input, values) : undefined;
      return fault(`must be ${values.join(", ")}`, given === undefined ? undefined : `did you mean "${given}"?`);
    }
    case "too_small":
      return fault(`must be at least ${issue.minimum}`);
    case "too_big":
      return fault(`must be at most ${issue.maximum}`);
    case "invalid_format":
      return fault(FORMAT_WORDS.get(String(path[0])) ?? "has a form that is not allowed");
    case "invalid_key":
      return fault("is no name that can be used here");
    default:
      return fault(issue.message);
  }
}

function unknownKey(path: readonly (string | number)[], key: string): ConfigFault {
  const known = path.length === 0 ? CONFIG_KEYS : keysAt(path);
  const found = nearest(key, known);
  const hint = found === undefined ? `known keys: ${known.join(", ")}` : `did you mean "${found}"?`;
  const message = `\`${[...path, key].join(".")}\` is no key of the configuration`;
  return { path: [...path, key], at_key: true, code: "unknown_key", message, hint };
}

/** Keys of the closed objects below the top; the schema has none deeper. */
function keysAt(path: readonly (string | number)[]): readonly string[] {
  const closed: Readonly<Record<string, readonly string[]>> = {
    limits: Object.keys(limits.shape),
    secrets: ["env"],
    approvals: ["mcp", "not_by_starter", "deadline_ms", "warn_ms"],
    notify: Object.keys(notify.shape),
  };
  if (path.join(".") === "notify.webhook") return ["url", "headers"];
  const key = String(path[0]);
  return Object.hasOwn(closed, key) ? (closed[key] ?? []) : [];
}

const TYPE_WORDS: ReadonlyMap<string, string> = new Map([
  ["string", "a text"],
  ["number", "a number"],
  ["int", "a whole number"],
  ["boolean", "true or false"],
  ["array", "a list"],
  ["record", "a mapping"],
  ["object", "a mapping"],
]);

const FORMAT_WORDS: ReadonlyMap<string, string> = new Map([
  ["store", "must be sqlite:PATH or postgres://…"],
  ["notify", "must be an http or https address, and its headers names and texts"],
  ["secrets", "must name an environment variable, such as API_KEY; the value itself never stands here"],
]);
