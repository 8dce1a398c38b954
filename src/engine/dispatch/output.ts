/** What a tool or an agent hands back, checked before it is stored anywhere. */
import { type Json, JsonError, normalizeJson } from "../../domain/json.ts";
import { compileSchema, containsSecret, findCredential } from "../../domain/plan/index.ts";
import { type Failure, failure } from "../../domain/run.ts";

/** Normal form, schema, credentials, echoed secrets: what does not pass is stored nowhere (RP-7, RP-29, RP-42). */
export function checkOutput(
  who: string,
  value: unknown,
  schema: Parameters<typeof compileSchema>[0] | undefined,
  secrets: readonly string[],
): { ok: true; output: Json } | { ok: false; failure: Failure } {
  const bad = (message: string): { ok: false; failure: Failure } => ({
    ok: false,
    failure: failure("invalid_output", message),
  });
  let output: Json;
  try {
    output = normalizeJson(value);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return bad(`the output of "${who}" cannot be stored: ${error.message}`);
  }
  if (secrets.length > 0 && containsSecret(output, secrets))
    return bad(`the output of "${who}" repeats a secret it was given`);
  const leak = findCredential(output, "output");
  if (leak !== undefined) return bad(`the output of "${who}" holds what looks like a credential at ${leak.path}`);
  if (schema === undefined) return { ok: true, output };
  const fits = compileSchema(schema).validate(output);
  return fits.ok
    ? { ok: true, output }
    : bad(`the output of "${who}" does not fit its schema at ${fits.path || "/"}: ${fits.message}`);
}
