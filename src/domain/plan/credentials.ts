/**
 * Credential screening (RP-7): finds keys and texts that look like a secret, so that none is ever stored. It runs on
 * every step output, so a key is judged once and remembered.
 */
import { getOwn, type Json, type JsonObject } from "../json.ts";
import { isSecretHandle, type Path } from "../schema/index.ts";

/** `reason` names the rule, never the value. */
export interface CredentialFinding {
  readonly path: Path;
  readonly reason: string;
}

export type ScreenedPlace = "args" | "output" | "definition";

const EXACT = new Set([
  ...["auth", "authentication", "authorization", "bearer", "oauth", "oauth2"],
  ...["cookie", "credential", "password", "passphrase", "privatekey", "secret", "token"].flatMap((word) => [
    word,
    `${word}s`,
  ]),
]);
const ENDINGS = [
  ...["accesskey", "authkey", "clientsecret", "credential", "devicekey", "encryptionkey", "password", "passphrase"],
  ...["privatekey", "secret", "secretkey", "signingkey", "token"],
].flatMap((word) => [word, `${word}s`]);
const REFERENCES = ["credential", "secret", "clientsecret", "privatekey", "token"].flatMap((word) =>
  ["ref", "refs", "reference", "references"].map((end) => word + end),
);
/** Counters are whole words before `tokens`, as in `max_tokens`, `cacheReadInputTokens`. */
const COUNTED = new Set(
  (
    "max min num total input output prompt completion cached cache read write creation reasoning thinking thoughts text audio image " +
    "used remaining estimated reserved spent accepted rejected prediction context candidates billed generated budget limit count usage"
  ).split(" "),
);
/** The same written as one word. */
const COUNTERS = new Set(
  ["input", "output", "total", "max", "prompt", "completion", "cached", "reasoning"].map((word) => `${word}tokens`),
);

const PREFIXES = ["capability://", "sk-", "ghp_", "github_pat_", "glpat-", "hf_", "xoxb-", "xoxp-", "AIza"];
const AWS_KEY_LENGTH = 16;

/** The first credential in a value, or `undefined`. In a definition references and schemas are told apart (RP-7). */
export function findCredential(value: Json, where: ScreenedPlace): CredentialFinding | undefined {
  const path: (string | number)[] = [];
  const reason = where === "definition" ? screenDefinition(value, path) : screen(value, path, false);
  return reason === undefined ? undefined : { path, reason };
}

/** `path` is left standing at the finding; otherwise it is as it was. */
function screen(value: Json, path: (string | number)[], inDefinition: boolean): string | undefined {
  if (typeof value === "string") return textReason(value);
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      path.push(i);
      const reason = screen(value[i], path, inDefinition);
      if (reason !== undefined) return reason;
      path.pop();
    }
    return undefined;
  }
  const object = value as JsonObject;
  // A handle names a secret and holds none, unless someone wrote the secret itself as its name.
  if (isSecretHandle(object)) return textReason(object.$secret);
  for (const key in object) {
    if (!Object.hasOwn(object, key)) continue;
    const item = object[key] as Json;
    path.push(key);
    const reason =
      (isCredentialKey(key) && !isHarmless(item, inDefinition) ? KEY_REASON : undefined) ??
      screen(item, path, inDefinition);
    if (reason !== undefined) return reason;
    path.pop();
  }
  return undefined;
}

const KEY_REASON = "the key is one that holds a credential";

/** Under a credential's name a handle is right, and inside a definition a reference to a value given later. */
function isHarmless(value: Json, inDefinition: boolean): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  if (isSecretHandle(value)) return true;
  const from = inDefinition ? getOwn(value as JsonObject, "from") : undefined;
  return from === "args" || from === "step" || from === "item";
}

function textReason(text: string): string | undefined {
  // Nearly every text ends here: its first character begins no credential.
  if (text.length < 3 || !"cCbBsghxA-\n\r\t ".includes(text.charAt(0))) return undefined;
  if (PREFIXES.some((prefix) => text.startsWith(prefix))) return "the text begins like a credential";
  if (text.startsWith("AKIA") && text.length >= AWS_KEY_LENGTH) return "the text begins like an access key";
  if (/^(bearer|basic) /i.test(text)) return "the text begins like an authorization header";
  if (/^\s{0,16}-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----/.test(text)) return "the text is a private key";
  return undefined;
}

const verdicts = new Map<string, boolean>();
const MAX_VERDICTS = 4_096;
const MAX_REMEMBERED_KEY = 128;

/** RP-7's rule for names, on letters and digits only, whatever the case. */
export function isCredentialKey(key: string): boolean {
  const known = verdicts.get(key);
  if (known !== undefined) return known;
  const verdict = judgeKey(key);
  if (key.length <= MAX_REMEMBERED_KEY) {
    if (verdicts.size >= MAX_VERDICTS) verdicts.clear();
    verdicts.set(key, verdict);
  }
  return verdict;
}

function judgeKey(key: string): boolean {
  const plain = key.replace(/[^A-Za-z0-9]/g, "").toLowerCase();
  if (plain.endsWith("tokens") && isCounter(key, plain)) return false;
  if (EXACT.has(plain) || plain.includes("apikey")) return true;
  return ENDINGS.some((ending) => plain.endsWith(ending)) || REFERENCES.some((ending) => plain.endsWith(ending));
}

function isCounter(key: string, plain: string): boolean {
  if (COUNTERS.has(plain)) return true;
  const words = key
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
  return words.length > 1 && words.at(-1) === "tokens" && words.slice(0, -1).every((word) => COUNTED.has(word));
}

/** Schemas stand at known places of a definition; everything else in it is screened like a value. */
function screenDefinition(value: Json, path: (string | number)[]): string | undefined {
  if (!isObject(value)) return screen(value, path, true);
  return members(value, path, (key, item) => {
    if (key === "input_schema" || key === "output_schema") return screenSchema(item, path);
    if (key === "steps" && Array.isArray(item)) return elements(item, path, (step) => screenStep(step, path));
    return keyReason(key, item) ?? screen(item, path, true);
  });
}

function screenStep(step: Json, path: (string | number)[]): string | undefined {
  if (!isObject(step)) return screen(step, path, true);
  const isInput = getOwn(step, "type") === "input";
  return members(step, path, (key, item) => {
    if (key === "output_schema" || (isInput && key === "schema")) return screenSchema(item, path);
    return keyReason(key, item) ?? screen(item, path, true);
  });
}

/** Names under `properties` are names, not places of secrets; the annotation is a boolean. */
function screenSchema(schema: Json, path: (string | number)[]): string | undefined {
  if (!isObject(schema)) return screen(schema, path, true);
  return members(schema, path, (key, item) => {
    if (key === "properties" && isObject(item)) return members(item, path, (_name, inner) => screenSchema(inner, path));
    if (key === "items") return screenSchema(item, path);
    if (key === "x-holdfast-secret" && typeof item === "boolean") return undefined;
    return keyReason(key, item) ?? screen(item, path, true);
  });
}

function keyReason(key: string, item: Json): string | undefined {
  return isCredentialKey(key) && !isHarmless(item, true) ? KEY_REASON : undefined;
}

function members(
  object: JsonObject,
  path: (string | number)[],
  look: (key: string, item: Json) => string | undefined,
): string | undefined {
  for (const [key, item] of Object.entries(object)) {
    path.push(key);
    const reason = look(key, item);
    if (reason !== undefined) return reason;
    path.pop();
  }
  return undefined;
}

function elements(
  array: readonly Json[],
  path: (string | number)[],
  look: (item: Json) => string | undefined,
): string | undefined {
  for (const [index, item] of array.entries()) {
    path.push(index);
    const reason = look(item);
    if (reason !== undefined) return reason;
    path.pop();
  }
  return undefined;
}

function isObject(value: Json): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
