/**
 * The HTTP interface as one function from request to answer. The order is fixed: the gate (host, origin), the token,
 * the route, the role, the parameters, the body, the operation. Nothing is looked up for whom the gate or the token
 * turns away.
 */
import { randomUUID } from "node:crypto";
import { TrieRouter } from "hono/router/trie-router";
import type { Caller } from "../access/api.ts";
import type { HoldfastError } from "../domain/errors.ts";
import { CursorSigner } from "./cursors.ts";
import { checkRequest } from "./gate.ts";
import { KeyMemory } from "./key-memory.ts";
import { errorFields, SILENT, safeId } from "./log.ts";
import { Metrics } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";
import { type AppOptions, DEFAULT_BOUNDS, type ServerContext } from "./options.ts";
import { asHoldfastError, problemResponse, refusal } from "./problem.ts";
import { checkMediaType, readBody, readBytes, readKey, readParams, readQuery } from "./reading.ts";
import { ROUTES } from "./resources/index.ts";
import { type Answer, type Asked, ok, type Route, route } from "./routes.ts";

/** Of every answer: no sniffing, no framing, no caching, nothing for other origins. */
const HEADERS: readonly (readonly [string, string])[] = [
  ["X-Content-Type-Options", "nosniff"],
  ["X-Frame-Options", "DENY"],
  ["Referrer-Policy", "no-referrer"],
  ["Cross-Origin-Resource-Policy", "same-origin"],
  ["Cross-Origin-Opener-Policy", "same-origin"],
];
const METHODS = ["GET", "POST", "PATCH", "DELETE"];
const DEFAULT_POLICY = "default-src 'none'; frame-ancestors 'none'";

export interface App {
  fetch(request: Request): Promise<Response>;
  readonly context: ServerContext;
  /** Streams say goodbye, new ones are refused, readiness is gone. */
  stop(): void;
}

interface Matched {
  readonly route: Route | "mcp";
  readonly params: { readonly [name: string]: string };
}

interface Going {
  readonly request: Request;
  readonly url: URL;
  readonly request_id: string;
  matched?: Matched;
  caller?: Caller;
}

export function createApp(options: AppOptions): App {
  const stopping = new AbortController();
  const context: ServerContext = {
    holdfast: options.holdfast,
    version: options.version,
    bounds: { ...DEFAULT_BOUNDS, ...options.bounds },
    cursors: options.cursors ?? new CursorSigner(),
    keys: options.keys ?? new KeyMemory(),
    log: options.log ?? SILENT,
    metrics: options.metrics ?? new Metrics(),
    drives: options.drives ?? true,
    basePath: options.basePath ?? "",
    stopping: stopping.signal,
  };
  const match = matcher(context, options.mcp !== undefined);
  const answer = async (going: Going): Promise<Response> => {
    checkRequest(going.request, going.url, options.hosts?.());
    const found = match(going.request.method, going.url);
    const isPublic =
      found !== undefined && !(found instanceof Response) && found.route !== "mcp" && found.route.role === "none";
    if (!isPublic) going.caller = await identify(options, going.request);
    // Only who has shown a token learns which addresses there are.
    if (found === undefined)
      throw refusal("not_found", "Cannot find this address: there is nothing here; see /openapi.json");
    if (found instanceof Response) return found;
    going.matched = found;
    if (found.route === "mcp") return mcpAnswer(options, context, going);
    return respond(await perform(context, found.route, going), going.request_id);
  };
  return { fetch: (request) => handle(context, request, answer), context, stop: () => stopping.abort() };
}

/** Runs one request to its answer, whatever happens; counts and logs it. */
async function handle(
  context: ServerContext,
  request: Request,
  answer: (going: Going) => Promise<Response>,
): Promise<Response> {
  const begun = performance.now();
  const request_id = randomUUID();
  let going: Going | undefined;
  let response: Response;
  let failed: HoldfastError | undefined;
  try {
    going = { request, url: urlOf(request, context.basePath), request_id };
    response = await answer(going);
  } catch (error) {
    failed = asHoldfastError(error);
    const run_id = safeId(going?.matched?.params.run_id);
    response = problemResponse(failed, {
      operator: going?.caller?.role === "operator",
      request_id,
      ...(run_id === undefined ? {} : { run_id }),
    });
    if (failed.code === "internal") context.log.error("a bug", { request_id, ...errorFields(error) });
  }
  secure(response.headers, request_id);
  const seconds = (performance.now() - begun) / 1_000;
  const method = going?.matched === undefined ? "other" : request.method;
  context.metrics.request(method, response.status, seconds);
  log(context, going, { status: response.status, ms: Math.round(seconds * 1_000), request_id, failed });
  return response;
}

function urlOf(request: Request, basePath: string): URL {
  const url = new URL(request.url);
  if (basePath === "") return url;
  if (url.pathname !== basePath && !url.pathname.startsWith(`${basePath}/`))
    throw refusal("not_found", "Cannot find this address: it is outside of what is served here");
  url.pathname = url.pathname.slice(basePath.length) || "/";
  return url;
}

function secure(headers: Headers, request_id: string): void {
  for (const [name, value] of HEADERS) headers.set(name, value);
  if (!headers.has("Content-Security-Policy")) headers.set("Content-Security-Policy", DEFAULT_POLICY);
  if (!headers.has("Cache-Control")) headers.set("Cache-Control", "no-store");
  headers.set("X-Request-Id", request_id);
}

function log(
  context: ServerContext,
  going: Going | undefined,
  done: { status: number; ms: number; request_id: string; failed: HoldfastError | undefined },
): void {
  const { failed, ...fields } = done;
  const route = going?.matched?.route;
  // The pattern of the route, never the address: an address holds what a caller chose.
  const where = route === undefined ? "unmatched" : route === "mcp" ? "/mcp" : route.path;
  const run_id = safeId(going?.matched?.params.run_id);
  const all = {
    ...fields,
    method: going?.matched === undefined ? undefined : going.request.method,
    route: where,
    caller: going?.caller?.name,
    run_id,
    ...(failed === undefined ? {} : errorFields(failed)),
  };
  if (done.status >= 500) context.log.error("request", all);
  else context.log.info("request", all);
}

async function identify(options: AppOptions, request: Request): Promise<Caller> {
  const caller = await options.authenticate(request);
  if (caller !== undefined) return caller;
  const shown = request.headers.has("authorization");
  throw refusal(
    "unauthorized",
    shown
      ? "Cannot accept this token: it is not valid here; see: holdfast token list"
      : "Cannot answer without a token: send Authorization: Bearer TOKEN",
  );
}

/** Finds the route of an address; for a known address under another method, the 405 that says which there are. */
function matcher(context: ServerContext, mcp: boolean): (method: string, url: URL) => Matched | Response | undefined {
  const router = new TrieRouter<Matched["route"]>();
  for (const each of [...ROUTES, openApiRoute(context)])
    router.add(each.method.toUpperCase(), each.path.replaceAll(/\{(\w+)\}/g, ":$1"), each);
  if (mcp) for (const method of METHODS.filter((each) => each !== "PATCH")) router.add(method, "/mcp", "mcp");
  const find = (method: string, path: string): Matched | undefined => {
    const [first] = router.match(method, path)[0];
    return first === undefined
      ? undefined
      : { route: first[0], params: first[1] as { readonly [name: string]: string } };
  };
  return (method, { pathname }) => {
    const found = find(method, pathname);
    if (found !== undefined) return { route: found.route, params: decoded(found.params) };
    const allowed = METHODS.filter((each) => find(each, pathname) !== undefined);
    return allowed.length === 0
      ? undefined
      : new Response(null, { status: 405, headers: { Allow: allowed.join(", ") } });
  };
}

function decoded(params: { readonly [name: string]: string }): { readonly [name: string]: string } {
  try {
    return Object.fromEntries(Object.entries(params).map(([name, value]) => [name, decodeURIComponent(value)]));
  } catch {
    throw refusal("not_found", "Cannot find this address: it is not percent-encoded UTF-8; encode each part");
  }
}

function openApiRoute(context: ServerContext): Route {
  let document: object | undefined;
  const own: Route = route(
    {
      method: "get",
      path: "/openapi.json",
      role: "none",
      tag: "server",
      summary: "This description",
      responses: { 200: { description: "OpenAPI 3.1" } },
    },
    async () => {
      document ??= openApiDocument([...ROUTES, own], context.version);
      return ok(document);
    },
  );
  return own;
}

async function perform(context: ServerContext, here: Route, going: Going): Promise<Answer> {
  const { request, url, caller } = going;
  const operator = caller?.role === "operator";
  if (here.role === "operator" && !operator)
    throw refusal(
      "forbidden",
      "Cannot do this with an observer's token: it needs an operator's; see: holdfast token add",
    );
  if (context.stopping.aborted && here.method !== "get")
    throw refusal("server_unavailable", "Cannot take this on: the server is stopping; send it to the next one");
  const params = readParams(here.params, going.matched?.params ?? {}) as { readonly [name: string]: string };
  const query = readQuery<unknown>(here.query, url.searchParams);
  const key = here.keyed === undefined ? undefined : readKey(request);
  if (here.body === undefined && here.method !== "get") await refuseBody(request);
  const body =
    here.body === undefined
      ? { value: undefined, text: "" }
      : await readBody(request, here.body, context.bounds, here.bodyOptional);
  const asked: Asked = {
    context,
    params,
    query,
    body: body.value,
    caller,
    operator,
    decided_by: caller?.principal ?? `token:${caller?.name ?? "none"}`,
    request,
    url,
    key,
  };
  if (here.keyed !== "memory" || key === undefined) return here.handle(asked);
  return keyed(asked, here, key, body.text);
}

async function refuseBody(request: Request): Promise<void> {
  if (request.body !== null && request.headers.get("content-length") !== "0")
    throw refusal("usage", "Cannot read the request: this address takes no body; leave it out");
}

/** A mutation with a key: done once, answered as often as it is asked for. */
async function keyed(asked: Asked, here: Route, key: string, text: string): Promise<Answer> {
  // The run's id is its own scope; what is not of a run is the address's.
  const params = asked.params as { readonly [name: string]: string };
  const scope = `${here.method} ${here.path} ${JSON.stringify(params.run_id === undefined ? params : { ...params, session_id: undefined })}`;
  const done = await asked.context.keys.once({ scope, key, request: text === "" ? "{}" : text }, () =>
    here.handle(asked),
  );
  if ("answer" in done) return done.answer;
  const { replay } = here;
  if (replay === undefined || done.replayed.about === undefined) return here.handle(asked);
  const answer = await replay(asked, done.replayed.about);
  return { ...answer, headers: { ...answer.headers, "Idempotent-Replay": "true" } };
}

function respond(answer: Answer, request_id: string): Response {
  const headers = new Headers(answer.headers);
  headers.set("X-Request-Id", request_id);
  if (answer.body !== undefined) return new Response(answer.body, { status: answer.status, headers });
  headers.set("Content-Type", "application/json");
  return new Response(JSON.stringify(answer.json), { status: answer.status, headers });
}

/** The MCP room reads the body itself, but never more of it than anybody else may send. */
async function mcpAnswer(options: AppOptions, context: ServerContext, going: Going): Promise<Response> {
  const { request, caller } = going;
  const { mcp } = options;
  if (mcp === undefined || caller === undefined)
    throw refusal("not_found", "Cannot find this address: there is nothing here; see /openapi.json");
  if (context.stopping.aborted)
    throw refusal("server_unavailable", "Cannot take this on: the server is stopping; send it to the next one");
  if (going.url.search !== "") throw refusal("usage", "Cannot read the query: this address takes none; leave it out");
  if (request.method !== "POST")
    return fresh(
      await mcp(
        new Request(request.url, { method: request.method, headers: request.headers, signal: request.signal }),
        caller,
      ),
    );
  checkMediaType(request);
  const body = Buffer.from(await readBytes(request, context.bounds));
  return fresh(
    await mcp(
      new Request(request.url, { method: "POST", headers: request.headers, body, signal: request.signal }),
      caller,
    ),
  );
}

/** Headers of a foreign response may be immutable. */
function fresh(response: Response): Response {
  return new Response(response.body, {
    status: response.status,
    statusText: response.statusText,
    headers: new Headers(response.headers),
  });
}
