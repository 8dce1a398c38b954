// `holdfast test` as its users meet it: real files, a simulated world, nothing started and nothing changed.
import { existsSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { Place } from "./cli.fixture.ts";

const places: Place[] = [];

afterEach(() => {
  for (const place of places.splice(0)) place.remove();
});

function pay(): Place {
  const place = new Place();
  places.push(place);
  place.write(
    ".holdfast/workflows/pay.yaml",
    `workflow_schema: 1
id: pay
revision: 1
input_schema: {type: object, required: [n], additionalProperties: false, properties: {n: {type: integer}}}
steps:
  - {id: list, type: tool, tool: list_directory, args: {path: "."}, capabilities: [read]}
  - {id: charge, type: tool, tool: charge, args: {n: {from: args, pointer: /n}}, capabilities: [write]}
plan: {type: sequence, nodes: [{type: step, step: list}, {type: step, step: charge}]}
`,
  );
  return place;
}

test("DESIGN §14 holdfast test: crashes a workflow everywhere, with what reads for real and the rest mocked", async () => {
  const place = pay();
  const { status, stdout, stderr } = await place.start(["test", "pay", "--input", "n=3"]).ended;
  expect([status, stdout]).toEqual([
    0,
    expect.stringMatching(/held: \d+ writes, \d+ crashes, seed 1; 1 effect, none happened twice/),
  ]);
  expect(stderr).toContain("Read the workspace: list_directory");
  expect(stderr).toContain("Replaced by recorded mocks, which change nothing: charge (no such tool here)");
  expect(existsSync(place.file(".holdfast/state/holdfast.db"))).toBe(false);
});

test("holdfast test --tools uses one's own mocks; a workflow that fails by itself is said first", async () => {
  const place = pay();
  const module = (body: string): string =>
    `import { defineTool, ToolError } from "holdfast";
export default [defineTool({ name: "charge", description: "charges", input: { type: "object" }, run: async () => { ${body} } })];
`;
  place.write("mocks.ts", module("return { receipt: 1 };"));
  const { status, stdout } = await place.start([
    ...["test", "pay", "--input", "n=3", "--tools", "mocks.ts", "--crash", "4", "--json"],
  ]).ended;
  expect([status, JSON.parse(stdout)]).toEqual([0, { ok: true, boundaries: expect.any(Number), failures: [] }]);
  place.write("broken.ts", module('throw new ToolError("no money");'));
  const failed = await place.start([
    ...["test", "pay", "--input", "n=3", "--tools", "broken.ts", "--crash", "none", "--json"],
  ]).ended;
  expect([failed.status, JSON.parse(failed.stdout).failures]).toEqual([
    1,
    [{ sequence: 0, why: "uninterrupted, it ends failed (execution_failed)" }],
  ]);
});

test("holdfast test refuses what it cannot read, before anything runs", async () => {
  const place = pay();
  place.write("none.ts", "export default [1];\n");
  for (const words of [
    ["test", "pay", "--input", "n=3", "--crash", "x"],
    ["test", "pay"],
    ["test", "nope"],
    ["test", "pay", "--input", "n=3", "--tools", "none.ts"],
    ["test", "pay", "--input", "n=3", "--tools", "missing.ts"],
  ]) {
    const { status, stderr } = await place.start(words).ended;
    expect([words, status, stderr]).toEqual([words, 2, expect.stringContaining("holdfast: Cannot")]);
  }
});
