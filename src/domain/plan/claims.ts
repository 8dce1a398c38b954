/** What a step claims of its workspace when it runs (GD-53): names for references, one claim a resource. */
import { failure } from "../run.ts";
import type { Claim } from "./definition.ts";
import { resourceFault } from "./read.ts";
import { type Resolved, resolveTemplate, type TemplateScope } from "./template.ts";

/** A claim as the store takes it. */
export interface NamedClaim {
  readonly resource: string;
  readonly access: Claim["access"];
}

/** The claims with their references replaced, one a resource: a writing one beats a reading one. */
export function resolveClaims(claims: readonly Claim[], scope: TemplateScope): Resolved<readonly NamedClaim[]> {
  const merged = new Map<string, Claim["access"]>();
  for (const { resource, access } of claims) {
    const name = resolveTemplate(resource, scope);
    if (!name.ok) return name;
    const fault = resourceFault(name.value);
    if (fault !== undefined)
      return {
        ok: false,
        failure: failure("invalid_input", `Cannot claim a resource: its name is not ${fault}; correct what it reads`),
      };
    const text = name.value as string;
    merged.set(text, merged.get(text) === "write" ? "write" : access);
  }
  return { ok: true, value: [...merged].map(([resource, access]) => ({ resource, access })) };
}
