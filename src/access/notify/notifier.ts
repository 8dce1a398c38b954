/**
 * Tells people of waits that they must end (R-30 `notify`): each once it is durable, and once more when its warning is
 * due; at least once, and not twice in the life of this process. Nothing waits for it: what hangs is cut off, what
 * fails is tried again a few times, and what was not told is told when a worker process starts again.
 */
import type { RunEvent } from "../../domain/events.ts";
import type { Wait } from "../../domain/run.ts";
import type { RunState } from "../../domain/state.ts";
import type { Clock, RunStore, SecretPort, SessionStore } from "../../ports/index.ts";
import { type Channel, channelsOf } from "./delivery.ts";
import { noticeOf, serverAddress } from "./notice.ts";
import type { NotifyOptions } from "./options.ts";

const AT_ONCE = 4;
const MAX_QUEUE = 10_000;
/** Waits remembered as told; the oldest are forgotten, and then told again only if a sweep still finds them open. */
const MAX_TOLD = 100_000;
/** Delays before another try. */
const RETRY_MS: readonly number[] = [500, 3_000];
/** Recovery mostly ends by itself at once: only what is left after this is for a person. */
const RECOVERY_MS = 2_000;
/** How often waits that other processes opened are looked for, and how old they are then at least. */
const SWEEP_MS = 15_000;
const FOREIGN_MS = 10_000;
const PAGE = 200;
const MAX_PAGES = 50;

export interface NotifierParts {
  readonly store: RunStore & SessionStore;
  readonly clock: Clock;
  readonly secrets: SecretPort;
  readonly workspace: string;
  /** Everything that this process commits, once it is durable. */
  readonly observe: (listener: (events: readonly RunEvent[], state: RunState) => void) => () => void;
  /** Where a server of this workspace says its address; it need not be there. */
  readonly serverFile: string;
  /** Nobody is told before this: a server tells where it listens. */
  readonly after?: Promise<unknown>;
  readonly log: (level: "info" | "warn" | "error", message: string, details: Record<string, unknown>) => void;
}

export class Notifier {
  readonly #parts: NotifierParts;
  readonly #options: NotifyOptions;
  readonly #channels: readonly Channel[];
  readonly #told = new Set<string>();
  readonly #queue: Wait[] = [];
  readonly #going = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #active = 0;
  #telling: boolean;
  #stirred = false;
  #timer: { cancel(): void } | undefined;
  #leave: (() => void)[] = [];

  constructor(parts: NotifierParts, options: NotifyOptions) {
    this.#parts = parts;
    this.#options = options;
    this.#channels = channelsOf(options, parts);
    this.#telling = parts.after === undefined;
    parts.after?.then(
      () => {
        this.#telling = true;
        this.#pump();
      },
      () => undefined,
    );
  }

  /** Listens from now on, and tells what has been open before. */
  start(): void {
    const { observe, store } = this.#parts;
    this.#leave = [
      observe((events, { waits }) => {
        for (const event of events) {
          const warned = event.type === "wait_warned" ? event.wait_id : undefined;
          const wait = "wait" in event ? event.wait : waits.find(({ wait_id }) => wait_id === warned);
          if (wait !== undefined) this.#offer(wait);
        }
      }),
      store.watch(() => {
        this.#stirred = true;
      }),
    ];
    this.#track(this.#sweep(0));
    this.#sleep();
  }

  /** Ends what is on its way; it is told again by the next process. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#timer?.cancel();
    for (const leave of this.#leave.splice(0)) leave();
    await Promise.all(this.#going);
  }

  #sleep(): void {
    const { clock } = this.#parts;
    this.#timer = clock.at(clock.now() + SWEEP_MS, () => {
      if (this.#stopping.signal.aborted) return;
      if (this.#stirred) {
        this.#stirred = false;
        this.#track(this.#sweep(FOREIGN_MS));
      }
      this.#sleep();
    });
  }

  /** Offers all that is open and at least `ageMs` old. A younger one of another process is that one's to tell. */
  async #sweep(ageMs: number): Promise<void> {
    const { store, clock } = this.#parts;
    const type = [...this.#options.on];
    let after: Wait | undefined;
    for (let n = 0; n < MAX_PAGES && !this.#stopping.signal.aborted; n++) {
      const page = await store.listWaits({ type, limit: PAGE, ...(after === undefined ? {} : { after }) });
      for (const wait of page) {
        if (clock.now() - wait.since_ms >= ageMs) this.#offer(wait);
        else this.#stirred = true;
      }
      after = page.at(-1);
      if (page.length < PAGE) return;
    }
  }

  #track(work: Promise<void>): void {
    const kept = work
      .catch((error: unknown) => this.#parts.log("warn", "waits could not be told of", { error }))
      .finally(() => this.#going.delete(kept));
    this.#going.add(kept);
  }

  #offer(wait: Wait): void {
    const key = keyOf(wait);
    if (!this.#options.on.has(wait.type) || wait.granted !== undefined || this.#told.has(key)) return;
    if (this.#queue.length >= MAX_QUEUE) {
      this.#stirred = true;
      return;
    }
    this.#told.add(key);
    if (this.#told.size > MAX_TOLD) this.#told.delete(this.#told.values().next().value as string);
    this.#queue.push(wait);
    this.#pump();
  }

  #pump(): void {
    while (this.#telling && this.#active < AT_ONCE && !this.#stopping.signal.aborted) {
      const wait = this.#queue.shift();
      if (wait === undefined) return;
      this.#active++;
      this.#track(
        this.#tell(wait).finally(() => {
          this.#active--;
          this.#pump();
        }),
      );
    }
  }

  async #tell(wait: Wait): Promise<void> {
    if (wait.type === "recovery") await this.#pause(RECOVERY_MS);
    let left = this.#channels;
    for (let n = 0; left.length > 0; n++) {
      const body = await this.#body(wait);
      if (body === undefined || this.#stopping.signal.aborted) return;
      const failed: Channel[] = [];
      for (const channel of left) if (!(await this.#send(channel, body, wait, n))) failed.push(channel);
      left = failed;
      const delay = RETRY_MS[n];
      if (delay === undefined) return;
      if (left.length > 0) await this.#pause(delay);
    }
  }

  /** Undefined when it is not open any more: then nobody needs to hear of it. */
  async #body(wait: Wait): Promise<string | undefined> {
    const { store, serverFile } = this.#parts;
    const run = await store.getRun(wait.run_id);
    if (run === undefined || !(await this.#isOpen(wait))) return undefined;
    return JSON.stringify(noticeOf(wait, run, await store.getSession(run.session_id), serverAddress(serverFile)));
  }

  async #isOpen(wait: Wait): Promise<boolean> {
    // Strictly newer than the millisecond before it began: its own row is in the first page.
    const after = { since_ms: wait.since_ms - 1, run_id: wait.run_id, wait_id: "" };
    const rows = await this.#parts.store.listWaits({ run_id: wait.run_id, limit: PAGE, after });
    return rows.some((row) => row.wait_id === wait.wait_id && row.granted === undefined);
  }

  async #send(channel: Channel, body: string, wait: Wait, n: number): Promise<boolean> {
    const { clock, log } = this.#parts;
    const time = new AbortController();
    const timer = clock.at(clock.now() + this.#options.timeout_ms, () => time.abort());
    try {
      await channel.send(body, AbortSignal.any([time.signal, this.#stopping.signal]));
      return true;
    } catch (error) {
      if (this.#stopping.signal.aborted) return false;
      const last = n >= RETRY_MS.length;
      const why = time.signal.aborted
        ? "it did not end in time"
        : error instanceof Error
          ? error.message
          : String(error);
      log(last ? "error" : "warn", "a wait could not be told of", {
        channel: channel.name,
        run_id: wait.run_id,
        wait_id: wait.wait_id,
        attempt: n + 1,
        why,
      });
      return false;
    } finally {
      timer.cancel();
    }
  }

  #pause(ms: number): Promise<void> {
    const { clock } = this.#parts;
    const { signal } = this.#stopping;
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = clock.at(clock.now() + ms, done);
      signal.addEventListener("abort", done, { once: true });
    });
  }
}

function keyOf(wait: Wait): string {
  return `${wait.run_id} ${wait.wait_id}${wait.warned === true ? " warned" : ""}`;
}
