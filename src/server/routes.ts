/**
 * What a route is: one description from which requests are checked, answers are documented, and `/openapi.json` is
 * made. Resources list their routes; nothing else knows a path.
 */
import { z } from "@hono/zod-openapi";
import type { Caller } from "../access/api.ts";
import type { ErrorCode } from "../domain/errors.ts";
import type { ServerContext } from "./options.ts";

export type Method = "get" | "post" | "patch" | "delete";
/** Who may ask: nobody in particular, any token, or an operator's. */
export type RouteRole = "none" | "observer" | "operator";

export interface Answer {
  readonly status: number;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is, in place of `json`. */
  readonly body?: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null;
  readonly headers?: { readonly [name: string]: string };
  /** The run or session that the answer is of, for a replay under the same Idempotency-Key. */
  readonly about?: string;
}

export interface Asked<P = unknown, Q = unknown, B = unknown> {
  readonly context: ServerContext;
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  /** On public routes there may be none; everywhere else there is. */
  readonly caller: Caller | undefined;
  readonly operator: boolean;
  /** `token:NAME`, or `os:USER` for the server's own token: for the journal. */
  readonly decided_by: string;
  readonly request: Request;
  readonly url: URL;
  /** The caller's Idempotency-Key. */
  readonly key: string | undefined;
}

export interface Documented {
  readonly description: string;
  readonly schema?: z.ZodType;
  readonly type?: string;
}

interface RouteFacts {
  readonly method: Method;
  /** As OpenAPI writes it: `/api/v1/sessions/{session_id}`. */
  readonly path: string;
  readonly role: RouteRole;
  readonly tag: string;
  readonly summary: string;
  readonly about?: string;
  readonly responses: { readonly [status: number]: Documented };
  /** Besides those that every route may answer (interfaces §3). */
  readonly errors?: readonly ErrorCode[];
  /**
   * A mutating POST or PATCH takes an Idempotency-Key. `memory`: remembered beside the store, replayed by `replay`. `store`:
   * the route hands it on to the operation, and the store keeps it with the run.
   */
  readonly keyed?: "memory" | "store";
  /** Request headers that the route reads, for the documentation. */
  readonly headers?: readonly { readonly name: string; readonly description: string }[];
}

export interface RouteSpec<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType> extends RouteFacts {
  readonly params?: P;
  readonly query?: Q;
  /** A JSON body; absent: the route takes none. */
  readonly body?: B;
  /** True: an empty body reads as `{}`. */
  readonly bodyOptional?: boolean;
  readonly replay?: (asked: Asked<z.output<P>, z.output<Q>, z.output<B>>, about: string) => Promise<Answer>;
}

/** A route whose parts fit each other; how, only `route` knows. */
export interface Route extends RouteFacts {
  readonly params: z.ZodObject;
  readonly query: z.ZodObject;
  readonly body: z.ZodType | undefined;
  readonly bodyOptional: boolean;
  /** Given values that `params`, `query` and `body` have parsed. */
  readonly handle: (asked: Asked) => Promise<Answer>;
  readonly replay: ((asked: Asked, about: string) => Promise<Answer>) | undefined;
}

const NOTHING = z.object({});
type Nothing = typeof NOTHING;

export function route<
  P extends z.ZodObject = Nothing,
  Q extends z.ZodObject = Nothing,
  B extends z.ZodType = z.ZodUndefined,
>(spec: RouteSpec<P, Q, B>, handle: (asked: Asked<z.output<P>, z.output<Q>, z.output<B>>) => Promise<Answer>): Route {
  const { params, query, body, bodyOptional, replay, ...facts } = spec;
  type Own = Asked<z.output<P>, z.output<Q>, z.output<B>>;
  return {
    ...facts,
    params: params ?? NOTHING,
    query: query ?? NOTHING,
    body,
    bodyOptional: bodyOptional ?? false,
    // The pipeline parses with this route's own schemas before it calls, so the types are those.
    handle: (asked) => handle(asked as Own),
    replay: replay === undefined ? undefined : (asked, about) => replay(asked as Own, about),
  };
}

export function ok(json: unknown, headers?: { readonly [name: string]: string }): Answer {
  return { status: 200, json, ...(headers === undefined ? {} : { headers }) };
}

export const BASE = "/api/v1";
export const SESSION = `${BASE}/sessions/{session_id}`;
export const RUN = `${SESSION}/workflow-runs/{run_id}`;
