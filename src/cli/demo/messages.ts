/** What the demonstration's worker process tells the one that shows it, over Node's channel between them. */
import type { OperatorEvent, Run } from "../../access/api.ts";
import type { ErrorDoc } from "../../domain/errors.ts";

export type DemoMessage =
  /** `last_sequence`: what the journal held before this process moved the run. */
  | { readonly type: "started"; readonly run_id: string; readonly last_sequence: number }
  | { readonly type: "event"; readonly event: OperatorEvent }
  /** Half of the files are measured, and the worker stands still: the moment to kill it. */
  | { readonly type: "halfway" }
  | { readonly type: "ended"; readonly run: Run }
  | { readonly type: "error"; readonly error: ErrorDoc };

export function isDemoMessage(value: unknown): value is DemoMessage {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}
