import { describe, expect, test } from "vitest";
import type { PolicyRequest } from "../ports/index.ts";
import { fileTools } from "./files/index.ts";
import { createPolicy, type Permissions } from "./policy.ts";
import { createToolRegistry } from "./registry.ts";

const request = (more: Partial<PolicyRequest>): PolicyRequest => ({
  kind: "tool",
  target: "deploy",
  declared: [],
  capabilities: [],
  side_effect: "mutating",
  trusted: true,
  posture: "ask",
  ...more,
});
const decide = (more: Partial<PolicyRequest>, permissions: Permissions = {}) =>
  createPolicy({ permissions }).decide(request(more));

describe("SC-19 untrusted workspaces", () => {
  const read = { trusted: false, capabilities: ["read"], side_effect: "read_only" as const };

  test("SC-19 the file tools may read, whatever the case of their names", () => {
    for (const item of createToolRegistry([fileTools()]).list())
      for (const target of [item.name, item.name.toUpperCase(), item.name.toLowerCase()])
        for (const declared of [[], ["read"]])
          expect(decide({ ...read, target, declared }), target).toEqual({ decision: "allow" });
  });

  test("SC-19 everything else is denied, also when it declares nothing or only reading", () => {
    for (const target of ["Write", "write_file", "WebFetch", "mcp::remote_tool", "Bash", "", "Reads", "Grep "])
      for (const declared of [[], ["read"], ["write"]])
        expect(decide({ ...read, target, declared }, { write: "allow" })).toMatchObject({
          decision: "deny",
          cause: "trust",
        });
    expect(decide({ ...read, target: "write_file", declared: ["write"] })).toMatchObject({ decision: "deny" });
  });

  test("SC-19 a file tool for which more than reading is declared, and every agent, is denied", () => {
    expect(decide({ ...read, target: "read_file", declared: ["read", "write"] })).toMatchObject({ cause: "trust" });
    expect(decide({ ...read, target: "read_file", capabilities: ["write"] })).toMatchObject({ cause: "trust" });
    expect(decide({ ...read, kind: "agent", target: "Read" }, { agent: "allow" })).toMatchObject({ cause: "trust" });
  });

  test("SC-19 no posture and no permission changes it", () => {
    for (const posture of ["ask", "auto", "read_only"] as const) {
      expect(decide({ ...read, target: "Bash", posture }, { shell: "allow" })).toMatchObject({ cause: "trust" });
      expect(decide({ ...read, target: "Read", posture }, { read: "deny" })).toEqual({ decision: "allow" });
    }
  });
});

describe("R-34 trusted workspaces", () => {
  test("unsaid is allow for read and agent, ask for the rest", () => {
    expect(decide({ capabilities: ["read"], side_effect: "read_only" })).toEqual({ decision: "allow" });
    expect(decide({ kind: "agent", target: "reviewer" })).toEqual({ decision: "allow" });
    for (const capability of ["write", "shell", "network", "payments", "__proto__", "constructor"])
      expect(decide({ capabilities: [capability] }), capability).toMatchObject({ decision: "ask" });
  });

  test("the worst of the union of own and declared capabilities wins", () => {
    const rules: Permissions = { network: "allow", write: "ask", shell: "deny" };
    expect(decide({ capabilities: ["network"] }, rules)).toEqual({ decision: "allow" });
    expect(decide({ capabilities: ["network"], declared: ["write"] }, rules)).toMatchObject({ decision: "ask" });
    expect(decide({ capabilities: ["network", "shell"], declared: ["write"] }, rules)).toMatchObject({
      decision: "deny",
      cause: "policy",
      reason: 'the tool "deploy" needs "shell", which permissions.shell denies',
    });
  });

  test("a declaration never hides what a tool can do, and none means writing", () => {
    expect(decide({ capabilities: ["shell"], declared: ["read"] })).toMatchObject({ decision: "ask" });
    for (const side_effect of ["mutating", "idempotent"] as const)
      for (const capabilities of [[], ["read"]])
        expect(decide({ capabilities, side_effect }, { write: "deny" })).toMatchObject({ decision: "deny" });
    expect(decide({ side_effect: "read_only" }, { read: "deny" })).toMatchObject({ decision: "deny" });
  });

  test("auto makes ask allow, and never deny", () => {
    expect(decide({ capabilities: ["write"], posture: "auto" })).toEqual({ decision: "allow" });
    expect(decide({ capabilities: ["write"], posture: "auto" }, { write: "deny" })).toMatchObject({ decision: "deny" });
  });

  test("an agent also needs `agent`", () => {
    expect(decide({ kind: "agent", declared: ["read"] }, { agent: "deny" })).toMatchObject({ decision: "deny" });
    expect(decide({ kind: "agent", declared: ["write"] })).toMatchObject({ decision: "ask" });
  });
});

describe("SC-37 Plan mode", () => {
  test("SC-37 Write is blocked, Read passes", () => {
    const posture = "read_only";
    const write = decide({ target: "Write", capabilities: ["write"], posture }, { write: "allow" });
    expect(write).toMatchObject({ decision: "deny", cause: "plan_mode", reason: expect.stringContaining("Plan mode") });
    expect(decide({ target: "Read", capabilities: ["read"], side_effect: "read_only", posture })).toEqual({
      decision: "allow",
    });
  });

  test("SC-37 idempotent counts as mutating, and read_only with another capability is no reading (R-13)", () => {
    const posture = "read_only";
    expect(decide({ capabilities: ["read"], side_effect: "idempotent", posture }, { write: "allow" })).toMatchObject({
      cause: "plan_mode",
    });
    expect(
      decide({ capabilities: ["network"], side_effect: "read_only", posture }, { network: "allow" }),
    ).toMatchObject({ cause: "plan_mode" });
    expect(decide({ capabilities: ["write"], posture }, { write: "ask" })).toMatchObject({ cause: "plan_mode" });
    expect(decide({ capabilities: ["write"], posture }, { write: "deny" })).toMatchObject({ cause: "policy" });
  });

  test("SC-37 an agent that can only read passes", () => {
    const agent = { kind: "agent", posture: "read_only" } as const;
    expect(decide({ ...agent, declared: ["read"] })).toEqual({ decision: "allow" });
    expect(decide({ ...agent, capabilities: ["read", "write"] }, { write: "allow" })).toMatchObject({
      cause: "plan_mode",
    });
  });
});

describe("rules", () => {
  test("the fingerprint is that of the rules, not of their order", () => {
    const print = (permissions: Permissions) => createPolicy({ permissions }).fingerprint;
    expect(print({ read: "allow", write: "ask" })).toBe(print({ write: "ask", read: "allow" }));
    expect(print({ write: "ask" })).not.toBe(print({ write: "allow" }));
    expect(print({})).toMatch(/^[0-9a-f]{64}$/);
  });

  test("a permission that is none is refused with a hint", () => {
    expect(() => createPolicy({ permissions: { write: "alow" as "allow" } })).toThrow(
      'Cannot use permissions.write: "alow" is no permission; did you mean "allow"?',
    );
  });
});
