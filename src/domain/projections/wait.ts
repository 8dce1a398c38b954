/** Waits and suspensions as they are shown (RP-71, interfaces §1). */
import type { Wait } from "../run.ts";
import type { PublicSuspension, PublicWait } from "./types.ts";

/** Who waits since when and until when: no prompt, tool, input, schema, digest or reason (RP-74). */
export function publicWait(wait: Wait): PublicWait {
  return {
    wait_id: wait.wait_id,
    type: wait.type,
    run_id: wait.run_id,
    ...(wait.step_id === undefined ? {} : { step_id: wait.step_id }),
    since_ms: wait.since_ms,
    ...(wait.due_at_ms === undefined ? {} : { due_at_ms: wait.due_at_ms }),
    ...(wait.deadline_at_ms === undefined ? {} : { deadline_at_ms: wait.deadline_at_ms }),
    ...(wait.warn_at_ms === undefined ? {} : { warn_at_ms: wait.warn_at_ms }),
  };
}

/** RP-71's three shapes, else type, step and wait (interfaces §1). `step_id` is the instance id (RP-68). */
export function publicSuspension(wait: Wait): PublicSuspension {
  switch (wait.type) {
    case "tool_approval":
      return { type: "tool_approval", step_id: wait.step_id ?? "" };
    case "tool_running":
      return { type: "tool_running", step_id: wait.step_id ?? "", killed: wait.killed === true };
    case "recovery":
      return { type: "recovery" };
    default:
      return {
        type: wait.type,
        ...(wait.step_id === undefined ? {} : { step_id: wait.step_id }),
        wait_id: wait.wait_id,
      };
  }
}
