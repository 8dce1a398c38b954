// A call that asks while it is open: what a client of the 2025 revisions sees, and what its person does.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioServerTransport as Lines } from "@modelcontextprotocol/sdk/server/stdio.js";
import { ElicitRequestSchema, type ElicitResult } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Desk } from "../../test/fixtures/mcp-desk.ts";
import type { JsonObject } from "../domain/json.ts";
import type { StdioOptions } from "./index.ts";

let desk: Desk;
beforeEach(async () => {
  desk = await Desk.open();
});
afterEach(() => desk.close());

type Progress = (told: { progress: number }) => void;
type Form = { readonly message: string; readonly requestedSchema: JsonObject };
interface OldAnswer {
  readonly content: readonly { readonly text: string }[];
  readonly structuredContent: JsonObject;
  readonly isError?: boolean;
}

/** A client of 2025-11-25; `fill` stands for its person. `takenBack` resolves when the server takes a form back. */
async function connect(
  fill: ((form: Form, takenBack: Promise<void>) => ElicitResult | Promise<ElicitResult>) | undefined,
  options: StdioOptions = {},
): Promise<(name: string, how?: { signal?: AbortSignal; onprogress?: Progress }) => Promise<OldAnswer>> {
  const { input, output } = desk.serve(options);
  const client = new Client({ name: "old", version: "1" }, { capabilities: { elicitation: {} } });
  let takeBack: () => void = () => undefined;
  const takenBack = new Promise<void>((resolve) => {
    takeBack = resolve;
  });
  if (fill !== undefined)
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => fill(params as unknown as Form, takenBack));
  // Lines of JSON are the same in both directions.
  const lines = new Lines(output, input);
  await client.connect(lines as never);
  // Read from the wire: this client itself overlooks what is taken back of the request with the id 0.
  const hear = lines.onmessage;
  lines.onmessage = (message) => {
    if ("method" in message && message.method === "notifications/cancelled") takeBack();
    hear?.(message);
  };
  return async (name, how = {}) =>
    (await client.callTool({ name, arguments: {} }, undefined, how)) as unknown as OldAnswer;
}

const accept = (content: JsonObject): ElicitResult => ({ action: "accept", content: content as never });

describe("2025-11-25", () => {
  test("R-40 the form is put while the call is open, and what does not fit is put again", async () => {
    const put: string[] = [];
    const call = await connect(({ message }) => {
      put.push(message);
      return accept({ name: put.length === 1 ? "UP" : "mine" });
    });
    const done = await call("workflow__named");
    expect(done.structuredContent).toEqual({ name: "mine" });
    expect(put).toEqual(["Whose?", expect.stringContaining("Cannot answer")]);
    expect(await desk.runs()).toBe(1);
  });

  test("progress is told once and in order through all rounds", async () => {
    const told: number[] = [];
    const call = await connect(() => accept({ value: 1 }));
    await call("workflow__long", { onprogress: ({ progress }) => told.push(progress) });
    expect(told.length).toBeGreaterThan(2);
    expect(told).toEqual([...new Set(told)].sort((a, b) => a - b));
  });

  test("two at once; one that the client refuses leaves the other's answer standing", async () => {
    const call = await connect(({ message }) => {
      if (message === "Second?") throw new Error("no such form here");
      return accept({ value: 1 });
    });
    const ended = await call("workflow__two");
    expect(ended.isError ?? false).toBe(false);
    expect(ended.structuredContent).toMatchObject({ status: "suspended" });
    const { waits } = await desk.holdfast.runs.inspect(ended.structuredContent.run_id as string, "mcp");
    expect(waits.map(({ step_id }) => step_id)).toEqual(["second"]);
  });

  test("declined, refused by the client, and left open too long: the sentence with the run's id, never an error", async () => {
    const never = async (_: Form, takenBack: Promise<void>): Promise<ElicitResult> => {
      await takenBack;
      return { action: "cancel" };
    };
    for (const fill of [() => ({ action: "decline" }) as const, undefined, never]) {
      const call = await connect(fill, { maxFormMs: fill === never ? 50 : 60_000 });
      const ended = await call("workflow__named");
      expect(ended.isError ?? false).toBe(false);
      expect(ended.structuredContent).toMatchObject({ status: "suspended" });
      expect(ended.content[0]?.text).toContain("call workflow_wait");
    }
  });

  test("a form that is answered elsewhere is taken back, and the call goes on", async () => {
    let answered: Promise<unknown> = Promise.resolve();
    const call = await connect(async (_, takenBack) => {
      answered = desk.answerFirst({ name: "first" });
      await takenBack;
      return { action: "cancel" };
    });
    expect((await call("workflow__named")).structuredContent).toEqual({ name: "first" });
    await answered;
  });

  test("a call that is given up takes its form back, and the run stays", async () => {
    const left = new AbortController();
    let gone: Promise<void> | undefined;
    const call = await connect(async (_, takenBack) => {
      gone = takenBack;
      left.abort();
      await takenBack;
      return { action: "cancel" };
    });
    await expect(call("workflow__named", { signal: left.signal })).rejects.toThrow();
    await gone;
    expect((await desk.holdfast.runs.list({ session: "mcp" })).runs).toMatchObject([{ status: "suspended" }]);
  });
});
