/** R-2j: a retried run begins with what settled in the ended one and goes on at its failed steps. */
import { expect, test } from "vitest";
import { canonicalJson, type Json } from "../domain/json.ts";
import { type Bundle, bundleHash, DEFAULT_INVOCATION_POLICY, definitionKey } from "../domain/plan/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { compile, type FakeTool, type Fixture, failed, fixture, ok, TestClock, turn } from "./fixture.ts";
import { ENGINE_VERSION, systemIds } from "./index.ts";

const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "work", args: { id }, ...more });
const step = (id: string) => ({ type: "step", step: id });

const A_SECOND = 1_000;

/** A step whose tool can be tried again by the step's own policy (GD-59), with a delay that is recorded. */
const tried = (id: string, more: object = {}) =>
  tool(id, { tool: "look", retry: { max_attempts: 3, initial_backoff_ms: 1 }, ...more });

/**
 * Runs `document` with `broken` failing, then retries it with everything working; but of the calls of `look` in either
 * run, the first `failures` of each instance fail.
 */
async function retried(
  document: { steps: readonly object[]; plan: object; budgets?: object },
  broken: Set<string>,
  nested: readonly object[] = [],
  failures: readonly [before: number, after: number] = [0, 0],
  clock?: TestClock,
) {
  const store = await openSqliteStore({ path: ":memory:" });
  const calls: string[] = [];
  const work: FakeTool = {
    side_effect: "mutating",
    run: ({ step_id }) => {
      calls.push(step_id);
      return broken.has(step_id.split("@")[0] as string) ? failed(true) : ok(step_id);
    },
  };
  let most = failures[0];
  const look: FakeTool = {
    run: ({ step_id }) => {
      calls.push(step_id);
      const nth = calls.filter((id) => id === step_id).length;
      return nth <= most || broken.has(step_id) || broken.has(step_id.split("@")[0] as string)
        ? failed(true)
        : ok(step_id);
    },
  };
  const f = await fixture({ store, tools: { work, look }, ...(clock === undefined ? {} : { clock }) });
  const before = await f.run(document, {}, { nested });
  expect(before.status).toBe("failed");
  const first = calls.splice(0);
  broken.clear();
  most = failures[1];
  const definition = compile(document);
  const definitions = Object.fromEntries(
    [definition, ...nested.map(compile)].map((d) => [definitionKey(d.id, d.revision), d]),
  );
  const bundle: Bundle = {
    publication_revision: 1,
    root_id: "flow",
    root_revision: 1,
    root_invocation_policy: DEFAULT_INVOCATION_POLICY,
    definitions,
  };
  const run_id = systemIds.uuid();
  await f.engine.create({
    header: {
      ...before.header,
      run_id,
      root_run_id: run_id,
      bundle_hash: bundleHash(bundle),
      engine_version: ENGINE_VERSION,
      created_at_ms: Date.now(),
      made_from: { run_id: before.header.run_id, how: "retry" },
    },
    bundle,
    bundleBytes: Buffer.from(canonicalJson(bundle as unknown as Json)),
    queue: false,
    maxOpenRuns: 10,
    retryOf: before.header.run_id,
  });
  const delays = () => f.engine.holds(run_id)?.runs.get(run_id)?.delays.size;
  if (clock !== undefined) {
    while (delays() !== 1) await turn();
    await clock.advance(A_SECOND);
  }
  await f.engine.idle(run_id);
  return { before, after: await f.state(run_id), first, again: calls, f };
}

test("R-2 retry keeps what settled and repeats only the failed step", async () => {
  const { after, first, again } = await retried(
    { steps: [tool("a"), tool("b"), tool("c")], plan: { type: "sequence", nodes: [step("a"), step("b"), step("c")] } },
    new Set(["b"]),
  );
  expect(first).toEqual(["a", "b"]);
  expect(again).toEqual(["b", "c"]);
  expect(after).toMatchObject({ status: "succeeded", output: "c" });
  expect(after.usage.steps).toBe(3);
  expect(after.header.made_from?.how).toBe("retry");
});

test("R-2 retry of a map repeats only the items that failed; a failed parallel repeats its cancelled branches", async () => {
  const map = await retried(
    {
      steps: [tool("a"), tool("m")],
      plan: {
        type: "sequence",
        nodes: [step("a"), { type: "map", item: "x", source: { from: "literal", value: [1, 2] }, body: step("m") }],
      },
    },
    new Set(["m"]),
  );
  expect(map.again.sort()).toEqual(["m@root[0]", "m@root[1]"]);
  expect(map.after.output).toEqual(["m@root[0]", "m@root[1]"]);
  const exhausted = await retried(
    {
      steps: [tool("a"), tool("b")],
      plan: { type: "sequence", nodes: [step("a"), { type: "retry", max_attempts: 2, node: step("b") }] },
    },
    new Set(["b"]),
  );
  expect(exhausted.first).toEqual(["a", "b", "b"]);
  expect(exhausted.again).toEqual(["b"]);
  expect(exhausted.after).toMatchObject({ status: "succeeded", output: "b" });
});

test("R-2 retry goes down into children: what settled there is not repeated", async () => {
  const child = {
    id: "child",
    steps: [tool("x"), tool("y")],
    plan: { type: "sequence", nodes: [step("x"), step("y")] },
  };
  const { after, first, again, f } = await retried(
    {
      steps: [tool("a"), { id: "w", type: "workflow", workflow_id: "child", revision: 1, args: {} }],
      plan: { type: "sequence", nodes: [step("a"), step("w")] },
    },
    new Set(["y"]),
    [child],
  );
  expect(first).toEqual(["a", "x", "y"]);
  expect(again).toEqual(["y"]);
  expect(after.output).toBe("y");
  const rows = await f.store.treeRuns(after.header.run_id);
  expect(rows.map((row) => row.status)).toEqual(["succeeded", "succeeded"]);
  expect(rows[1]?.made_from?.how).toBe("retry");
});

const retries = async (f: Fixture, runId: string): Promise<readonly string[]> =>
  (await f.events(runId)).flatMap((e) => (e.type === "phase" && e.name === "retry_reserved" ? [e.key] : []));

test("R-2 GD-59 a step that its own policy got through is kept, with the attempts that failed before", async () => {
  const { after, first, again, f } = await retried(
    { steps: [tried("a"), tool("b")], plan: { type: "sequence", nodes: [step("a"), step("b")] } },
    new Set(["b"]),
    [],
    [2, 0],
  );
  expect([first, again]).toEqual([["a", "a", "a", "b"], ["b"]]);
  expect(after).toMatchObject({ status: "succeeded", output: "b", usage: { retries: 2, steps: 4 } });
  expect(after.steps.get("a")?.attempts).toBe(3);
  expect(await retries(f, after.header.run_id)).toEqual(["attempts:a#1.1", "attempts:a#1.2"]);
});

test("R-2 GD-59 a step that failed every attempt is asked again from the start of its policy", async () => {
  const document = {
    steps: [tool("z"), tried("a")],
    plan: { type: "sequence", nodes: [step("z"), step("a")] },
    budgets: { max_retries: 2 },
  };
  // As many attempts again, out of a budget of which the ended run has used nothing.
  const { before, after, first, again } = await retried(document, new Set(["a"]), [], [0, 2]);
  expect([first, again]).toEqual([
    ["z", "a", "a", "a"],
    ["a", "a", "a"],
  ]);
  expect(before.failure).toMatchObject({ code: "execution_failed", retryable: true });
  expect(after).toMatchObject({ status: "succeeded", output: "a", usage: { retries: 2, steps: 4 } });
  const map = await retried(
    {
      steps: [tried("a")],
      plan: { type: "map", item: "x", source: { from: "literal", value: [1, 2] }, body: step("a") },
    },
    new Set(["a"]),
    [],
    [0, 1],
  );
  expect(map.again.sort()).toEqual(["a@root[0]", "a@root[0]", "a@root[1]", "a@root[1]"]);
  expect(map.after).toMatchObject({ status: "succeeded", usage: { retries: 2, steps: 4 } });
  const one = await retried(
    {
      steps: [tried("a")],
      plan: { type: "map", item: "x", source: { from: "literal", value: [1, 2] }, body: step("a") },
    },
    new Set(["a@root[0]"]),
    [],
    [2, 1],
  );
  expect(one.again).toEqual(["a@root[0]", "a@root[0]"]);
  expect(one.after).toMatchObject({ status: "succeeded", usage: { retries: 3, steps: 5 } });
});

test("R-2 GD-59 within a retry node only the attempts of its last entry are asked again", async () => {
  const node = { type: "retry", max_attempts: 2, node: step("a") };
  const steps = [tried("a", { retry: { max_attempts: 2, initial_backoff_ms: 1 } })];
  const { after, first, again, f } = await retried({ steps, plan: node }, new Set(["a"]), [], [0, 1]);
  expect([first, again]).toEqual([
    ["a", "a", "a", "a"],
    ["a", "a"],
  ]);
  expect(after).toMatchObject({ status: "succeeded", usage: { retries: 3 } });
  expect(await retries(f, after.header.run_id)).toEqual(["attempts:a#1.1", "retry:plan@root#1.1", "attempts:a#3.1"]);
});

test("R-2 GD-59 a step that another's failure stopped between two attempts goes on with its next one, when it is due", async () => {
  const { after, first, again, f } = await retried(
    {
      steps: [tried("a", { retry: { max_attempts: 3, initial_backoff_ms: A_SECOND } }), tool("b"), tool("c")],
      plan: { type: "parallel", nodes: [step("a"), { type: "sequence", nodes: [step("b"), step("c")] }] },
    },
    new Set(["c"]),
    [],
    [1, 0],
    new TestClock(),
  );
  expect([first.sort(), again.sort()]).toEqual([
    ["a", "b", "c"],
    ["a", "c"],
  ]);
  expect(after).toMatchObject({ status: "succeeded", output: ["a", "c"], usage: { retries: 1 } });
  expect(await retries(f, after.header.run_id)).toEqual(["attempts:a#1.1"]);
});
