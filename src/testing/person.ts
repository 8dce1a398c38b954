/** Someone who looks at what stands still, knows what really happened, and answers: the person of every simulation. */
import type { Json } from "../domain/json.ts";
import type { Wait } from "../domain/run.ts";
import type { RunState } from "../domain/state.ts";
import type { SignalKind } from "../ports/index.ts";
import type { World, WorldProcess } from "./world.ts";

export type Answer =
  | { readonly kind: SignalKind; readonly payload: { readonly [key: string]: Json } }
  /** Go on with what an interruption or a pause has stopped. */
  | { readonly kind: "continue" };

/** What the person says to a wait; undefined: nothing, it is not for them. */
export type Person = (wait: Wait, world: World) => Answer | undefined;

/** Something that is asked for at a moment of its own, and again until it was heard. */
export interface Action {
  readonly name: string;
  readonly when: (view: { readonly world: World; readonly root: RunState }) => boolean;
  readonly kind: SignalKind;
  readonly payload?: { readonly [key: string]: Json };
}

export interface PersonOptions {
  /** What approvals get; default approve. */
  readonly approvals?: "approve" | "deny";
  /** What inputs get; default null. */
  readonly input?: Json;
}

/**
 * Approves, and settles an unknown outcome by looking: what happened has succeeded, what did not is sent again — or,
 * where the run is being stopped, is cancelled.
 */
export function carefulPerson(options: PersonOptions = {}): Person {
  return (wait, world) => {
    const about = {
      wait_id: wait.wait_id,
      decided_by: "os:person",
      ...(wait.digest === undefined ? {} : { digest: wait.digest }),
    };
    switch (wait.type) {
      case "approval":
      case "tool_approval":
        return { kind: options.approvals ?? "approve", payload: about };
      case "input":
        return { kind: "answer", payload: { ...about, value: options.input ?? null } };
      case "repair":
        return { kind: "repair", payload: { ...about, ...repairOf(wait, world) } };
      case "recovery":
      case "paused":
        return { kind: "continue" };
      default:
        return undefined;
    }
  };
}

function repairOf(wait: Wait, world: World): { readonly [key: string]: Json } {
  const happened = wait.evidence === undefined ? undefined : world.effects.outcomeOf(wait.evidence.dispatch_id);
  if (happened !== undefined) return { resolution: "succeeded", output: happened.output };
  if (wait.stop_reason !== undefined) return { resolution: "cancelled", message: "it did not happen" };
  return { resolution: "retry", reason: "it did not happen" };
}

export interface FollowOptions {
  readonly person: Person;
  readonly actions?: readonly Action[];
  /** Simulated time that a run may take, ms. */
  readonly withinMs?: number;
  /** Looks away as soon as this holds. */
  readonly until?: () => boolean;
}

/** 60 days: longer than any wait of a workflow under test. */
const DEFAULT_WITHIN_MS = 60 * 86_400_000;
/** A wait that is answered so often and still open is a bug, not impatience. */
const MAX_ANSWERS = 20;

/**
 * Lets the world go on, the person answering, until the run has ended, the process is gone, or nothing more can
 * happen.
 */
export async function follow(
  world: World,
  process: WorldProcess,
  rootRunId: string,
  options: FollowOptions,
): Promise<"ended" | "gone" | "stuck"> {
  const heard = new Set<string>();
  const pending = new Set<string>();
  const answered = new Map<string, number>();
  const send = (name: string, act: () => Promise<boolean>): void => {
    pending.add(name);
    void act()
      .then(
        (taken) => void (taken && heard.add(name)),
        () => undefined,
      )
      .finally(() => {
        pending.delete(name);
        world.clock.touch();
      });
    world.clock.touch();
  };
  const until = world.clock.now() + (options.withinMs ?? DEFAULT_WITHIN_MS);
  for (;;) {
    await world.clock.settle();
    if (!process.alive || options.until?.() === true) return "gone";
    if (await world.ended(rootRunId)) return "ended";
    const record = await world.store.getRun(rootRunId);
    let acted = false;
    for (const action of record === undefined ? [] : (options.actions ?? [])) {
      if (heard.has(action.name) || pending.has(action.name)) continue;
      if (!action.when({ world, root: await world.state(rootRunId) })) continue;
      send(action.name, () =>
        process.engine.signal({ root_run_id: rootRunId, run_id: rootRunId }, action.kind, action.payload ?? {}),
      );
      acted = true;
    }
    if (!acted && pending.size === 0 && record?.status === "suspended")
      acted = await answerOne(world, process, rootRunId, options.person, send, answered);
    if (!acted && !world.clock.stepToward(until)) return "stuck";
  }
}

async function answerOne(
  world: World,
  process: WorldProcess,
  rootRunId: string,
  person: Person,
  send: (name: string, act: () => Promise<boolean>) => void,
  answered: Map<string, number>,
): Promise<boolean> {
  if ((await world.tree(rootRunId)).owner !== undefined) return false;
  const waits = await world.store.listWaits({ root_run_id: rootRunId, limit: 200 });
  // A run with an unknown outcome is not continued before it is known.
  const repair = waits.some((wait) => wait.type === "repair");
  for (const wait of waits) {
    const answer = person(wait, world);
    if (answer === undefined || (answer.kind === "continue" && repair)) continue;
    const name = `${wait.run_id} ${wait.wait_id}`;
    const times = (answered.get(name) ?? 0) + 1;
    if (times > MAX_ANSWERS) continue;
    answered.set(name, times);
    if (answer.kind === "continue") send(name, () => goOn(process, rootRunId));
    else
      send(name, () =>
        process.engine.signal({ root_run_id: rootRunId, run_id: wait.run_id }, answer.kind, answer.payload as Json),
      );
    return true;
  }
  return false;
}

async function goOn(process: WorldProcess, rootRunId: string): Promise<boolean> {
  const tree = await process.engine.attach(rootRunId);
  if (tree === undefined) return false;
  await process.engine.go(tree, "explicit");
  return true;
}
