/**
 * Pins a run to what it can reach: the root definition and every nested one, copied from one publication's kept
 * texts (RP-9). Nested workflows are found by exact id and revision among the winners (RP-8).
 */
import { HoldfastError, type Refused } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import { setOwn } from "../domain/json.ts";
import type { Bundle, Definition } from "../domain/plan/definition.ts";
import {
  type BundleLimits,
  checkBundleLimits,
  checkBundleSize,
  definitionKey,
  type NestedRef,
  nestedRefs,
} from "../domain/plan/index.ts";
import type { CatalogEntry, Compiled } from "./entry.ts";

export type { BundleLimits };

/** what binds model-started runs and untrusted workspaces. */
export const UNTRUSTED_BUNDLE_LIMITS: BundleLimits = { maxDefinitions: 32, maxBytes: 524_288 };
/** the default of `limits.definitions` and `limits.bundle_bytes`. */
export const DEFAULT_BUNDLE_LIMITS: BundleLimits = { maxDefinitions: 256, maxBytes: 16_777_216 };

export interface Nested {
  readonly definition?: Definition;
  readonly entry: CatalogEntry;
}

/** Finds what a nested workflow step names among the winners. */
export type FindNested = (id: string) => Nested | undefined;

export function refusePreflight(
  refused: Refused,
  message: string,
  details: { readonly [key: string]: Json } = {},
): never {
  throw new HoldfastError("preflight", message, { details: { refused, ...details } });
}

/** @throws HoldfastError `preflight` when something nested is missing, or the bundle is over a limit */
export function pinBundle(root: Compiled, revision: number, find: FindNested, limits: BundleLimits): Bundle {
  const definition = root.definition;
  if (definition === undefined) throw new HoldfastError("internal", "Bug in Holdfast: pinned what does not run");
  const definitions: Record<string, Definition> = {};
  const waiting: Definition[] = [definition];
  let count = 1;
  setOwn(definitions, definitionKey(definition.id, definition.revision), definition);
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    for (const ref of nestedRefs(at)) {
      const key = definitionKey(ref.workflow_id, ref.revision);
      if (Object.hasOwn(definitions, key)) continue;
      const nested = nestedDefinition(at, ref, find);
      setOwn(definitions, key, nested);
      waiting.push(nested);
      // Before more is gathered: a catalog can hold far more than a bundle may.
      const over = checkBundleSize({ definitions: ++count, bytes: 0 }, limits);
      if (over !== undefined) refusePreflight("bundle", over.message);
    }
  }
  const bundle: Bundle = {
    publication_revision: revision,
    root_id: definition.id,
    root_revision: definition.revision,
    root_invocation_policy: root.header.invocation_policy,
    definitions,
  };
  const over = checkBundleLimits(bundle, limits);
  if (over !== undefined) refusePreflight("bundle", over.message);
  return bundle;
}

function nestedDefinition(by: Definition, ref: NestedRef, find: FindNested): Definition {
  const why = nestedFault(ref, find);
  if (typeof why !== "string") return why;
  return refusePreflight("bundle", `Cannot start "${by.id}": its nested workflow ${why}`);
}

/** The definition that a step names, or a clause that says why there is none. */
export function nestedFault(ref: NestedRef, find: FindNested): Definition | string {
  const name = `"${ref.workflow_id}@${ref.revision}"`;
  const found = find(ref.workflow_id);
  if (found === undefined) return `${name} is not in the catalog; add it or correct the name`;
  const { entry, definition } = found;
  if (entry.kind === "instruction") return `${name} is an instruction, not a workflow; name a workflow`;
  if (definition === undefined) return `${name} is broken; correct it first (holdfast check)`;
  if (definition.revision !== ref.revision)
    return `${name} is at revision ${definition.revision} in the catalog; name that revision`;
  return definition;
}
