import { describe, expect, test } from "vitest";
import { createSecrets, denySecrets } from "./secrets.ts";

describe("secrets", () => {
  test("RP-42 only configured names resolve, at the time they are asked for", async () => {
    const environment: Record<string, string> = { API_KEY: "k-1", OTHER: "x" };
    const secrets = createSecrets({ env: { api: "API_KEY" } }, environment);
    expect(await secrets.resolve("api")).toEqual({ ok: true, value: "k-1" });
    environment["API_KEY"] = "k-2";
    expect(await secrets.resolve("api")).toEqual({ ok: true, value: "k-2" });
    for (const name of ["API_KEY", "OTHER", "", "__proto__", "constructor"])
      expect(await secrets.resolve(name)).toMatchObject({ ok: false, reason: expect.stringContaining("secrets.env") });
  });

  test("a blank or missing variable has a reason that names it", async () => {
    const secrets = createSecrets({ env: { a: "EMPTY", b: "GONE", c: "toString" } }, { EMPTY: " " });
    expect(await secrets.resolve("a")).toMatchObject({ ok: false, reason: expect.stringContaining("EMPTY") });
    expect(await secrets.resolve("b")).toMatchObject({ ok: false, reason: expect.stringContaining("GONE") });
    expect(await secrets.resolve("c")).toMatchObject({ ok: false });
  });

  test("the default denies everything; a wrong variable name is refused", async () => {
    expect(await denySecrets().resolve("api")).toMatchObject({ ok: false });
    expect(() => createSecrets({ env: { api: "MY KEY" } }, {})).toThrow(/secrets\.env\.api: "MY KEY" is no name/);
  });
});
