/** The world that a test of the RunStore suite runs in: a store, a clock it moves, and runs to begin with. */
import type { CommitResult, RunStore, SessionStore, Signal, TreeCommit } from "../ports/index.ts";
import { freshId, sessionRecord, startCommit, TestJournal, treeCommit } from "./journals.ts";
import type { Skip } from "./kit.ts";

export type TestedStore = RunStore & SessionStore;

export interface RunStoreSuite {
  readonly name: string;
  /** An empty store whose leases follow `clock`. */
  readonly open: (clock: { now(): number }) => Promise<TestedStore>;
  /** A second, independent handle on the data of `store`, as another process would have; where there can be none, `store`. */
  readonly second: (store: TestedStore, clock: { now(): number }) => Promise<TestedStore>;
  readonly skips?: readonly Skip[];
}

export const OK: CommitResult = { ok: true };
export const ME = { owner: "owner-a", leaseMs: 1_000, graceMs: 100 };
export const YOU = { owner: "owner-b", leaseMs: 1_000, graceMs: 100 };

export interface World {
  readonly store: TestedStore;
  readonly clock: { at: number; now(): number };
  second(): Promise<TestedStore>;
}

export type Scenario = (name: string, body: (world: World) => Promise<void>) => void;

export async function inWorld(suite: RunStoreSuite, body: (world: World) => Promise<void>): Promise<void> {
  const clock = { at: 10_000, now: (): number => clock.at };
  const store = await suite.open(clock);
  const opened = new Set([store]);
  try {
    await store.createSession(sessionRecord());
    await body({
      store,
      clock,
      second: async () => {
        const handle = await suite.second(store, clock);
        opened.add(handle);
        return handle;
      },
    });
  } finally {
    for (const handle of [...opened].reverse()) await handle.close();
  }
}

export async function commitOne(store: RunStore, commit: TreeCommit): Promise<CommitResult | undefined> {
  return (await store.commit([commit]))[0];
}

export async function started(store: RunStore, owner = ME.owner): Promise<TestJournal> {
  const journal = new TestJournal();
  await store.commit([startCommit(journal, { owner, lease_expires_at_ms: 11_000 })]);
  return journal;
}

export function childOf(parent: TestJournal): TestJournal {
  return new TestJournal({
    root_run_id: parent.header.root_run_id,
    parent_run_id: parent.run_id,
    parent_step_id: "call",
    depth: parent.header.depth + 1,
  });
}

/** A tree that was suspended and given up until `wake_at_ms`. */
export async function parked(store: RunStore, wake_at_ms: number | null): Promise<TestJournal> {
  const journal = await started(store);
  await store.commit([treeCommit([journal.next({ status: "suspended" })], { tree: { release: true, wake_at_ms } })]);
  return journal;
}

export function claimAll(store: RunStore, by: typeof ME): ReturnType<RunStore["claimDue"]> {
  return store.claimDue({ ...by, limit: 100 });
}

export function signalFor(journal: TestJournal, changes: Partial<Signal> = {}): Signal {
  return {
    signal_id: freshId(),
    root_run_id: journal.run_id,
    run_id: journal.run_id,
    kind: "cancel",
    payload: null,
    created_at_ms: 1,
    ...changes,
  };
}

/** Bytes of any kind compare as a Buffer. */
export function plain<T extends { readonly bytes: Uint8Array }>(value: T | undefined): unknown {
  return value && { ...value, bytes: Buffer.from(value.bytes).toString("base64") };
}

export async function codeOf(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
    return "no error";
  } catch (error) {
    return typeof error === "object" && error !== null && "code" in error ? error.code : error;
  }
}
