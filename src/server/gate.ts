/**
 * What every request passes before anything looks at what it asks for (DESIGN §11, C37): the name it used for this
 * server, the page it comes from, and where it carries its token. A browser page of another origin gets no further,
 * whatever it knows; neither does a name that was pointed at this machine (DNS rebinding).
 */
import { refusal } from "./problem.ts";

/** Headers that would make this request another one behind its method. */
const OVERRIDES = ["x-http-method-override", "x-http-method", "x-method-override"];
const METHODS = new Set(["GET", "POST", "PATCH", "DELETE"]);
/** Query names under which tokens are usually smuggled: they would end in histories and logs. */
const TOKEN_NAMES = new Set(["token", "access_token", "auth", "authorization", "api_key", "apikey", "key", "bearer"]);
const MAX_URL = 8_192;

/** @throws HoldfastError `usage`, `forbidden`, `unauthorized` */
export function checkRequest(request: Request, url: URL, hosts: ReadonlySet<string> | undefined): void {
  if (request.url.length > MAX_URL)
    throw refusal("usage", `Cannot read the request: its address is longer than ${MAX_URL} characters; shorten it`);
  checkHost(request, url, hosts);
  checkOrigin(request, url);
  if (!METHODS.has(request.method))
    throw refusal("usage", "Cannot answer: this method is not known here; use GET, POST, PATCH or DELETE");
  for (const name of OVERRIDES)
    if (request.headers.has(name))
      throw refusal("usage", `Cannot answer: the header ${name} is not accepted; send the method itself`);
  if (request.headers.has("upgrade"))
    throw refusal("usage", "Cannot answer: protocol upgrades are not offered; events come as text/event-stream");
  for (const name of url.searchParams.keys())
    if (TOKEN_NAMES.has(name.toLowerCase()))
      throw refusal(
        "unauthorized",
        "Cannot accept a token in the address, where histories and logs keep it; send it as Authorization: Bearer",
      );
  if (url.username !== "" || url.password !== "")
    throw refusal("unauthorized", "Cannot accept credentials in the address; send Authorization: Bearer");
}

function checkHost(request: Request, url: URL, hosts: ReadonlySet<string> | undefined): void {
  if (hosts === undefined) return;
  const host = (request.headers.get("host") ?? url.host).toLowerCase();
  if (!hosts.has(host))
    throw refusal(
      "forbidden",
      "Cannot answer under this Host name: it is not one of this server's; allow it with --allow-host",
    );
}

/** Same origin, or no browser at all: programs send neither header. */
function checkOrigin(request: Request, url: URL): void {
  const site = request.headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin" && site !== "none")
    throw refusal(
      "forbidden",
      "Cannot answer a page of another site; call from the server's own page or from a program",
    );
  const origin = request.headers.get("origin");
  if (origin === null) return;
  const host = request.headers.get("host") ?? url.host;
  // A proxy may have taken TLS off: the scheme says nothing, the name and port do.
  if (!["http:", "https:"].some((scheme) => origin.toLowerCase() === `${scheme}//${host}`.toLowerCase()))
    throw refusal(
      "forbidden",
      "Cannot answer a page of another origin; call from the server's own page or from a program",
    );
}

/** Names under which a server at this address is reached, for its `Host` allow-list. */
export function hostNames(host: string, port: number, allowed: readonly string[]): ReadonlySet<string> {
  const own =
    isLoopback(host) || host === "0.0.0.0" || host === "::"
      ? ["localhost", "127.0.0.1", "[::1]"]
      : [host.includes(":") ? `[${host}]` : host];
  const names = new Set(own.map((name) => `${name}:${port}`.toLowerCase()));
  for (const name of allowed) {
    const lower = name.toLowerCase();
    names.add(lower);
    // A name without a port is meant for this server's port as well as for the default one of a proxy before it.
    if (!/:\d+$/.test(lower)) names.add(`${lower}:${port}`);
  }
  return names;
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/**
 * Whether the address as it was sent is one that everybody reads alike: a path from the root, whole percent
 * escapes, nothing that climbs, no NUL, no backslash.
 */
export function isPlainTarget(target: string): boolean {
  if (!target.startsWith("/") || target.startsWith("//") || target.length > MAX_URL) return false;
  if (!/^[\x21-\x7e]*$/.test(target) || target.includes("\\") || target.includes("#")) return false;
  if (/%(?![0-9a-fA-F]{2})/.test(target)) return false;
  const path = target.split("?", 1)[0] as string;
  if (/%(?:00|5c|0[ad])/i.test(target)) return false;
  return !path.split("/").some((part) => /^(?:\.|%2e){1,2}$/i.test(part));
}
