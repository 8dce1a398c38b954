/**
 * The one error table (R-26, interfaces §1): every code that can leave Holdfast, what its reader does about
 * it, and how each edge shows it. Exit and HTTP statuses are used only by the edges.
 */
import type { Json } from "./json.ts";

interface ErrorRow {
  /** What the reader of the error does. */
  readonly action: string;
  /** Exit status of the command line. */
  readonly exit: number;
  /** HTTP status, or none where the error cannot cross HTTP. */
  readonly http?: number;
  /** Kind and text of the `workflow_run` tool error (RP-83). */
  readonly tool?: readonly ["InvalidArguments" | "Execution", string];
}

const INPUT = ["InvalidArguments", "workflow input is invalid"] as const;
const PREFLIGHT = ["InvalidArguments", "workflow preflight failed"] as const;
const STORAGE = ["Execution", "workflow storage unavailable"] as const;

export const ERRORS = {
  usage: { action: "correct the command, flag, query or field", exit: 2, http: 400, tool: INPUT },
  definition: {
    action: "correct the definition; `details.diagnostics` says where",
    exit: 2,
    http: 400,
    tool: ["InvalidArguments", "workflow definition is invalid"],
  },
  input: { action: "correct the arguments, budget or answer", exit: 2, http: 400, tool: INPUT },
  preflight: {
    action: "change the policy, trust or workflow; `details.refused` says which",
    exit: 2,
    http: 400,
    tool: PREFLIGHT,
  },
  workflow_monetary_budget_unsupported: {
    action: "give the model a price or drop the cost limit",
    exit: 2,
    http: 400,
    tool: PREFLIGHT,
  },
  unauthorized: { action: "send a valid token", exit: 2, http: 401 },
  forbidden: { action: "use a token or address that is allowed", exit: 2, http: 403 },
  not_found: {
    action: "check the id and the session",
    exit: 2,
    http: 404,
    tool: ["Execution", "workflow run not found"],
  },
  terminal: {
    action: "nothing: the run has ended",
    exit: 1,
    http: 409,
    tool: ["Execution", "workflow run is already terminal"],
  },
  not_possible: { action: "see the run's actions", exit: 1, http: 409, tool: PREFLIGHT },
  conflict: { action: "load again and decide again", exit: 1, http: 409, tool: PREFLIGHT },
  idempotency_key_reused: { action: "use a new key for a new request", exit: 2, http: 422 },
  nondeterminism: {
    action: "restore the program that started the run, or restart it as a new run",
    exit: 3,
    http: 409,
    tool: PREFLIGHT,
  },
  unsupported_media_type: { action: "send application/json", exit: 2, http: 415 },
  too_large: { action: "send less", exit: 2, http: 413, tool: INPUT },
  rate_limited: { action: "wait and try again", exit: 5, http: 429 },
  storage: { action: "free space, restore a backup or upgrade", exit: 5, http: 500, tool: STORAGE },
  storage_unavailable: { action: "wait and try again", exit: 5, http: 503, tool: STORAGE },
  server_unavailable: { action: "start the server or wait", exit: 5, http: 503 },
  internal: { action: "report the bug", exit: 70, http: 500, tool: STORAGE },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** What `preflight` refused (interfaces §1). */
export type Refused =
  | "trust"
  | "capability"
  | "policy"
  | "opt_in"
  | "invocation"
  | "ceiling"
  | "index_full"
  | "sandbox"
  | "price"
  | "bundle"
  | "kind";

/** Wire form of an error (command line `--json` and TypeScript). */
export interface ErrorDoc {
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: Json;
}

const BRAND = Symbol.for("holdfast.error");

/** The only error that leaves Holdfast: a closed code, a sentence that says what to do, details for machines. */
export class HoldfastError extends Error {
  readonly code: ErrorCode;
  readonly details?: Json;
  readonly [BRAND] = true;

  constructor(code: ErrorCode, message: string, options: { details?: Json; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "HoldfastError";
    this.code = code;
    if (options.details !== undefined) this.details = options.details;
  }

  /** Also true across two copies of the package in one process. */
  static is(error: unknown): error is HoldfastError {
    return typeof error === "object" && error !== null && BRAND in error;
  }

  toJSON(): ErrorDoc {
    return {
      code: this.code,
      message: this.message,
      ...(this.details === undefined ? {} : { details: this.details }),
    };
  }
}

/** An invariant of Holdfast itself is broken: a bug, never the user's fault. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new HoldfastError("internal", `Bug in Holdfast: ${message}`);
}

export function unreachable(value: never): never {
  throw new HoldfastError("internal", `Bug in Holdfast: unexpected ${JSON.stringify(value)}`);
}
