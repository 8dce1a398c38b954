/**
 * Following a run over HTTP: frames of an event stream, and the following that outlives connections and servers.
 * What is yielded is the journal's order without a gap or a repeat, because a frame counts only when it is the next.
 */
import { HoldfastError } from "../domain/errors.ts";
import { pause, problemOf, type Transport } from "./transport.ts";

export interface EventFrame {
  readonly id?: string;
  readonly event?: string;
  readonly data: string;
}

/** Longest frame that is taken in: an event holds values up to 256 KiB inline, and large ones are put back in place. */
const MAX_FRAME = 64 * 1024 * 1024;

/** Frames of a body, in order. A body that ends within a frame ends before it. @throws HoldfastError `too_large` */
export async function* readFrames(body: ReadableStream<Uint8Array>, touched: () => void): AsyncGenerator<EventFrame> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      touched();
      rest += decoder.decode(value, { stream: true });
      if (rest.length > MAX_FRAME)
        throw new HoldfastError(
          "too_large",
          "Cannot follow: one event is larger than 64 MiB; read the events by pages",
        );
      const frames = rest.split("\n\n");
      rest = frames.pop() as string;
      for (const frame of frames) {
        const read = readFrame(frame);
        if (read !== undefined) yield read;
      }
    }
  } finally {
    // Leaving early ends the connection; a body that failed is gone already.
    void reader.cancel().catch(() => undefined);
  }
}

function readFrame(text: string): EventFrame | undefined {
  const fields = new Map<string, string>();
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    fields.set(name, name === "data" && fields.has("data") ? `${fields.get("data")}\n${value}` : value);
  }
  const data = fields.get("data");
  if (data === undefined) return undefined;
  const id = fields.get("id");
  const event = fields.get("event");
  return { data, ...(id === undefined ? {} : { id }), ...(event === undefined ? {} : { event }) };
}

interface Sequenced {
  readonly run_id: string;
  readonly sequence: number;
  readonly type: string;
}

const TERMINAL: ReadonlySet<string> = new Set(["run_succeeded", "run_failed", "run_cancelled"]);
const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 2_000;

export interface FollowRequest {
  /** Address of the run. */
  readonly address: string;
  readonly run_id: string;
  readonly since: number;
  readonly view: "public" | "operator";
  readonly signal?: AbortSignal;
}

/** Every event after `since`, once, in order, over cuts and restarts, until the run has ended. */
export async function* followRun<T extends Sequenced>(transport: Transport, request: FollowRequest): AsyncGenerator<T> {
  let last = request.since;
  let backoff = FIRST_BACKOFF_MS;
  let aliveAt = performance.now();
  while (request.signal?.aborted !== true) {
    let failure: unknown = new HoldfastError(
      "server_unavailable",
      "Cannot follow: the server ended the stream; it is away or restarting",
    );
    try {
      for await (const event of oneConnection<T>(transport, request, last)) {
        aliveAt = performance.now();
        backoff = FIRST_BACKOFF_MS;
        last = event.sequence;
        yield event;
        // The reader may have taken its time: the server was not away meanwhile.
        aliveAt = performance.now();
        if (TERMINAL.has(event.type)) return;
      }
      if (await hasEnded(transport, request, last)) return;
      aliveAt = performance.now();
    } catch (error) {
      if (isAborted(request.signal)) return;
      if (
        HoldfastError.is(error) &&
        error.code !== "server_unavailable" &&
        error.code !== "storage_unavailable" &&
        error.code !== "rate_limited"
      )
        throw error;
      failure = error;
    }
    if (performance.now() - aliveAt > transport.patienceMs) throw transport.unreachable(failure);
    await pause(backoff, request.signal);
    backoff = Math.min(MAX_BACKOFF_MS, backoff * 2);
  }
}

/** Asked anew after every wait, which the type checker cannot know. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted ?? false;
}

async function* oneConnection<T extends Sequenced>(
  transport: Transport,
  request: FollowRequest,
  since: number,
): AsyncGenerator<T> {
  const cut = new AbortController();
  const leave = (): void => cut.abort();
  request.signal?.addEventListener("abort", leave, { once: true });
  // No sign of life: the connection is dead though nobody has said so.
  let timer = setTimeout(leave, transport.silenceMs);
  const touched = (): void => {
    clearTimeout(timer);
    timer = setTimeout(leave, transport.silenceMs);
  };
  try {
    const answer = await transport.once(
      `${request.address}/events`,
      {
        query: { view: request.view },
        headers: { Accept: "text/event-stream", "Last-Event-ID": String(since) },
        signal: cut.signal,
      },
      undefined,
    );
    if (!answer.ok) throw await problemOf(answer);
    if (answer.body === null) return;
    let last = since;
    for await (const frame of readFrames(answer.body, touched)) {
      if (frame.id === undefined) continue;
      const event = checked<T>(frame, request.run_id);
      // RP-88: what was seen is dropped; a gap is no answer, the place is asked for again.
      if (event.sequence <= last) continue;
      if (event.sequence !== last + 1) return;
      last = event.sequence;
      yield event;
      // Whoever reads slowly is no sign of a dead server.
      touched();
    }
  } finally {
    clearTimeout(timer);
    request.signal?.removeEventListener("abort", leave);
    cut.abort();
  }
}

function checked<T extends Sequenced>(frame: EventFrame, run_id: string): T {
  const event = JSON.parse(frame.data) as T;
  if (event.run_id !== run_id || !Number.isSafeInteger(event.sequence) || String(event.sequence) !== frame.id)
    throw new HoldfastError(
      "internal",
      "Cannot follow: the server sent an event that is not of this run; check what answers at this address",
    );
  return event;
}

/** A stream that ends with nothing to tell is that of a run which had ended. */
async function hasEnded(transport: Transport, request: FollowRequest, last: number): Promise<boolean> {
  const run = await transport.json<{ status: string; last_sequence: number }>(
    request.address,
    request.signal === undefined ? {} : { signal: request.signal },
  );
  return ["succeeded", "failed", "cancelled"].includes(run.status) && run.last_sequence <= last;
}
