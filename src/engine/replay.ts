/**
 * A run's recorded past, in the form a program is replayed from: outcomes in journal order, and what was
 * recorded for each visit of each place.
 */
import type { RunEvent } from "../domain/events.ts";
import type { Json } from "../domain/json.ts";
import type { Failure } from "../domain/run.ts";

export type Outcome =
  | { readonly type: "succeeded"; readonly output: Json }
  | { readonly type: "failed"; readonly failure: Failure };

/** Something the program hears of, in journal order. */
export type Delivery =
  | { readonly type: "outcome"; readonly instance: string; readonly visit: number; readonly outcome: Outcome }
  | { readonly type: "woke"; readonly key: string }
  | { readonly type: "cancelled"; readonly key: string };

/** What the journal has of one visit of one place. */
export interface VisitRecord {
  readonly instance: string;
  readonly visit: number;
  /** Empty until it started. */
  input_hash: string;
  state: "open" | "settled" | "cancelled" | "skipped";
}

export interface Recorded {
  readonly deliveries: readonly Delivery[];
  readonly visits: ReadonlyMap<string, VisitRecord>;
  readonly decisions: ReadonlyMap<string, Json>;
  /** Retry key → due time. */
  readonly retries: ReadonlyMap<string, number>;
  /** Retry keys whose delay was over and delivered, with a consequence recorded after it. */
  readonly woken: ReadonlySet<string>;
  /** Keys of finished fail-fast cancellations. */
  readonly cancelled: ReadonlySet<string>;
}

export const CANCELLED_PREFIX = "cancelled:";

export function visitKey(instance: string, visit: number): string {
  return `${visit}#${instance}`;
}

/** The key under which a refused reservation is recorded (R-2d): a replay refuses it again. */
export function refusalKey(instance: string, visit: number): string {
  return `refused:${visit}#${instance}`;
}

/** Reads a journal's events in order. Feed pages with `add`, then take `recorded`. */
export class Recording {
  readonly #deliveries: Delivery[] = [];
  readonly #visits = new Map<string, VisitRecord>();
  readonly #current = new Map<string, VisitRecord>();
  readonly #decisions = new Map<string, Json>();
  readonly #retries = new Map<string, number>();
  readonly #woken = new Set<string>();
  readonly #cancelled = new Set<string>();

  add(event: RunEvent): void {
    for (const key of event.woke ?? []) {
      this.#woken.add(key);
      this.#deliveries.push({ type: "woke", key });
    }
    switch (event.type) {
      case "step_queued":
        this.#open(event.step_id, event.visit, "open");
        break;
      case "step_skipped":
        this.#open(event.step_id, event.visit, "skipped");
        break;
      case "step_started": {
        const record = this.#current.get(event.step_id);
        if (record !== undefined) record.input_hash = event.input_hash;
        break;
      }
      case "step_completed":
        this.#settle(event.step_id, { type: "succeeded", output: event.output });
        break;
      case "step_failed":
        this.#settle(event.step_id, { type: "failed", failure: event.failure });
        break;
      case "step_cancelled": {
        const record = this.#current.get(event.step_id);
        if (record !== undefined) record.state = "cancelled";
        if (event.by !== undefined) this.#cancel(event.by);
        break;
      }
      case "decision":
        this.#decisions.set(event.key, event.value);
        // A cancellation whose last member ended in another way than `step_cancelled` is recorded as a decision.
        if (event.key.startsWith(CANCELLED_PREFIX)) this.#cancel(event.key.slice(CANCELLED_PREFIX.length));
        break;
      case "phase":
        if (event.name === "retry_reserved") this.#retries.set(event.key, event.due_at_ms);
        break;
      default:
        break;
    }
  }

  #cancel(key: string): void {
    this.#cancelled.add(key);
    this.#deliveries.push({ type: "cancelled", key });
  }

  #open(instance: string, visit: number, state: VisitRecord["state"]): void {
    const record: VisitRecord = { instance, visit, input_hash: "", state };
    this.#visits.set(visitKey(instance, visit), record);
    this.#current.set(instance, record);
  }

  #settle(instance: string, outcome: Outcome): void {
    const record = this.#current.get(instance);
    if (record === undefined || record.state !== "open") return; // RP-51's never-entered leaves: the run ends there
    record.state = "settled";
    this.#deliveries.push({ type: "outcome", instance, visit: record.visit, outcome });
  }

  get recorded(): Recorded {
    return {
      deliveries: this.#deliveries,
      visits: this.#visits,
      decisions: this.#decisions,
      retries: this.#retries,
      woken: this.#woken,
      cancelled: this.#cancelled,
    };
  }
}

export const NOTHING_RECORDED: Recorded = new Recording().recorded;
