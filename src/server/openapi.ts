/** OpenAPI 3.1 from the routes themselves: what is documented is what validates (issue C point 5). */
import { OpenAPIHono, type RouteConfig, z } from "@hono/zod-openapi";
import type { ErrorCode } from "../domain/errors.ts";
import { publicText, statusOf } from "./problem.ts";
import type { Documented, Route } from "./routes.ts";
import { Problem } from "./schemas.ts";

/** What every route may answer besides its own (interfaces §3). */
const EVERYWHERE: readonly ErrorCode[] = [
  "usage",
  "forbidden",
  "rate_limited",
  "storage",
  "internal",
  "storage_unavailable",
  "server_unavailable",
];

export function openApiDocument(routes: readonly Route[], version: string): object {
  const made = new OpenAPIHono();
  made.openAPIRegistry.registerComponent("securitySchemes", "token", { type: "http", scheme: "bearer" });
  for (const route of routes) made.openAPIRegistry.registerPath(configOf(route));
  return made.getOpenAPI31Document({
    openapi: "3.1.0",
    info: {
      title: "Holdfast",
      version,
      description:
        "Durable workflows for AI agents. Errors are problem details (RFC 9457) with a closed `code`. Unknown query and body fields are refused.",
    },
    tags: ["server", "sessions", "workflows", "runs", "waits"].map((name) => ({ name })),
  });
}

function configOf(route: Route): RouteConfig {
  const headers = headersOf(route);
  return {
    method: route.method,
    path: route.path,
    tags: [route.tag],
    operationId: operationId(route),
    summary: route.summary,
    ...(route.about === undefined ? {} : { description: route.about }),
    ...(route.role === "none" ? {} : { security: [{ token: [] }], "x-role": route.role }),
    request: {
      ...(Object.keys(route.params.shape).length === 0 ? {} : { params: route.params }),
      ...(Object.keys(route.query.shape).length === 0 ? {} : { query: route.query }),
      ...(headers === undefined ? {} : { headers }),
      ...(route.body === undefined
        ? {}
        : { body: { required: !route.bodyOptional, content: { "application/json": { schema: route.body } } } }),
    },
    responses: {
      ...problems(route),
      ...Object.fromEntries(
        Object.entries(route.responses).map(([status, documented]) => [status, response(documented)]),
      ),
    },
  };
}

/** `post /api/v1/sessions/{session_id}/workflow-runs` → `post_sessions_session_id_workflow_runs`. */
function operationId(route: Route): string {
  const words = route.path.replace(/^\/api\/v1/, "").match(/[a-z0-9]+/gi) ?? ["page"];
  return [route.method, ...words].join("_");
}

function headersOf(route: Route): z.ZodObject | undefined {
  const named = [...(route.headers ?? [])];
  if (route.keyed !== undefined)
    named.push({
      name: "Idempotency-Key",
      description: "1 to 200 visible ASCII characters; the same key and request have the same answer",
    });
  if (named.length === 0) return undefined;
  return z.object(
    Object.fromEntries(named.map(({ name, description }) => [name, z.string().optional().openapi({ description })])),
  );
}

function response({ description, schema, type }: Documented): RouteConfig["responses"][string] {
  if (type === "none") return { description };
  if (schema !== undefined) return { description, content: { [type ?? "application/json"]: { schema } } };
  return {
    description,
    content: {
      [type ?? "application/json"]: {
        schema: type?.startsWith("application/octet") ? z.string().openapi({ format: "binary" }) : z.unknown(),
      },
    },
  };
}

function problems(route: Route): RouteConfig["responses"] {
  const codes = new Set<ErrorCode>([...EVERYWHERE, ...(route.errors ?? [])]);
  if (route.role !== "none") codes.add("unauthorized");
  if (route.path.includes("{")) codes.add("not_found");
  if (route.body !== undefined) for (const code of ["unsupported_media_type", "too_large"] as const) codes.add(code);
  if (route.keyed !== undefined) codes.add("idempotency_key_reused");
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes) byStatus.set(statusOf(code), [...(byStatus.get(statusOf(code)) ?? []), code]);
  return Object.fromEntries(
    [...byStatus].map(([status, of]) => [
      status,
      {
        description: of.map((code) => `${code}: ${publicText(code)}`).join("; "),
        content: { "application/problem+json": { schema: Problem } },
      },
    ]),
  );
}
