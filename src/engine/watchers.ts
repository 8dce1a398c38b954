/** Who watches the runs of this process: each hears of durable events as they are committed, in journal order. */
import type { RunEvent } from "../domain/events.ts";
import type { RunState } from "../domain/state.ts";

export type Subscriber = (events: readonly RunEvent[], state: RunState) => void;

export class Watchers {
  readonly #subscribers = new Map<string, Set<Subscriber>>();
  readonly #observers = new Set<Subscriber>();

  /** Of one run. @returns what ends it */
  subscribe(runId: string, subscriber: Subscriber): () => void {
    const set = this.#subscribers.get(runId) ?? new Set();
    this.#subscribers.set(runId, set);
    set.add(subscriber);
    return () => {
      set.delete(subscriber);
      if (set.size === 0) this.#subscribers.delete(runId);
    };
  }

  /** Of every run. @returns what ends it */
  observe(observer: Subscriber): () => void {
    this.#observers.add(observer);
    return () => void this.#observers.delete(observer);
  }

  publish(runId: string, events: readonly RunEvent[], state: RunState): void {
    for (const observer of this.#observers) observer(events, state);
    for (const subscriber of this.#subscribers.get(runId) ?? []) subscriber(events, state);
  }
}
