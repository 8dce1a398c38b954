/** How callers name a definition (interfaces §2, R-37): `id`, `id@revision`, a path, or `hash:HEX`. */
import { HoldfastError } from "../domain/errors.ts";
import { DEFINITION_ENDINGS } from "./entry.ts";

export type ParsedRef =
  | { readonly by: "id"; readonly id: string }
  | { readonly by: "revision"; readonly id: string; readonly revision: number }
  | { readonly by: "path"; readonly path: string }
  | { readonly by: "hash"; readonly hash: string };

const LONGEST_REF = 4_096;

/**
 * Reads a reference; doors that must not reach the disk (HTTP, MCP, models) refuse those that are by `path`.
 * @throws HoldfastError `usage` when it is none
 */
export function parseRef(ref: string): ParsedRef {
  if (ref.trim() === "" || ref.length > LONGEST_REF || ref.includes("\0"))
    throw new HoldfastError(
      "usage",
      "Cannot look up a workflow: the name is empty or no name; give an id, id@revision or path",
    );
  if (ref.startsWith("hash:")) {
    const hash = ref.slice("hash:".length).toLowerCase();
    if (/^[0-9a-f]{64}$/.test(hash)) return { by: "hash", hash };
    throw new HoldfastError(
      "usage",
      `Cannot look up "${ref}": a definition hash is 64 hex digits; copy it whole from: holdfast workflows show ID`,
    );
  }
  const lower = ref.toLowerCase();
  const isPath = ref.includes("/") || ref.includes("\\") || DEFINITION_ENDINGS.some((ending) => lower.endsWith(ending));
  if (isPath || lower === "skill.md") return { by: "path", path: ref };
  const found = /^(.+)@([1-9]\d{0,15})$/.exec(ref);
  if (found !== null) return { by: "revision", id: found[1] as string, revision: Number(found[2]) };
  return { by: "id", id: ref };
}
