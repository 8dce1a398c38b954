// What passes the gate and what does not; the sockets' half is in test/security.
import { describe, expect, test } from "vitest";
import { checkRequest, hostNames, isPlainTarget } from "./gate.ts";

const HOSTS = hostNames("127.0.0.1", 4777, ["proxy.test", "other.test:8443"]);
const check =
  (url: string, headers: Record<string, string> = {}, method = "GET") =>
  () =>
    checkRequest(new Request(url, { method, headers }), new URL(url), HOSTS);

describe("hosts", () => {
  test.each([
    "127.0.0.1:4777",
    "localhost:4777",
    "[::1]:4777",
    "LOCALHOST:4777",
    "proxy.test",
    "proxy.test:4777",
    "other.test:8443",
  ])("%s is ours", (host) => expect(check(`http://${host}/`, { host })).not.toThrow());
  test.each([
    "127.0.0.1",
    "127.0.0.1:4778",
    "evil.test:4777",
    "127.0.0.1.evil.test:4777",
    "other.test",
    "proxy.test:1",
    "localhost:4777.evil.test",
  ])("%s is not", (host) => expect(check("http://127.0.0.1:4777/", { host })).toThrow("Host"));
  test("a server on all addresses is still called by loopback names only", () => {
    expect(hostNames("0.0.0.0", 1, [])).toEqual(new Set(["localhost:1", "127.0.0.1:1", "[::1]:1"]));
    expect(hostNames("10.0.0.5", 1, [])).toEqual(new Set(["10.0.0.5:1"]));
  });
});

describe("origins", () => {
  const host = "127.0.0.1:4777";
  test.each([`http://${host}`, `https://${host}`])("%s may ask", (origin) =>
    expect(check(`http://${host}/`, { host, origin })).not.toThrow(),
  );
  test.each(["null", "http://evil.test", `http://${host}.evil.test`, "http://localhost:4777", `ftp://${host}`])(
    "%s may not",
    (origin) => expect(check(`http://${host}/`, { host, origin })).toThrow("origin"),
  );
  test.each(["cross-site", "same-site", ""])("a fetch from %s may not", (site) =>
    expect(check(`http://${host}/`, { host, "sec-fetch-site": site })).toThrow("site"),
  );
});

describe("addresses", () => {
  test.each(["/", "/a/b?c=d", "/a%2Fb", "/steps/each%40root%5B3%5D", "/a.b/..c"])("%s is plain", (target) =>
    expect(isPlainTarget(target)).toBe(true),
  );
  test.each([
    "",
    "a",
    "//a",
    "/..",
    "/a/../b",
    "/a/%2E%2e/b",
    "/%",
    "/%4",
    "/%zz",
    "/a\\b",
    "/a%5Cb",
    "/a%00",
    "/a#b",
    "/a b",
    "/ü",
    "http://a/b",
    "*",
    `/${"a".repeat(9_000)}`,
  ])("%j is not", (target) => expect(isPlainTarget(target)).toBe(false));
});
