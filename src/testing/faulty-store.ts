/**
 * A store with faults: commits that fail in every way R-4 knows, calls that meet a broken disk, and a process that
 * is gone exactly before or after a write. The store underneath keeps what really happened.
 *
 * Writes are counted in the order they are made: every `commit`, `putSignal`, `createSession`, `acquireLeases` and `linkSession`,
 * and every claim that took a tree.
 */
import { HoldfastError } from "../domain/errors.ts";
import type { RunStore, SessionStore, TreeCommit } from "../ports/index.ts";

export type Fault =
  /** The disk is full: nothing of it was written, and the store knows. */
  | { readonly kind: "full" }
  /** An I/O error whose outcome is unknown; `committed` is the truth that nobody is told. */
  | { readonly kind: "io"; readonly committed: boolean }
  /** Another process holds the store past the time-out: nothing was written. */
  | { readonly kind: "busy" }
  /** The process is gone just before or just after the write. */
  | { readonly kind: "stop"; readonly when: "before" | "after" }
  /** The process stands still just before the write, as under SIGSTOP, and makes it when it is thawed. */
  | { readonly kind: "freeze" };

export interface FaultPlan {
  /** The fault of the nth write, from 1. */
  readonly write?: (n: number, what: string, group: readonly TreeCommit[]) => Fault | undefined;
  /** The fault of the nth call of any kind, from 1: an I/O error that wrote nothing, or `busy`. */
  readonly call?: (n: number, method: string) => "io" | "busy" | undefined;
  /** Told when the process stops, before the call that never answers. */
  readonly onStop?: () => void;
  /** Told when the process freezes by its plan. */
  readonly onFreeze?: () => void;
  /** Told of every call, before it is made. */
  readonly onCall?: (method: string) => void;
}

export interface FaultyStore {
  readonly store: RunStore & SessionStore;
  /** Writes counted so far. */
  readonly writes: number;
  readonly calls: number;
  /** True once the process is gone: no call is answered any more. */
  readonly stopped: boolean;
  /** Ends the process now. */
  stop(): void;
  /** Holds every answer back until `thaw`, as under SIGSTOP. */
  freeze(): void;
  thaw(): void;
}

const NEVER: Promise<never> = new Promise(() => undefined);
/** Methods that write something a crash may cut; `renew` and `release` change a lease that time ends anyway. */
const WRITES: ReadonlySet<string> = new Set(["commit", "putSignal", "createSession", "acquireLeases", "linkSession"]);
const CLAIMS: ReadonlySet<string> = new Set(["claim", "claimDue"]);
/** Not calls to the disk. */
const LOCAL: ReadonlySet<string> = new Set(["watch", "close", "then"]);

export function faultyStore(inner: RunStore & SessionStore, plan: FaultPlan = {}): FaultyStore {
  let writes = 0;
  let calls = 0;
  let stopped = false;
  let frozen: Promise<void> | undefined;
  let thaw: () => void = () => undefined;
  const stop = (): void => {
    if (stopped) return;
    stopped = true;
    plan.onStop?.();
  };
  const freeze = (): void => {
    frozen ??= new Promise((resolve) => {
      thaw = resolve;
    });
  };
  const awake = async <T>(value: T): Promise<T> => {
    while (frozen !== undefined) await frozen;
    return stopped ? NEVER : value;
  };

  const write = async (method: string, args: readonly unknown[], act: () => Promise<unknown>): Promise<unknown> => {
    const group = method === "commit" ? (args[0] as readonly TreeCommit[]) : [];
    writes++;
    const fault = plan.write?.(writes, method, group);
    if (fault === undefined) return act();
    if (fault.kind === "stop") {
      if (fault.when === "after") await act();
      stop();
      return NEVER;
    }
    if (fault.kind === "freeze") {
      freeze();
      plan.onFreeze?.();
      await awake(undefined);
      return act();
    }
    if (fault.kind === "busy") throw busy();
    if (fault.kind === "full") throw broken("the disk is full; free space and try again", "none");
    if (fault.committed) await act();
    throw broken("the disk reported an error; check the disk, then try again", "unknown");
  };

  const claim = async (act: () => Promise<unknown>): Promise<unknown> => {
    const claimed = await act();
    const took = Array.isArray(claimed) ? claimed.length > 0 : claimed !== undefined;
    if (!took) return claimed;
    writes++;
    if (plan.write?.(writes, "claim", [])?.kind !== "stop") return claimed;
    stop();
    return NEVER;
  };

  const call = async (method: string, args: readonly unknown[], act: () => Promise<unknown>): Promise<unknown> => {
    if (stopped) return NEVER;
    await awake(undefined);
    plan.onCall?.(method);
    calls++;
    const fault = plan.call?.(calls, method);
    if (fault === "busy") throw busy();
    if (fault === "io") throw broken("the disk reported an error; check the disk, then try again", "none");
    if (WRITES.has(method)) return write(method, args, act);
    return CLAIMS.has(method) ? claim(act) : act();
  };

  const store = new Proxy(inner, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== "function" || typeof key !== "string") return value;
      const act = value.bind(target) as (...args: unknown[]) => Promise<unknown>;
      if (LOCAL.has(key)) return act;
      return (...args: unknown[]) =>
        call(key, args, () => act(...args)).then(awake, async (error) => {
          await awake(undefined);
          throw error;
        });
    },
  });

  return {
    store,
    get writes() {
      return writes;
    },
    get calls() {
      return calls;
    },
    get stopped() {
      return stopped;
    },
    stop,
    freeze,
    thaw() {
      frozen = undefined;
      thaw();
    },
  };
}

function busy(): HoldfastError {
  return new HoldfastError("storage_unavailable", "Cannot write: another process holds the store; wait and try again", {
    details: { outcome: "none" },
  });
}

function broken(state: string, outcome: "none" | "unknown"): HoldfastError {
  return new HoldfastError("storage", `Cannot write: ${state}`, { details: { outcome } });
}
