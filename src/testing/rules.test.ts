/** Each rule sees the fault that it is there for: a journal is bent by hand and the rule must name the event. */
import { expect, test } from "vitest";
import type { RunEvent } from "../domain/events.ts";
import { carefulPerson, follow } from "./person.ts";
import { checkRules, type TreeHistory } from "./rules.ts";
import { createWorld } from "./world.ts";

const steps = ["a", "b"].map((id) => ({ id, type: "tool", tool: "Put", capabilities: [], args: {} }));
const plan = {
  type: "sequence",
  nodes: [
    { type: "step", step: "a" },
    { type: "retry", max_attempts: 2, delay_ms: 500, node: { type: "step", step: "b" } },
  ],
};

async function history(): Promise<TreeHistory> {
  const world = await createWorld({
    seed: 1,
    definitions: [{ steps, plan }],
    tools: [
      {
        name: "Put",
        sideEffect: "idempotent",
        answer: (call) =>
          call.step_id === "b" && call.attempt === 1
            ? { type: "failed", kind: "execution", retryable: true, message: "once" }
            : { type: "succeeded", output: 1 },
      },
    ],
  });
  const process = await world.process();
  void world.start(process);
  await world.clock.settle();
  const [run] = await world.store.listRuns({ limit: 1 });
  await follow(world, process, run?.run_id ?? "", { person: carefulPerson() });
  const found = await world.history(run?.run_id ?? "");
  await world.close();
  return found;
}

/** The same history with its one journal changed. */
function bent(of: TreeHistory, change: (events: RunEvent[]) => RunEvent[]): TreeHistory {
  return { ...of, runs: of.runs.map((run) => ({ ...run, events: change([...run.events]) })) };
}

function twice(events: readonly RunEvent[], which: (event: RunEvent) => boolean): RunEvent[] {
  return events.flatMap((event): RunEvent[] => (which(event) ? [event, event] : [event]));
}

const rulesOf = (of: TreeHistory): string[] => [...new Set(checkRules(of).map((fault) => fault.rule))];

test("a sound history breaks no rule", async () => {
  expect(checkRules(await history())).toEqual([]);
});

test.each<[string, (events: RunEvent[]) => RunEvent[]]>([
  ["contiguous_sequences", (events) => events.filter((event) => event.sequence !== 4)],
  ["legal_fold", (events) => events.filter((event) => event.type !== "step_queued")],
  ["one_terminal_event", (events) => [...events, events.at(-1) as RunEvent]],
  ["no_duplicate_event", (events) => twice(events, (event) => event.type === "step_completed")],
  [
    "retry_reserved_once",
    (events) => twice(events, (event) => event.type === "phase" && event.name === "retry_reserved"),
  ],
  ["woke_is_recorded", (events) => events.map(({ woke: _, ...event }) => event as RunEvent)],
  [
    "recovery_keeps_the_attempt",
    (events) =>
      events.map((event) => (event.type === "step_started" ? { ...event, attempt: event.attempt + 1 } : event)),
  ],
  [
    "ledger_is_the_fold",
    (events) => events.filter((event) => !(event.type === "phase" && event.name === "step_reserved")),
  ],
])("%s", async (rule, change) => {
  const broken = bent(await history(), change);
  expect(rulesOf(broken)).toContain(rule);
  const fault = checkRules(broken).find((each) => each.rule === rule);
  expect([fault?.cites, fault?.why]).toEqual([expect.stringMatching(/\w/), expect.stringMatching(/\w/)]);
});

test("no_mutation_twice names what happened twice and what was sent again", async () => {
  const sound = await history();
  const [call] = sound.effects.calls;
  const [effect] = sound.effects.effects;
  if (call === undefined || effect === undefined) throw new Error("nothing happened");
  sound.effects.effects.push(effect);
  sound.effects.calls.push({ ...call, side_effect: "mutating" }, { ...call, side_effect: "mutating" });
  expect(checkRules(sound).map((fault) => fault.why)).toEqual([
    expect.stringContaining("happened 2 times"),
    expect.stringContaining("sent again"),
  ]);
});
