/** What several resources share: parameters, cursors' names, locations, and waits as their reader may see them. */
import { z } from "@hono/zod-openapi";
import { publicWait } from "../../domain/projections/index.ts";
import type { Budgets, Wait } from "../../domain/run.ts";
import type { Asked } from "../routes.ts";
import { RUN } from "../routes.ts";
import { runId, sessionRef } from "../schemas.ts";

export const sessionParams = z.object({ session_id: sessionRef });
export const runParams = z.object({ session_id: sessionRef, run_id: runId });
export type RunAsked = Asked<{ session_id: string; run_id: string }>;

/** A cursor serves only the list that gave it: same session, same selection. */
function listName(kind: string, asked: Pick<Asked, "params" | "query">): string {
  const { cursor: _, limit: __, ...selection } = asked.query as { cursor?: unknown; limit?: unknown };
  return JSON.stringify([kind, asked.params, selection]);
}

/** Places of a list for one request: where the page that is asked for begins, and the cursor of the next one. */
export function pager(kind: string, asked: Pick<Asked, "context" | "params" | "query">) {
  const { cursor, limit } = asked.query as { cursor?: string; limit?: number };
  const name = listName(kind, asked);
  const { cursors } = asked.context;
  const place = cursors.read(name, cursor);
  return {
    range: { limit: limit ?? 50, ...(place === undefined ? {} : { cursor: place }) },
    next: ({ next_cursor }: { readonly next_cursor?: string }): { readonly next_cursor?: string } =>
      next_cursor === undefined ? {} : { next_cursor: cursors.sign(name, next_cursor) },
  };
}

/** `Location` of a run that was made. */
export function locationOf(
  asked: Pick<Asked, "context">,
  session: string,
  run_id: string,
): { readonly Location: string } {
  const path = RUN.replace("{session_id}", encodeURIComponent(session)).replace("{run_id}", encodeURIComponent(run_id));
  return { Location: `${asked.context.basePath}${path}` };
}

/** Observers see that something waits and until when, not what is asked. */
export function shownWait(wait: Wait, operator: boolean): object {
  return operator ? wait : publicWait(wait);
}

/** zod says "or undefined" where our types say "absent". */
export function budgetOf(budget: { readonly [field in keyof Budgets]?: number | undefined } | undefined): {
  readonly budget?: Partial<Budgets>;
} {
  if (budget === undefined) return {};
  return {
    budget: Object.fromEntries(Object.entries(budget).filter(([, value]) => value !== undefined)) as Partial<Budgets>,
  };
}
