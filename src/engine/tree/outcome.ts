/** What a program's end means for its run: an output that does not fit, or that holds a credential, is a failure. */
import { compileSchema, type Definition, findCredential } from "../../domain/plan/index.ts";
import { failure } from "../../domain/run.ts";
import type { Ended } from "../program-host.ts";
import type { Outcome } from "../replay.ts";

export function outcomeOf({ output_schema }: Definition, ended: Ended): Outcome {
  if (!ended.ok) return { type: "failed", failure: ended.failure };
  const fits = output_schema === undefined ? { ok: true as const } : compileSchema(output_schema).validate(ended.value);
  if (!fits.ok) return invalid(`does not fit the output schema at ${fits.path || "/"}: ${fits.message}`);
  const leak = findCredential(ended.value, "output");
  if (leak !== undefined) return invalid(`holds what looks like a credential at ${leak.path}`);
  return { type: "succeeded", output: ended.value };
}

function invalid(what: string): Outcome {
  return { type: "failed", failure: failure("invalid_output", `the output ${what}`) };
}
