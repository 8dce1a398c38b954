/**
 * Event streams (RP-87). A stream only ever pulls: the next event is read when the reader has taken the one before,
 * so a slow reader costs one page of the journal and never a queue, and whatever it missed meanwhile it reads from
 * the journal. Subscribing before replaying, and telling each sequence once, is the follower's part.
 */
import type { ServerContext } from "./options.ts";
import { refusal } from "./problem.ts";
import type { Answer } from "./routes.ts";

export interface Frame {
  /** Where to go on from after a cut. */
  readonly id?: string;
  readonly event?: string;
  readonly data: unknown;
}

const encoder = new TextEncoder();
const open = new WeakMap<ServerContext, { count: number }>();

export function wantsStream(request: Request): boolean {
  return (request.headers.get("accept") ?? "")
    .split(",")
    .some((type) => type.split(";", 1)[0]?.trim().toLowerCase() === "text/event-stream");
}

/** One line a field: a newline within would be another field. Data is JSON, which has none. */
function frameText({ id, event, data }: Frame): string {
  const line = (text: string): string => text.replace(/[\r\n\0]/g, " ");
  return `${id === undefined ? "" : `id: ${line(id)}\n`}${event === undefined ? "" : `event: ${line(event)}\n`}data: ${JSON.stringify(data)}\n\n`;
}

/**
 * @param frames begins when the first byte is asked for; `signal` aborts when the reader goes or the server stops
 * @throws HoldfastError `server_unavailable` while stopping, `rate_limited` with too many streams open
 */
export function stream(
  context: ServerContext,
  request: Request,
  frames: (signal: AbortSignal) => AsyncIterable<Frame>,
): Answer {
  if (context.stopping.aborted)
    throw refusal("server_unavailable", "Cannot open a stream: the server is stopping; come back to the next one");
  const counter = open.get(context) ?? { count: 0 };
  open.set(context, counter);
  if (counter.count >= context.bounds.streams)
    throw refusal("rate_limited", `Cannot open a stream: ${context.bounds.streams} are open; close some or wait`);
  counter.count++;
  context.metrics.streamOpened();
  const gone = new AbortController();
  const leave = (): void => gone.abort();
  request.signal.addEventListener("abort", leave, { once: true });
  context.stopping.addEventListener("abort", leave, { once: true });
  let ended = false;
  const end = (): void => {
    if (ended) return;
    ended = true;
    counter.count--;
    context.metrics.streamClosed();
    gone.abort();
    request.signal.removeEventListener("abort", leave);
    context.stopping.removeEventListener("abort", leave);
  };
  if (request.signal.aborted) end();
  const body = new ReadableStream<Uint8Array>(new FrameSource(context, frames, gone.signal, end), { highWaterMark: 0 });
  return {
    status: 200,
    body,
    headers: {
      "Content-Type": "text/event-stream; charset=utf-8",
      "Cache-Control": "no-store",
      "X-Accel-Buffering": "no",
    },
  };
}

class FrameSource {
  readonly #context: ServerContext;
  readonly #frames: AsyncIterator<Frame>;
  readonly #signal: AbortSignal;
  readonly #end: () => void;
  #begun = false;
  #next: Promise<IteratorResult<Frame>> | undefined;

  constructor(
    context: ServerContext,
    frames: (signal: AbortSignal) => AsyncIterable<Frame>,
    signal: AbortSignal,
    end: () => void,
  ) {
    this.#context = context;
    this.#frames = frames(signal)[Symbol.asyncIterator]();
    this.#signal = signal;
    this.#end = end;
  }

  async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    if (!this.#begun) {
      this.#begun = true;
      // RP-87's reconnection time; it also sends the head at once, so that the reader knows it is connected.
      controller.enqueue(encoder.encode("retry: 1000\n\n"));
      return;
    }
    this.#next ??= this.#frames.next();
    // A failure is met below or, when the stream is left first, by nobody.
    this.#next.catch(() => undefined);
    try {
      const next = await this.#nextOr(this.#context.bounds.heartbeat_ms);
      if (next === "silence") return controller.enqueue(encoder.encode(": hb\n\n"));
      if (next === "left") return this.#bye(controller);
      this.#next = undefined;
      if (next.done === true) return this.#close(controller);
      controller.enqueue(encoder.encode(frameText(next.value)));
    } catch {
      // The journal cannot be read now: the reader comes back after `retry` and goes on from its last id.
      this.#close(controller);
    }
  }

  cancel(): void {
    this.#end();
  }

  #bye(controller: ReadableStreamDefaultController<Uint8Array>): void {
    if (this.#context.stopping.aborted) controller.enqueue(encoder.encode("event: bye\ndata: {}\n\n"));
    this.#close(controller);
  }

  #close(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#end();
    controller.close();
  }

  /** An event that is there goes first, even when the reader is about to be sent away. */
  #nextOr(silenceMs: number): Promise<IteratorResult<Frame> | "silence" | "left"> {
    const next = this.#next as Promise<IteratorResult<Frame>>;
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        this.#signal.removeEventListener("abort", left);
      };
      const left = (): void => {
        settle();
        resolve("left");
      };
      const timer = setTimeout(() => {
        settle();
        resolve("silence");
      }, silenceMs);
      next.then(
        (result) => {
          settle();
          resolve(result);
        },
        (error: unknown) => {
          settle();
          reject(error as Error);
        },
      );
      if (this.#signal.aborted) left();
      else this.#signal.addEventListener("abort", left, { once: true });
    });
  }
}
