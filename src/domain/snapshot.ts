/** The snapshot of a state: a cache of the fold that can be dropped at any time (DESIGN §4). */
import { Map as PersistentMap } from "immutable";
import type { Json } from "./json.ts";
import type { RunHeader } from "./run.ts";
import type { Reservation, RunState, StepState } from "./state.ts";

/** What `JSON.stringify` turns into the snapshot's text: a state without its header. */
export function snapshotOf(run: RunState): object {
  const { header: _, steps, reservations, ...rest } = run;
  return { ...rest, steps: [...steps.values()], reservations: [...reservations.entries()] };
}

/** JSON form of a state without its header. */
export function encodeState(run: RunState): Json {
  return JSON.parse(JSON.stringify(snapshotOf(run))) as Json;
}

export function decodeState(header: RunHeader, snapshot: Json): RunState {
  const { steps, reservations, ...rest } = snapshot as unknown as Omit<
    RunState,
    "header" | "steps" | "reservations"
  > & { steps: StepState[]; reservations: [string, Reservation][] };
  return {
    ...rest,
    header,
    steps: PersistentMap(steps.map((step) => [step.id, step])),
    reservations: PersistentMap(reservations),
  };
}
