// Frames from a body, and the following that drops what was seen and asks again for what is missing (RP-88).
import { expect, test } from "vitest";
import { followRun, readFrames } from "./event-stream.ts";
import { Transport } from "./transport.ts";

function bodyOf(...chunks: string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(new TextEncoder().encode(chunk));
      controller.close();
    },
  });
}

const event = (sequence: number, type = "phase", run_id = "r") =>
  `id: ${sequence}\nevent: ${type}\ndata: ${JSON.stringify({ run_id, sequence, at: "", type })}\n\n`;

test("frames come whole, whatever the chunks; comments and half frames are none", async () => {
  const text = `retry: 1000\n\n: hb\n\n${event(1)}data: a\ndata: b\n\nid: 9\ndata: half`;
  const seen: string[] = [];
  for await (const frame of readFrames(bodyOf(...text), () => undefined))
    seen.push(`${frame.id ?? "-"} ${frame.data.length}`);
  expect(seen).toEqual([`1 ${JSON.stringify({ run_id: "r", sequence: 1, at: "", type: "phase" }).length}`, "- 3"]);
});

/** Answers each stream with the next body and every other request with the run. */
function transport(
  bodies: readonly string[],
  asked: string[],
  run = { status: "running", last_sequence: 9 },
): Transport {
  const left = [...bodies];
  return new Transport({
    url: "http://127.0.0.1:1",
    token: "t",
    patience_ms: 2_000,
    fetch: (async (input: string | URL | Request, init?: RequestInit) => {
      const headers = new Headers(init?.headers);
      if (headers.get("accept") !== "text/event-stream") return Response.json(run);
      asked.push(headers.get("last-event-id") ?? "");
      const body = left.shift();
      if (body === undefined) throw new TypeError(`no more bodies for ${String(input)}`);
      return new Response(bodyOf(body));
    }) as typeof fetch,
  });
}

async function follow(
  bodies: readonly string[],
  asked: string[] = [],
  run?: { status: string; last_sequence: number },
): Promise<number[]> {
  const seen: number[] = [];
  for await (const { sequence } of followRun<{ run_id: string; sequence: number; type: string }>(
    transport(bodies, asked, run),
    { address: "/r", run_id: "r", since: 0, view: "public" },
  ))
    seen.push(sequence);
  return seen;
}

test("a cut asks again from the last one seen; what comes twice is dropped; a gap is asked for again", async () => {
  const asked: string[] = [];
  const seen = await follow(
    [
      event(1) + event(2),
      `${event(1)}${event(2)}${event(3)}`,
      event(5),
      `${event(4)}event: bye\ndata: {}\n\n`,
      event(5, "run_succeeded"),
    ],
    asked,
  );
  expect(seen).toEqual([1, 2, 3, 4, 5]);
  expect(asked).toEqual(["0", "2", "3", "3", "4"]);
});

test("an ended run that has nothing more to tell ends the following", async () => {
  expect(await follow([""], [], { status: "succeeded", last_sequence: 0 })).toEqual([]);
});

test("events of another run are refused", async () => {
  await expect(follow([event(1, "phase", "other")])).rejects.toMatchObject({ code: "internal" });
});

test("a server that stays away ends it with server_unavailable", async () => {
  await expect(follow([event(1)])).rejects.toMatchObject({ code: "server_unavailable" });
});
