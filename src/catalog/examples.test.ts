/** The example plans and the built-in workflows compile without a fault against the real shapes of the file tools. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { builtinFolder } from "./builtin-folder.ts";
import { openCatalog } from "./catalog.ts";

const files = { type: "array", items: { type: "string" } };
const truncated = { type: "boolean" };
const object = (properties: object) => ({ type: "object", properties }) as never;
/** As interfaces §4 gives them; the tools room's own tests hold it to them. */
const OUTPUTS = new Map([
  ["Glob", object({ files, truncated })],
  ["Grep", object({ matches: { type: "array", items: object({ path: { type: "string" } }) }, truncated })],
  ["list_directory", object({ entries: { type: "array" }, truncated })],
  ["Read", object({ path: { type: "string" }, content: { type: "string" }, truncated })],
  ["GetFileInfo", object({ path: { type: "string" }, size_bytes: { type: "integer" } })],
]);
const env = {
  maxConcurrency: 64,
  tool: (name: string) => {
    const output_schema = OUTPUTS.get(name);
    return output_schema === undefined ? undefined : { output_schema };
  },
};

describe("examples/plans", () => {
  const folder = fileURLToPath(new URL("../../examples/plans/", import.meta.url));
  const names = readdirSync(folder).filter((name) => name.endsWith(".yaml"));
  test.each(names)("%s", (name) => {
    expect(openCatalog({ env }).checkFiles([join(folder, name)])).toEqual([]);
  });
  test("are the two of interfaces §4.1 and R-32", () => {
    expect(names).toEqual(expect.arrayContaining(["map-then-summarise.yaml", "open-markers.yaml"]));
  });
});

describe("built-in workflows", () => {
  test("are found from the sources and from a bundle's place", () => {
    const folder = builtinFolder(import.meta.url);
    expect(folder).toBe(fileURLToPath(new URL("./builtin", import.meta.url)));
    expect(builtinFolder(new URL("../../dist/index.mjs", import.meta.url).href)).toMatch(/builtin$/);
    expect(builtinFolder("file:///nowhere/at/all/x.mjs")).toBeUndefined();
  });

  test("are valid, read only, and may be started by models", () => {
    const builtin = builtinFolder(import.meta.url) as string;
    const catalog = openCatalog({ builtin, env });
    expect(catalog.checkFiles()).toEqual([]);
    expect(catalog.entries().map((each) => [each.workflow_id, each.source, each.state])).toEqual([
      ["repo-overview", "builtin", "valid"],
    ]);
    for (const entry of catalog.entries()) {
      const { bundle } = catalog.pin(entry.workflow_id);
      expect(bundle.root_invocation_policy).toEqual({ explicit: true, automatic: true });
      for (const definition of Object.values(bundle.definitions))
        for (const step of definition.steps) {
          expect(step.type).toBe("tool");
          if (step.type === "tool") expect([OUTPUTS.has(step.tool), step.capabilities]).toEqual([true, ["read"]]);
        }
    }
  });
});
