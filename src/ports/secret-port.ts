/** Secrets are handles, resolved at dispatch and only in memory (RP-42). */
export type SecretAnswer =
  | { readonly ok: true; readonly value: string }
  | { readonly ok: false; readonly reason: string };

export interface SecretPort {
  resolve(name: string): Promise<SecretAnswer>;
}
