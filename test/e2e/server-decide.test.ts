// Deciding over HTTP (issue D): inbox, approvals, answers, repairs, pauses, budgets, doctor; roles and refusals.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import { defineTool } from "../../src/index.ts";
import { AttemptPage, Installation, Problem, RunFindings, WaitPage, Why } from "../../src/server/schemas.ts";
import { RUNS, Served } from "./server.fixture.ts";

const leaf = (step: string) => ({ type: "step", step });
const plan = (id: string, steps: object[], node: object, more: object = {}) => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps,
  plan: node,
  ...more,
});
const tool = (id: string, name: string, capability: string) => ({
  id,
  type: "tool",
  tool: name,
  args: { word: "PRIVATE-word" },
  capabilities: [capability],
});
const WORKFLOWS = [
  plan("ask", [tool("w", "write", "write")], leaf("w")),
  plan(
    "number",
    [
      {
        id: "n",
        type: "input",
        prompt: "PRIVATE-question",
        schema: {
          type: "object",
          required: ["n"],
          additionalProperties: false,
          properties: { n: { type: "integer" } },
        },
      },
    ],
    leaf("n"),
  ),
  plan("lost", [tool("lose", "lose", "lose")], leaf("lose")),
  plan("hold", [tool("wait", "hold", "read")], leaf("wait")),
  plan(
    "spend",
    ["a", "b"].map((id) => tool(id, "look", "read")),
    { type: "sequence", nodes: [leaf("a"), leaf("b")] },
    { budgets: { max_steps: 1, max_agents: 0, on_exhausted: "suspend" } },
  ),
  plan("failing", [tool("fail", "fail", "read")], leaf("fail")),
];

let served: Served;
let observer: string;
const written: unknown[] = [];

beforeAll(async () => {
  const common = { description: "A tool of the tests.", input: { type: "object" } } as const;
  const tools = [
    defineTool({ ...common, name: "write", capabilities: ["write"], run: (input) => ({ wrote: written.push(input) }) }),
    defineTool({
      ...common,
      name: "lose",
      capabilities: ["lose"],
      output: { type: "object", required: ["id"], properties: { id: { type: "integer" } } },
      run: () => Promise.reject(new Error("PRIVATE-gone")),
    }),
    defineTool({ ...common, name: "look", capabilities: ["read"], sideEffect: "read_only", run: () => ({}) }),
    defineTool({
      ...common,
      name: "fail",
      capabilities: ["read"],
      sideEffect: "read_only",
      run: () => Promise.reject(new Error("no")),
    }),
    defineTool({
      ...common,
      name: "hold",
      capabilities: ["read"],
      sideEffect: "read_only",
      run: (_, { signal }) =>
        new Promise((_resolve, reject) =>
          signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true }),
        ),
    }),
  ];
  served = await new Served({
    open: {
      workflows: WORKFLOWS,
      tools,
      permissions: { read: "allow", write: "ask", lose: "allow" },
      approvals: { not_by_starter: true },
      limits: { stop_grace_ms: 100 },
    },
  }).start();
  observer = served.token("looker", "observer");
});
afterAll(async () => {
  await served.remove();
});

interface RunDoc {
  readonly run_id: string;
  readonly status: string;
  readonly waits: readonly { readonly wait_id: string; readonly digest: string; readonly type: string }[];
}

async function stands(workflow: string): Promise<RunDoc> {
  const run_id = await served.startRun(workflow);
  await served.holdfast.runs.drive(run_id);
  return (await (await served.fetch(`${RUNS}/${run_id}/inspect`)).json()) as RunDoc;
}

async function json<T = Record<string, unknown>>(
  answer: Response | Promise<Response>,
): Promise<{ status: number; body: T }> {
  const got = await answer;
  return { status: got.status, body: (await got.json()) as T };
}

const problem = async (answer: Promise<Response>) => {
  const { status, body } = await json(answer);
  const read = Problem.parse(body);
  expect(read.status).toBe(status);
  return read;
};

describe("approvals", () => {
  test("C36 R-40 another digest, the same again, the opposite, the starter's own, an observer's", async () => {
    const run = await stands("ask");
    const { wait_id, digest } = run.waits[0] as RunDoc["waits"][0];
    const at = `${RUNS}/${run.run_id}/waits/${wait_id}`;
    const anna = served.token("anna", "operator");
    expect((await served.post(`${at}/approve`, { digest }, {}, observer)).status).toBe(403);
    const own = await problem(served.post(`${at}/approve`, { digest }));
    expect([own.status, own.code, own.detail]).toEqual([403, "forbidden", expect.stringContaining("started this run")]);
    const other = await problem(served.post(`${at}/approve`, { digest: "0".repeat(64) }, {}, anna));
    expect([other.status, other.code, other.details]).toEqual([409, "conflict", { wait_id, digest }]);
    expect((await problem(served.post(`${at}/approve`, {}, {}, anna))).status).toBe(400);
    const many = await Promise.all(
      Array.from({ length: 10 }, () => served.post(`${at}/approve`, { digest, reason: "read" }, {}, anna)),
    );
    expect(many.map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 200));
    const run_ = await served.holdfast.runs.drive(run.run_id);
    expect([run_.status, written.length]).toEqual(["succeeded", 1]);
    expect((await served.post(`${at}/approve`, { digest }, {}, anna)).status).toBe(200);
    const no = await problem(served.post(`${at}/deny`, { digest }, {}, anna));
    expect([no.status, no.code, no.detail]).toEqual([
      409,
      "conflict",
      expect.stringContaining("approved meanwhile by token:anna"),
    ]);
    const journal = await (await served.fetch(`${RUNS}/${run.run_id}/journal`)).text();
    expect(journal.match(/"type":"grant_issued"/g)).toHaveLength(1);
  });

  test("C14 after a cancel the answer is that the run was cancelled", async () => {
    const run = await stands("ask");
    const { wait_id, digest } = run.waits[0] as RunDoc["waits"][0];
    const before = written.length;
    expect((await served.post(`${RUNS}/${run.run_id}/cancel`, {})).status).toBe(200);
    const late = await problem(
      served.post(`${RUNS}/${run.run_id}/waits/${wait_id}/approve`, { digest }, {}, served.token("ben", "operator")),
    );
    expect([late.status, late.code, late.detail]).toEqual([409, "conflict", expect.stringContaining("run cancelled")]);
    expect(written.length).toBe(before);
  });
});

describe("the inbox", () => {
  test("in pages and by type; observers see that something waits, operators what", async () => {
    const runs = [await stands("number"), await stands("number"), await stands("ask")];
    const first = WaitPage.parse((await json(served.fetch("/api/v1/sessions/default/waits?type=input&limit=1"))).body);
    expect(first.waits).toHaveLength(1);
    const all: unknown[] = [];
    let cursor: string | undefined;
    do {
      const page = WaitPage.parse(
        (
          await json(
            served.fetch(
              `/api/v1/sessions/default/waits?type=input&type=tool_approval&limit=1${cursor === undefined ? "" : `&cursor=${cursor}`}`,
            ),
          )
        ).body,
      );
      all.push(...page.waits);
      cursor = page.next_cursor;
    } while (cursor !== undefined);
    for (const { run_id } of runs)
      expect(all.filter((wait) => (wait as { run_id: string }).run_id === run_id)).toHaveLength(1);
    expect(all.find((wait) => (wait as { run_id: string }).run_id === runs[2]?.run_id)).toMatchObject({
      tool: "write",
      workflow_id: "ask",
      started_by: expect.stringMatching(/^os:/),
      workspace: served.workspace,
    });
    const shown = await (await served.fetch("/api/v1/sessions/default/waits", { token: observer })).text();
    expect(shown).toContain(runs[2]?.run_id);
    expect(shown).not.toMatch(/PRIVATE|"write"|digest|started_by|workspace/);
    expect((await served.fetch("/api/v1/sessions/default/waits?type=naps")).status).toBe(400);
    const own = await (await served.fetch(`${RUNS}/${runs[0]?.run_id}/waits`, { token: observer })).text();
    expect(own).not.toMatch(/PRIVATE|digest/);
  });

  test("GS-36 an answer that does not fit is 400 with its place, and the wait stays", async () => {
    const run = await stands("number");
    const at = `${RUNS}/${run.run_id}/waits/${run.waits[0]?.wait_id}/answer`;
    expect((await served.post(at, { value: { n: 1 } }, {}, observer)).status).toBe(403);
    const wrong = await problem(served.post(at, { value: { n: "x" } }));
    expect([wrong.status, wrong.code, wrong.details]).toEqual([400, "input", { path: "/n" }]);
    expect((await served.holdfast.runs.inspect(run.run_id)).waits).toHaveLength(1);
    const other = await problem(served.post(at, { value: { n: 7 }, digest: "00000000" }));
    expect([other.status, other.code]).toEqual([409, "conflict"]);
    const digest = run.waits[0]?.digest;
    expect((await served.post(at, { value: { n: 7 }, digest })).status).toBe(200);
    expect((await served.holdfast.runs.drive(run.run_id)).output).toEqual({ n: 7 });
    expect((await served.post(at, { value: { n: 7 } })).status).toBe(200);
    expect((await problem(served.post(at, { value: { n: 8 } }))).status).toBe(409);
  });
});

describe("repair and doctor", () => {
  test("GD-74 one exact attempt by its dispatch_id", async () => {
    const run = await stands("lost");
    const { digest } = run.waits[0] as RunDoc["waits"][0];
    expect((await served.fetch(`${RUNS}/${run.run_id}/attempts`, { token: observer })).status).toBe(403);
    const { attempts } = AttemptPage.parse(
      (await json(served.fetch(`${RUNS}/${run.run_id}/attempts?status=suspended`))).body,
    );
    expect(attempts).toMatchObject([{ step_id: "lose", attempt: 1, side_effect: "mutating" }]);
    const at = `${RUNS}/${run.run_id}/attempts/${attempts[0]?.dispatch_id}/repair`;
    expect((await served.post(at, { resolution: "retry", reason: "x", digest }, {}, observer)).status).toBe(403);
    expect(
      (
        await problem(
          served.post(`${RUNS}/${run.run_id}/attempts/${"0".repeat(64)}/repair`, {
            resolution: "retry",
            reason: "x",
            digest,
          }),
        )
      ).status,
    ).toBe(404);
    const misfit = await problem(served.post(at, { resolution: "succeeded", output: { id: "x" }, digest }));
    expect([misfit.status, misfit.code, misfit.detail]).toEqual([400, "input", expect.stringContaining("/id")]);
    const stale = await problem(served.post(at, { resolution: "failed", message: "m", digest: "0".repeat(64) }));
    expect([stale.status, (stale.details as { digest: string }).digest]).toEqual([409, digest]);
    expect((await problem(served.post(at, { resolution: "succeeded", message: "m", digest }))).status).toBe(400);
    expect((await served.post(at, { resolution: "succeeded", output: { id: 1 }, digest })).status).toBe(200);
    expect((await served.holdfast.runs.drive(run.run_id)).output).toEqual({ id: 1 });
    expect((await served.post(at, { resolution: "succeeded", output: { id: 1 }, digest })).status).toBe(200);
    expect((await problem(served.post(at, { resolution: "failed", message: "m", digest }))).status).toBe(409);
    const { body } = await json(served.fetch(`${RUNS}/${run.run_id}/doctor?limit=5`));
    expect(RunFindings.parse(body)).toEqual({ findings: [], truncated: false });
    expect((await served.fetch(`${RUNS}/${run.run_id}/doctor?limit=0`)).status).toBe(400);
    expect((await served.fetch(`${RUNS}/${run.run_id}/doctor`, { token: observer })).status).toBe(403);
  });

  test("the installation is an operator's to look at", async () => {
    expect((await served.fetch("/api/v1/doctor", { token: observer })).status).toBe(403);
    const report = Installation.parse((await json(served.fetch("/api/v1/doctor"))).body);
    expect([report.ok, report.checks.map(({ name }) => name)]).toEqual([
      true,
      ["node", "workspace", "trust", "disk", "store"],
    ]);
  });
});

describe("moving on", () => {
  test("GD-62 pause twice, resume twice; a pause after the end is 409", async () => {
    const run_id = await served.startRun("hold");
    for (let n = 0; n < 2; n++)
      expect(await json(served.post(`${RUNS}/${run_id}/pause`, { reason: "PRIVATE-noon" }))).toMatchObject({
        status: 200,
        body: { status: "suspended" },
      });
    const why = (token?: string) => json(served.fetch(`${RUNS}/${run_id}/why`, token === undefined ? {} : { token }));
    const asked = Why.parse((await why()).body);
    expect(asked).toEqual(await served.holdfast.runs.why(run_id));
    expect(asked.sentence).toBe("The run is paused: PRIVATE-noon; resume it.");
    expect(JSON.stringify((await why(observer)).body)).not.toContain("PRIVATE");
    for (const verb of ["resume", "resume", "continue"])
      expect(await json(served.post(`${RUNS}/${run_id}/${verb}`))).toMatchObject({
        status: 202,
        body: { run_id, status: "running" },
      });
    expect((await served.holdfast.runs.resume(run_id)).run.status).toBe("running");
    const { actions } = await served.holdfast.runs.get(run_id);
    expect(actions.find(({ name }) => name === "resume")).toMatchObject({
      allowed: false,
      reason: expect.stringContaining("it is running; follow it") as string,
    });
    expect((await served.post(`${RUNS}/${run_id}/cancel`)).status).toBe(200);
    expect((await problem(served.post(`${RUNS}/${run_id}/pause`))).code).toBe("terminal");
  });

  test("a budget is raised and goes on by itself, never below what is set, never above a ceiling", async () => {
    const run = await stands("spend");
    expect(run.waits[0]?.type).toBe("budget");
    const patch = (body: object, token?: string) =>
      served.fetch(`${RUNS}/${run.run_id}/budget`, {
        method: "PATCH",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        ...(token === undefined ? {} : { token }),
      });
    expect((await patch({ max_steps: 5 }, observer)).status).toBe(403);
    expect((await problem(patch({ max_steps: 1 }))).status).toBe(409);
    expect((await problem(patch({ max_steps: 100_000_000 }))).status).toBe(400);
    expect((await problem(patch({}))).status).toBe(400);
    expect(await json(patch({ max_steps: 5 }))).toMatchObject({ status: 200, body: { budget: { max_steps: 5 } } });
    expect((await served.holdfast.runs.drive(run.run_id)).status).toBe("succeeded");
  });

  test("a raise under one Idempotency-Key is one raise; the client sends a key and may send it again", async () => {
    const { run_id } = await stands("spend");
    const patch = (body: object, key: string) =>
      served.fetch(`${RUNS}/${run_id}/budget`, {
        method: "PATCH",
        headers: { "Content-Type": "application/json", "Idempotency-Key": key },
        body: JSON.stringify(body),
      });
    expect((await patch({ max_steps: 5 }, "raise-1")).status).toBe(200);
    const again = await patch({ max_steps: 5 }, "raise-1");
    expect([again.status, again.headers.get("idempotent-replay")]).toEqual([200, "true"]);
    expect((await problem(patch({ max_steps: 6 }, "raise-1"))).code).toBe("idempotency_key_reused");
    expect((await problem(patch({ max_steps: 5 }, "raise-2"))).status).toBe(409);
    // The first answer is lost on its way.
    let sent = 0;
    const client = connect({
      url: served.server.url,
      token: served.server.token,
      fetch: async (input, init) => {
        const answer = await fetch(input, init);
        if (init?.method === "PATCH" && ++sent === 1) throw new TypeError("cut");
        return answer;
      },
    });
    const late = await stands("spend");
    expect((await client.runs.raiseBudget(late.run_id, { max_steps: 7 })).run.budget.max_steps).toBe(7);
    expect(sent).toBe(2);
    await expect(client.runs.raiseBudget(late.run_id, {})).rejects.toMatchObject({
      code: "usage",
      message: "Cannot raise the budget: no limit is given; name at least one",
    });
  });

  test("retry makes a new run from the failed steps; whose wish that was is recorded", async () => {
    const run = await stands("failing");
    const answer = await served.post(`${RUNS}/${run.run_id}/retry`, {}, {}, served.token("carla", "operator"));
    expect(answer.status).toBe(202);
    const made = (await answer.json()) as RunDoc;
    expect(made.run_id).not.toBe(run.run_id);
    expect(answer.headers.get("location")).toContain(made.run_id);
    expect((await problem(served.post(`${RUNS}/${(await stands("number")).run_id}/retry`, {}))).status).toBe(409);
  });
});

test("R-40 over MCP nothing approves, denies or repairs", async () => {
  const names = served.holdfast
    .tools({ session: "default" })
    .list()
    .map(({ name }) => name);
  expect(names.filter((name) => /approve|deny|repair|decide/.test(name))).toEqual([]);
  const run = await stands("ask");
  const approve = served.holdfast
    .tools({ session: "default" })
    .call("workflow_run", { action: "approve", run_id: run.run_id });
  await expect(approve).rejects.toMatchObject({ kind: "InvalidArguments" });
});
