/**
 * A store that could not be opened yet (GD-31, GD-32): until it can, everything asked of it is refused at once with
 * `storage_unavailable`, and nothing is admitted; meanwhile one initialisation at a time goes on behind. When it
 * succeeds, whoever watches the store is told, so that a driver that was started before goes on by itself. What does
 * not heal by waiting — another schema, a damaged file — is not tried again.
 */
import { HoldfastError } from "../domain/errors.ts";
import type { Clock, RunStore, SessionStore, Timer } from "../ports/index.ts";

type Store = RunStore & SessionStore;

export interface HealingOptions {
  readonly open: () => Promise<Store>;
  readonly clock: Clock;
  readonly log?: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;

/**
 * Opens the store; where another holds it, answers one that becomes it as soon as it can be opened.
 * @throws HoldfastError what does not heal by itself
 */
export async function openHealingStore(options: HealingOptions): Promise<Store> {
  try {
    return await options.open();
  } catch (error) {
    if (!heals(error)) throw error;
    return new Healing(options, error).store;
  }
}

function heals(error: unknown): error is HoldfastError {
  return HoldfastError.is(error) && error.code === "storage_unavailable";
}

interface Watcher {
  readonly onChange: () => void;
  unwatch: (() => void) | undefined;
}

class Healing {
  readonly store: Store;
  readonly #options: HealingOptions;
  readonly #watchers = new Set<Watcher>();
  #failure: unknown;
  #real: Store | undefined;
  #opening: Promise<void> | undefined;
  #timer: Timer | undefined;
  #closed = false;

  constructor(options: HealingOptions, failure: unknown) {
    this.#options = options;
    this.#failure = failure;
    const own = new Map<string, unknown>([
      ["watch", (onChange: () => void) => this.#watch(onChange)],
      ["close", () => this.#close()],
      // No promise: whoever awaits the store gets the store.
      ["then", undefined],
    ]);
    this.store = new Proxy({} as Store, {
      get: (_, key) => {
        if (typeof key !== "string") return undefined;
        if (own.has(key)) return own.get(key);
        return (...args: unknown[]) => this.#call(key, args);
      },
    });
    this.#again(0);
  }

  #call(method: string, args: readonly unknown[]): unknown {
    const real = this.#real;
    if (real === undefined) return Promise.reject(this.#failure);
    const act: unknown = Reflect.get(real, method, real);
    return typeof act === "function" ? act.apply(real, args) : Promise.resolve(undefined);
  }

  #watch(onChange: () => void): () => void {
    const watcher: Watcher = { onChange, unwatch: this.#real?.watch(onChange) };
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
      watcher.unwatch?.();
    };
  }

  #again(tries: number): void {
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(tries, 16));
    this.#timer = this.#options.clock.at(this.#options.clock.now() + pause, () => {
      this.#opening = this.#open(tries + 1);
    });
  }

  async #open(tries: number): Promise<void> {
    try {
      const real = await this.#options.open();
      if (this.#closed) return await real.close();
      this.#real = real;
    } catch (error) {
      this.#failure = error;
      if (this.#closed) return;
      if (heals(error)) return this.#again(tries);
      this.#options.log?.("error", "the store cannot be opened, and waiting does not help", { error });
      return;
    }
    this.#options.log?.("info", "the store is open again", { tries });
    for (const watcher of this.#watchers) {
      watcher.unwatch = this.#real.watch(watcher.onChange);
      watcher.onChange();
    }
  }

  async #close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    await this.#opening;
    await this.#real?.close();
  }
}
