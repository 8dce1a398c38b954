/** Secrets by handle (RP-42): names that the configuration maps to environment variables, read at each dispatch. */
import { HoldfastError } from "../domain/errors.ts";
import type { SecretPort } from "../ports/index.ts";

export interface SecretOptions {
  /** Name of a secret, as in `{"$secret": "name"}`, to the environment variable that holds it. */
  readonly env?: { readonly [name: string]: string };
}

/** The environment of a process; a copy or a fixed object in tests. */
export type Environment = { readonly [variable: string]: string | undefined };

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Denies every name: what untrusted workspaces and the server get (RP-42). */
export function denySecrets(): SecretPort {
  return { resolve: async (name) => ({ ok: false, reason: `no secret is allowed here, also not "${name}"` }) };
}

/**
 * Resolves only the names given, so that a definition can never name an environment variable itself. Reasons hold
 * names, never a value.
 * @throws HoldfastError `usage` when a variable's name is none
 */
export function createSecrets(options: SecretOptions, environment: Environment): SecretPort {
  const variables = new Map(Object.entries(options.env ?? {}));
  for (const [name, variable] of variables) {
    if (name.trim() !== "" && typeof variable === "string" && VARIABLE.test(variable)) continue;
    throw new HoldfastError(
      "usage",
      `Cannot use secrets.env.${name}: ${JSON.stringify(variable)} is no name of an environment variable; give one such as "API_KEY"`,
    );
  }
  return {
    async resolve(name) {
      const variable = variables.get(name);
      if (variable === undefined)
        return { ok: false, reason: `no secret "${name}" is configured; add it to secrets.env` };
      const value = Object.hasOwn(environment, variable) ? environment[variable] : undefined;
      if (value === undefined || value.trim() === "")
        return { ok: false, reason: `the secret "${name}" has no value: set the environment variable ${variable}` };
      return { ok: true, value };
    },
  };
}
