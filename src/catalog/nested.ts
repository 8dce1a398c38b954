/** Faults of a definition that show only beside the workflows it nests (RP-13), with their places in its file. */
import { HoldfastError } from "../domain/errors.ts";
import type { Diagnostic } from "../domain/plan/definition.ts";
import { type CompileEnv, definitionKey, validateBundle } from "../domain/plan/index.ts";
import { type Compiled, place } from "./entry.ts";
import { DEFAULT_BUNDLE_LIMITS, type FindNested, nestedFault, pinBundle } from "./pin.ts";

/** @param file name shown in diagnostics */
export function nestedDiagnostics(compiled: Compiled, file: string, find: FindNested, env: CompileEnv): Diagnostic[] {
  const { definition, locate } = compiled;
  if (definition === undefined || !definition.steps.some((step) => step.type === "workflow")) return [];
  const at = (path: readonly (string | number)[], code: string, message: string): Diagnostic =>
    place({ path, code, message, severity: "error" }, file, locate);
  const missing = definition.steps.flatMap((step, i) => {
    if (step.type !== "workflow") return [];
    const why = nestedFault(step, find);
    return typeof why === "string" ? [at(["steps", i, "workflow_id"], "nested", `the nested workflow ${why}`)] : [];
  });
  if (missing.length > 0) return missing;
  try {
    const bundle = pinBundle(compiled, 1, find, DEFAULT_BUNDLE_LIMITS);
    const own = definitionKey(definition.id, definition.revision);
    return validateBundle(bundle, env)
      .filter((refusal) => refusal.definition === own)
      .flatMap(({ problems, message }) =>
        problems === undefined
          ? [at(["steps"], "nested", message)]
          : problems.map((problem) => place(problem, file, locate)),
      );
  } catch (error) {
    // Something deeper is missing, or the whole is too large: what a start would be refused with.
    if (!HoldfastError.is(error) || error.code !== "preflight") throw error;
    return [at(["steps"], "nested", error.message)];
  }
}
