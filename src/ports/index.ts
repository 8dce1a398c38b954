/** Interfaces only: what the engine needs from the outside (DESIGN §3). */

export type { RunHeader } from "../domain/run.ts";
export type { AgentCall, AgentEstimate, AgentOutcome, AgentPort, AgentProfile, AgentUsage } from "./agent-port.ts";
export type { Clock, Ids, Timer } from "./clock.ts";
export type { PolicyAnswer, PolicyPort, PolicyRequest } from "./policy-port.ts";
export type {
  Claim,
  CommitRefusal,
  CommitResult,
  ResourceClaim,
  RunCommit,
  RunQuery,
  RunRecord,
  RunRow,
  RunStore,
  Segment,
  SessionLink,
  Signal,
  SignalKind,
  SnapshotBlob,
  StoreInfo,
  TreeCommit,
  TreeCreation,
  TreeRecord,
  TreeUpdate,
  WaitQuery,
} from "./run-store.ts";
export { needsControl } from "./run-store.ts";
export type { SecretAnswer, SecretPort } from "./secret-port.ts";
export type { Posture, SessionPatch, SessionRecord, SessionStore } from "./session-store.ts";
export type { OwnerAnswer, OwnerPlan, ToolCall, ToolDescriptor, ToolOutcome, ToolPort } from "./tool-port.ts";
