/** The pinned definitions that this process has at hand, by hash: a run never reads the live catalog again (DESIGN §2). */
import { assert, HoldfastError } from "../domain/errors.ts";
import type { Bundle, Definition } from "../domain/plan/index.ts";
import type { RunStore } from "../ports/index.ts";

/** Bundles in memory before the oldest of them goes. */
const MOST_LOADED = 256;
const MOST_STORED = 4096;

export class Bundles {
  readonly #store: RunStore;
  readonly #bundles = new Map<string, Bundle>();
  /** Bundles that the store is known to have: they are not sent again with every start. */
  readonly #stored = new Set<string>();

  constructor(store: RunStore) {
    this.#store = store;
  }

  add(hash: string, bundle: Bundle): void {
    this.#bundles.set(hash, bundle);
  }

  isStored(hash: string): boolean {
    return this.#stored.has(hash);
  }

  stored(hash: string): void {
    if (this.#stored.size >= MOST_STORED) this.#stored.clear();
    this.#stored.add(hash);
  }

  definition(hash: string, key: string): Definition {
    const definition = this.#bundles.get(hash)?.definitions[key];
    assert(definition !== undefined, `the definition ${key} is not in its bundle`);
    return definition;
  }

  /** @throws HoldfastError `storage`: the store does not have it */
  async load(hash: string): Promise<Bundle> {
    const known = this.#bundles.get(hash);
    if (known !== undefined) return known;
    const bytes = await this.#store.getBundle(hash);
    if (bytes === undefined)
      throw new HoldfastError("storage", `Cannot load the definitions ${hash}: they are missing`);
    const bundle = JSON.parse(Buffer.from(bytes).toString("utf8")) as Bundle;
    if (this.#bundles.size >= MOST_LOADED) this.#bundles.delete(this.#bundles.keys().next().value as string);
    this.#bundles.set(hash, bundle);
    return bundle;
  }
}
