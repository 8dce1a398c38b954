/** Who may do what: the allowlist of untrusted workspaces (RP-19) and the configured permissions of trusted ones (R-34). */
import { HoldfastError } from "../domain/errors.ts";
import { hashJson } from "../domain/json.ts";
import { nearest } from "../domain/nearest.ts";
import type { PolicyAnswer, PolicyPort, PolicyRequest } from "../ports/index.ts";

export type Permission = "allow" | "ask" | "deny";

/** `read`, `write`, `shell`, `network`, `agent` or one of a tool's own, to what is done with it. */
export type Permissions = { readonly [capability: string]: Permission };

/** RP-19: the only tools of an untrusted workspace, in lower case. */
export const UNTRUSTED_TOOLS: ReadonlySet<string> = new Set([
  "read",
  "read_file",
  "getfileinfo",
  "glob",
  "list_directory",
  "grep",
]);

/** R-34: what is unsaid is allowed for these and asked for the rest. */
const UNSAID: ReadonlyMap<string, Permission> = new Map([
  ["read", "allow"],
  ["agent", "allow"],
]);
const PERMISSIONS: readonly Permission[] = ["allow", "ask", "deny"];
/** Raised when the rules below change, so that an approval given under the old ones is asked for again. */
const RULES_VERSION = 1;

/**
 * The policy of one configuration.
 * @throws HoldfastError `usage` for a permission that is not `allow`, `ask` or `deny`
 */
export function createPolicy(options: { readonly permissions?: Permissions } = {}): PolicyPort {
  const permissions = readPermissions(options.permissions ?? {});
  return {
    fingerprint: hashJson({
      version: RULES_VERSION,
      permissions: [...permissions].map(([capability, permission]) => [capability, permission]),
    }),
    decide: (request) => (request.trusted ? decideTrusted(request, permissions) : decideUntrusted(request)),
  };
}

/** A sorted map: equal rules have equal fingerprints, and `__proto__` is a name like any other (C24). */
function readPermissions(permissions: Permissions): ReadonlyMap<string, Permission> {
  const entries = Object.entries(permissions).sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [capability, permission] of entries) {
    if (PERMISSIONS.some((known) => known === permission)) continue;
    const hint = nearest(String(permission), PERMISSIONS);
    throw new HoldfastError(
      "usage",
      `Cannot use permissions.${capability}: ${JSON.stringify(permission)} is no permission; ` +
        (hint === undefined ? "use allow, ask or deny" : `did you mean "${hint}"?`),
    );
  }
  return new Map(entries);
}

/** RP-19: by name and what is asked for; what a definition declares can only take away. */
function decideUntrusted(request: PolicyRequest): PolicyAnswer {
  const name = JSON.stringify(request.target);
  const untrusted = (reason: string): PolicyAnswer => ({ decision: "deny", cause: "trust", reason });
  if (request.kind === "agent") return untrusted(`the agent ${name} cannot run in a workspace that is not trusted`);
  if (!UNTRUSTED_TOOLS.has(request.target.toLowerCase()))
    return untrusted(`the tool ${name} cannot run in a workspace that is not trusted: only the file reading tools can`);
  const other = [...request.declared, ...request.capabilities].find((capability) => capability !== "read");
  if (other !== undefined)
    return untrusted(`the tool ${name} asks for "${other}", and a workspace that is not trusted gives only "read"`);
  return { decision: "allow" };
}

function decideTrusted(request: PolicyRequest, permissions: ReadonlyMap<string, Permission>): PolicyAnswer {
  const wanted = wantedCapabilities(request);
  const asks: string[] = [];
  for (const capability of wanted) {
    const permission = permissions.get(capability) ?? UNSAID.get(capability) ?? "ask";
    if (permission === "deny")
      return {
        decision: "deny",
        cause: "policy",
        reason: `${nameOf(request)} needs "${capability}", which permissions.${capability} denies`,
      };
    if (permission === "ask") asks.push(capability);
  }
  // After what is denied, which no posture lifts; before what is asked, because Plan mode answers that.
  const blocked = request.posture === "read_only" ? planModeBlocks(request, wanted) : undefined;
  if (blocked !== undefined) return { decision: "deny", cause: "plan_mode", reason: blocked };
  if (asks.length === 0 || request.posture === "auto") return { decision: "allow" };
  return { decision: "ask", reason: `${nameOf(request)} needs ${asks.map((name) => `"${name}"`).join(", ")}` };
}

/** The union of what it has and what the step declares: a declaration never authorises, and never hides. */
function wantedCapabilities(request: PolicyRequest): readonly string[] {
  const wanted = new Set([...request.capabilities, ...request.declared]);
  if (request.kind === "agent") wanted.add("agent");
  else if ([...wanted].every((capability) => capability === "read"))
    // A tool that may change things writes, also when it says that it only reads (R-13).
    wanted.add(request.side_effect === "read_only" ? "read" : "write");
  return [...wanted].sort();
}

/** RP-21, R-13: idempotent counts as mutating; an agent is judged by what it may use. */
function planModeBlocks(request: PolicyRequest, wanted: readonly string[]): string | undefined {
  const allowed = request.kind === "agent" ? ["agent", "read"] : ["read"];
  const other = wanted.find((capability) => !allowed.includes(capability));
  if (other === undefined && (request.kind === "agent" || request.side_effect === "read_only")) return undefined;
  return `Plan mode allows only reading, and ${nameOf(request)} may do more${other === undefined ? "" : ` ("${other}")`}`;
}

function nameOf(request: PolicyRequest): string {
  return `the ${request.kind} ${JSON.stringify(request.target)}`;
}
