/**
 * The one writer of a process (DESIGN §4): it gathers what the run trees appended in a turn of the event loop,
 * commits it as one transaction, and only then tells those who wait. No other code appends to the store.
 */

import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import type { Usage } from "../domain/run.ts";
import type { CommitResult, RunStore, TreeCommit } from "../ports/index.ts";
import type { JournalRun, TreeJournal } from "./tree/journal.ts";

/** Trees of one transaction: bounds how long the writer holds the database. */
const MAX_GROUP = 512;
/** How often a commit may be sent again because signals kept arriving, before the tree is given up. */
const MAX_CONTROL_MOVES = 64;

export interface LedgerView {
  usage(run: JournalRun): Usage;
  ledger(): Json;
}

export class JournalWriter {
  readonly #store: RunStore;
  readonly #queue = new Map<TreeJournal, LedgerView>();
  readonly #views = new WeakMap<TreeJournal, LedgerView>();
  #draining = false;
  #scheduled = false;
  #idle: (() => void)[] = [];

  constructor(store: RunStore) {
    this.#store = store;
  }

  /** Tells where the derived columns of a tree come from. */
  register(tree: TreeJournal, view: LedgerView): void {
    this.#views.set(tree, view);
  }

  enqueue(tree: TreeJournal): void {
    const view = this.#views.get(tree);
    if (view === undefined) return;
    this.#queue.set(tree, view);
    if (this.#scheduled || this.#draining) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      void this.#drain();
    });
  }

  /** Resolves when nothing is left to write. */
  async idle(): Promise<void> {
    if (this.#queue.size === 0 && !this.#draining) return;
    await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  async #drain(): Promise<void> {
    if (this.#draining) return;
    this.#draining = true;
    while (this.#queue.size > 0) {
      await this.#commitGroup(this.#takeGroup());
      // What the commit set free appends in this turn; it goes with the next group, not one by one.
      if (this.#queue.size > 0) await new Promise<void>((resolve) => setImmediate(resolve));
    }
    this.#draining = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  #takeGroup(): [TreeJournal, TreeCommit][] {
    const group: [TreeJournal, TreeCommit][] = [];
    for (const [tree, view] of this.#queue) {
      if (group.length >= MAX_GROUP) break;
      this.#queue.delete(tree);
      if (tree.poisoned !== undefined) continue;
      group.push([
        tree,
        tree.take(
          (run) => view.usage(run),
          () => view.ledger(),
        ),
      ]);
    }
    return group;
  }

  async #commitGroup(group: readonly [TreeJournal, TreeCommit][]): Promise<void> {
    if (group.length === 0) return;
    let results: readonly CommitResult[];
    try {
      results = await this.#store.commit(group.map(([, commit]) => commit));
    } catch (error) {
      const cause = HoldfastError.is(error)
        ? error
        : new HoldfastError("storage", "Cannot write to the store: it failed in a way it does not name", {
            cause: error,
          });
      for (const [tree] of group) tree.poison(cause);
      return;
    }
    for (const [i, [tree, commit]] of group.entries()) {
      const result = results[i];
      if (result?.ok === true) tree.committed();
      else if (result?.refusal === "control") await this.#retryAfterControl(tree);
      else tree.poison(refusalError(commit, result));
    }
  }

  async #retryAfterControl(tree: TreeJournal): Promise<void> {
    for (let i = 0; i < MAX_CONTROL_MOVES; i++) {
      let result: CommitResult | undefined;
      try {
        const commit = await tree.controlMoved();
        if (commit === undefined) return;
        [result] = await this.#store.commit([commit]);
        if (result?.ok === true) return tree.committed();
        if (result?.refusal !== "control") return tree.poison(refusalError(commit, result));
      } catch (error) {
        return tree.poison(
          HoldfastError.is(error) ? error : new HoldfastError("storage", "Cannot write to the store", { cause: error }),
        );
      }
    }
    tree.poison(new HoldfastError("conflict", "Cannot go on with the run: it is signalled faster than it can answer"));
  }
}

function refusalError(commit: TreeCommit, result: CommitResult | undefined): HoldfastError {
  const refusal = result?.ok === false ? result.refusal : "conflict";
  const details = {
    refusal,
    ...(result?.ok === false && result.run_id !== undefined ? { run_id: result.run_id } : {}),
  };
  switch (refusal) {
    case "key_used":
      return new HoldfastError(
        "idempotency_key_reused",
        "Cannot start the run: its idempotency key was used for another request; use a new key",
        {
          details: {
            ...details,
            same_request: result?.ok === false ? (result.same_request ?? false) : false,
          },
        },
      );
    case "index_full":
      return new HoldfastError("preflight", "workflow run index is full of active runs", {
        details: { ...details, refused: "index_full" },
      });
    case "no_session":
      return new HoldfastError("not_found", "Cannot start the run: its session does not exist", { details });
    default:
      return new HoldfastError(
        "conflict",
        `Cannot go on with the run ${commit.root_run_id}: another process has taken it over`,
        { details },
      );
  }
}
