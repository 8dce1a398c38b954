// Traces: off unless an exporter is named; then runs and steps arrive at it, with ids and no values.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import type { Committed, Holdfast } from "../access/api.ts";
import { startTelemetry } from "./telemetry.ts";

function scripted(): { holdfast: Holdfast; tell: (committed: Committed) => void } {
  const listeners = new Set<(committed: Committed) => void>();
  const observe: Holdfast["observe"] = (listener) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return {
    holdfast: { observe } as Holdfast,
    tell: (committed) => listeners.forEach((listener) => void listener(committed)),
  };
}

test("without an endpoint nothing is loaded; a wrong key is refused by name", async () => {
  const { holdfast } = scripted();
  expect(await startTelemetry(holdfast, undefined, "1")).toBeUndefined();
  expect(await startTelemetry(holdfast, {}, "1")).toBeUndefined();
  await expect(startTelemetry(holdfast, { endpoint: "x" }, "1")).rejects.toThrow("telemetry.endpoint");
  await expect(startTelemetry(holdfast, { otlp_endpoint: "file:///x" }, "1")).rejects.toThrow("http");
});

const AGENT_CALL = ["invoke_agent", "gen_ai.operation.name", "holdfast.usage.tokens", "holdfast.usage.cost_micros"];

test("runs, steps and agent calls reach an OTLP collector, nested, without values", async () => {
  const bodies: string[] = [];
  const sink = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      bodies.push(`${request.url} ${Buffer.concat(chunks).toString("latin1")}`);
      response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => sink.listen(0, "127.0.0.1", resolve));
  const { port } = sink.address() as AddressInfo;
  const { holdfast, tell } = scripted();
  const telemetry = await startTelemetry(holdfast, { otlp_endpoint: `http://127.0.0.1:${port}` }, "1");
  const run = { run_id: "r1", root_run_id: "r1", session_id: "s", workflow_id: "hello", workflow_revision: 1 };
  const at = { at_ms: Date.now() };
  tell({
    ...run,
    status: "running",
    events: [
      { ...at, sequence: 1, type: "run_queued" },
      { ...at, sequence: 2, type: "run_started" },
      {
        ...at,
        sequence: 3,
        type: "step_started",
        step_id: "look",
        visit: 1,
        attempt: 1,
        side_effect: "read_only",
        input_hash: "0".repeat(64),
        input: "PRIVATE-input",
      },
      { ...at, sequence: 4, type: "phase", name: "agent_reserved", instance: "look", tokens: 99 },
    ] as Committed["events"],
  });
  tell({
    ...run,
    status: "succeeded",
    events: [
      { ...at, sequence: 5, type: "phase", name: "agent_usage_recorded", instance: "look", tokens: 17, cost_micros: 3 },
      { ...at, sequence: 6, type: "step_completed", step_id: "look", output: "PRIVATE-output" },
      { ...at, sequence: 7, type: "run_succeeded", output: null },
    ] as unknown as Committed["events"],
  });
  await telemetry?.stop();
  sink.close();
  const text = bodies.join("");
  expect(text).toContain("/v1/traces");
  for (const part of ["workflow hello", "holdfast.run.id", "holdfast.step.id", "look", "succeeded", ...AGENT_CALL])
    expect(text).toContain(part);
  expect(text).not.toContain("PRIVATE");
});
