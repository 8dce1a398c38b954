import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { RunEvent } from "./events.ts";
import { childRunId, dispatchId, eventLine, genesisHash, parseEvents, segmentHash } from "./journal.ts";
import { canonicalJson, type Json } from "./json.ts";
import { drawJournal, HEADER } from "./state.fixture.ts";

const SEED = { seed: 20260102, numRuns: 200 } as const;
const journals = fc.array(fc.nat({ max: 10_000 }), { minLength: 4, maxLength: 30 }).map(drawJournal);

interface Segment {
  readonly text: string;
  readonly hash: string;
}

/** Stores a journal as the writer does: in batches of these sizes, each chained to the one before. */
function chain(events: readonly RunEvent[], sizes: readonly number[]): Segment[] {
  const segments: Segment[] = [];
  let tip = genesisHash(HEADER);
  for (let at = 0, n = 0; at < events.length; n++) {
    const size = 1 + ((sizes[n % sizes.length] ?? 0) % 4);
    const text = events
      .slice(at, at + size)
      .map(eventLine)
      .join("");
    tip = segmentHash(tip, text);
    segments.push({ text, hash: tip });
    at += size;
  }
  return segments;
}

/** Index of the first segment that does not follow from what is before it; -1 for a whole chain. */
function firstBroken(segments: readonly Segment[]): number {
  let tip = genesisHash(HEADER);
  for (const [index, segment] of segments.entries()) {
    if (segmentHash(tip, segment.text) !== segment.hash) return index;
    tip = segment.hash;
  }
  return -1;
}

test("R-23 an event line is the canonical text of the event, whatever fields it has and in whatever order", () => {
  const extra = fc.record(
    {
      woke: fc.array(fc.string(), { maxLength: 2 }),
      input: fc.jsonValue(),
      cost_micros: fc.constantFrom(null, 0, 7),
      grant: fc.option(fc.string(), { nil: undefined }),
      output_ref: fc.record({ sha256: fc.string(), bytes: fc.nat() }),
      ["__proto__x"]: fc.boolean(),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(journals, extra, fc.boolean(), (events, more, before) => {
      for (const event of events) {
        const whole = (before ? { ...more, ...event } : { ...event, ...more }) as unknown as RunEvent;
        expect(eventLine(whole)).toBe(`${canonicalJson(whole as unknown as Json)}\n`);
      }
    }),
    SEED,
  );
});

describe("R-23 the chain", () => {
  test("an untouched journal reads back as it was written, however it was cut into segments", () => {
    fc.assert(
      fc.property(journals, fc.array(fc.nat(), { minLength: 1, maxLength: 5 }), (events, sizes) => {
        const segments = chain(events, sizes);
        expect(firstBroken(segments)).toBe(-1);
        expect(segments.flatMap((segment) => parseEvents(segment.text))).toEqual(events);
      }),
      SEED,
    );
  });

  test("one changed character is found in its segment", () => {
    fc.assert(
      fc.property(journals, fc.nat(), fc.nat(), (events, which, where) => {
        const segments = chain(events, [2]);
        const at = which % segments.length;
        const { text, hash } = segments[at] as Segment;
        const place = where % text.length;
        const changed = text.slice(0, place) + (text[place] === "0" ? "1" : "0") + text.slice(place + 1);
        expect(firstBroken(segments.with(at, { text: changed, hash }))).toBe(at);
      }),
      SEED,
    );
  });

  test("a segment that is left out, moved or taken from another run breaks the chain", () => {
    const events = Array.from(
      { length: 4 },
      (_, i): RunEvent => ({ sequence: i + 1, at_ms: i, type: "decision", key: "k", value: i }),
    );
    const segments = chain(events, [0]);
    expect(segments).toHaveLength(4);
    expect(firstBroken(segments.toSpliced(1, 1))).toBe(1);
    const [first, second, third, ...rest] = segments as [Segment, Segment, Segment, ...Segment[]];
    expect(firstBroken([first, third, second, ...rest])).toBe(1);
    const foreign = segmentHash(genesisHash({ ...HEADER, run_id: "another" }), first.text);
    expect(firstBroken([{ ...first, hash: foreign }, second, third, ...rest])).toBe(0);
  });

  test("the stored form is what the format says, byte for byte", () => {
    const header = { run_id: "run-1", bundle_hash: "b".repeat(64), args_hash: "a".repeat(64) };
    const genesis = genesisHash(header);
    expect(genesis).toBe("6d1684feae4c5689db345feda0a1f4918bf722e6d4e01fd5d41897cbd6481354");
    const queued = eventLine({ type: "run_queued", sequence: 1, at_ms: 1 });
    expect(queued).toBe('{"at_ms":1,"sequence":1,"type":"run_queued"}\n');
    const cancelled = eventLine({ type: "run_cancelled", sequence: 2, at_ms: 2, reason: "é\u0000\n" });
    expect(cancelled).toBe('{"at_ms":2,"reason":"é\\u0000\\n","sequence":2,"type":"run_cancelled"}\n');
    const first = segmentHash(genesis, queued);
    expect(first).toBe("72dd1a50d61bc36df2304303203f2df9fcf078a7921a0695bb900861e9958e67");
    expect(segmentHash(first, cancelled)).toBe("6c771dd2f86aae58c7a2f034998232af54bafeffb9f07aa4ea2e431a8415cdcf");
  });

  test("the genesis hash is of run, parent, bundle and args, and of nothing else", () => {
    const base = genesisHash(HEADER);
    for (const change of [{ run_id: "x" }, { parent_run_id: "x" }, { bundle_hash: "x" }, { args_hash: "x" }])
      expect(genesisHash({ ...HEADER, ...change })).not.toBe(base);
    for (const change of [{ session_id: "x" }, { args: [1] }, { created_at_ms: 9 }, { durability: "strict" as const }])
      expect(genesisHash({ ...HEADER, ...change })).toBe(base);
  });
});

describe("event lines", () => {
  test("C21 an event is one line whatever its texts hold, and reads back as it was", () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: "binary" }), (value) => {
        const event: RunEvent = {
          sequence: 1,
          at_ms: 2,
          type: "decision",
          key: "k\n\u0000\u2028",
          value: value as Json,
        };
        const line = eventLine(event);
        expect(line.indexOf("\n")).toBe(line.length - 1);
        // -0 is not a stored value: it is 0 from its entry on.
        expect(parseEvents(line + line)).toEqual(JSON.parse(JSON.stringify([event, event])));
      }),
      SEED,
    );
  });

  test("an absent field is left out, not written as null", () => {
    const event = { sequence: 1, at_ms: 1, type: "run_cancelled", reason: undefined } as unknown as RunEvent;
    expect(eventLine(event)).toBe('{"at_ms":1,"sequence":1,"type":"run_cancelled"}\n');
  });

  test("a line that is torn is refused", () => {
    expect(() => parseEvents('{"sequence":1}\n{"sequ')).toThrow(SyntaxError);
    expect(parseEvents("")).toEqual([]);
  });
});

describe("R-24, R-20 ids that follow from their place", () => {
  test("a dispatch id is SHA-256 of run, instance and attempt with NUL between", () => {
    expect(dispatchId("run-1", "each@root[3]", 2)).toBe(
      "5c506c28c4c1de683a6ff729db8667ff06502b0fd633e76877efb8b630813e26",
    );
    const ids = [
      dispatchId("r", "a", 1),
      dispatchId("r", "a", 2),
      dispatchId("r", "b", 1),
      dispatchId("ra", "", 1),
      dispatchId("r", "a1", 1),
    ];
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("a child's run id is a UUIDv8 that a repeat finds again", () => {
    expect(childRunId("root", "parent", "each@root[3]", 2)).toBe("d98fe3fb-2043-8bce-9508-cf0355f8df06");
    fc.assert(
      fc.property(
        fc.uuid(),
        fc.uuid(),
        fc.string(),
        fc.integer({ min: 1, max: 9 }),
        (root, parent, instance, attempt) => {
          const id = childRunId(root, parent, instance, attempt);
          expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
          const hex = createHash("sha256").update(`${root}\0${parent}\0${instance}\0${attempt}`).digest("hex");
          expect(id.slice(0, 8)).toBe(hex.slice(0, 8));
          expect(childRunId(root, parent, instance, attempt + 1)).not.toBe(id);
        },
      ),
      SEED,
    );
  });
});
