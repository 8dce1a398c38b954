/** The trust list: by real path, in the user's folder, and trusting nothing when it cannot be relied on. */
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openTrust } from "./trust.ts";

let base: string;
let env: { HOME: string; [name: string]: string };
let workspace: string;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "holdfast-trust-")));
  env = { HOME: join(base, "home") };
  workspace = join(base, "home", "work");
  mkdirSync(workspace, { recursive: true });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

test("trusts by real path, keeps it for the next process, revokes", () => {
  symlinkSync(workspace, join(base, "link"));
  const trust = openTrust(env);
  expect([trust.isTrusted(workspace), trust.list(), trust.problem()]).toEqual([false, [], undefined]);
  expect(trust.trust(join(base, "link"), 17)).toEqual({ path: workspace, trusted_at_ms: 17 });
  expect(trust.trust(workspace, 99)).toEqual({ path: workspace, trusted_at_ms: 17 });
  expect(openTrust(env).isTrusted(join(base, "link"))).toBe(true);
  expect(openTrust(env).isTrusted(join(workspace, "sub"))).toBe(false);
  expect(openTrust(env).isTrusted(`${workspace}-evil`)).toBe(false);
  expect(JSON.parse(readFileSync(trust.path, "utf8"))).toEqual({
    version: 1,
    trusted: [{ path: workspace, trusted_at_ms: 17 }],
  });
  expect(statSync(trust.path).mode & 0o777).toBe(0o600);
  expect([trust.revoke(workspace), trust.revoke(workspace), trust.isTrusted(workspace)]).toEqual([true, false, false]);
});

test("a workspace that was removed can be revoked by its path", () => {
  const trust = openTrust(env);
  trust.trust(workspace, 1);
  rmSync(workspace, { recursive: true });
  expect(trust.revoke(workspace)).toBe(true);
});

test("HOLDFAST_TRUST=1 is for one command and leaves nothing behind", () => {
  expect(openTrust({ ...env, HOLDFAST_TRUST: "1" }).isTrusted(workspace)).toBe(true);
  expect(openTrust({ ...env, HOLDFAST_TRUST: "0" }).isTrusted(workspace)).toBe(false);
  expect(openTrust(env).isTrusted(workspace)).toBe(false);
});

test("never the home folder, nor a workspace that holds the list", () => {
  expect(() => openTrust(env).trust(env.HOME, 1)).toThrow(/home folder/);
  const inside = openTrust({ ...env, HOLDFAST_HOME: join(workspace, ".user") });
  expect(() => inside.trust(workspace, 1)).toThrow(/the trust list itself lies in it/);
  mkdirSync(join(workspace, ".user"));
  writeFileSync(
    join(workspace, ".user", "trust.json"),
    JSON.stringify({ version: 1, trusted: [{ path: workspace, trusted_at_ms: 1 }] }),
  );
  expect(inside.isTrusted(workspace)).toBe(false);
  expect(() => openTrust(env).trust(join(base, "nothing"), 1)).toThrow(/no such folder/);
});

test.each([
  ["not JSON", "{", 0o600],
  ["of another version", '{"version": 2, "trusted": []}', 0o600],
  ["with an odd entry", '{"version": 1, "trusted": [{"path": 1, "trusted_at_ms": 1}]}', 0o600],
  ["writable by others", '{"version": 1, "trusted": []}', 0o666],
])("a list %s trusts nothing, is told and is not overwritten", (_, text, mode) => {
  const trust = openTrust(env);
  mkdirSync(dirname(trust.path), { recursive: true });
  writeFileSync(trust.path, text);
  chmodSync(trust.path, mode);
  expect(trust.isTrusted(workspace)).toBe(false);
  expect(trust.problem()).toContain(trust.path);
  expect(() => trust.trust(workspace, 1)).toThrow(/correct or delete/);
  expect(() => trust.revoke(workspace)).toThrow(/correct or delete/);
  expect(readFileSync(trust.path, "utf8")).toBe(text);
});
