/** Journal events as lines for people. */
import type { OperatorEvent } from "../../access/api.ts";
import type { Json, JsonObject } from "../../domain/json.ts";
import { getOwn } from "../../domain/json.ts";
import type { Style } from "../terminal.ts";
import { clip, elapsed, jsonText, oneLine } from "../text.ts";

/** A text field of an event, absent when it is something else. */
export function textOf(event: OperatorEvent, field: string): string | undefined {
  const value = getOwn<Json>(event, field);
  return typeof value === "string" ? value : undefined;
}

export function numberOf(event: OperatorEvent, field: string): number | undefined {
  const value = getOwn<Json>(event, field);
  return typeof value === "number" ? value : undefined;
}

export function objectOf(event: OperatorEvent, field: string): JsonObject | undefined {
  const value = getOwn<Json>(event, field);
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
}

/** `  12  10:04:05.120  step_completed    find  {"files":…}`, cut to `width` columns. */
export function eventLine(event: OperatorEvent, style: Style, width: number): string {
  const time = /T(.{12})/.exec(event.at)?.[1] ?? event.at;
  const head = `${String(event.sequence).padStart(4)}  ${oneLine(time)}  ${event.type.padEnd(15)}`;
  const rest = oneLine(describe(event));
  const room = Number.isFinite(width) ? Math.max(20, width - head.length - 2) : 400;
  const line = `${head}  ${clip(rest, room, style.more)}`.trimEnd();
  return paint(event.type, style)(line);
}

function paint(type: string, style: Style): (text: string) => string {
  if (type.endsWith("_failed")) return style.bad;
  if (type.endsWith("_suspended") || type === "wait_opened") return style.warn;
  if (type === "run_succeeded") return style.good;
  return type === "phase" || type === "step_queued" || type === "decision" ? style.dim : (text) => text;
}

function describe(event: OperatorEvent): string {
  const parts = [textOf(event, "step_id") ?? textOf(event, "instance"), detail(event)];
  return parts.filter((part) => part !== undefined && part !== "").join("  ");
}

function detail(event: OperatorEvent): string | undefined {
  switch (event.type) {
    case "phase":
      return phaseDetail(event);
    case "step_started":
      return [textOf(event, "tool"), attemptDetail(event)].filter(Boolean).join("  ");
    case "step_completed":
    case "run_succeeded":
      return jsonText(getOwn<Json>(event, "output") ?? null);
    case "step_failed":
    case "run_failed":
      return failureText(objectOf(event, "failure"));
    case "step_suspended":
    case "step_skipped":
    case "run_suspended":
    case "run_cancelled":
      return textOf(event, "reason");
    default:
      return otherDetail(event);
  }
}

function attemptDetail(event: OperatorEvent): string {
  const attempt = numberOf(event, "attempt") ?? 1;
  const again = numberOf(event, "redispatch") ?? 0;
  return [attempt > 1 ? `attempt ${attempt}` : "", again > 0 ? `sent again (${again})` : ""].filter(Boolean).join(", ");
}

function phaseDetail(event: OperatorEvent): string {
  const name = textOf(event, "name") ?? "";
  const due = numberOf(event, "due_at_ms");
  return due === undefined ? name : `${name}  next attempt in ${elapsed(due - Date.parse(event.at))}`;
}

function failureText(failure: JsonObject | undefined): string | undefined {
  if (failure === undefined) return undefined;
  return `${String(getOwn(failure, "code") ?? "")}: ${String(getOwn(failure, "message") ?? "")}`;
}

/** Events beyond RP's 14: their fields as they are, without those that every event has. */
function otherDetail(event: OperatorEvent): string {
  const common = new Set(["run_id", "sequence", "at", "at_ms", "type", "step_id", "instance", "visit", "woke"]);
  const rest = Object.entries(event).filter(([key]) => !common.has(key));
  return rest.map(([key, value]) => `${key}=${typeof value === "string" ? value : jsonText(value)}`).join(" ");
}
