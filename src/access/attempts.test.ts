import { expect, test } from "vitest";
import { createHoldfast, defineTool } from "../index.ts";

test("GD-42 an attempt is shown with the agent session in which its work goes on", async () => {
  await using holdfast = await createHoldfast({
    store: "sqlite::memory:",
    trust: true,
    permissions: { write: "allow" },
    workflows: [
      {
        workflow_schema: 1,
        id: "talk",
        revision: 1,
        steps: ["one", "two"].map((id) => ({ id, type: "tool", tool: id, args: {}, capabilities: ["write"] })),
        plan: { type: "sequence", nodes: ["one", "two"].map((step) => ({ type: "step", step })) },
      },
    ],
    tools: [
      defineTool({
        name: "one",
        description: "Works in a session.",
        input: { type: "object" },
        run: async (_, { link }) => {
          await link({ session_id: "turn-7" });
          return {};
        },
      }),
      defineTool({ name: "two", description: "Works by itself.", input: { type: "object" }, run: () => ({}) }),
    ],
  });
  const { run_id } = await holdfast.run({ workflow: "talk", args: {} });
  const { attempts } = await holdfast.runs.attempts(run_id);
  expect(attempts.map(({ step_id, session_id }) => [step_id, session_id])).toEqual([
    ["one", "turn-7"],
    ["two", undefined],
  ]);
});
