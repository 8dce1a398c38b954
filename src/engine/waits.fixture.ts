/** What the tests of waits ask with, and how they answer. */
import type { Json } from "../domain/json.ts";
import { type Fixture, leaf, ok, type TestClock, turn } from "./fixture.ts";

export const approval = (more: object = {}) => ({
  steps: [{ id: "gate", type: "approval", prompt: "go on?", ...more }],
  plan: leaf("gate"),
});
export const tools = { Read: { run: () => ok("read") } };
/** The clock of these tests jumps further than a lease lasts. */
export const LONG = { lease_ms: 6e9 };

export async function decide(
  f: Fixture,
  runId: string,
  kind: "approve" | "deny" | "answer",
  more: Record<string, Json> = {},
  wait = 0,
): Promise<void> {
  const wait_id = (await f.state(runId)).waits[wait]?.wait_id ?? "";
  if (!(await f.signal(runId, kind, { wait_id, decided_by: "me", ...more }))) throw new Error("nobody took it");
  await f.engine.idle(runId);
}

/** What a driver does with a tree that is due; the timers fire when the clock is told. */
export async function wake(f: Fixture, runId: string, clock: TestClock): Promise<void> {
  const tree = await f.engine.attach(runId);
  if (tree === undefined) throw new Error("it cannot be claimed");
  await f.engine.go(tree, "woken");
  for (let i = 0; i < 10; i++) await turn();
  if (f.engine.holds(runId) === undefined) throw new Error("it was let go of before its time");
  await clock.advance(0);
  await f.engine.idle(runId);
}
