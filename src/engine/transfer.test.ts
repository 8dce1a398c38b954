/** Export and import: what leaves comes back byte for byte, and what was altered does not. */
import { expect, test } from "vitest";
import type { Json } from "../domain/json.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { fixture, ok } from "./fixture.ts";
import { exportLines, importJournal } from "./transfer.ts";

const SESSION = "00000000-0000-7000-8000-000000000001";
const big = "x".repeat(300 * 1024);

async function exported(): Promise<{ lines: string[]; runId: string }> {
  const store = await openSqliteStore({ path: ":memory:" });
  const f = await fixture({ store, tools: { Read: { run: ({ step_id }) => ok(step_id === "a" ? { big } : 1) } } });
  const step = (id: string) => ({ id, type: "tool", tool: "Read", capabilities: ["read"] });
  const state = await f.run({
    steps: [step("a"), step("b")],
    plan: {
      type: "sequence",
      nodes: [
        { type: "step", step: "a" },
        { type: "step", step: "b" },
      ],
    },
  });
  const record = await store.getRun(state.header.run_id);
  if (record === undefined) throw new Error("no run");
  const bundle = JSON.parse(Buffer.from((await store.getBundle(record.bundle_hash)) ?? []).toString()) as Json;
  let text = "";
  for await (const chunk of exportLines(store, record, bundle)) text += chunk;
  return { lines: text.split("\n").filter((line) => line !== ""), runId: record.run_id };
}

async function* feed(lines: readonly string[]): AsyncGenerator<string> {
  yield* lines;
}

async function target() {
  const store = await openSqliteStore({ path: ":memory:" });
  await fixture({ store });
  return store;
}

test("R-23 a run comes back with the same journal, values and state", async () => {
  const { lines, runId } = await exported();
  const store = await target();
  const imported = await importJournal(store, feed(lines), SESSION);
  expect(imported).toMatchObject({ run_id: runId, runs: 1, truncated_tail: false });
  const record = await store.getRun(runId);
  expect(record).toMatchObject({ status: "succeeded", last_sequence: imported.events });
  let again = "";
  if (record !== undefined) for await (const chunk of exportLines(store, record, undefined)) again += chunk;
  expect(
    again
      .split("\n")
      .filter((line) => line !== "")
      .slice(1),
  ).toEqual(lines.slice(1));
  await expect(importJournal(store, feed(lines), SESSION)).rejects.toMatchObject({ code: "conflict" });
});

test("SC-23 a torn last line is left out, and import says so", async () => {
  const { lines, runId } = await exported();
  const store = await target();
  const torn = [...lines.slice(0, -1), (lines.at(-1) as string).slice(0, 20)];
  const imported = await importJournal(store, feed(torn), SESSION);
  expect(imported.truncated_tail).toBe(true);
  const whole = lines.filter((line) => line.startsWith('{"segment"')).at(-2);
  expect((await store.getRun(runId))?.last_sequence).toBe(
    (JSON.parse(whole as string) as { segment: { last: number } }).segment.last,
  );
});

test("R-23 an altered event, value or definition is refused and writes nothing", async () => {
  const { lines, runId } = await exported();
  const event = lines.findIndex((line) => line.includes('"step_completed"'));
  const artifact = lines.findIndex((line) => line.startsWith('{"artifact"'));
  const alterations: [number, string, string][] = [
    [event, '"step_completed"', '"step_completed" '],
    [artifact, "xxx", "xyx"],
    [0, '"workflow_id":"flow"', '"workflow_id":"other"'],
  ];
  for (const [at, from, to] of alterations.slice(0, 2)) {
    const store = await target();
    const altered = lines.map((line, i) => (i === at ? line.replace(from, to) : line));
    await expect(importJournal(store, feed(altered), SESSION)).rejects.toMatchObject({ code: "input" });
    expect(await store.getRun(runId)).toBeUndefined();
  }
});
