/** From plan documents to the bundle that a simulated run is pinned to. */
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import { type Bundle, compilePlan, DEFAULT_INVOCATION_POLICY, definitionKey } from "../domain/plan/index.ts";

function isBundle(definitions: readonly unknown[] | Bundle): definitions is Bundle {
  return "definitions" in definitions;
}

/** Documents, the root first, as one publication would pin them; a bundle is taken as it is. @throws HoldfastError `definition` */
export function bundleOf(documents: readonly unknown[] | Bundle): Bundle {
  if (isBundle(documents)) return documents;
  const definitions = documents.map((document, i) => {
    const filled = { workflow_schema: 1, id: i === 0 ? "flow" : `flow-${i}`, revision: 1, ...(document as object) };
    const compiled = compilePlan(filled as unknown as Json, { maxConcurrency: 1_024 });
    if (compiled.definition !== undefined) return compiled.definition;
    const why = compiled.problems.map((problem) => `${problem.path.join(".")}: ${problem.message}`).join("; ");
    throw new HoldfastError("definition", `Cannot simulate the definition: ${why}; correct it`);
  });
  const [root] = definitions;
  if (root === undefined) throw new HoldfastError("usage", "Cannot make a world: it has no definition; give one");
  return {
    publication_revision: 1,
    root_id: root.id,
    root_revision: root.revision,
    root_invocation_policy: DEFAULT_INVOCATION_POLICY,
    definitions: Object.fromEntries(definitions.map((each) => [definitionKey(each.id, each.revision), each])),
  };
}
