/**
 * Errors as RFC 9457 problem details (interfaces §1). The operator reads the sentence of the error; everybody else
 * the fixed texts of RP-83, so that no text of a run, a path or a backend leaves (DESIGN §13).
 */
import { ERRORS, type ErrorCode, HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";

/** Made from nothing but the request itself, so that its sentence may be shown to whoever sent the request. */
const ABOUT_REQUEST = new WeakSet<HoldfastError>();

/** A refusal of the request as such, before any operation was asked for. */
export function refusal(code: ErrorCode, message: string, details?: Json): HoldfastError {
  const error = new HoldfastError(code, message, details === undefined ? {} : { details });
  ABOUT_REQUEST.add(error);
  return error;
}

const TITLES: { readonly [code in ErrorCode]?: string } = {
  unauthorized: "a valid token is needed",
  forbidden: "the request is not allowed",
  idempotency_key_reused: "the idempotency key was used for another request",
  unsupported_media_type: "only application/json is accepted",
  too_large: "the request is too large",
  rate_limited: "too much at once",
  server_unavailable: "the server is stopping",
  internal: "an internal error",
};

export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: ErrorCode;
  readonly instance?: string;
  readonly run_id?: string;
  readonly diagnostics?: Json;
  readonly details?: Json;
}

export interface Asked {
  readonly operator: boolean;
  readonly request_id: string;
  readonly run_id?: string;
}

/** The fixed public text of a code (RP-83), for titles and for all who are not operators. */
export function publicText(code: ErrorCode): string {
  const row: { readonly action: string; readonly tool?: readonly [string, string] } = ERRORS[code];
  return TITLES[code] ?? row.tool?.[1] ?? row.action;
}

export function statusOf(code: ErrorCode): number {
  const row: { readonly http?: number } = ERRORS[code];
  return row.http ?? 500;
}

/** Anything thrown as a HoldfastError: what is none is a bug, and its text is only for the log. */
export function asHoldfastError(error: unknown): HoldfastError {
  if (HoldfastError.is(error)) return error;
  return new HoldfastError("internal", "Cannot answer: Holdfast has a bug here; the server's log has the details", {
    cause: error,
  });
}

export function problemOf(error: HoldfastError, asked: Asked): Problem {
  const { code } = error;
  const shown = asked.operator || ABOUT_REQUEST.has(error);
  const title = publicText(code);
  return {
    type: `urn:holdfast:${code}`,
    title,
    status: statusOf(code),
    detail: shown && code !== "internal" ? error.message : title,
    code,
    instance: asked.request_id,
    ...(asked.run_id === undefined ? {} : { run_id: asked.run_id }),
    ...(shown ? split(error.details) : {}),
  };
}

/** `diagnostics` has a place of its own in a problem; the rest stays `details`. */
function split(details: Json | undefined): { diagnostics?: Json; details?: Json } {
  if (details === undefined) return {};
  if (typeof details !== "object" || details === null || Array.isArray(details)) return { details };
  const { diagnostics, ...rest } = details as JsonObject;
  return {
    ...(diagnostics === undefined ? {} : { diagnostics }),
    ...(Object.keys(rest).length === 0 ? {} : { details: rest }),
  };
}

/** Codes after which the same request may be sent again, and after how many seconds. */
const RETRY_AFTER: { readonly [code in ErrorCode]?: string } = {
  storage_unavailable: "1",
  server_unavailable: "2",
  rate_limited: "2",
};

export function problemResponse(error: HoldfastError, asked: Asked): Response {
  const problem = problemOf(error, asked);
  const retry = RETRY_AFTER[error.code];
  return new Response(JSON.stringify(problem), {
    status: problem.status,
    headers: {
      "Content-Type": "application/problem+json",
      ...(retry === undefined ? {} : { "Retry-After": retry }),
      ...(error.code === "unauthorized" ? { "WWW-Authenticate": 'Bearer realm="holdfast"' } : {}),
    },
  });
}
