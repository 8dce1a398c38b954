import { expect, test } from "vitest";
import { crashEverywhere, describeFailure } from "../../src/testing/crash-everywhere.ts";
const tool = (id: string, name: string, more: object = {}) => ({ id, type: "tool", tool: name, capabilities: [], args: {n: id}, ...more });
const leaf = (step: string) => ({ type: "step", step });
for (const lookup of [false, true])
test("try", async () => {
  const t = performance.now();
  const report = await crashEverywhere({
    definitions: [{ steps: [tool("a","Read"), tool("b","Charge"), tool("c","Read")], plan: {type:"sequence", nodes: ["a","b","c"].map(leaf)} }],
    tools: [{ name: "Read", sideEffect: "read_only" }, { name: "Charge", lookup }],
  });
  console.log(report.boundaries, report.worlds, JSON.stringify(report.expected), performance.now()-t);
  console.log(report.failures.slice(0,8).map(describeFailure).join("\n"), report.failures.length);
}, 60000);
