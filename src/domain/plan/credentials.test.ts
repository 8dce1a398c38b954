import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Json } from "../json.ts";
import { findCredential, isCredentialKey } from "./index.ts";

const place = (value: Json, where: "args" | "output" | "definition" = "output") =>
  findCredential(value, where)?.path.join("/");

describe("RP-7 credential screening", () => {
  test("SC-35 RP-7 names that hold credentials, however they are written", () => {
    const guilty =
      "auth authentication Authorization bearer cookie cookies credential credentials oauth OAuth2 password PASSWORDS pass-phrase private_key secret secrets token to.kens my-api-key apiKeyId aws_access_key authKey client_secret deviceKey encryption-key db_password sshPassphrase secretKey signing_key refresh_token access_tokens credentialRef secret_reference clientSecretRef private-key-reference tokenRefs x-holdfast-secret $secret page_token".split(
        " ",
      );
    for (const key of guilty) expect(isCredentialKey(key), key).toBe(true);
    const innocent =
      "author authored tokenizer tokens_used keys key cookie_count secretary passwordless authority monkey bearer_of reference ref max_tokens input_tokens output_tokens total_tokens totalTokens cacheReadInputTokens maxtokens completion_tokens".split(
        " ",
      );
    for (const key of innocent) expect(isCredentialKey(key), key).toBe(false);
  });

  test("SC-35 RP-7 texts that begin like credentials", () => {
    for (const text of [
      ...[
        "capability://x",
        "Bearer abc",
        "BASIC abc",
        "bearer x",
        "sk-1",
        "ghp_1",
        "github_pat_1",
        "glpat-1",
        "hf_1",
        "xoxb-1",
        "xoxp-1",
        "AIza1",
      ],
      ...[
        "AKIA234567890123",
        "-----BEGIN PRIVATE KEY-----\nMII",
        "-----BEGIN RSA PRIVATE KEY-----",
        "\n-----BEGIN OPENSSH PRIVATE KEY-----",
      ],
    ]) {
      expect(place({ list: ["fine", text] }), text).toBe("list/1");
    }
    for (const text of [
      "AKIA",
      "bearer",
      "Basics of it",
      "ask-me",
      "a sk-1",
      "Sk-1",
      "-----BEGIN PUBLIC KEY-----",
      "hf",
      "",
      "$(x) {{y}}",
    ]) {
      expect(place([text]), text).toBeUndefined();
    }
  });

  test("SC-35 RP-7 a well-formed handle is exempt everywhere, a malformed one nowhere", () => {
    for (const where of ["args", "output", "definition"] as const) {
      expect(place({ token: { $secret: "name" } }, where)).toBeUndefined();
      expect(place({ x: { $secret: "name" } }, where)).toBeUndefined();
      expect(place({ x: { $secret: "" } }, where)).toBe("x/$secret");
      expect(place({ x: { $secret: "sk-live" } }, where)).toBe("x");
    }
  });

  test("SC-35 RP-7 inside definitions references, the annotation and property names are exempt", () => {
    const step = (args: Json): Json => ({ steps: [{ id: "a", type: "tool", tool: "T", args }] });
    expect(place(step({ token: { from: "args", pointer: "/token" } }), "definition")).toBeUndefined();
    expect(place(step({ token: { from: "literal", value: "x" } }), "definition")).toBe("steps/0/args/token");
    expect(place(step({ token: { from: "object", fields: {} } }), "definition")).toBe("steps/0/args/token");
    expect(place({ token: { from: "args" } }, "args")).toBe("token");
    const schema: Json = {
      properties: { password: { type: "string", "x-holdfast-secret": true, properties: { token: {} } } },
      required: ["password"],
    };
    expect(
      place(
        { input_schema: schema, output_schema: schema, steps: [{ type: "input", schema, output_schema: schema }] },
        "definition",
      ),
    ).toBeUndefined();
    expect(place({ input_schema: { properties: { a: { default: "sk-1" } } } }, "definition")).toBe(
      "input_schema/properties/a/default",
    );
    expect(place({ input_schema: { properties: { a: { const: { password: "x" } } } } }, "definition")).toBe(
      "input_schema/properties/a/const/password",
    );
    expect(place({ input_schema: { "x-holdfast-secret": "sk" } }, "definition")).toBe("input_schema/x-holdfast-secret");
    expect(place({ budgets: { max_tokens: 5 } }, "definition")).toBeUndefined();
  });

  test("C24 own names that look like inherited ones are walked into", () => {
    expect(place(JSON.parse('{"__proto__":{"password":"x"}}') as Json)).toBe("__proto__/password");
  });

  test("a credential is found wherever it is put, and only then", () => {
    const harmless = fc
      .jsonValue({ maxDepth: 3 })
      .filter((value) => findCredential(value as Json, "output") === undefined);
    fc.assert(
      fc.property(
        fc.array(harmless, { minLength: 1, maxLength: 4 }),
        fc.nat(),
        fc.array(fc.constantFrom("a", "b", 0), { maxLength: 6 }),
        (around, index, way) => {
          let planted: Json = "ghp_abcdef";
          for (const name of way) planted = name === 0 ? [planted] : { [name]: planted };
          const list = [...(around as Json[])];
          const at = index % (list.length + 1);
          expect(place(list)).toBeUndefined();
          list.splice(at, 0, planted);
          expect(place(list)).toBe([at, ...[...way].reverse()].join("/"));
        },
      ),
      { seed: 5, numRuns: 300 },
    );
  });
});
