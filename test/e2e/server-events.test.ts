// Event streams over real sockets: nothing lost, nothing twice, whatever is cut, slow or restarted (RP-87, C35).
import { connect as connectSocket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import { RUNS, Served } from "./server.fixture.ts";

interface Frame {
  readonly id: number;
  readonly event: string;
}

let served: Served;
beforeEach(async () => {
  served = await new Served({ bounds: { heartbeat_ms: 100 } }).start();
});
afterEach(async () => {
  await served.remove();
});

/** mulberry32: the same cuts on every machine. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** One connection read until `most` events, its end, or for ever; the connection is cut when it is left. */
async function* read(
  run_id: string,
  since: number,
  options: { signal?: AbortSignal; token?: string } = {},
): AsyncGenerator<Frame & { text: string }> {
  const cut = new AbortController();
  const signal = options.signal === undefined ? cut.signal : AbortSignal.any([cut.signal, options.signal]);
  try {
    const answer = await served.fetch(`${RUNS}/${run_id}/events`, {
      headers: { Accept: "text/event-stream", "Last-Event-ID": String(since) },
      signal,
      ...(options.token === undefined ? {} : { token: options.token }),
    });
    if (answer.status !== 200 || answer.body === null) return;
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
      const frames = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
      rest = frames.pop() as string;
      for (const text of frames)
        yield {
          id: Number(/^id: (\d+)$/m.exec(text)?.[1] ?? Number.NaN),
          event: /^event: (\S+)$/m.exec(text)?.[1] ?? "",
          text,
        };
    }
  } finally {
    cut.abort();
  }
}

describe("a stream", () => {
  test("begins with retry, tells each event once with its id, shows signs of life, ends after the terminal event", async () => {
    const run_id = await served.startRun("hold");
    const seen: string[] = [];
    const ids: number[] = [];
    for await (const frame of read(run_id, 0)) {
      seen.push(frame.text);
      if (!Number.isNaN(frame.id)) ids.push(frame.id);
      if (frame.text === ": hb") served.release();
    }
    expect(seen[0]).toBe("retry: 1000");
    expect(seen.filter((text) => text === ": hb").length).toBeGreaterThan(0);
    expect(ids).toEqual(ids.map((_, i) => i + 1));
    expect(seen.at(-1)).toContain("event: run_succeeded");
    const again: number[] = [];
    for await (const frame of read(run_id, ids.length)) if (!Number.isNaN(frame.id)) again.push(frame.id);
    expect(again).toEqual([]);
  });

  test("Last-Event-ID wins over since; neither may be nonsense", async () => {
    const run_id = await served.startRun("quick");
    await served.holdfast.runs.drive(run_id);
    const answer = await served.fetch(`${RUNS}/${run_id}/events?since=1`, {
      headers: { Accept: "text/event-stream", "Last-Event-ID": "4" },
    });
    expect((await answer.text()).match(/^id: (\d+)$/gm)?.[0]).toBe("id: 5");
    for (const id of ["-1", "x", "1e3", "99999999999999999999"]) {
      const bad = await served.fetch(`${RUNS}/${run_id}/events`, {
        headers: { Accept: "text/event-stream", "Last-Event-ID": id },
      });
      expect([id, bad.status]).toEqual([id, 400]);
    }
  });

  test("of a session tells changes of every run", async () => {
    const stop = new AbortController();
    const answer = await served.fetch("/api/v1/sessions/default/events", {
      headers: { Accept: "text/event-stream" },
      signal: stop.signal,
    });
    const client = answer.body as unknown as AsyncIterable<Uint8Array>;
    const run_id = await served.startRun("quick");
    let text = "";
    for await (const chunk of client) {
      text += new TextDecoder().decode(chunk);
      if (text.includes(run_id)) break;
    }
    stop.abort();
    const data = /^data: (.*)$/m.exec(text)?.[1] as string;
    expect(JSON.parse(data)).toEqual({
      version: 3,
      run_id,
      event_sequence: expect.any(Number) as number,
      changed_at_ms: expect.any(Number) as number,
    });
  });

  test("says bye at a stop, new ones are refused, and the run is left to be claimed", async () => {
    const run_id = await served.startRun("hold");
    const texts: string[] = [];
    const reading = (async () => {
      for await (const frame of read(run_id, 0)) texts.push(frame.text);
    })();
    while (texts.length < 3) await new Promise((resolve) => setImmediate(resolve));
    const begun = performance.now();
    await served.stop();
    await reading;
    expect(texts.at(-1)).toContain("event: bye");
    expect(performance.now() - begun).toBeLessThan(3_000);
    await served.start();
    served.release();
    expect((await served.holdfast.runs.drive(run_id)).status).toBe("succeeded");
  });
});

test("C35 five cuts before anything new arrives lose nothing", async () => {
  const run_id = await served.startRun("hold");
  const seen: number[] = [];
  const take = async (most: number) => {
    for await (const frame of read(run_id, seen.at(-1) ?? 0)) {
      if (!Number.isNaN(frame.id)) seen.push(frame.id);
      if (seen.length >= most || frame.text === ": hb") return;
    }
  };
  await take(3);
  for (let i = 0; i < 5; i++) await take(seen.length);
  expect(seen).toEqual([1, 2, 3]);
  served.release();
  await take(Number.POSITIVE_INFINITY);
  const total = (await served.holdfast.runs.get(run_id)).last_sequence;
  expect(seen).toEqual(Array.from({ length: total }, (_, i) => i + 1));
});

test("1,000 events, 50 cuts, two slow readers, a restart in between: each saw 1 … N once, in order", async () => {
  const items = Array.from({ length: 260 }, (_, i) => i);
  const run_id = await served.startRun("many", { items });
  const chance = random(20_260);
  const ended = (event: string) => event.startsWith("run_succeeded");

  async function cutReader(): Promise<number[]> {
    const seen: number[] = [];
    let cuts = 0;
    for (;;) {
      const most = cuts < 50 ? 1 + Math.floor(chance() * 25) : Number.POSITIVE_INFINITY;
      let taken = 0;
      try {
        for await (const frame of read(run_id, seen.at(-1) ?? 0)) {
          if (Number.isNaN(frame.id)) continue;
          seen.push(frame.id);
          if (ended(frame.event)) {
            expect(cuts).toBeGreaterThanOrEqual(50);
            return seen;
          }
          if (++taken >= most) break;
        }
      } catch {
        // The server is away for a moment.
      }
      cuts++;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  async function slowReader(every: number): Promise<number[]> {
    const seen: number[] = [];
    const client = connect({
      url: served.server.url,
      token: served.token(`slow-${every}`, "operator"),
      patience_ms: 20_000,
      fetch: (input, init) => fetch(String(input).replace(/:\d+\//, `:${served.port}/`), init),
    });
    for await (const event of client.runs.follow(run_id)) {
      seen.push(event.sequence);
      if (event.sequence % every === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return seen;
  }
  const readers = [cutReader(), slowReader(7), slowReader(20)];
  const before = process.memoryUsage().heapUsed;
  while ((await served.holdfast.runs.get(run_id)).usage.steps === 0)
    await new Promise((resolve) => setImmediate(resolve));
  await served.stop();
  await served.start();
  served.release();
  const seen = await Promise.all(readers);
  const total = (await served.holdfast.runs.get(run_id)).last_sequence;
  expect(total).toBeGreaterThan(1_000);
  const wanted = Array.from({ length: total }, (_, i) => i + 1);
  for (const each of seen) expect(each).toEqual(wanted);
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(200 * 1024 * 1024);
}, 60_000);

test("a reader that takes nothing holds up nobody and costs no memory", async () => {
  const items = Array.from({ length: 250 }, (_, i) => i);
  const run_id = await served.startRun("many", { items });
  const stuck = Array.from({ length: 20 }, () => {
    const socket = connectSocket(served.port, "127.0.0.1");
    socket.write(
      `GET ${RUNS}/${run_id}/events HTTP/1.1\r\nHost: 127.0.0.1:${served.port}\r\nAuthorization: Bearer ${served.server.token}\r\nAccept: text/event-stream\r\n\r\n`,
    );
    socket.pause();
    return socket;
  });
  served.release();
  expect((await served.holdfast.runs.drive(run_id)).status).toBe("succeeded");
  const { last_sequence } = await served.holdfast.runs.get(run_id);
  const ids: number[] = [];
  for await (const frame of read(run_id, 0)) if (!Number.isNaN(frame.id)) ids.push(frame.id);
  expect(ids.length).toBe(last_sequence);
  for (const socket of stuck) socket.destroy();
});
