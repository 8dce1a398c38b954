// Owns the proof that the system's own timers keep delays beyond 2^31-1 ms (C18).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { afterAll, expect, test } from "vitest";
import { buildEntry } from "../../dev/build-entry.mjs";
import { cleanUp, folder } from "./children.ts";

afterAll(cleanUp);

test("C18 a sleep of 30 days, a wall time of 40 and an approval of 60, on real timers: nothing fires early, and nobody is warned of a timeout that is too large", async () => {
  const program = await buildEntry("test/crash/timers-child.ts");
  const child = spawn(process.execPath, [program, JSON.stringify({ folder: folder() })], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [said, warned, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  expect([warned, status]).toEqual(["", 0]);
  expect(JSON.parse(said)).toEqual({ fired: 0, sleeps: "timer", asks: "approval", hangs: "running" });
}, 20_000);
