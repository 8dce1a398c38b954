/** `why` end to end (DESIGN §6): a tested sentence for every cause that can really occur, in whichever process is asked. */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createHoldfast, defineTool, type Holdfast, type HoldfastOptions, type Why } from "../index.ts";
import type { AgentOutcome } from "../ports/index.ts";

const ANY = { type: "object", additionalProperties: true } as const;
const leaf = (step: string) => ({ type: "step", step });
const plan = (id: string, steps: object[], node: object, more: object = {}) => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps,
  plan: node,
  ...more,
});
const tool = (id: string, name: string, more: object = {}) => ({
  id,
  type: "tool",
  tool: name,
  args: {},
  capabilities: ["read"],
  ...more,
});
const both = (...ids: string[]) => ({ type: "parallel", nodes: ids.map(leaf) });
const budget = (more: object) => ({ budgets: { max_steps: 20, ...more } });

const WORKFLOWS = [
  plan("hold", [tool("a", "hold"), tool("b", "hold")], both("a", "b"), budget({ max_concurrency: 1 })),
  plan("flaky", [tool("f", "fail")], { type: "retry", max_attempts: 3, delay_ms: 3_600_000, node: leaf("f") }),
  plan(
    "agents",
    ["x", "y"].map((id) => ({ id, type: "agent", agent: "writer", prompt: "p", capabilities: [] })),
    both("x", "y"),
    budget({ max_tokens: 100, max_agents: 4 }),
  ),
  plan("nap", [{ id: "nap", type: "wait", for_ms: 3_600_000 }], leaf("nap")),
  plan("gate", [{ id: "gate", type: "approval", prompt: "PRIVATE question", deadline_ms: 3_600_000 }], leaf("gate")),
  plan("number", [{ id: "n", type: "input", prompt: "PRIVATE number", schema: { type: "integer" } }], leaf("n")),
  plan("ask", [tool("w", "write", { capabilities: ["write"] })], leaf("w")),
  plan("lost", [tool("l", "lose", { capabilities: ["lose"] })], leaf("l")),
  plan("outer", [{ id: "call", type: "workflow", workflow_id: "gate", revision: 1, args: {} }], leaf("call")),
  plan(
    "spent",
    ["s1", "s2"].map((id) => tool(id, "look")),
    { type: "sequence", nodes: [leaf("s1"), leaf("s2")] },
    { budgets: { max_steps: 1, max_agents: 0, on_exhausted: "suspend" } },
  ),
];

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

async function world() {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "holdfast why ")));
  ends.push(() => rm(folder, { recursive: true, force: true }));
  let release: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const held = (signal: AbortSignal) =>
    Promise.race([
      gate,
      new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
    ]);
  const common = { description: "A tool of the tests.", input: ANY } as const;
  const tools = [
    defineTool({
      ...common,
      name: "hold",
      capabilities: ["read"],
      sideEffect: "read_only",
      run: async (_, { signal }) => {
        await held(signal);
        return {};
      },
    }),
    defineTool({ ...common, name: "look", capabilities: ["read"], sideEffect: "read_only", run: () => ({}) }),
    defineTool({
      ...common,
      name: "fail",
      capabilities: ["read"],
      sideEffect: "read_only",
      run: () => Promise.reject(new Error("no")),
    }),
    defineTool({ ...common, name: "write", capabilities: ["write"], run: () => ({}) }),
    defineTool({ ...common, name: "lose", capabilities: ["lose"], run: () => Promise.reject(new Error("gone")) }),
  ];
  const agents: NonNullable<HoldfastOptions["agents"]> = {
    resolve: async (name) => ({ name, capabilities: [], priced: true }),
    estimate: async () => ({ tokens: 60, cost_micros: 0 }),
    call: async ({ signal }): Promise<AgentOutcome> => {
      await held(signal);
      return { type: "succeeded", output: "done", usage: { tokens: 10, cost_micros: 0 } };
    },
  };
  const open = async (options: HoldfastOptions = {}): Promise<Holdfast> => {
    const holdfast = await createHoldfast({
      workspace: folder,
      store: `sqlite:${join(folder, "s.db")}`,
      trust: true,
      permissions: { read: "allow", write: "ask", lose: "allow" },
      workflows: WORKFLOWS,
      tools,
      agents,
      worker: false,
      limits: { stop_grace_ms: 100 },
      ...options,
    });
    ends.push(() => {
      release();
      return holdfast.close();
    });
    return holdfast;
  };
  return { open };
}

/** The causes once those that are looked for are all there. */
async function causesOf(
  holdfast: Holdfast,
  run: string,
  causes: readonly string[],
  options: { public?: boolean } = {},
): Promise<Why> {
  let seen: Why | undefined;
  await expect
    .poll(
      async () => {
        seen = await holdfast.runs.why(run, undefined, options);
        return seen.causes.map(({ cause }) => cause);
      },
      { timeout: 5_000 },
    )
    .toEqual(causes);
  return seen as Why;
}

const sentence = (why: Why, cause: string) => why.causes.find((each) => each.cause === cause)?.sentence;

describe("a run that is running", () => {
  test("waits for a concurrency slot: said by its process and by any other", async () => {
    const { open } = await world();
    const [here, there] = [await open(), await open()];
    const { run_id } = await here.start({ workflow: "hold" });
    for (const holdfast of [here, there]) {
      const why = await causesOf(holdfast, run_id, ["running", "concurrency"]);
      expect(sentence(why, "running")).toBe('The run is running: step "a" is at work.');
      expect(why.causes[1]).toMatchObject({
        step_id: "b",
        sentence:
          'Step "b" waits for a concurrency slot; the run may do 1 at once (max_concurrency), and the next starts when one ends.',
        ends_by: [],
      });
    }
  });

  test("waits for a retry's time", async () => {
    const { open } = await world();
    const [here, there] = [await open(), await open()];
    const { run_id } = await here.start({ workflow: "flaky" });
    for (const holdfast of [here, there]) {
      const why = await causesOf(holdfast, run_id, ["running", "retry_delay"]);
      expect(sentence(why, "retry_delay")).toMatch(/^What failed is tried again at 20\S+Z, by itself\.$/);
      expect(why.causes[1]?.until_ms).toBeGreaterThan(Date.now() + 3_000_000);
    }
  });

  test("waits for tokens that another call has reserved", async () => {
    const { open } = await world();
    const [here, there] = [await open(), await open()];
    const { run_id } = await here.start({ workflow: "agents" });
    for (const holdfast of [here, there]) {
      const why = await causesOf(holdfast, run_id, ["running", "budget"]);
      expect(why.causes[1]).toMatchObject({
        step_id: "y",
        sentence: expect.stringContaining("tokens or money that other calls have reserved"),
        ends_by: ["raise_budget"],
      });
    }
  });
});

describe("a run that stands still", () => {
  test.each([
    ["nap", "timer", /^Step "nap" waits until \S+Z and goes on by itself then\.$/],
    ["number", "input", /^Step "n" asks: "PRIVATE number"; answer or deny it\.$/],
    [
      "gate",
      "approval",
      /^Step "gate" asks: "PRIVATE question"; approve or deny it before \S+Z; silence counts as No\.$/,
    ],
    ["ask", "approval", /^Step "w" asks to use the tool "write" \(mutating\); approve or deny it\.$/],
    [
      "lost",
      "unknown_outcome",
      /^Whether step "l" \(tool "lose"\) took effect is unknown: it broke off: gone; find out, then repair it as succeeded, failed, cancelled or to be retried\.$/,
    ],
    [
      "spent",
      "budget",
      /^The budget is used up \(max_steps is 1\), and what is finished is kept; raise it, and it goes on when a process/,
    ],
    ["outer", "child", /^Step "call" waits for the child run \S+, which waits for an approval; see why there\.$/],
  ])("%s: %s", async (workflow, cause, words) => {
    const { open } = await world();
    const holdfast = await open();
    const { run_id } = await holdfast.start({ workflow });
    const why = await causesOf(holdfast, run_id, [cause]);
    expect(why.sentence).toMatch(words);
    const shown = await causesOf(holdfast, run_id, [cause], { public: true });
    expect(JSON.stringify(shown)).not.toMatch(/PRIVATE|"write"|\\"lose\\"|gone/);
    // Only what is accepted now is offered.
    const allowed = (await holdfast.runs.get(run_id)).actions
      .filter((action) => action.allowed)
      .map(({ name }) => name);
    for (const each of why.causes) for (const name of each.ends_by) expect(allowed).toContain(name);
  });

  test("queued with no worker process, paused, interrupted, untrusted, ended", async () => {
    const { open } = await world();
    const holdfast = await open({ recovery: "manual" });
    const queued = await holdfast.start({ workflow: "hold", queue: true });
    expect((await holdfast.runs.why(queued.run_id)).sentence).toBe(
      "The run is queued and no worker process has taken it; resume it here, or start a worker process to take it.",
    );
    const untrusted = await open({ trust: false });
    expect(sentence(await untrusted.runs.why(queued.run_id), "untrusted")).toContain("The workspace is not trusted");

    const { run_id } = await holdfast.start({ workflow: "hold" });
    await causesOf(holdfast, run_id, ["running", "concurrency"]);
    await holdfast.runs.pause(run_id, { decided_by: "os:anna", reason: "PRIVATE noon" });
    expect((await holdfast.runs.why(run_id)).sentence).toBe("The run is paused: PRIVATE noon; resume it.");
    expect((await holdfast.runs.why(run_id, undefined, { public: true })).sentence).toBe(
      "The run is paused; resume it.",
    );
    await holdfast.runs.cancel(run_id, { decided_by: "os:anna" });
    expect((await holdfast.runs.why(run_id)).sentence).toMatch(/^The run was cancelled at \S+Z/);

    const cut = await holdfast.start({ workflow: "hold" });
    await causesOf(holdfast, cut.run_id, ["running", "concurrency"]);
    await holdfast.close();
    const next = await open({ recovery: "manual" });
    expect((await next.runs.why(cut.run_id)).causes[0]).toMatchObject({
      cause: "lease",
      sentence: "The process that drove the run is gone; a worker process takes it over, or resume does.",
    });
    await next.recover();
    expect((await next.runs.why(cut.run_id)).causes[0]).toMatchObject({
      cause: "recovery",
      sentence:
        "The run was interrupted: the process that ran it has ended; resume it to go on where it stands, or restart it as a new run.",
      ends_by: ["resume", "restart"],
    });
  });
});
