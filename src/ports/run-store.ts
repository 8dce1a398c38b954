/**
 * The store of run trees (DESIGN §8): journals, the rows derived from them, leases, signals and values.
 *
 * The store knows no rule of runs. It keeps what the engine hands it, atomically, and refuses what a stale
 * owner hands it. Everything here is bounded; nothing reads an unbounded history.
 */
import type { Json } from "../domain/json.ts";
import type { RunHeader, RunStatus, SideEffect, Usage, Wait, WaitType } from "../domain/run.ts";

/** The derived row of a run: what lists show without reading a journal. */
export interface RunRow {
  readonly status: RunStatus;
  /** Type of the oldest wait while suspended. */
  readonly suspension?: WaitType;
  readonly wait_count: number;
  readonly usage: Usage;
  readonly last_sequence: number;
  readonly updated_at_ms: number;
}

export interface RunRecord extends RunHeader, RunRow {}

/** One committed batch of a journal. `hash = SHA-256(prev ‖ canonical event lines)`. */
export interface Segment {
  readonly first: number;
  readonly last: number;
  readonly prev: string;
  readonly hash: string;
  /** How `bytes` hold the event lines: as they are, or raw-deflated. */
  readonly codec: "json" | "deflate";
  readonly bytes: Uint8Array;
}

export interface SnapshotBlob {
  readonly sequence: number;
  readonly codec: "json" | "deflate";
  readonly bytes: Uint8Array;
}

/** An append to one journal, or its creation together with its first events. */
export interface RunCommit {
  readonly run_id: string;
  /** Present exactly when this commit creates the run. */
  readonly header?: RunHeader;
  /** Last sequence the writer saw; 0 for a new run. */
  readonly expected: number;
  readonly segment: Segment;
  readonly row: RunRow;
  /** All open waits after this append; absent when they did not change. */
  readonly waits?: readonly Wait[];
  readonly snapshot?: SnapshotBlob;
}

/** What makes a new tree: the session it belongs to, its claim, and the caller's idempotency key. */
export interface TreeCreation {
  readonly session_id: string;
  /** Refused with `index_full` when the session has this many runs open (RP-76). */
  readonly max_open_runs: number;
  readonly key?: { readonly key: string; readonly request_hash: string };
  /** Absent: the tree is left unclaimed for any worker process. */
  readonly claim?: { readonly owner: string; readonly lease_expires_at_ms: number };
}

/** What an attempt needs of its workspace for itself (GD-53): readers share, a writer excludes. */
export interface ResourceClaim {
  /** 1..512 bytes. */
  readonly resource: string;
  readonly access: "read" | "write";
}

/** One tree's part of a group commit. All of it lands or none. */
export interface TreeCommit {
  readonly root_run_id: string;
  readonly create?: TreeCreation;
  /** The lease's number; for a creation 1. A stale one is refused by the store in the same statement. */
  readonly fence: number;
  /** Given when the commit holds an intent that is not read_only: refused unless it is the tree's current one. */
  readonly control_version?: number;
  readonly runs: readonly RunCommit[];
  readonly bundle?: { readonly hash: string; readonly bytes: Uint8Array };
  readonly artifacts: readonly { readonly sha256: string; readonly bytes: Uint8Array }[];
  /** Signals whose events these are; deleted here. */
  readonly signals_done: readonly string[];
  /** Dispatch ids whose resource leases end with this commit: their attempts settle in it (GD-53). */
  readonly leases_freed?: readonly string[];
  readonly tree?: TreeUpdate;
}

export interface TreeUpdate {
  /** Cached fold of the tree's ledger. */
  readonly ledger?: Json;
  /** When the tree wants to be claimed again: a timer, a deadline. `null`: never by itself. */
  readonly wake_at_ms?: number | null;
  /** Recoveries without progress. */
  readonly recoveries?: number;
  /** Give up the lease in this commit. */
  readonly release?: true;
  /** All runs of the tree have ended. */
  readonly ended?: true;
}

export type CommitRefusal =
  /** Someone appended at that sequence, or the run exists already. */
  | "conflict"
  /** The fence is not the tree's, or the tree is gone. */
  | "fenced"
  /** `control_version` moved: load the signals, decide again. */
  | "control"
  | "index_full"
  /** The idempotency key was used; `run_id` says for which run, `same_request` whether by the same request. */
  | "key_used"
  | "no_session";

export type CommitResult =
  | { readonly ok: true }
  | { readonly ok: false; readonly refusal: CommitRefusal; readonly run_id?: string; readonly same_request?: boolean };

export interface TreeRecord {
  readonly root_run_id: string;
  readonly session_id: string;
  readonly owner?: string;
  readonly fence: number;
  readonly lease_expires_at_ms?: number;
  readonly control_version: number;
  readonly recoveries: number;
  readonly ledger?: Json;
  readonly wake_at_ms?: number;
  readonly ended: boolean;
}

export interface Claim {
  readonly root_run_id: string;
  readonly fence: number;
  readonly control_version: number;
  readonly lease_expires_at_ms: number;
  readonly recoveries: number;
  /** True when the tree was taken from an owner that is dead or late, and so may hold interrupted work. */
  readonly taken_over: boolean;
  /** Dispatch ids under which the tree holds resource leases; absent when it holds none. */
  readonly leases?: readonly string[];
}

export type SignalKind =
  | "cancel"
  | "pause"
  | "resume"
  | "approve"
  | "deny"
  | "answer"
  | "repair"
  | "budget"
  | "posture"
  | "restarted";

/** A request to whoever holds the tree. */
export interface Signal {
  readonly signal_id: string;
  readonly root_run_id: string;
  readonly run_id: string;
  readonly kind: SignalKind;
  readonly payload: Json;
  readonly created_at_ms: number;
}

/**
 * The agent session in which the work of one attempt goes on (GD-42): for whoever looks at it, and for its owner after
 * a crash. Kept as long as its tree.
 */
export interface SessionLink {
  readonly root_run_id: string;
  readonly run_id: string;
  readonly step_id: string;
  readonly attempt: number;
  readonly dispatch_id: string;
  /** The owner's name of it, 1 to 512 bytes; no session of Holdfast. */
  readonly session_id: string;
  /** A parent's session, which attempts use one after the other; any other belongs to one attempt alone. */
  readonly shared: boolean;
  readonly created_at_ms: number;
}

export interface RunQuery {
  readonly session_id?: string;
  readonly status?: readonly RunStatus[];
  readonly workflow_id?: string;
  /** Only runs with an open wait. */
  readonly waiting?: boolean;
  /** Also child runs; default roots only. */
  readonly children?: boolean;
  readonly parent_run_id?: string;
  /** Full id or its last characters. */
  readonly id_suffix?: string;
  /** 1..200. */
  readonly limit: number;
  /** Newest first; strictly older than this. */
  readonly before?: { readonly created_at_ms: number; readonly run_id: string };
}

export interface WaitQuery {
  readonly session_id?: string;
  readonly root_run_id?: string;
  readonly run_id?: string;
  readonly type?: readonly WaitType[];
  /** 1..200. */
  readonly limit: number;
  /** Oldest first; strictly newer than this. */
  readonly after?: { readonly since_ms: number; readonly run_id: string; readonly wait_id: string };
}

export interface StoreInfo {
  readonly url: string;
  readonly engine: string;
  readonly engine_version: string;
  readonly schema_version: number;
  readonly synchronous: string;
  readonly bytes: number;
  readonly runs: number;
}

/** How often each of these may be called: any; all reads see only what is committed. */
export interface RunStore {
  info(): Promise<StoreInfo>;

  /**
   * Commits a group in one transaction, each tree behind its own savepoint: one refused tree never
   * holds up another. Durable when it returns.
   * @returns one result a tree, in the order given
   * @throws HoldfastError `storage_unavailable` (busy past the time-out; nothing was written) or `storage`
   *   (I/O error, disk full, corruption; the outcome may be unknown: `details.outcome` is `"none"` or `"unknown"`)
   */
  commit(group: readonly TreeCommit[]): Promise<readonly CommitResult[]>;

  getRun(runId: string): Promise<RunRecord | undefined>;
  /** All runs of a tree, parents before children. */
  treeRuns(rootRunId: string): Promise<readonly RunRecord[]>;
  getTree(rootRunId: string): Promise<TreeRecord | undefined>;
  /**
   * Whole segments that contain events after `since`, in order, until about `maxBytes` stored bytes are
   * gathered (at least one). An empty answer means the journal ends there.
   */
  readSegments(runId: string, since: number, maxBytes: number): Promise<readonly Segment[]>;
  getSnapshot(runId: string): Promise<SnapshotBlob | undefined>;
  getBundle(hash: string): Promise<Uint8Array | undefined>;
  getArtifact(sha256: string): Promise<Uint8Array | undefined>;
  listRuns(query: RunQuery): Promise<readonly RunRecord[]>;
  listWaits(query: WaitQuery): Promise<readonly Wait[]>;
  /** The run an idempotency key was used for. */
  getKeyedStart(
    sessionId: string,
    key: string,
  ): Promise<{ readonly run_id: string; readonly request_hash: string } | undefined>;

  /**
   * Claims one tree: free, or its lease expired for `graceMs` on the store's clock, or its owner is proved
   * dead by its host lock. The fence rises by one with every claim.
   * @returns undefined when a live owner holds it, or it is unknown or ended
   */
  claim(rootRunId: string, by: { owner: string; leaseMs: number; graceMs: number }): Promise<Claim | undefined>;
  /** Claims up to `limit` trees that want work: unclaimed and due, with a signal, or left by a dead owner. */
  claimDue(by: { owner: string; leaseMs: number; graceMs: number; limit: number }): Promise<readonly Claim[]>;
  /** Renews all leases of `owner`; answers the trees it still holds. */
  renew(owner: string, leaseMs: number): Promise<readonly { root_run_id: string; control_version: number }[]>;
  /** Gives up a lease; nothing happens when it is no longer this one. */
  release(rootRunId: string, fence: number): Promise<void>;
  /** Earliest time any unclaimed tree wants to wake, or undefined. One index look-up (W6). */
  nextWakeMs(): Promise<number | undefined>;

  /**
   * Claims resources of the tree's workspace for one dispatch, all or nothing (GD-53): deduplicated (write wins), in
   * byte order of the resource, and the same again for the same dispatch id. Held until `leases_freed` names it or
   * the tree has ended; no time ends it.
   * @returns false when another dispatch, of whatever tree, excludes one of them; nothing is held then
   * @throws HoldfastError `conflict` when `fence` is not the tree's
   */
  acquireLeases(
    rootRunId: string,
    fence: number,
    dispatchId: string,
    claims: readonly ResourceClaim[],
  ): Promise<boolean>;

  /**
   * Ties an attempt to an agent session (GD-42). The same again changes nothing, and the first time stays.
   * @throws HoldfastError `conflict` when `fence` is not the tree's, the attempt has another session already, or the
   *   session is another attempt's and not shared by both; nothing is changed then
   */
  linkSession(fence: number, link: SessionLink): Promise<void>;
  /** Links of a tree, or of one agent session, oldest first; at most 1,000. */
  sessionLinks(of: { root_run_id: string } | { session_id: string }): Promise<readonly SessionLink[]>;

  /** Stores a signal, raising the tree's control_version where its kind demands it, and wakes the holder. */
  putSignal(signal: Signal, raisesControl: boolean): Promise<{ control_version: number }>;
  /** Open signals of trees held by `owner`, or of one tree; oldest first, at most 1,000. */
  signals(of: { owner: string } | { root_run_id: string }): Promise<readonly Signal[]>;
  signalExists(signalId: string): Promise<boolean>;
  deleteSignals(signalIds: readonly string[]): Promise<void>;

  /** Whether the process of `owner` is proved dead; false also when nobody can tell. A store may not know at all. */
  isGone?(owner: string): Promise<boolean>;

  /** Takes this process's host lock for `owner`; held until `close`. Others prove its death by taking it. */
  registerOwner(owner: string): Promise<void>;
  /** Calls back after another process (or this one) may have changed trees or signals. Returns an unsubscriber. */
  watch(onChange: () => void): () => void;

  close(): Promise<void>;
}

/** Which intents need the tree's control_version. */
export function needsControl(sideEffect: SideEffect): boolean {
  return sideEffect !== "read_only";
}
