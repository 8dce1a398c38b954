/** A session as every interface shows it (interfaces §3 `Session`). */
import type { JsonObject } from "../domain/json.ts";
import { rfc3339 } from "../domain/projections/index.ts";
import type { SessionView } from "./api.ts";

export interface SessionDoc {
  readonly session_id: string;
  readonly name: string;
  /** Operators only. */
  readonly workspace?: string;
  readonly trusted: boolean;
  readonly posture: SessionView["posture"];
  readonly orchestration_opt_in: boolean;
  readonly active_runs: number;
  readonly metadata: JsonObject;
  readonly created_at: string;
}

/** `metadata` is free data of whoever embeds Holdfast, so only an operator sees it; others see an empty object. */
export function sessionDoc(session: SessionView, to: { readonly operator: boolean }): SessionDoc {
  return {
    session_id: session.session_id,
    name: session.name,
    ...(to.operator ? { workspace: session.workspace } : {}),
    trusted: session.trusted,
    posture: session.posture,
    orchestration_opt_in: session.orchestration_opt_in,
    active_runs: session.active_runs,
    metadata: to.operator ? session.metadata : {},
    created_at: rfc3339(session.created_at_ms),
  };
}
