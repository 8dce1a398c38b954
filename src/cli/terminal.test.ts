import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { detectTerminal } from "./terminal.ts";

const WISHES = { json: false, color: true, prompts: true };

function streams(tty: boolean) {
  const stream = () => Object.assign(new PassThrough(), { isTTY: tty, columns: 90 });
  return { stdin: stream(), stdout: stream(), stderr: stream() };
}

test("R-43 a terminal is live, coloured and can be asked", () => {
  expect(detectTerminal(streams(true), {}, WISHES)).toEqual({
    width: 90,
    live: true,
    color: true,
    unicode: true,
    watched: true,
    canPrompt: true,
  });
});

test.each([
  ["CI", { CI: "true" }, false],
  ["NO_COLOR", { NO_COLOR: "1" }, true],
  ["LANG=C", { LANG: "C" }, true],
  ["LC_ALL beats LANG", { LC_ALL: "POSIX", LANG: "de_DE.UTF-8" }, true],
  ["TERM=dumb", { TERM: "dumb" }, true],
])("R-43 %s gives plain lines", (_, env, canPrompt) => {
  const terminal = detectTerminal(streams(true), env, WISHES);
  expect([terminal.live, terminal.color, terminal.canPrompt]).toEqual([false, false, canPrompt]);
});

test("R-43 without a terminal nothing is cut, coloured or asked", () => {
  const terminal = detectTerminal(streams(false), {}, WISHES);
  expect(terminal).toEqual({
    width: Number.POSITIVE_INFINITY,
    live: false,
    color: false,
    unicode: true,
    watched: false,
    canPrompt: false,
  });
});

test("--no-input and --json never ask; CI=false and an empty NO_COLOR say nothing", () => {
  expect(detectTerminal(streams(true), {}, { ...WISHES, prompts: false }).canPrompt).toBe(false);
  expect(detectTerminal(streams(true), {}, { ...WISHES, json: true }).canPrompt).toBe(false);
  expect(detectTerminal(streams(true), { CI: "false", NO_COLOR: "" }, WISHES).live).toBe(true);
});
