/** What a model is told when a tool call is refused (RP-83): closed texts, never the words of an error. */
import { ERRORS, type ErrorCode, HoldfastError, type Refused } from "../domain/errors.ts";

export type ToolErrorKind = "InvalidArguments" | "Execution";

/** What failed in full, for the operator's log only. */
export type ToolLog = (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;

const BRAND = Symbol.for("holdfast.tool_call_error");

/** Thrown by the tools of `Holdfast.tools()`; its message is safe for a model. */
export class ToolCallError extends Error {
  readonly kind: ToolErrorKind;
  readonly code: ErrorCode;
  readonly [BRAND] = true;

  constructor(kind: ToolErrorKind, code: ErrorCode, message: string) {
    super(message);
    this.name = "ToolCallError";
    this.kind = kind;
    this.code = code;
  }

  /** Also true across two copies of the package in one process. */
  static is(error: unknown): error is ToolCallError {
    return typeof error === "object" && error !== null && BRAND in error;
  }
}

/** What to do about a refused preflight, where that can be said without a word of the definition (R-41, RP-16). */
const HINTS: { readonly [refused in Refused]?: string } = {
  opt_in: "the session has no opt-in for runs that a model starts; set orchestration_opt_in",
  invocation: "a model may not start this workflow; set invocation_policy.automatic to true in its definition",
  index_full: "workflow run index is full of active runs",
  trust: "the workspace is not trusted",
  ceiling: "a limit is above what a run started by a model may use; lower it",
};

/** A fault of the call itself, found before anything was looked up: the fields are the caller's, so they are named. */
export function invalidCall(why: string): ToolCallError {
  return new ToolCallError("InvalidArguments", "input", `workflow input is invalid: ${why}`);
}

/** RP-81. @param name as the caller wrote it; bounded and quoted, because it is shown again */
export function unknownField(name: string, act: string, known: readonly string[]): ToolCallError {
  const takes = known.length === 0 ? "nothing else" : known.join(", ");
  return invalidCall(`unknown field ${JSON.stringify(name.slice(0, 64))}; ${act} takes ${takes}`);
}

/** The error that a model sees for one of ours; whatever it said goes to the log. */
export function toolCallError(error: unknown, log: ToolLog | undefined, what: string): ToolCallError {
  if (ToolCallError.is(error)) return error;
  const code: ErrorCode = HoldfastError.is(error) ? error.code : "internal";
  const row = ERRORS[code];
  const [kind, text] = "tool" in row ? row.tool : ERRORS.storage.tool;
  log?.(text === ERRORS.storage.tool[1] ? "error" : "info", "a tool call was refused", { what, code, error });
  const hint = code === "preflight" ? HINTS[refusedOf(error)] : undefined;
  return new ToolCallError(kind, code, hint === undefined ? text : `${text}: ${hint}`);
}

function refusedOf(error: unknown): Refused {
  const details: unknown = HoldfastError.is(error) ? error.details : undefined;
  const refused: unknown = Object(details).refused;
  return typeof refused === "string" && Object.hasOwn(HINTS, refused) ? (refused as Refused) : "policy";
}
