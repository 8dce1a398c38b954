/** Secret handles in values (RP §2, RP-42): finding them, putting the secret in, and noticing one that comes back. */
import { type Json, type JsonObject, setOwn } from "../json.ts";
import { isSecretHandle } from "../schema/index.ts";
import type { Definition } from "./definition.ts";

/** Names of all handles in a value, each once, in the order met. */
export function secretHandles(value: Json): string[] {
  const names = new Set<string>();
  const visit = (at: Json): void => {
    if (typeof at !== "object" || at === null) return;
    if (isSecretHandle(at)) names.add(at.$secret);
    else for (const item of Object.values(at)) visit(item as Json);
  };
  visit(value);
  return [...names];
}

/**
 * The only secrets that a run of this definition may use: those that its author wrote down and those that its caller
 * passed. A handle that a tool's output brought along is in neither, so that a tool cannot make another one reveal a secret.
 */
export function declaredSecrets(definition: Definition, args: Json): ReadonlySet<string> {
  return new Set([...secretHandles(definition.steps as unknown as Json), ...secretHandles(args)]);
}

/**
 * The value with every handle replaced by its secret: for memory and the tool only, never to be stored.
 * A handle that `resolved` does not have stays a handle.
 */
export function substituteSecrets(value: Json, resolved: ReadonlyMap<string, string>): Json {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item: Json) => substituteSecrets(item, resolved));
  if (isSecretHandle(value)) return resolved.get(value.$secret) ?? value;
  const out: Record<string, Json> = {};
  for (const [key, item] of Object.entries(value as JsonObject)) setOwn(out, key, substituteSecrets(item, resolved));
  return out;
}

/** Whether any text or key of the value holds one of the secrets (RP-42). */
export function containsSecret(value: Json, secrets: Iterable<string>): boolean {
  const wanted = [...secrets].filter((secret) => secret !== "");
  if (wanted.length === 0) return false;
  const holds = (text: string) => wanted.some((secret) => text.includes(secret));
  const visit = (at: Json): boolean => {
    if (typeof at === "string") return holds(at);
    // A number or boolean can be a secret as well, where it was resolved from text such as a PIN.
    if (typeof at === "number" || typeof at === "boolean") return wanted.includes(String(at));
    if (at === null) return false;
    if (Array.isArray(at)) return at.some((item: Json) => visit(item));
    return Object.entries(at as JsonObject).some(([key, item]) => holds(key) || visit(item));
  };
  return visit(value);
}
