import { describe, expect, test } from "vitest";
import { checkRetryPolicy } from "../backoff.ts";
import type { Json } from "../json.ts";
import { at, type Doc, doc, env, errors, step } from "./compile.fixture.ts";
import { compilePlan, definitionHash } from "./index.ts";

describe("what a tool step claims, and how it is tried again", () => {
  const one = (more: Doc) => doc([step("a", more)], at("a"), { input_schema: { properties: { env: {} } } });
  const compiled = (more: Doc) => compilePlan(one(more), env).definition?.steps[0] as unknown as Doc | undefined;
  const faults = (more: Doc) => errors(one(more)).map((fault) => fault.replace("/steps/0/", ""));

  test("defaults are filled, and are part of the definition only where the key is", () => {
    const resources = [{ resource: "db", access: "read" }, { resource: { from: "args", pointer: "/env" } }];
    expect(compiled({ resources, retry: { max_attempts: 3 } })).toMatchObject({
      resources: [
        { resource: "db", access: "read" },
        { resource: { from: "args", pointer: "/env" }, access: "write" },
      ],
      retry: {
        version: 1,
        max_attempts: 3,
        eligible_failures: ["owner_unavailable_before_acceptance", "owner_reported_retryable"],
        initial_backoff_ms: 1_000,
        backoff_multiplier: 2,
        maximum_backoff_ms: 60_000,
      },
    });
    const hash = (more: Doc) => {
      const { definition } = compilePlan(doc([step("a", more)], at("a")), env);
      return definition === undefined ? undefined : definitionHash(definition);
    };
    expect(hash({})).toBe("b25bf55d4a95e70a3c45a4e44a30289b31d546aa333454924e37be39b1aa3242");
    expect(hash({ retry: { max_attempts: 3 } })).toBe(hash({ retry: { max_attempts: 3, version: 1 } }));
    expect(new Set([hash({}), hash({ retry: { max_attempts: 3 } }), hash({ resources: [] })]).size).toBe(3);
    const again = compilePlan(
      compilePlan(one({ resources, retry: { max_attempts: 3 } }), env).definition as never,
      env,
    );
    expect([again.problems, again.definition?.steps[0]]).toEqual([
      [],
      compiled({ resources, retry: { max_attempts: 3 } }),
    ]);
  });

  test("C17 odd values are refused when the plan is loaded, each with its place", () => {
    const retry = (more: Doc) => faults({ retry: { max_attempts: 3, ...more } });
    const refused: [Doc, string][] = [
      [{ backoff_multiplier: 0 }, "range retry/backoff_multiplier"],
      [{ backoff_multiplier: 101 }, "range retry/backoff_multiplier"],
      [{ backoff_multiplier: 1.5 }, "type retry/backoff_multiplier"],
      [{ backoff_multiplier: 1e308 }, "type retry/backoff_multiplier"],
      [{ backoff_multiplier: "2" }, "type retry/backoff_multiplier"],
      [{ max_attempts: 0 }, "range retry/max_attempts"],
      [{ max_attempts: 100_001 }, "range retry/max_attempts"],
      [{ initial_backoff_ms: -1 }, "range retry/initial_backoff_ms"],
      [{ maximum_backoff_ms: 86_400_001 }, "range retry/maximum_backoff_ms"],
      [{ initial_backoff_ms: 60_001 }, "range retry/initial_backoff_ms"],
      [{ version: 2 }, "range retry/version"],
      [{ eligible_failures: [] }, "type retry/eligible_failures"],
      [{ eligible_failures: ["timeout"] }, "range retry/eligible_failures/0"],
      [
        { eligible_failures: ["owner_reported_retryable", "owner_reported_retryable"] },
        "duplicate retry/eligible_failures/1",
      ],
      [{ delay_ms: 1 }, "unknown_key retry/delay_ms"],
    ];
    for (const [more, fault] of refused) {
      expect(retry(more)).toEqual([fault]);
      // The domain's own check, by which policies from elsewhere are judged, refuses the same.
      const filled = { ...(compiled({ retry: { max_attempts: 3 } })?.retry as Doc), ...more };
      if (more.initial_backoff_ms !== 60_001 && (more.eligible_failures as Json[] | undefined)?.length !== 0)
        expect(checkRetryPolicy(filled)).toHaveLength(1);
    }
    expect(errors(one({ retry: { max_attempts: 3, backoff_multiplier: Number.NaN } }))).toEqual(["json /"]);
    expect(faults({ retry: {} })).toEqual(["missing retry"]);
    expect(faults({ retry: 3 })).toEqual(["type retry"]);
    for (const most of [
      { max_attempts: 1, initial_backoff_ms: 0, maximum_backoff_ms: 0, backoff_multiplier: 1 },
      {
        max_attempts: 100_000,
        initial_backoff_ms: 86_400_000,
        maximum_backoff_ms: 86_400_000,
        backoff_multiplier: 100,
      },
    ])
      expect(checkRetryPolicy(compiled({ retry: most })?.retry)).toEqual([]);
  });

  test("GD-53 claims are bounded, named by text or by a reference that is checked like any other", () => {
    const resource = (value: Json) => faults({ resources: [{ resource: value }] });
    for (const value of [" ", 7, null, ["a"], { $secret: "k" }, "é".repeat(257)])
      expect(resource(value)).toEqual(["type resources/0/resource"]);
    expect(resource({ from: "literal", value: 7 })).toEqual(["type resources/0/resource"]);
    expect(resource({ from: "object", fields: {} })).toEqual(["type resources/0/resource"]);
    expect(resource("é".repeat(256))).toEqual([]);
    expect(resource({ from: "args", pointer: "/env" })).toEqual([]);
    expect(resource({ from: "args", pointer: "/no" })).toEqual(["binding resources/0/resource/pointer"]);
    expect(resource({ from: "step", step: "a" })).toEqual(["cycle resources/0/resource/step"]);
    expect(resource({ from: "item", name: "i" })).toEqual(["binding resources/0/resource/name"]);
    expect(faults({ resources: [{ resource: "a", access: "wirte" }] })).toEqual(["range resources/0/access"]);
    expect(faults({ resources: [{ access: "read" }] })).toEqual(["missing resources/0"]);
    expect(faults({ resources: { resource: "a" } })).toEqual(["type resources"]);
    const many = (n: number) => faults({ resources: Array.from({ length: n }, (_, i) => ({ resource: `r${i}` })) });
    expect([many(64), many(65)]).toEqual([[], ["range resources"]]);
    const hints = [
      { retry: { max_attempts: 1, eligible_failures: ["owner_reported_retriable"] } },
      { retry: { max_attempt: 1 } },
      { resources: [{ resource: "a", acces: "read" }] },
      { resources: [{ resource: "a", access: "wirte" }] },
    ].map((more) => compilePlan(one(more), env).problems[0]?.hint);
    expect(hints).toEqual([
      'did you mean "owner_reported_retryable"?',
      'did you mean "max_attempts"?',
      'did you mean "access"?',
      'did you mean "write"?',
    ]);
  });

  test("only tool steps have them", () => {
    const agent = { id: "a", type: "agent", agent: "r", prompt: "go" };
    expect(errors(doc([{ ...agent, retry: { max_attempts: 2 } }], at("a")))).toEqual(["unknown_key /steps/0/retry"]);
    expect(errors(doc([{ ...agent, resources: [] }], at("a")))).toEqual(["unknown_key /steps/0/resources"]);
  });
});
