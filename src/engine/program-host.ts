/**
 * Runs one program against its recorded past and then live: outcomes are delivered in journal order, one at
 * a time, the program run until it can go no further between two. What the program asks while recorded outcomes
 * are left is parked; when none is left, it goes live in the order asked.
 */
import { hashJson, type Json } from "../domain/json.ts";
import type { Failure } from "../domain/run.ts";
import { BranchContext } from "./branch.ts";
import { LazyAbort } from "./lazy-abort.ts";
import { type DefinitionRef, type Program, StepFailure, type StepSpec, type WaitSpec } from "./program.ts";
import { type Delivery, type Recorded, refusalKey, type VisitRecord, visitKey } from "./replay.ts";
import type {
  CancelRequest,
  ChildRequest,
  LiveRun,
  OpenRequest,
  Request,
  RetryRequest,
  StepRequest,
  WaitRequest,
} from "./requests.ts";

/** How long the host may deliver without letting the event loop turn, in milliseconds. */
const TURN_MS = 5;

/** What a program asked while it was replayed: something the journal has open, a stop of such, or something new. */
type Parked = "open" | "stop" | "new";

export type Ended = { readonly ok: true; readonly value: Json } | { readonly ok: false; readonly failure: Failure };

export class ProgramHost {
  readonly #live: LiveRun;
  readonly #recorded: Recorded;
  readonly #args: Json;
  readonly #program: Program;
  readonly #abort = new LazyAbort();
  readonly #visits = new Map<string, number>();
  /** Asked and not delivered, by visit or by key. */
  readonly #open = new Map<string, Request>();
  #queue: Delivery[] = [];
  #head = 0;
  #parked: { readonly act: () => void; readonly what: Parked }[] = [];
  /** Until `goLive`: a run's first requests, too, are parked until its executor is ready for them. */
  #replaying = true;
  #pumping = false;
  #frozen = false;
  #standingBy = false;
  /** Retry delays delivered since the last event: they ride in the next one (events.ts). */
  #woke: string[] = [];
  ended: Ended | undefined;

  constructor(program: Program, args: Json, recorded: Recorded, live: LiveRun) {
    this.#program = program;
    this.#args = args;
    this.#recorded = recorded;
    this.#live = live;
    this.#queue = [...recorded.deliveries];
  }

  /** Starts the program and replays it to its frontier. Nothing is appended meanwhile. */
  async start(): Promise<void> {
    const context = new BranchContext(this, []);
    this.#pumping = true;
    void this.#program(context).then(
      (value) => this.#end({ ok: true, value }),
      (error: unknown) => this.#end({ ok: false, failure: asFailure(error) }),
    );
    await quiescence();
    await this.#deliverAll();
    this.#pumping = false;
  }

  /** From here on requests are real. Call once, after `start`. */
  goLive(): void {
    if (this.#frozen) return;
    this.#replaying = false;
    if (this.#parked.some(({ what }) => what !== "open")) this.#live.ready();
    for (const parked of this.#parked.splice(0)) parked.act();
    void this.#pump();
  }

  /**
   * In place of `goLive` where the run stays paused: what is open can be answered, and what an answer stops is stopped,
   * but nothing new is asked for: the run that is resumed asks for it.
   */
  standBy(): void {
    if (this.#frozen) return;
    this.#replaying = false;
    this.#standingBy = true;
    for (const { act, what } of this.#parked.splice(0)) if (what !== "new") act();
    void this.#pump();
  }

  /** Whether a recorded open place was not asked for again: the program is another one (R-2a). */
  unasked(): string | undefined {
    for (const record of this.#recorded.visits.values())
      if (record.state === "open" && !this.#open.has(visitKey(record.instance, record.visit))) return record.instance;
    return undefined;
  }

  /** Hears of an outcome that has just been appended. */
  deliver(delivery: Delivery): void {
    this.#queue.push(delivery);
    if (!this.#pumping) void this.#pump();
  }

  /** The program is between two standstills, and may still ask for something. */
  get busy(): boolean {
    return this.#pumping && !this.#frozen;
  }

  /** Makes the host look again whether the run can go on (`quiet`), once the program stands still. */
  nudge(): void {
    if (!this.#pumping) void this.#pump();
  }

  /** A reservation was refused: the program hears of it in the same turn, live as on replay (R-2d). */
  refuse(request: OpenRequest, reason: Failure): void {
    this.#open.delete(visitKey(request.instance, request.visit));
    if (request.dead || this.#frozen) return;
    request.dead = true;
    request.reject(new StepFailure(reason, { refused: true }));
    this.nudge();
  }

  /** Retry delays to write into the next event. */
  takeWoke(): readonly string[] | undefined {
    return this.#woke.length === 0 ? undefined : this.#woke.splice(0);
  }

  /** Stops the program where it stands: nothing is delivered any more, and what it asks is not heard. */
  freeze(): void {
    this.#frozen = true;
    // A program that has ended hears no signal, and aborting is not cheap.
    if (this.ended === undefined) this.#abort.abort(new Error("the run has ended or stands still"));
    for (const request of this.#open.values()) request.dead = true;
  }

  /** Delivers nothing more for now and hears no requests; what settles meanwhile is in the journal. */
  pause(): void {
    this.#frozen = true;
  }

  openRequests(): OpenRequest[] {
    return [...this.#open.values()].filter(
      (request): request is OpenRequest => request.kind !== "cancel" && !request.dead,
    );
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get args(): Json {
    return this.#args;
  }

  #end(ended: Ended): void {
    if (this.#frozen) return;
    this.ended = ended;
    if (!this.#pumping) void this.#pump();
  }

  async #pump(): Promise<void> {
    if (this.#pumping || this.#frozen) return;
    this.#pumping = true;
    await quiescence();
    // What arrives in the very microtask in which the queue was found empty is not left lying.
    do await this.#deliverAll();
    while (this.#head < this.#queue.length && !this.#frozen);
    this.#pumping = false;
    if (!this.#frozen && !this.#replaying) this.#live.quiet();
  }

  async #deliverAll(): Promise<void> {
    let turnEnds = performance.now() + TURN_MS;
    while (this.#head < this.#queue.length && !this.#frozen) {
      const delivery = this.#queue[this.#head++] as Delivery;
      if (this.#head > 1024 && this.#head * 2 > this.#queue.length) {
        this.#queue = this.#queue.slice(this.#head);
        this.#head = 0;
      }
      this.#deliverOne(delivery);
      await quiescence();
      if (performance.now() > turnEnds) {
        await new Promise<void>((resolve) => setImmediate(resolve));
        turnEnds = performance.now() + TURN_MS;
      }
    }
  }

  #deliverOne(delivery: Delivery): void {
    const key = delivery.type === "outcome" ? visitKey(delivery.instance, delivery.visit) : delivery.key;
    const request = this.#open.get(key);
    // R-2f: what a program left open when it ended is cancelled without its asking.
    if (request === undefined && delivery.type === "cancelled" && this.ended !== undefined) return;
    if (request === undefined) {
      this.#mismatch(
        `the program no longer asks for ${JSON.stringify(delivery.type === "outcome" ? delivery.instance : key)}, which was recorded`,
      );
      return;
    }
    this.#open.delete(key);
    if (request.dead) return;
    request.dead = true;
    if (delivery.type === "woke") this.#woke.push(delivery.key);
    if (this.#replaying) this.#woke = [];
    if (delivery.type !== "outcome") request.resolve(null);
    else if (delivery.outcome.type === "succeeded") request.resolve(delivery.outcome.output);
    else request.reject(new StepFailure(delivery.outcome.failure));
  }

  #mismatch(message: string): void {
    if (this.#frozen) return;
    this.freeze();
    this.#live.nondeterminism(message);
  }

  /** How often the program has entered a place. */
  visits(instance: string): number {
    return this.#visits.get(instance) ?? 0;
  }

  /** Retries of the run's budget as it was created: a raised one changes no decision of the past. */
  get maxRetries(): number {
    return this.#live.maxRetries;
  }

  nextVisit(instance: string): number {
    const visit = (this.#visits.get(instance) ?? 0) + 1;
    this.#visits.set(instance, visit);
    return visit;
  }

  /** A step, wait or child: found again by (instance, visit) and what it was asked. */
  ask(
    branches: readonly BranchContext[],
    instance: string,
    input: Json,
    what:
      | { kind: "step"; spec: StepSpec }
      | { kind: "wait"; spec: WaitSpec }
      | { kind: "child"; definition: DefinitionRef },
  ): Promise<Json> {
    const visit = this.nextVisit(instance);
    const refusal = this.#recorded.decisions.get(refusalKey(instance, visit));
    if (refusal !== undefined) return Promise.reject(new StepFailure(refusal as unknown as Failure, { refused: true }));
    return new Promise((resolve, reject) => {
      if (this.#frozen) return;
      const base = {
        instance,
        visit,
        resumed: false,
        dead: false,
        branches,
        resolve,
        reject,
        input,
        inputHash: hashJson(input),
      };
      const request: StepRequest | WaitRequest | ChildRequest = { ...base, ...what };
      const key = visitKey(instance, visit);
      const record = this.#replayRecord(key);
      if (record === undefined) {
        this.#open.set(key, request);
        this.#whenLive(() => {
          if (!request.dead) this.#live.go(request);
        });
        return;
      }
      if (!this.#matches(record, request)) return;
      if (record.state === "cancelled") return;
      this.#open.set(key, request);
      if (record.state === "settled") return;
      request.resumed = true;
      this.#whenLive(() => {
        if (!request.dead) this.#live.go(request);
      }, "open");
    });
  }

  #replayRecord(key: string): VisitRecord | undefined {
    return this.#replaying ? this.#recorded.visits.get(key) : undefined;
  }

  #matches(record: VisitRecord, request: StepRequest | WaitRequest | ChildRequest): boolean {
    if (record.state === "skipped") {
      this.#mismatch(`"${record.instance}" was skipped before and is now asked for`);
      return false;
    }
    if (record.input_hash !== "" && record.input_hash !== request.inputHash) {
      this.#mismatch(`"${record.instance}" is asked for with another input than before`);
      return false;
    }
    return true;
  }

  #whenLive(act: () => void, what: Parked = "new"): void {
    if (this.#frozen || (this.#standingBy && what === "new")) return;
    if (this.#replaying) this.#parked.push({ act, what });
    else act();
  }

  skip(instance: string, reason: string): void {
    if (this.#frozen) return;
    const visit = this.nextVisit(instance);
    const record = this.#replayRecord(visitKey(instance, visit));
    if (record === undefined) this.#whenLive(() => this.#live.skip(instance, visit, reason));
    else if (record.state !== "skipped") this.#mismatch(`"${instance}" was asked for before and is now skipped`);
  }

  decide(key: string, compute: () => Json): Promise<Json> {
    const recorded = this.#recorded.decisions.get(key);
    if (recorded !== undefined) return Promise.resolve(recorded);
    return new Promise((resolve) => {
      this.#whenLive(() => {
        const value = compute();
        this.#live.decided(key, value);
        resolve(value);
      });
    });
  }

  async admit(key: string, items: number, leavesPerItem: number): Promise<void> {
    const recorded = this.#recorded.decisions.get(key);
    // What was admitted is recorded as null, which is an answer (R-2d).
    const refusal = recorded === undefined ? await this.#admitLive(key, items, leavesPerItem) : recorded;
    if (refusal !== null) throw new StepFailure(refusal as unknown as Failure);
  }

  #admitLive(key: string, items: number, leavesPerItem: number): Promise<Json> {
    return new Promise((resolve) => {
      const ask = (): void => {
        if (this.#frozen) return;
        const answer = this.#live.admit(items, leavesPerItem, ask);
        if (answer === "starved") return;
        const value = (answer ?? null) as unknown as Json;
        this.#live.decided(key, value);
        resolve(value);
        this.nudge();
      };
      this.#whenLive(ask);
    });
  }

  retry(branches: readonly BranchContext[], key: string, delayMs: number): Promise<void> {
    const refusal = this.#recorded.decisions.get(refusalKey(key, 1));
    if (refusal !== undefined) return Promise.reject(new StepFailure(refusal as unknown as Failure, { refused: true }));
    return new Promise<Json>((resolve, reject) => {
      if (this.#frozen) return;
      const request: RetryRequest = {
        kind: "retry",
        instance: key,
        key,
        visit: 1,
        resumed: false,
        dead: false,
        branches,
        resolve,
        reject,
        delayMs,
      };
      const dueAtMs = this.#recorded.retries.get(key);
      if (dueAtMs !== undefined) {
        request.dueAtMs = dueAtMs;
        // Without a delay it went on at once, live and now.
        if (delayMs === 0) return resolve(null);
        this.#open.set(key, request);
        if (!this.#recorded.woken.has(key)) this.#whenLive(() => request.dead || this.#live.go(request));
        return;
      }
      const ask = (): void => {
        if (request.dead || this.#frozen) return;
        const due = this.#live.now() + delayMs;
        const failure = this.#live.reserveRetry(key, due, ask);
        this.#open.set(key, request);
        if (failure === "starved") return;
        if (failure === undefined && delayMs > 0) {
          request.dueAtMs = due;
          return this.#live.go(request);
        }
        this.#open.delete(key);
        request.dead = true;
        if (failure === undefined) resolve(null);
        else reject(new StepFailure(failure, { refused: true }));
        this.nudge();
      };
      this.#whenLive(ask);
    }).then(() => undefined);
  }

  /** Whether the journal has work of this request open; a retry delay is none. */
  #isOpen(request: OpenRequest): boolean {
    if (request.kind === "retry") return false;
    if (!this.#replaying) return this.#live.isOpen(request);
    return this.#recorded.visits.get(visitKey(request.instance, request.visit))?.state === "open";
  }

  cancel(branches: readonly BranchContext[], key: string): Promise<void> {
    return new Promise<Json>((resolve, reject) => {
      if (this.#frozen) return;
      const targets = this.openRequests().filter((r) => r.branches.some((b) => branches.includes(b)));
      const request: CancelRequest = {
        kind: "cancel",
        instance: key,
        key,
        visit: 1,
        resumed: false,
        dead: false,
        branches: [],
        resolve,
        reject,
        targets,
      };
      const open = targets.filter((target) => this.#isOpen(target));
      // Whatever the branches still ask for or hear is theirs no longer.
      for (const target of targets) target.dead = true;
      for (const branch of branches) branch.closed = true;
      if (this.#replaying && this.#recorded.cancelled.has(key)) {
        this.#open.set(key, request);
        return;
      }
      if (open.length === 0) return resolve(null);
      this.#open.set(key, request);
      this.#whenLive(() => this.#live.go(request), "stop");
    }).then(() => undefined);
  }
}

/**
 * Resolves when the program can go no further: `nextTick` callbacks run once the microtask queue is empty. The
 * first `await` makes sure that we are in it.
 */
async function quiescence(): Promise<void> {
  await Promise.resolve();
  await new Promise<void>((resolve) => process.nextTick(resolve));
}

function asFailure(error: unknown): Failure {
  if (error instanceof StepFailure) return error.failure;
  return {
    code: "execution_failed",
    message: `the program failed: ${error instanceof Error ? error.message : String(error)}`,
    retryable: false,
  };
}
