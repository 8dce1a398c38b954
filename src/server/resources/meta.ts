/** What is about the server itself: its page, health, figures, version. */

import { pageOf } from "../page.ts";
import type { Route } from "../routes.ts";
import { BASE, ok, route } from "../routes.ts";
import { Health, Installation, Version } from "../schemas.ts";

/** Raised when a journal line means something else than before (schema.ts of the stores has the table). */
const JOURNAL_SCHEMA = 1;

export const metaRoutes: readonly Route[] = [
  route(
    {
      method: "get",
      path: "/",
      role: "none",
      tag: "server",
      summary: "A page that says where the API is",
      responses: { 200: { description: "HTML", type: "text/html; charset=utf-8" } },
    },
    async ({ context, url }) => {
      const { html, policy } = pageOf(`${url.origin}${context.basePath}`, context.version);
      return {
        status: 200,
        body: html,
        headers: { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy },
      };
    },
  ),
  route(
    {
      method: "get",
      path: "/healthz",
      role: "none",
      tag: "server",
      summary: "Whether the process answers",
      responses: { 200: { description: "It does", schema: Health } },
    },
    async () => ok({ ok: true }),
  ),
  route(
    {
      method: "get",
      path: "/readyz",
      role: "none",
      tag: "server",
      summary: "Whether runs can be started and read",
      responses: {
        200: { description: "They can", schema: Health },
        503: { description: "Not now, and why", schema: Health },
      },
    },
    async ({ context }) => {
      if (context.stopping.aborted) return { status: 503, json: { ok: false, reason: "stopping" } };
      try {
        await context.holdfast.storeInfo();
        return ok({ ok: true });
      } catch {
        return { status: 503, json: { ok: false, reason: "the store cannot be read" } };
      }
    },
  ),
  route(
    {
      method: "get",
      path: "/metrics",
      role: "observer",
      tag: "server",
      summary: "Figures for Prometheus",
      responses: { 200: { description: "Exposition text", type: "text/plain" } },
    },
    async ({ context }) => ({
      status: 200,
      body: await context.metrics.text(),
      headers: { "Content-Type": context.metrics.registry.contentType },
    }),
  ),
  route(
    {
      method: "get",
      path: `${BASE}/doctor`,
      role: "operator",
      tag: "server",
      summary: "Whether this installation is fit to run work",
      responses: { 200: { description: "Part by part", schema: Installation } },
    },
    async ({ context }) => ok(await context.holdfast.doctor()),
  ),
  route(
    {
      method: "get",
      path: `${BASE}/version`,
      role: "observer",
      tag: "server",
      summary: "Versions of the build, the API, the store and the journal",
      responses: { 200: { description: "Versions", schema: Version } },
    },
    async ({ context }) => {
      const { engine, engine_version, schema_version } = await context.holdfast.storeInfo();
      return ok({
        version: context.version,
        api: 1,
        store: `${engine} ${engine_version} (schema ${schema_version})`,
        journal_schema: JOURNAL_SCHEMA,
      });
    },
  ),
];
