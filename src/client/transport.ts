/**
 * One request to a Holdfast server and its answer as a value or as the same error that the operation would have
 * thrown in this process. What may be sent again is sent again: reads, and mutations under an idempotency key.
 */
import { randomUUID } from "node:crypto";
import { ERRORS, type ErrorCode, HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";

export interface ClientOptions {
  /** `http://127.0.0.1:4777`, without a slash at the end. */
  readonly url: string;
  readonly token: string;
  /** Name or id of the session of requests that name none; default `default`. */
  readonly session?: string;
  /** How long a server may be away before a call or a stream gives up, ms; default 30,000. */
  readonly patience_ms?: number;
  /** Silence after which a stream counts as cut, ms; the server gives a sign of life every 15 s. Default 45,000. */
  readonly silence_ms?: number;
  /** Another `fetch`, as for tests. */
  readonly fetch?: typeof globalThis.fetch;
}

export interface Sent {
  readonly method?: "GET" | "POST" | "PATCH";
  readonly query?: { readonly [name: string]: string | number | boolean | readonly string[] | undefined };
  readonly body?: unknown;
  /** Default for POST and PATCH: a fresh one for this call, the same for each time that it is sent. */
  readonly key?: string;
  readonly headers?: { readonly [name: string]: string };
  readonly signal?: AbortSignal;
}

const PATIENCE_MS = 30_000;
const REQUEST_MS = 60_000;
const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 2_000;
const MAX_ANSWER = 256 * 1024 * 1024;

export class Transport {
  readonly session: string;
  readonly patienceMs: number;
  readonly silenceMs: number;
  readonly #url: string;
  readonly #token: string;
  readonly #fetch: typeof globalThis.fetch;

  /** @throws HoldfastError `usage` */
  constructor(options: ClientOptions) {
    if (!URL.canParse(options.url) || !/^https?:$/.test(new URL(options.url).protocol))
      throw new HoldfastError(
        "usage",
        "Cannot use this server: its address must begin with http:// or https://, such as http://127.0.0.1:4777",
      );
    if (!/^[\x21-\x7e]+$/.test(options.token))
      throw new HoldfastError(
        "usage",
        "Cannot use this token: it is empty or has characters that no token has; see: holdfast token",
      );
    this.#url = options.url.replace(/\/+$/, "");
    this.#token = options.token;
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.session = options.session ?? "default";
    this.patienceMs = options.patience_ms ?? PATIENCE_MS;
    this.silenceMs = options.silence_ms ?? 45_000;
  }

  async json<T>(address: string, sent: Sent = {}): Promise<T> {
    const answer = await this.answer(address, sent);
    return JSON.parse(await textOf(answer)) as T;
  }

  /**
   * A successful answer, its body unread.
   * @throws HoldfastError as the server's problem says; `server_unavailable` when it cannot be reached
   */
  async answer(address: string, sent: Sent = {}): Promise<Response> {
    // RP-88: an ambiguous start is sent again only because the key makes it the same start.
    const key = sent.method === "POST" || sent.method === "PATCH" ? (sent.key ?? randomUUID()) : undefined;
    const until = performance.now() + this.patienceMs;
    for (let backoff = FIRST_BACKOFF_MS; ; backoff = Math.min(MAX_BACKOFF_MS, backoff * 2)) {
      try {
        const answer = await this.once(address, key === undefined ? sent : { ...sent, key });
        if (answer.ok) return answer;
        throw await problemOf(answer);
      } catch (error) {
        if (sent.signal?.aborted === true) throw error;
        const failed = HoldfastError.is(error) ? error : this.#unreachable(error);
        const passing =
          failed.code === "server_unavailable" ||
          failed.code === "storage_unavailable" ||
          failed.code === "rate_limited";
        if (!passing || performance.now() + backoff > until) throw failed;
      }
      await pause(backoff, sent.signal);
    }
  }

  /** Sends once; whatever the server answers is the answer. */
  once(address: string, sent: Sent, limitMs: number | undefined = REQUEST_MS): Promise<Response> {
    const { method = "GET", body, key, headers } = sent;
    const signals = [
      ...(sent.signal === undefined ? [] : [sent.signal]),
      ...(limitMs === undefined ? [] : [AbortSignal.timeout(limitMs)]),
    ];
    return this.#fetch(`${this.#url}${address}${queryText(sent.query)}`, {
      method,
      redirect: "error",
      headers: {
        Authorization: `Bearer ${this.#token}`,
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(key === undefined ? {} : { "Idempotency-Key": key }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signals.length === 0 ? {} : { signal: AbortSignal.any(signals) }),
    });
  }

  #unreachable(cause: unknown): HoldfastError {
    return new HoldfastError(
      "server_unavailable",
      `Cannot reach the server at ${this.#url}: it does not answer; start it with holdfast serve, or check the address`,
      { cause },
    );
  }

  unreachable(cause: unknown): HoldfastError {
    return HoldfastError.is(cause) ? cause : this.#unreachable(cause);
  }
}

function queryText(query: Sent["query"] = {}): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    if (typeof value === "object") for (const each of value) pairs.append(name, each);
    else pairs.append(name, String(value));
  }
  const text = pairs.toString();
  return text === "" ? "" : `?${text}`;
}

async function textOf(answer: Response): Promise<string> {
  if (Number(answer.headers.get("content-length") ?? 0) > MAX_ANSWER) {
    await answer.body?.cancel();
    throw new HoldfastError("too_large", "Cannot read the answer: it is larger than 256 MiB; read it in parts");
  }
  return answer.text();
}

/** The server's error as it would have been thrown here. */
export async function problemOf(answer: Response): Promise<HoldfastError> {
  const problem = await readProblem(answer);
  const code =
    typeof problem.code === "string" && Object.hasOwn(ERRORS, problem.code)
      ? (problem.code as ErrorCode)
      : codeOf(answer.status);
  const message =
    typeof problem.detail === "string"
      ? problem.detail
      : `Cannot do this: the server answered ${answer.status}; see its log`;
  const details: Record<string, Json> = { ...(isObject(problem.details) ? problem.details : {}) };
  if (problem.diagnostics !== undefined) details.diagnostics = problem.diagnostics;
  if (problem.run_id !== undefined && details.run_id === undefined) details.run_id = problem.run_id;
  return new HoldfastError(code, message, Object.keys(details).length === 0 ? {} : { details });
}

async function readProblem(answer: Response): Promise<{ readonly [key: string]: Json | undefined }> {
  try {
    const value = JSON.parse(await textOf(answer)) as Json;
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An answer that is no problem of ours comes from something between: only what its status says is known. */
function codeOf(status: number): ErrorCode {
  if (status === 401) return "unauthorized";
  if (status === 403) return "forbidden";
  if (status === 404) return "not_found";
  if (status === 413) return "too_large";
  if (status === 429) return "rate_limited";
  return status >= 502 && status <= 504 ? "server_unavailable" : status >= 500 ? "internal" : "usage";
}

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
    if (signal?.aborted === true) done();
  });
}
