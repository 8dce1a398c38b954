// Owns the workflows that real processes run and die in.
const tool = (id: string, name: string, args: object = { n: id }): object => ({
  id,
  type: "tool",
  tool: name,
  capabilities: [],
  args,
});
export const leaf = (step: string): object => ({ type: "step", step });
const sequence = (...ids: readonly string[]): object => ({ type: "sequence", nodes: ids.map(leaf) });
export const plan = (id: string, steps: readonly object[], body: object, more: object = {}): object => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps,
  plan: body,
  ...more,
});
const LIST = Array.from({ length: 8 }, (_, i) => i);
const six = ["a", "b", "c", "d", "e", "f"];

export const WORKFLOWS: readonly object[] = [
  plan(
    "mutating",
    [tool("look", "Look"), tool("charge", "Charge"), tool("again", "Charge"), tool("after", "Look")],
    sequence("look", "charge", "again", "after"),
  ),
  plan(
    "asked",
    [tool("look", "Look"), tool("transfer", "Transfer"), tool("after", "Look")],
    sequence("look", "transfer", "after"),
  ),
  plan(
    "nested",
    [{ id: "sub", type: "workflow", workflow_id: "asked", revision: 1, args: {} }, tool("charge", "Charge")],
    sequence("sub", "charge"),
  ),
  plan(
    "fan",
    [
      { id: "each", type: "tool", tool: "Transfer", capabilities: [], args: { item: { from: "item", name: "it" } } },
      tool("beside", "Charge"),
    ],
    {
      type: "parallel",
      nodes: [
        { type: "map", source: { from: "literal", value: LIST }, item: "it", body: leaf("each") },
        leaf("beside"),
      ],
    },
  ),
  plan(
    "timed",
    [tool("before", "Transfer"), { id: "nap", type: "wait", for_ms: 30 }, tool("after", "Transfer")],
    sequence("before", "nap", "after"),
  ),
  plan("slow", [tool("look", "Look"), tool("slow", "Slow"), tool("after", "Look")], sequence("look", "slow", "after")),
  plan("exits", [tool("exit", "Exit", { always: true })], leaf("exit")),
  // Six steps that each take the process down once: more than the five that are allowed without progress.
  plan(
    "progresses",
    six.flatMap((id) => [tool(`do-${id}`, "Transfer"), tool(`exit-${id}`, "Exit")]),
    sequence(...six.flatMap((id) => [`do-${id}`, `exit-${id}`])),
  ),
  plan("quick", [tool("look", "Look")], leaf("look")),
  plan(
    "prefix-suffix",
    [tool("prefix", "Look", { value: 41 }), tool("suffix", "Look", { value: 42 })],
    sequence("prefix", "suffix"),
  ),
  plan(
    "prefix-gone",
    [tool("prefix", "Look", { value: 41 }), tool("suffix", "Gone", { value: 42 })],
    sequence("prefix", "suffix"),
  ),
];
