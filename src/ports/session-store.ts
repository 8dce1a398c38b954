/** Sessions: the isolation boundary (DESIGN §2). Runs belong to them through the store, never through a list inside. */
import type { JsonObject } from "../domain/json.ts";

export type Posture = "read_only" | "ask" | "auto";

export interface SessionRecord {
  readonly session_id: string;
  /** Unique; `default` is made on first use. */
  readonly name: string;
  readonly workspace: string;
  readonly posture: Posture;
  readonly orchestration_opt_in: boolean;
  /** Free data of whoever embeds Holdfast; the store never reads it. */
  readonly metadata: JsonObject;
  readonly created_at_ms: number;
  readonly updated_at_ms: number;
}

export type SessionPatch = Partial<Pick<SessionRecord, "name" | "posture" | "orchestration_opt_in">> & {
  /** Merged key by key; a `null` value removes the key. */
  readonly metadata?: JsonObject;
};

export interface SessionStore {
  /** @throws HoldfastError `conflict` when the name is taken */
  createSession(session: SessionRecord): Promise<void>;
  getSession(idOrName: string): Promise<SessionRecord | undefined>;
  /** Oldest first; `after` is a name and id already seen. `limit` 1..200. */
  listSessions(page: { limit: number; after_ms?: number; after_id?: string }): Promise<readonly SessionRecord[]>;
  /** Atomic read-modify-write of the fields given (RP-77). */
  updateSession(sessionId: string, patch: SessionPatch, nowMs: number): Promise<SessionRecord | undefined>;
  /** Runs of the session that have not ended. */
  openRuns(sessionId: string): Promise<number>;
}
