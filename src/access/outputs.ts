/** What a step of a run must give, by its pinned definition and the tools that are here now. */
import type { Json } from "../domain/json.ts";
import { compileSchema, definitionKey, type Schema, splitInstance } from "../domain/plan/index.ts";
import type { RunHeader } from "../domain/run.ts";
import { type AccessContext, needEngine } from "./context.ts";

/** Answers why an output does not fit the step, such as `at /id: …`; undefined when it does, or nothing is declared. */
export async function outputCheck(
  context: AccessContext,
  header: RunHeader,
): Promise<(stepId: string, output: Json) => string | undefined> {
  const bundle = await needEngine(context).bundleOf(header.bundle_hash);
  const definition = bundle.definitions[definitionKey(header.workflow_id, header.workflow_revision)];
  return (stepId, output) => {
    const step = definition?.steps.find(({ id }) => id === splitInstance(stepId).step);
    const tool = step?.type === "tool" ? context.tools.describe(step.tool) : undefined;
    const schema: Schema | undefined =
      (step !== undefined && "output_schema" in step ? step.output_schema : undefined) ?? tool?.output_schema;
    if (schema === undefined) return undefined;
    const fits = compileSchema(schema).validate(output);
    return fits.ok ? undefined : `at ${fits.path || "/"}: ${fits.message}`;
  };
}
