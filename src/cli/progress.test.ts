import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { makeEvent, NOW } from "./cli.fixture.ts";
import { createOutput } from "./output.ts";
import { createProgress } from "./progress.ts";
import { detectTerminal } from "./terminal.ts";

function watched(env: NodeJS.ProcessEnv = {}) {
  let text = "";
  const stream = (isTTY: boolean) => Object.assign(new PassThrough(), { isTTY, columns: 60 });
  const streams = { stdin: stream(true), stdout: stream(true), stderr: stream(true) };
  streams.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  const terminal = detectTerminal(streams, env, { json: false, color: true, prompts: true });
  const out = createOutput(streams, terminal, { json: false, quiet: false, verbose: false });
  return { progress: createProgress(out, () => NOW), out, text: () => text };
}

test("a terminal shows one live line, cut to its width, and never a control character of a run's", async () => {
  const { progress, out, text } = watched();
  for (let i = 1; i <= 8; i++)
    progress.event(makeEvent(i, "step_started", { step_id: `step-${i}-\u001b[2J-with-a-long-name` }));
  progress.event(makeEvent(9, "step_completed", { step_id: "step-1-\u001b[2J-with-a-long-name" }));
  progress.end();
  await out.flush();
  const lines = text().split(/\r\u001b\[2K|\n/);
  const bare = lines.map((line) => line.replaceAll(/\u001b\[\d+m/g, ""));
  expect(bare.some((line) => line.startsWith("▸ step-1-\\u001b[2J"))).toBe(true);
  expect(bare.every((line) => line.length < 70 && !line.includes("\u001b"))).toBe(true);
  expect(bare).toContain("✓ step-1-\\u001b[2J-with-a-long-name  0 ms");
});

test("a failed attempt, its retry and what follows are told in order", async () => {
  const { progress, out, text } = watched({ NO_COLOR: "1" });
  progress.event(makeEvent(1, "step_started", { step_id: "find" }));
  progress.event({
    ...makeEvent(2, "step_failed", { step_id: "find" }),
    failure: { code: "execution_failed", message: "disk is slow" },
  });
  progress.event(makeEvent(3, "phase", { name: "retry_reserved", due_at_ms: Date.parse("2026-01-02T03:04:00.200Z") }));
  progress.event(makeEvent(4, "step_started", { step_id: "find", attempt: 2 }));
  progress.event(makeEvent(5, "step_completed", { step_id: "find" }));
  progress.event(makeEvent(6, "step_started", { step_id: "next", redispatch: 1 }));
  progress.end();
  await out.flush();
  expect(text().trim().split("\n")).toEqual([
    "▸ find",
    "✗ find  0 ms  disk is slow",
    "◷ next attempt in 200 ms",
    "▸ find attempt 2",
    "✓ find  0 ms",
    "▸ next is sent again after an interruption",
  ]);
});

test("where no live line is shown, nothing is taken away: a question may stand there", async () => {
  const { progress, out, text } = watched();
  out.status("");
  expect(text()).toBe("");
  out.status("look");
  out.status("");
  out.status("");
  progress.end();
  await out.flush();
  expect(text()).toBe("\r\u001b[2Klook\r\u001b[2K");
});
