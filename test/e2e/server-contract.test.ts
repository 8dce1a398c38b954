// Every documented route answers as documented: statuses, media types and shapes, from the description itself.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROUTES } from "../../src/server/resources/index.ts";
import type { Route } from "../../src/server/routes.ts";
import { Problem } from "../../src/server/schemas.ts";
import { RUNS, Served } from "./server.fixture.ts";

interface Document {
  readonly openapi: string;
  readonly paths: Record<
    string,
    Record<
      string,
      { responses: Record<string, { content?: Record<string, unknown> }>; operationId: string; requestBody?: unknown }
    >
  >;
}

let served: Served;
let document: Document;
const ids = new Map<string, string>();

beforeAll(async () => {
  served = await new Served().start();
  document = (await (await served.fetch("/openapi.json", { token: null })).json()) as Document;
  for (const workflow of ["quick", "hold", "ask", "gate", "failing"]) {
    const run_id = await served.startRun(workflow);
    if (workflow !== "hold") await served.holdfast.runs.drive(run_id);
    ids.set(workflow, run_id);
  }
  const big = await served.startRun("echo", { value: "x".repeat(400_000) });
  await served.holdfast.runs.drive(big);
  ids.set("big", big);
  const journal = await (await served.fetch(`${RUNS}/${big}/journal`)).text();
  ids.set("sha256", /"output_ref":\{[^}]*"sha256":"([0-9a-f]{64})"/.exec(journal)?.[1] as string);
  const { waits } = await served.holdfast.runs.inspect(ids.get("ask") as string);
  ids.set("digest", waits[0]?.digest as string);
  ids.set("wait_id", waits[0]?.wait_id as string);
});
afterAll(async () => {
  await served.remove();
});

/** Which run an address is asked for, and with what body, so that it succeeds. */
function requestOf(route: Route): { run: string; body?: unknown; accept?: string } {
  const name = route.path.split("/").at(-1) ?? "";
  if (route.path.endsWith("/workflow-runs") && route.method === "post")
    return { run: "", body: { workflow_id: "quick", revision: 1 } };
  if (route.path.endsWith("/sessions") && route.method === "post") return { run: "", body: { name: "made" } };
  if (route.method === "patch")
    return name === "budget" ? { run: "hold", body: { max_steps: 5_000 } } : { run: "", body: { posture: "ask" } };
  if (name === "check") return { run: "", body: { source: "id: x", format: "yaml" } };
  if (name === "approve") return { run: "ask", body: { digest: ids.get("digest") } };
  if (name === "artifacts" || route.path.includes("{sha256}")) return { run: "big" };
  if (name === "retry") return { run: "failing", body: {} };
  if (name === "cancel") return { run: "gate", body: {} };
  if (route.method === "post") return { run: "hold", body: {} };
  return { run: "quick" };
}

function addressOf(route: Route, run: string): string {
  return route.path
    .replace("{session_id}", "default")
    .replace("{workflow_id}", "quick")
    .replace("{run_id}", ids.get(run) ?? "")
    .replace("{sha256}", ids.get("sha256") ?? "")
    .replace("{instance}", "look")
    .replace("{wait_id}", ids.get("wait_id") ?? "w-1")
    .replace("{dispatch_id}", "0".repeat(64));
}

/** Answers that a run in these tests cannot give: what refuses is checked to refuse as documented. */
const REFUSED = new Set(["restart", "repair", "deny", "answer"]);

describe("the description", () => {
  test("is OpenAPI 3.1, names every route once, with a response each and problems for what can go wrong", () => {
    expect(document.openapi).toBe("3.1.0");
    const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method} ${path}`),
    );
    expect(new Set(documented)).toEqual(
      new Set([...ROUTES.map((route) => `${route.method} ${route.path}`), "get /openapi.json"]),
    );
    const names = Object.values(document.paths).flatMap((methods) =>
      Object.values(methods).map((operation) => operation.operationId),
    );
    expect(new Set(names).size).toBe(names.length);
    const start = document.paths[`/api/v1/sessions/{session_id}/workflow-runs`]?.post;
    for (const status of ["202", "400", "401", "403", "404", "413", "415", "422", "429", "500", "503"])
      expect([status, start?.responses[status] !== undefined]).toEqual([status, true]);
    expect(JSON.stringify(start?.requestBody)).toContain('"additionalProperties":false');
  });
});

describe.each(ROUTES.map((route) => [`${route.method} ${route.path}`, route] as const))("%s", (_, route) => {
  async function ask(
    token: string | null,
    change: { query?: string; body?: string; type?: string } = {},
  ): Promise<Response> {
    const { run, body } = requestOf(route);
    const text = change.body ?? (body === undefined ? undefined : JSON.stringify(body));
    return served.fetch(`${addressOf(route, run)}${change.query ?? ""}`, {
      method: route.method.toUpperCase(),
      token,
      ...(text === undefined ? {} : { body: text, headers: { "Content-Type": change.type ?? "application/json" } }),
    });
  }

  async function isDocumentedProblem(answer: Response, status: number): Promise<void> {
    const text = await answer.text();
    expect([answer.status, text]).toEqual([status, expect.any(String) as string]);
    expect(answer.headers.get("content-type")).toBe("application/problem+json");
    expect(Problem.safeParse(JSON.parse(text)).error).toBeUndefined();
    expect(document.paths[route.path]?.[route.method]?.responses[String(status)]).toBeDefined();
  }

  test("answers as documented", async () => {
    if (route.path.endsWith("{session_id}/events")) return;
    const answer = await ask(served.server.token);
    const name = route.path.split("/").at(-1) ?? "";
    if (REFUSED.has(name) && answer.status >= 400) return isDocumentedProblem(answer, answer.status);
    const documented = route.responses[answer.status];
    const text = await answer.text();
    expect([answer.status, documented === undefined ? text : "documented"]).toEqual([answer.status, "documented"]);
    expect(answer.status).toBeLessThan(300);
    const type = documented?.type ?? "application/json";
    expect(answer.headers.get("content-type")?.split(";")[0]).toBe(type.split(";")[0]);
    if (documented?.schema !== undefined) expect(documented.schema.safeParse(JSON.parse(text)).error).toBeUndefined();
  });

  test("refuses as documented: no token, an observer where an operator is needed, unknown fields, other media", async () => {
    if (route.role !== "none") await isDocumentedProblem(await ask(null), 401);
    if (route.role === "operator") {
      const token = served.token(`o-${crypto.randomUUID()}`, "observer");
      await isDocumentedProblem(await ask(token), 403);
    }
    await isDocumentedProblem(await ask(served.server.token, { query: "?nonsense=1" }), 400);
    if (route.body === undefined) return;
    await isDocumentedProblem(await ask(served.server.token, { body: '{"nonsense":1}' }), 400);
    await isDocumentedProblem(await ask(served.server.token, { body: "{}", type: "text/plain" }), 415);
  });
});
