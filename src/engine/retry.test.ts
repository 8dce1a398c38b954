/** R-2j: a retried run begins with what settled in the ended one and goes on at its failed steps. */
import { expect, test } from "vitest";
import { canonicalJson, type Json } from "../domain/json.ts";
import { type Bundle, bundleHash, DEFAULT_INVOCATION_POLICY, definitionKey } from "../domain/plan/index.ts";
import { openSqliteStore } from "../stores/sqlite/index.ts";
import { compile, type FakeTool, failed, fixture, ok } from "./fixture.ts";
import { ENGINE_VERSION, systemIds } from "./index.ts";

const tool = (id: string, more: object = {}) => ({ id, type: "tool", tool: "work", args: { id }, ...more });
const step = (id: string) => ({ type: "step", step: id });

/** Runs `document` with `broken` failing, then retries it with everything working. */
async function retried(
  document: { steps: readonly object[]; plan: object },
  broken: Set<string>,
  nested: readonly object[] = [],
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
  const f = await fixture({ store, tools: { work } });
  const before = await f.run(document, {}, { nested });
  expect(before.status).toBe("failed");
  const first = calls.splice(0);
  broken.clear();
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
