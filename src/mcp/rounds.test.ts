// A call that asks in between, in the revision 2026-07-28: every message that a client sends and gets.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Desk } from "../../test/fixtures/mcp-desk.ts";
import { type Answer, ScriptedPeer } from "../../test/fixtures/mcp-peer.ts";
import type { JsonObject } from "../domain/json.ts";
import type { Holdfast } from "../index.ts";
import type { StdioOptions } from "./index.ts";

const FORMS: JsonObject = { elicitation: {} };
let desk: Desk;
beforeEach(async () => {
  desk = await Desk.open();
});
afterEach(() => desk.close());

function connect(options: StdioOptions = {}, capabilities = FORMS, door = desk.holdfast): ScriptedPeer {
  const { input, output } = desk.serve(options, door);
  return new ScriptedPeer(output, input, { capabilities });
}

const runIdOf = (asked: JsonObject): string => (JSON.parse(asked.requestState as string) as { run_id: string }).run_id;
const messages = (asked: JsonObject): string[] =>
  Object.values(asked.inputRequests as JsonObject).map(
    (one) => ((one as JsonObject).params as JsonObject).message as string,
  );

/** The same call again, with the same answer to each question, as a client does it. */
const again = (peer: ScriptedPeer, name: string, asked: JsonObject, response: JsonObject, more: JsonObject = {}) =>
  peer.request("tools/call", {
    name,
    arguments: {},
    requestState: asked.requestState ?? "",
    inputResponses: Object.fromEntries(Object.keys(asked.inputRequests as JsonObject).map((key) => [key, response])),
    ...more,
  });
const wait = async (answer: Promise<Answer>): Promise<JsonObject> => {
  const { result, error } = await answer;
  if (result === undefined) throw new Error(JSON.stringify(error));
  return result;
};

describe("2026-07-28", () => {
  test("R-40 an input is asked by a form, and the output comes back in the same call", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__named", {});
    expect(asked).toMatchObject({ resultType: "input_required" });
    const [[key = "", request] = []] = Object.entries(asked.inputRequests as JsonObject);
    expect(key).toMatch(/^w-\d+$/);
    expect(request).toMatchObject({ method: "elicitation/create", params: { mode: "form", message: "Whose?" } });
    const done = await wait(again(peer, "workflow__named", asked, { action: "accept", content: { name: "mine" } }));
    expect(done.structuredContent).toEqual({ name: "mine" });
    expect(await desk.runs()).toBe(1);
    const events = JSON.stringify(await desk.holdfast.runs.events(runIdOf(asked), {}, "mcp"));
    expect(events).toContain('"decided_by":"mcp:scripted"');
  });

  test("declined, closed and left out decide nothing: the call ends with the sentence and asks no more", async () => {
    const peer = connect();
    for (const response of [{ action: "decline" }, { action: "cancel" }, { method: "x", result: {} }, {}]) {
      const asked = await peer.call("workflow__named", {});
      const ended = await wait(again(peer, "workflow__named", asked, response));
      const run_id = runIdOf(asked);
      expect(ended.structuredContent).toMatchObject({ run_id, status: "suspended" });
      expect(JSON.stringify(ended.content)).toContain("call workflow_wait");
      // A new call asks again.
      expect((await peer.call("workflow_wait", { run_id })).resultType).toBe("input_required");
    }
  });

  test("what does not fit is asked again with what is wrong, a bounded number of times", async () => {
    const peer = connect();
    let asked = await peer.call("workflow__named", {});
    for (let round = 1; round < 8; round++) {
      asked = await wait(again(peer, "workflow__named", asked, { action: "accept", content: { name: "UP\u202e" } }));
      expect(messages(asked)).toEqual([expect.stringMatching(/^Cannot answer: .*\/name.*\n\nWhose\?$/s)]);
    }
    const ended = await wait(again(peer, "workflow__named", asked, { action: "accept", content: { name: "UP" } }));
    expect(ended.structuredContent).toMatchObject({ status: "suspended" });
    const later = await peer.call("workflow_wait", { run_id: runIdOf(asked) });
    const done = await wait(
      again(
        peer,
        "workflow_wait",
        later,
        { action: "accept", content: { name: "low" } },
        {
          arguments: { run_id: runIdOf(asked) },
        },
      ),
    );
    expect(done.structuredContent).toMatchObject({ run: { status: "succeeded" }, output: { name: "low" } });
  });

  test("all that is open is put together; what is answered stands, what is declined is not asked again", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__two", {});
    expect(messages(asked).sort()).toEqual(["First?", "Second?"]);
    const [one = "", two = ""] = Object.keys(asked.inputRequests as JsonObject);
    const ended = await wait(
      again(
        peer,
        "workflow__two",
        asked,
        {},
        {
          inputResponses: { [one]: { action: "accept", content: { value: 1 } }, [two]: { action: "decline" } },
        },
      ),
    );
    const run_id = runIdOf(asked);
    expect(ended.structuredContent).toMatchObject({ run_id, status: "suspended" });
    const rest = await peer.call("workflow_wait", { run_id });
    expect(Object.keys(rest.inputRequests as JsonObject)).toEqual([two]);
    const done = await wait(
      again(peer, "workflow_wait", rest, { action: "accept", content: { value: 2 } }, { arguments: { run_id } }),
    );
    expect((done.structuredContent as JsonObject).output).toEqual([1, 2]);
  });

  test("answered meanwhile elsewhere: the first answer stands and the call goes on", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__named", {});
    await desk.answerFirst({ name: "first" });
    const done = await wait(again(peer, "workflow__named", asked, { action: "accept", content: { name: "second" } }));
    expect(done.structuredContent).toEqual({ name: "first" });
  });

  test("decided between two looks: the call goes on", async () => {
    const { runs } = desk.holdfast;
    const inspect: typeof runs.inspect = async (...which) => {
      if ((await runs.get(...which)).status === "suspended") await desk.answerFirst({ name: "first" });
      return runs.inspect(...which);
    };
    const door = Object.create(desk.holdfast, { runs: { value: { ...runs, inspect } } }) as Holdfast;
    const done = await connect({}, FORMS, door).call("workflow__named", {});
    expect(done.structuredContent).toEqual({ name: "first" });
  });

  test("an answer that whoever drives the run has not heard yet is waited for, and not asked for again", async () => {
    const { runs, waits } = desk.holdfast;
    let heard: (() => Promise<unknown>) | undefined;
    const answer: typeof waits.answer = async (...given) => {
      heard = () => waits.answer(...given);
      return { run: await runs.inspect(given[0], "mcp"), pending: true, signal_id: "s" };
    };
    const inspect: typeof runs.inspect = async (...which) => {
      const run = await runs.inspect(...which);
      await heard?.();
      return run;
    };
    const door = Object.create(desk.holdfast, {
      runs: { value: { ...runs, inspect } },
      waits: { value: { ...waits, answer } },
    }) as Holdfast;
    const peer = connect({}, FORMS, door);
    const asked = await peer.call("workflow__named", {});
    const done = await wait(again(peer, "workflow__named", asked, { action: "accept", content: { name: "mine" } }));
    expect(done.structuredContent).toEqual({ name: "mine" });
  });

  test("only what this round has asked is taken", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__named", {});
    const state = JSON.parse(asked.requestState as string) as JsonObject;
    const requestState = JSON.stringify({ ...state, asked: [] });
    const answer = { action: "accept", content: { name: "mine" } };
    const next = await wait(again(peer, "workflow__named", asked, answer, { requestState }));
    expect(next.resultType).toBe("input_required");
  });

  test("one call asks in eight rounds at most, and then says how to go on", async () => {
    const peer = connect();
    let answer = await peer.call("workflow__long", {});
    let rounds = 0;
    while (answer.resultType === "input_required") {
      rounds++;
      answer = await wait(again(peer, "workflow__long", answer, { action: "accept", content: { value: 1 } }));
    }
    expect(rounds).toBe(8);
    expect(answer.structuredContent).toMatchObject({ status: "suspended" });
  });

  test("the rounds share one bound of waiting, whatever the client says is left of it", async () => {
    const peer = connect({ maxWaitMs: 1_500 });
    const asked = await peer.call("workflow__block", {});
    const state = JSON.parse(asked.requestState as string) as { left_ms: number };
    expect(state.left_ms).toBeLessThan(1_500);
    desk.world.mode = "block";
    const requestState = JSON.stringify({ ...state, left_ms: 50_000 });
    const began = performance.now();
    const ended = await wait(
      again(peer, "workflow__block", asked, { action: "accept", content: { value: 1 } }, { requestState }),
    );
    expect(ended.structuredContent).toMatchObject({ status: "running" });
    expect(performance.now() - began).toBeLessThan(8_000);
  });

  test("a server that was started again meanwhile goes on with the call", async () => {
    const asked = await connect().call("workflow__named", {});
    await desk.disconnect();
    await desk.reopen({ worker: true });
    const done = await wait(
      again(connect(), "workflow__named", asked, { action: "accept", content: { name: "mine" } }),
    );
    expect(done.structuredContent).toEqual({ name: "mine" });
    expect(await desk.runs()).toBe(1);
  });

  test("a run that another process drives is answered too", async () => {
    await desk.reopen({ worker: false });
    const worker = await desk.world.open({ worker: true });
    const peer = connect({ drives: false });
    const asked = await peer.call("workflow__named", {});
    const done = await wait(again(peer, "workflow__named", asked, { action: "accept", content: { name: "mine" } }));
    expect(done.structuredContent).toEqual({ name: "mine" });
    await worker.close();
  });
});

describe("a requestState that is not of this call is refused, and starts nothing", () => {
  const ACCEPT = { action: "accept", content: { name: "mine" } };

  test.each([
    ["no text of ours", () => "nonsense"],
    ["empty", () => ""],
    ["no text at all", () => 7],
    ["fields that there are none of", (state: JsonObject) => JSON.stringify({ ...state, more: 1 })],
    ["more waiting than any call has", (state: JsonObject) => JSON.stringify({ ...state, left_ms: 1e9 })],
    ["a run that there is none of", (state: JsonObject) => JSON.stringify({ ...state, run_id: "none" })],
    ["too long", (state: JsonObject) => JSON.stringify({ ...state, run_id: "x".repeat(70_000) })],
  ])("%s", async (_, forge) => {
    const peer = connect();
    const asked = await peer.call("workflow__named", {});
    const requestState = forge(JSON.parse(asked.requestState as string) as JsonObject);
    for (const name of ["workflow__named", "workflow_wait"]) {
      const args = name === "workflow_wait" ? { run_id: runIdOf(asked) } : {};
      const { error, result } = await again(peer, name, asked, ACCEPT, { requestState, arguments: args });
      expect(result).toBeUndefined();
      expect(error?.code).toBe(-32602);
    }
    expect(await desk.runs()).toBe(1);
    expect((await desk.holdfast.runs.get(runIdOf(asked), "mcp")).status).toBe("suspended");
  });

  test("of another workflow, of another session, of a run that no tool started", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__named", {});
    const other = await peer.call("workflow__two", {});
    const elsewhere = await connect({ session: "elsewhere" }).call("workflow__named", {});
    const byHand = await desk.holdfast.run({ workflow: "named", args: {}, session: "mcp" });
    const of = (run_id: string): string =>
      JSON.stringify({ ...(JSON.parse(asked.requestState as string) as JsonObject), run_id });
    for (const run_id of [runIdOf(other), runIdOf(elsewhere), byHand.run_id]) {
      const { error } = await again(peer, "workflow__named", asked, ACCEPT, { requestState: of(run_id) });
      expect(error?.code).toBe(-32602);
    }
    const others = { requestState: asked.requestState ?? "", arguments: { run_id: runIdOf(other) } };
    expect((await again(peer, "workflow_wait", asked, ACCEPT, others)).error?.message).toContain("another call");
    expect(await desk.runs()).toBe(3);
    expect((await desk.holdfast.runs.get(byHand.run_id, "mcp")).status).toBe("suspended");
  });

  test("answers without a requestState are refused too", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__named", {});
    const { inputResponses } = { inputResponses: { "w-1": ACCEPT } };
    const { error } = await peer.request("tools/call", { name: "workflow__named", arguments: {}, inputResponses });
    expect(error?.message).toContain("without the requestState");
    expect(await desk.runs()).toBe(1);
    expect(asked.resultType).toBe("input_required");
  });

  test("the arguments are not used a second time", async () => {
    const peer = connect();
    const asked = await peer.call("workflow__named", { why: "one" });
    const done = await wait(again(peer, "workflow__named", asked, ACCEPT, { arguments: { why: "two", other: 3 } }));
    expect(done.structuredContent).toEqual({ name: "mine" });
    expect((await desk.holdfast.runs.inspect(runIdOf(asked), "mcp")).args).toEqual({ why: "one" });
  });
});

describe("who is asked, and what", () => {
  test("R-40 an approval only where the configuration says so, with its digest", async () => {
    const never = await connect().call("workflow__sure", {});
    expect(never.structuredContent).toMatchObject({ status: "suspended" });
    await desk.disconnect();
    await desk.reopen({ worker: true, approvals: { mcp: "elicit" } });
    const peer = connect({ approvals: "elicit" });
    const asked = await peer.call("workflow__sure", {});
    const [wait_id = ""] = Object.keys(asked.inputRequests as JsonObject);
    const waiting = (await desk.holdfast.runs.inspect(runIdOf(asked), "mcp")).waits;
    const digest = waiting.find((one) => one.wait_id === wait_id)?.digest?.slice(0, 16) ?? "";
    expect(messages(asked)[0]).toContain(`Digest: ${digest}`);
    const say = (content: JsonObject, from = asked) =>
      wait(again(peer, "workflow__sure", from, { action: "accept", content }));
    const unclear = await say({ digest });
    expect(messages(unclear)[0]).toContain("neither approve nor deny");
    const done = await say({ decision: "approve", digest }, unclear);
    expect(done.isError ?? false).toBe(false);
    expect(await desk.holdfast.runs.get(runIdOf(asked), "mcp")).toMatchObject({ status: "succeeded" });
  });

  test("not_by_starter: who may not decide hears the sentence, and the approval stays open", async () => {
    await desk.reopen({ worker: true, approvals: { mcp: "elicit", not_by_starter: true } });
    const peer = connect({ approvals: "elicit" });
    const asked = await peer.call("workflow__sure", {});
    const digest = /Digest: (\w+)/.exec(messages(asked)[0] ?? "")?.[1] ?? "";
    const content = { decision: "approve", digest };
    const ended = await wait(again(peer, "workflow__sure", asked, { action: "accept", content }));
    expect(ended.structuredContent).toMatchObject({ status: "suspended" });
  });

  test("a client without forms, one with tasks, one that only looks, and one that may only read are not asked", async () => {
    const plain = await connect({}, {}).call("workflow__named", {});
    expect(plain.structuredContent).toMatchObject({ status: "suspended" });
    expect(JSON.stringify(plain.content)).toContain("call workflow_wait");
    const { run_id } = plain.structuredContent as { run_id: string };
    const tasks = connect({}, { ...FORMS, extensions: { "io.modelcontextprotocol/tasks": {} } });
    expect((await tasks.call("workflow__named", {})).resultType).toBe("task");
    const suspended = { run: { status: "suspended" } };
    expect((await tasks.call("workflow_wait", { run_id })).structuredContent).toMatchObject(suspended);
    expect((await connect().call("workflow_wait", { run_id, timeout_ms: 0 })).structuredContent).toMatchObject(
      suspended,
    );
    const asked = await connect().call("workflow_wait", { run_id });
    const reader = connect({ readOnly: true });
    expect((await reader.call("workflow_wait", { run_id })).structuredContent).toMatchObject(suspended);
    const answer = { action: "accept", content: { name: "mine" } };
    const taken = await wait(again(reader, "workflow_wait", asked, answer, { arguments: { run_id } }));
    expect(taken.structuredContent).toMatchObject(suspended);
  });

  test("RP-74 a run that no tool started asks nothing here", async () => {
    const peer = connect();
    await peer.call("workflow_run", { action: "list" });
    const { run_id } = await desk.holdfast.run({ workflow: "named", args: {}, session: "mcp" });
    const waited = await peer.call("workflow_wait", { run_id });
    expect(waited.structuredContent).toMatchObject({ run: { status: "suspended" } });
    expect(peer.received).not.toContain("Whose?");
  });
});
