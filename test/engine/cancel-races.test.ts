// Owns who wins when a cancel meets the last writes of a run, and what whoever cancels is told (C10).
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { turn, wrapStore } from "../../src/engine/fixture.ts";
import { createHoldfast, defineTool, type Holdfast } from "../../src/index.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";

const workspace = mkdtempSync(join(tmpdir(), "holdfast-races-"));
afterAll(() => rmSync(workspace, { recursive: true, force: true }));

type Commit = Awaited<ReturnType<typeof openSqliteStore>>["commit"];
type When = "before" | "during" | "after";
const TERMINAL = ["run_succeeded", "run_failed", "run_cancelled"];

const step = (id: string): object => ({ id, type: "tool", tool: "Put", capabilities: [], args: { id } });
const flow = {
  workflow_schema: 1,
  id: "flow",
  revision: 1,
  steps: ["a", "b", "c", "d"].map(step),
  plan: { type: "sequence", nodes: ["a", "b", "c", "d"].map((id) => ({ type: "step", step: id })) },
};
const put = defineTool({
  name: "Put",
  description: "the same again does nothing more",
  input: { type: "object" },
  sideEffect: "idempotent",
  run: async (value) => value,
});

/** Runs the flow and cancels it beside commit `at`; what the cancel answered, how the run stands, and how many commits it took. */
async function raced(at: number, when: When) {
  const store = await openSqliteStore({ path: ":memory:" });
  let commits = 0;
  let answer: Promise<string> | undefined;
  const cancel = async (runId: string): Promise<void> => {
    answer = holdfast.runs.cancel(runId, { decided_by: "os:a" }).then(
      ({ run, pending }) => (pending ? "pending" : run.status),
      (error: { code: string }) => error.code,
    );
    // Its signal is in the store.
    for (let i = 0; i < 5; i++) await turn();
  };
  const commit: Commit = async (group) => {
    const here = ++commits === at;
    const runId = group[0]?.root_run_id ?? "";
    if (here && when === "before") await cancel(runId);
    const landing = store.commit(group);
    if (here && when === "during") await cancel(runId);
    const landed = await landing;
    if (here && when === "after") await cancel(runId);
    return landed;
  };
  const holdfast: Holdfast = await createHoldfast({
    store: wrapStore(store, { commit }),
    workspace,
    trust: true,
    permissions: { write: "allow" },
    worker: false,
    tools: [put],
    workflows: [flow],
  });
  const { run_id } = await holdfast.start({ workflow: "flow" });
  const run = await holdfast.runs.drive(run_id);
  return { holdfast, store, run, commits: () => commits, answer: await answer };
}

test("C10 a cancel before, during and after each of the last five writes of a run: one end, the first committed; it never changes, and whoever cancels is told whether it won", async () => {
  const undisturbed = await raced(0, "before");
  const last = undisturbed.commits();
  await undisturbed.holdfast.close();
  await undisturbed.store.close();
  expect([undisturbed.run.status, last > 5]).toEqual(["succeeded", true]);
  const seen = new Set<string>();
  for (let at = last - 4; at <= last; at++) {
    for (const when of ["before", "during", "after"] as const) {
      const { holdfast, store, run, answer } = await raced(at, when);
      const place = `${when} write ${at} of ${last}`;
      expect([place, answer]).toEqual([place, run.status === "cancelled" ? "cancelled" : "terminal"]);
      expect([place, ["cancelled", "succeeded"].includes(run.status)]).toEqual([place, true]);
      const events = await holdfast.runs.events(run.run_id);
      expect(events.filter(({ type }) => TERMINAL.includes(type)).map(({ type }) => type)).toEqual([
        `run_${run.status}`,
      ]);
      expect(await store.signals({ root_run_id: run.run_id })).toEqual([]);
      // Asked again it is the same, and nothing is added.
      const again = holdfast.runs.cancel(run.run_id, { decided_by: "os:b" });
      if (run.status === "cancelled") expect((await again).run).toEqual(run);
      else await expect(again).rejects.toMatchObject({ code: "terminal" });
      expect(await holdfast.runs.events(run.run_id)).toEqual(events);
      seen.add(run.status);
      await holdfast.close();
      await store.close();
    }
  }
  expect([...seen].sort()).toEqual(["cancelled", "succeeded"]);
});
