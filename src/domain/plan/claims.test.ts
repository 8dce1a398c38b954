import { expect, test } from "vitest";
import type { Claim, TemplateScope } from "./index.ts";
import { resolveClaims } from "./index.ts";

const scope: TemplateScope = {
  args: { env: "prod", long: "é".repeat(257), blank: " ", n: 7, key: { $secret: "k" } },
  step: () => undefined,
  item: (name) => (name === "i" ? "member" : undefined),
};
const claim = (resource: Claim["resource"], access: Claim["access"] = "write"): Claim => ({ resource, access });
const args = (pointer: string) => ({ from: "args", pointer });

test("GD-53 references become names, and of two claims on one resource the writing one counts", () => {
  const claims = [
    claim("prod", "read"),
    claim("a", "write"),
    claim(args("/env")),
    claim("a", "read"),
    claim({ from: "item", name: "i" }, "read"),
    claim("member", "read"),
  ];
  expect(resolveClaims(claims, scope)).toEqual({
    ok: true,
    value: [
      { resource: "prod", access: "write" },
      { resource: "a", access: "write" },
      { resource: "member", access: "read" },
    ],
  });
  expect(resolveClaims([], scope)).toEqual({ ok: true, value: [] });
});

test("GD-53 what is no name is invalid_input, what leads nowhere unknown_reference, and no value is told", () => {
  for (const pointer of ["/long", "/blank", "/n", "/key", ""]) {
    const resolved = resolveClaims([claim("a"), claim(args(pointer))], scope);
    expect(resolved).toMatchObject({ ok: false, failure: { code: "invalid_input", retryable: false } });
    expect(JSON.stringify(resolved)).not.toMatch(/é|\$secret/);
  }
  expect(resolveClaims([claim({ from: "args", pointer: "/no" })], scope)).toMatchObject({
    failure: { code: "unknown_reference" },
  });
  expect(resolveClaims([claim({ from: "literal", value: "é".repeat(256) })], scope)).toMatchObject({ ok: true });
});
