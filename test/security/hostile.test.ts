// Sixty hostile requests to a local server change nothing and read nothing (issue C point 6, C37). Sent as raw bytes:
// a client library would put most of them right.
import { connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RUNS, Served } from "../e2e/server.fixture.ts";

let served: Served;
let run_id: string;
let waiting: string;
let observer: string;
/** What must never come back. */
const SECRET = "PRIVATE-output-of-a-run";

beforeAll(async () => {
  served = await new Served({ bounds: { body_ms: 300 } }).start();
  observer = served.token("looker", "observer");
  run_id = await served.startRun("echo", { value: SECRET });
  await served.holdfast.runs.drive(run_id);
  waiting = await served.startRun("ask");
  await served.holdfast.runs.drive(waiting);
});
afterAll(async () => {
  await served.remove();
});

interface Raw {
  readonly status: number;
  readonly text: string;
}

/** Sends bytes, reads until the server has answered and ended or said nothing for a while. */
function send(bytes: string | Uint8Array): Promise<Raw> {
  return new Promise((resolve) => {
    const socket = connect(served.port, "127.0.0.1");
    let text = "";
    const end = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ status: Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0), text });
    };
    let timer = setTimeout(end, 1_500);
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
      clearTimeout(timer);
      timer = setTimeout(end, 60);
    });
    socket.on("end", end);
    socket.on("error", end);
    socket.write(bytes);
  });
}

interface Request {
  readonly method?: string;
  readonly target?: string;
  readonly host?: string;
  /** null: none. */
  readonly token?: string | null;
  readonly headers?: readonly string[];
  readonly body?: string;
  readonly length?: number | null;
}

const START = JSON.stringify({ workflow_id: "quick", revision: 1 });

function request({
  method = "POST",
  target = RUNS,
  host,
  token,
  headers,
  body = method === "POST" ? START : "",
  length,
}: Request): string {
  const own = token === undefined ? served.server.token : token;
  const lines = [
    `${method} ${target} HTTP/1.1`,
    ...(host === "" ? [] : [`Host: ${host ?? `127.0.0.1:${served.port}`}`]),
    ...(own === null ? [] : [`Authorization: Bearer ${own}`]),
    ...(headers ?? ["Content-Type: application/json"]),
    ...(length === null ? [] : [`Content-Length: ${length ?? Buffer.byteLength(body)}`]),
    "Connection: close",
  ];
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

const JSON_TYPE = "Content-Type: application/json";
const from = (...headers: string[]): Request => ({ headers: [JSON_TYPE, ...headers] });
const get = (target: string, more: Request = {}): Request => ({ method: "GET", target, headers: [], ...more });
const post = (body: unknown, more: Request = {}): Request => ({
  body: typeof body === "string" ? body : JSON.stringify(body),
  ...more,
});

/** Name, request, statuses that are right. A function is called when the server is there. */
const HOSTILE: readonly (readonly [string, () => Request | string, readonly number[]])[] = [
  // C37: names that were pointed at this machine.
  ["rebinding host", () => ({ host: `evil.test:${served.port}` }), [403]],
  ["host without port", () => ({ host: "127.0.0.1" }), [403]],
  ["host with another port", () => ({ host: "127.0.0.1:1" }), [403]],
  ["host with a loopback prefix", () => ({ host: `127.0.0.1.evil.test:${served.port}` }), [403]],
  ["host with a dot at its end", () => ({ host: `localhost.:${served.port}` }), [403]],
  ["host with user info", () => ({ host: `127.0.0.1:${served.port}@evil.test` }), [400, 403]],
  ["host as a number", () => ({ host: `2130706433:${served.port}` }), [403]],
  ["empty host", () => request({}).replace(/Host: [^\r]*/, "Host:"), [400, 403]],
  ["no host", () => ({ host: "" }), [400]],
  ["two hosts", () => from(`Host: evil.test:${served.port}`), [400, 403]],
  ["absolute target of another host", () => ({ target: `http://evil.test${RUNS}` }), [400]],
  // C37: pages of other origins.
  ["foreign origin", () => from("Origin: http://evil.test"), [403]],
  ["null origin", () => from("Origin: null"), [403]],
  ["origin with a loopback prefix", () => from(`Origin: http://127.0.0.1.evil.test:${served.port}`), [403]],
  ["origin of another port", () => from("Origin: http://127.0.0.1:1"), [403]],
  ["file origin", () => from("Origin: file://"), [403]],
  ["two origins", () => from(`Origin: http://127.0.0.1:${served.port}`, "Origin: http://evil.test"), [400, 403]],
  ["cross-site fetch", () => from("Sec-Fetch-Site: cross-site"), [403]],
  ["same-site fetch of another port", () => from("Sec-Fetch-Site: same-site"), [403]],
  [
    "cross-site read",
    () => get(`${RUNS}/${run_id}/output`, { headers: ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"] }),
    [403],
  ],
  [
    "cross-site event stream",
    () => get(`${RUNS}/${run_id}/events`, { headers: ["Accept: text/event-stream", "Origin: http://evil.test"] }),
    [403],
  ],
  [
    "preflight of another origin",
    () => ({
      method: "OPTIONS",
      headers: ["Origin: http://evil.test", "Access-Control-Request-Method: POST"],
      body: "",
      token: null,
    }),
    [403],
  ],
  // C37: bodies that a page may send without asking.
  ["text/plain", () => ({ headers: ["Content-Type: text/plain"] }), [415]],
  [
    "form",
    () => ({ headers: ["Content-Type: application/x-www-form-urlencoded"], body: "workflow_id=quick&revision=1" }),
    [415],
  ],
  ["multipart", () => ({ headers: ["Content-Type: multipart/form-data; boundary=x"], body: "--x--" }), [415]],
  ["no media type", () => ({ headers: [] }), [415]],
  ["a type that begins like JSON", () => ({ headers: ["Content-Type: application/json-patch+json"] }), [415]],
  ["two media types", () => ({ headers: ["Content-Type: application/json", "Content-Type: text/plain"] }), [400, 415]],
  ["JSON in UTF-16", () => ({ headers: ["Content-Type: application/json; charset=utf-16"] }), [415]],
  ["a packed body", () => ({ headers: [JSON_TYPE, "Content-Encoding: gzip"] }), [415]],
  // Tokens.
  ["no token", () => ({ token: null }), [401]],
  ["wrong token", () => ({ token: "hft_wrong" }), [401]],
  [
    "empty token",
    () => request({ token: null }).replace("Connection:", "Authorization: Bearer \r\nConnection:"),
    [401],
  ],
  [
    "basic credentials",
    () => request({ token: null }).replace("Connection:", "Authorization: Basic YTpi\r\nConnection:"),
    [401],
  ],
  ["token in the query", () => get(`${RUNS}?token=${served.server.token}`, { token: null }), [401]],
  ["access_token in the query beside a good one", () => get(`${RUNS}?access_token=x`), [401]],
  ["token in a cookie", () => ({ token: null, headers: [JSON_TYPE, `Cookie: token=${served.server.token}`] }), [401]],
  ["two tokens", () => from("Authorization: Bearer other"), [400, 401]],
  ["observer starts", () => ({ token: observer }), [403]],
  ["observer cancels", () => ({ token: observer, target: `${RUNS}/${waiting}/cancel`, body: "{}" }), [403]],
  ["observer reads an output", () => get(`${RUNS}/${run_id}/output`, { token: observer }), [403]],
  [
    "observer asks for events with payloads",
    () => get(`${RUNS}/${run_id}/events?view=operator`, { token: observer }),
    [403],
  ],
  // Methods and framing.
  ["method override", () => get(`${RUNS}/${waiting}/cancel`, { headers: ["X-HTTP-Method-Override: POST"] }), [400]],
  ["GET with a body that starts", () => ({ method: "GET", target: `${RUNS}/${waiting}/cancel`, body: "{}" }), [405]],
  ["PUT", () => ({ method: "PUT" }), [400, 405]],
  ["TRACE", () => ({ method: "TRACE", body: "" }), [400, 405]],
  [
    "websocket upgrade",
    () =>
      get(RUNS, {
        headers: [
          "Upgrade: websocket",
          "Connection: Upgrade",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
          "Sec-WebSocket-Version: 13",
        ],
      }),
    [400],
  ],
  ["CONNECT", () => `CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n`, [405]],
  ["both lengths", () => request({ headers: [JSON_TYPE, "Transfer-Encoding: chunked"] }), [400]],
  ["two content lengths", () => request({}).replace("Connection:", "Content-Length: 3\r\nConnection:"), [400]],
  ["obsolete header folding", () => request({ headers: [JSON_TYPE, "X-A: b\r\n c: d"] }), [400, 202]],
  ["a bare CR in a header", () => request({ headers: [JSON_TYPE, "X-A: b\rAuthorization: Bearer x"] }), [400]],
  ["a header with NUL", () => request({ headers: [JSON_TYPE, "X-A: \0"] }), [400]],
  ["headers beyond 16 KiB", () => request({ headers: [JSON_TYPE, `X-A: ${"a".repeat(20_000)}`] }), [431]],
  ["a body said to be huge", () => ({ length: 10 ** 12 }), [413]],
  ["a chunked body beyond 1 MiB", () => chunked(70, 16_384), [413]],
  ["a body that never comes", () => ({ length: 500, body: "{" }), [400, 408]],
  // Addresses.
  ["dot segments", () => get(`/api/v1/../v1/sessions/default/workflow-runs/${run_id}/output`), [400]],
  ["encoded dot segments", () => get(`/api/v1/%2e%2e/v1/sessions/default/workflow-runs`), [400]],
  ["climbing in a run id", () => get(`${RUNS}/..%2f..%2f..%2fetc%2fpasswd`), [404]],
  ["climbing in an artifact", () => get(`${RUNS}/${run_id}/artifacts/..%2F..%2Fserver.json`), [404]],
  ["NUL in a run id", () => get(`${RUNS}/${run_id}%00/output`), [400]],
  ["a broken escape", () => get(`${RUNS}/%zz`), [400]],
  ["an overlong UTF-8 escape", () => get(`${RUNS}/%c0%ae%c0%ae/output`), [404]],
  ["CRLF in a query", () => get(`${RUNS}?cursor=a%0d%0aSet-Cookie:x`), [400]],
  ["a backslash", () => get(`\\\\evil.test${RUNS}`), [400]],
  ["two slashes", () => get(`//evil.test${RUNS}`), [400]],
  ["__proto__ as a session", () => get("/api/v1/sessions/__proto__/workflow-runs"), [404]],
  ["SQL in a run id", () => get(`${RUNS}/x'%20OR%20'1'='1`), [404]],
  ["a state file", () => get("/.holdfast/state/server.json"), [404]],
  // Bodies.
  ["smuggled trust", () => post({ workflow_id: "quick", revision: 1, workspace_trusted: true }), [400]],
  ["smuggled capabilities", () => post({ workflow_id: "quick", revision: 1, allowed_capabilities: ["write"] }), [400]],
  ["a field given twice", () => post('{"workflow_id":"quick","revision":1,"workflow_id":"ask"}'), [400]],
  ["__proto__ in a body", () => post('{"workflow_id":"quick","revision":1,"__proto__":{"key":"x"}}'), [400]],
  [
    "__proto__ in a budget",
    () => post('{"workflow_id":"quick","revision":1,"budget":{"__proto__":{"max_steps":1}}}'),
    [400],
  ],
  ["a path as a workflow", () => post({ workflow_id: "../../etc/passwd", revision: 1 }), [400]],
  ["a hash as a workflow", () => post({ workflow_id: `hash:${"0".repeat(64)}`, revision: 1 }), [400]],
  [
    "deep nesting",
    () => post(`{"workflow_id":"echo","revision":1,"args":${"[".repeat(50_000)}${"]".repeat(50_000)}}`),
    [400, 413],
  ],
  [
    "invalid UTF-8",
    () => (post("{\u0080}").body === undefined ? "" : `${request({ length: 3, body: "" })}{\u00ff}`),
    [400],
  ],
  ["no JSON", () => post("workflow_id: quick"), [400]],
  ["a list", () => post([START]), [400]],
  ["a wait decided without its digest", () => ({ target: `${RUNS}/${waiting}/waits/w-1/approve`, body: "{}" }), [400]],
  [
    "a workspace of the caller's",
    () => ({ target: "/api/v1/sessions", body: JSON.stringify({ name: "mine", workspace: "/" }) }),
    [400],
  ],
  ["a key with blanks", () => from("Idempotency-Key: a b"), [400]],
  ["a forged cursor", () => get(`${RUNS}?cursor=${Buffer.from('[0,"x",null]').toString("base64url")}`), [400]],
  ["a length of nothing", () => get(`${RUNS}?limit=1e3`), [400]],
];

/** A chunked body that is never ended: `count` chunks of `size`. */
function chunked(count: number, size: number): string {
  const head = request({ headers: [JSON_TYPE, "Transfer-Encoding: chunked"], length: null, body: "" });
  return head + `${size.toString(16)}\r\n${"a".repeat(size)}\r\n`.repeat(count);
}

/** Everything that a request might have changed. */
async function whole(): Promise<unknown> {
  const { runs } = await served.holdfast.runs.list({ limit: 200, children: true });
  const sessions = (await served.holdfast.sessions.list()).map(({ active_runs: _, ...session }) => session);
  return { runs, sessions, written: served.written.length };
}

test("the list is long enough, and each name stands once", () => {
  expect(HOSTILE.length).toBeGreaterThanOrEqual(60);
  expect(new Set(HOSTILE.map(([name]) => name)).size).toBe(HOSTILE.length);
});

test("C37 sixty hostile requests are refused, change nothing and read nothing", async () => {
  const before = await whole();
  const wrong: string[] = [];
  const one = async ([name, make, statuses]: (typeof HOSTILE)[number]) => {
    const made = make();
    const { status, text } = await send(Buffer.from(typeof made === "string" ? made : request(made), "latin1"));
    if (!statuses.includes(status)) wrong.push(`${name}: ${status} ${text.slice(0, 300)}`);
    if (text.includes(SECRET) || text.includes(served.server.token) || text.includes(served.workspace))
      wrong.push(`${name}: leaks ${text}`);
    if (/^set-cookie|^access-control-allow/im.test(text)) wrong.push(`${name}: lets others in`);
  };
  for (let i = 0; i < HOSTILE.length; i += 8) await Promise.all(HOSTILE.slice(i, i + 8).map(one));
  expect(wrong).toEqual([]);
  expect(await whole()).toEqual(before);
}, 30_000);

test("C37 the very same request, rightly sent, is answered", async () => {
  expect((await send(request({}))).status).toBe(202);
  expect(
    (await send(request(from(`Origin: http://127.0.0.1:${served.port}`, "Sec-Fetch-Site: same-origin")))).status,
  ).toBe(202);
  expect((await send(request({ host: `localhost:${served.port}` }))).status).toBe(202);
});

test("C37 every mutating address refuses what a page can send, whatever its body", async () => {
  const targets = [
    RUNS,
    `${RUNS}/${waiting}/cancel`,
    `${RUNS}/${waiting}/restart`,
    `${RUNS}/${waiting}/resume`,
    `${RUNS}/${waiting}/pause`,
    `${RUNS}/${waiting}/waits/w-1/approve`,
    "/api/v1/sessions",
    "/api/v1/sessions/default/workflows/reload",
  ];
  const before = await whole();
  for (const target of targets) {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]) {
      const answer = await send(request({ target, headers: [`Content-Type: ${type}`], body: "{}" }));
      expect([target, type, answer.status]).toEqual([target, type, 415]);
    }
    expect([
      target,
      (await send(request({ target, headers: [JSON_TYPE, "Origin: null"], body: "{}" }))).status,
    ]).toEqual([target, 403]);
    expect([target, (await send(request({ target, token: null, body: "{}" }))).status]).toEqual([target, 401]);
  }
  expect(await whole()).toEqual(before);
}, 30_000);

test("pages may not be framed, sniffed or scripted", async () => {
  const { text } = await send(request(get("/", { token: null })));
  for (const header of [
    "x-content-type-options: nosniff",
    "x-frame-options: DENY",
    "frame-ancestors 'none'",
    "default-src 'none'",
    "referrer-policy: no-referrer",
  ])
    expect(text.toLowerCase()).toContain(header.toLowerCase());
  expect(text).not.toContain("<script");
});
