// Cursors, idempotency keys and tokens: what is signed, remembered and hashed.
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CursorSigner } from "./cursors.ts";
import { KeyMemory } from "./key-memory.ts";
import { bearerOf, TokenFolder, tokenAuthenticator } from "./tokens.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-memory-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe("cursors", () => {
  test("come back only to their list, under the same secret, unchanged", () => {
    const secret = new Uint8Array(32).fill(7);
    const cursor = new CursorSigner(secret).sign("runs", "place");
    expect(new CursorSigner(secret).read("runs", cursor)).toBe("place");
    expect(() => new CursorSigner(secret).read("waits", cursor)).toThrow("cursor");
    expect(() => new CursorSigner(new Uint8Array(32)).read("runs", cursor)).toThrow("cursor");
    for (const bad of ["", "x", `${cursor}A`, cursor.slice(1), "=", "a".repeat(3_000)])
      expect(() => new CursorSigner(secret).read("runs", bad)).toThrow("cursor");
    expect(new CursorSigner(secret).read("runs", undefined)).toBeUndefined();
  });
});

describe("idempotency keys", () => {
  const name = (key: string, request = "{}") => ({ scope: "post /x", key, request });

  test("do once what is asked at once, and know it after a restart", async () => {
    const file = join(folder, "keys.jsonl");
    const memory = new KeyMemory(file);
    let acts = 0;
    const act = async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return { status: 200 + acts++, about: "run" };
    };
    const answers = await Promise.all([1, 2, 3].map(() => memory.once(name("a"), act)));
    expect(acts).toBe(1);
    expect(answers.filter((answer) => "replayed" in answer).length).toBe(2);
    expect(await new KeyMemory(file).once(name("a"), act)).toMatchObject({ replayed: { status: 200, about: "run" } });
    await expect(new KeyMemory(file).once(name("a", "other"), act)).rejects.toMatchObject({
      code: "idempotency_key_reused",
    });
    expect(acts).toBe(1);
    expect(readFileSync(file, "utf8")).not.toContain("post /x");
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  test("what failed is not remembered; a torn last line is nothing", async () => {
    const file = join(folder, "keys.jsonl");
    const memory = new KeyMemory(file);
    await expect(memory.once(name("a"), () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(await memory.once(name("a"), async () => ({ status: 200 }))).toMatchObject({ answer: { status: 200 } });
    appendFileSync(file, '{"scope":"torn');
    const again = new KeyMemory(file);
    expect(await again.once(name("a"), async () => ({ status: 500 }))).toMatchObject({ replayed: { status: 200 } });
  });
});

describe("tokens", () => {
  const request = (authorization: string) => new Request("http://x/", { headers: { authorization } });

  test("are kept as hashes, one file each, for their owner alone", () => {
    const tokens = new TokenFolder(folder);
    const { token } = tokens.add("Anna", "operator", 5);
    const file = join(folder, "tokens", "anna.json");
    expect(readFileSync(file, "utf8")).not.toContain(token);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(tokens.find(token)).toEqual({ name: "Anna", role: "operator" });
    expect(tokens.find(`${token}x`)).toBeUndefined();
    expect(() => tokens.add("anna", "observer", 5)).toThrow("there is one of that name");
    for (const bad of ["", "local", "../x", "a/b", ".a", "a".repeat(65)])
      expect(() => tokens.add(bad, "observer", 5)).toThrow("name");
    tokens.revoke("Anna");
    expect(tokens.find(token)).toBeUndefined();
    expect(() => tokens.revoke("../../x")).toThrow("none of that name");
  });

  test("stand alone in one Authorization header", () => {
    expect(bearerOf(request("Bearer abc"))).toBe("abc");
    expect(bearerOf(request("bearer abc"))).toBe("abc");
    for (const bad of ["abc", "Basic abc", "Bearer", "Bearer a b", "Bearer a, Bearer b", `Bearer ${"a".repeat(600)}`])
      expect([bad, bearerOf(request(bad))]).toEqual([bad, undefined]);
    const own = tokenAuthenticator({ secret: "own", principal: "os:ada" }, new TokenFolder(folder));
    expect(own(request("Bearer own"))).toEqual({ name: "local", role: "operator", principal: "os:ada" });
    expect(own(request("Bearer owns"))).toBeUndefined();
  });
});
