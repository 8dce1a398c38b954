/** Journals for tests of stores: batches that follow from one another, as the engine would hand them over. */
import { createHash } from "node:crypto";
import { DEFAULT_BUDGETS, NO_USAGE, type RunHeader, type RunStatus, type Wait } from "../domain/run.ts";
import type { RunCommit, SessionRecord, SnapshotBlob, TreeCommit, TreeUpdate } from "../ports/index.ts";

export const SESSION_ID = "018f0000-0000-7000-8000-00000000000a";

export function sessionRecord(changes: Partial<SessionRecord> = {}): SessionRecord {
  return {
    session_id: SESSION_ID,
    name: "default",
    workspace: "/work",
    posture: "ask",
    orchestration_opt_in: false,
    metadata: {},
    created_at_ms: 1,
    updated_at_ms: 1,
    ...changes,
  };
}

let numbers = 0;

/** A fresh id in the shape of a UUIDv7; ids rise in the order they are made. */
export function freshId(): string {
  return `018f0000-0000-7000-8000-${String(++numbers).padStart(12, "0")}`;
}

export interface Batch {
  readonly status?: RunStatus;
  /** How many sequences it takes; default 1. */
  readonly events?: number;
  readonly bytes?: Uint8Array;
  readonly waits?: readonly Wait[];
  readonly snapshot?: SnapshotBlob;
  readonly at_ms?: number;
}

/** The writer's view of one run: what it appended so far. */
export class TestJournal {
  readonly run_id: string;
  readonly header: RunHeader;
  sequence = 0;
  tip: string;

  constructor(header: Partial<RunHeader> = {}) {
    this.run_id = header.run_id ?? freshId();
    this.header = {
      run_id: this.run_id,
      root_run_id: this.run_id,
      session_id: SESSION_ID,
      kind: "plan",
      workflow_id: "check",
      workflow_revision: 1,
      bundle_hash: "cd".repeat(32),
      args: { path: "." },
      args_hash: "ef".repeat(32),
      budget: DEFAULT_BUDGETS,
      created_at_ms: 1_000,
      depth: 0,
      engine_version: 1,
      durability: "standard",
      origin: "explicit",
      ...header,
    };
    this.tip = createHash("sha256").update(this.run_id).digest("hex");
  }

  /** A journal that goes on from the same point: another writer. */
  fork(): TestJournal {
    const twin = new TestJournal(this.header);
    twin.sequence = this.sequence;
    twin.tip = this.tip;
    return twin;
  }

  /** The next batch; this view moves on as if it will be accepted. */
  next(batch: Batch = {}): RunCommit {
    const first = this.sequence + 1;
    const last = this.sequence + (batch.events ?? 1);
    const bytes = batch.bytes ?? Buffer.from(`{"sequence":${first},"type":"run_started"}\n`);
    const hash = createHash("sha256").update(this.tip, "hex").update(bytes).digest("hex");
    const commit: RunCommit = {
      run_id: this.run_id,
      expected: this.sequence,
      segment: { first, last, prev: this.tip, hash, codec: "json", bytes },
      row: {
        status: batch.status ?? "running",
        ...(batch.waits?.[0] === undefined ? {} : { suspension: batch.waits[0].type }),
        wait_count: batch.waits?.length ?? 0,
        usage: { ...NO_USAGE, steps: last },
        last_sequence: last,
        updated_at_ms: batch.at_ms ?? 1_000 + last,
      },
      ...(this.sequence === 0 ? { header: this.header } : {}),
      ...(batch.waits === undefined ? {} : { waits: batch.waits }),
      ...(batch.snapshot === undefined ? {} : { snapshot: batch.snapshot }),
    };
    this.sequence = last;
    this.tip = hash;
    return commit;
  }
}

export interface CommitParts extends Partial<Omit<TreeCommit, "runs" | "root_run_id">> {
  readonly root_run_id?: string;
}

/** A tree's commit with what tests leave out filled in. */
export function treeCommit(runs: readonly RunCommit[], parts: CommitParts = {}): TreeCommit {
  return {
    root_run_id: parts.root_run_id ?? runs[0]?.header?.root_run_id ?? runs[0]?.run_id ?? "",
    fence: 1,
    runs,
    artifacts: [],
    signals_done: [],
    ...parts,
  };
}

export interface StartParts {
  readonly owner?: string;
  readonly lease_expires_at_ms?: number;
  readonly max_open_runs?: number;
  readonly key?: { readonly key: string; readonly request_hash: string };
  readonly session_id?: string;
  readonly tree?: TreeUpdate;
  readonly batch?: Batch;
}

/** The commit that creates a tree; claimed by `owner` where one is given. */
export function startCommit(journal: TestJournal, parts: StartParts = {}): TreeCommit {
  const claim =
    parts.owner === undefined
      ? {}
      : { claim: { owner: parts.owner, lease_expires_at_ms: parts.lease_expires_at_ms ?? Number.MAX_SAFE_INTEGER } };
  return treeCommit([journal.next(parts.batch ?? { status: "queued" })], {
    create: {
      session_id: parts.session_id ?? journal.header.session_id,
      max_open_runs: parts.max_open_runs ?? 1_000,
      ...(parts.key === undefined ? {} : { key: parts.key }),
      ...claim,
    },
    ...(parts.tree === undefined ? {} : { tree: parts.tree }),
  });
}

export function testWait(run_id: string, wait: Partial<Wait> = {}): Wait {
  return { wait_id: "w-1", type: "approval", run_id, since_ms: 2_000, ...wait };
}
