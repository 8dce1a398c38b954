/** What the configuration says of MCP servers: `mcp: { NAME: { command … } | { url … } }`, read and bounded. */
import { HoldfastError } from "../../domain/errors.ts";
import { nearest } from "../../domain/nearest.ts";
import type { SideEffect } from "../../domain/run.ts";

/** Text, or a handle of a secret that the configuration names under `secrets`. */
export type McpText = string | { readonly $secret: string };

/** What is said of one tool; hints of the server itself declare nothing. */
export interface McpToolConfig {
  /** Default `mutating`. */
  readonly side_effect?: SideEffect;
  /** Default one of the server's own, `mcp::SERVER`, which is asked for unless permitted. */
  readonly capabilities?: readonly string[];
}

interface Common {
  readonly tools?: { readonly [tool: string]: McpToolConfig };
  /** How long one call may take, ms, 1..3,600,000; default 60,000. */
  readonly timeout_ms?: number;
}

export interface McpCommandConfig extends Common {
  readonly command: string;
  readonly args?: readonly string[];
  readonly env?: { readonly [name: string]: McpText };
  /** Relative to the workspace; default the workspace. */
  readonly cwd?: string;
}

export interface McpUrlConfig extends Common {
  /** Streamable HTTP. */
  readonly url: string;
  readonly headers?: { readonly [name: string]: McpText };
}

export type McpServerConfig = McpCommandConfig | McpUrlConfig;

export const MCP_LIMITS = {
  servers: 64,
  tools: 1_000,
  args: 256,
  text: 32_768,
  timeout_ms: 3_600_000,
} as const;

const SERVER = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
const SIDE_EFFECTS: readonly SideEffect[] = ["read_only", "idempotent", "mutating"];
const COMMAND_KEYS = ["command", "args", "env", "cwd", "tools", "timeout_ms"];
const URL_KEYS = ["url", "headers", "tools", "timeout_ms"];

type Loose = { readonly [key: string]: unknown };

/** @throws HoldfastError `usage` naming the first place that is wrong */
export function readMcpConfig(value: unknown): ReadonlyMap<string, McpServerConfig> {
  const servers = Object.entries(object(value, "mcp"));
  if (servers.length > MCP_LIMITS.servers)
    refuse("mcp", `it lists more than ${MCP_LIMITS.servers} servers`, "list fewer");
  return new Map(
    servers.map(([name, server]) => {
      if (!SERVER.test(name)) refuse(`mcp.${name}`, "the name is not of letters, digits, _ and -", "choose another");
      return [name, readServer(`mcp.${name}`, object(server, `mcp.${name}`))];
    }),
  );
}

function readServer(at: string, given: Loose): McpServerConfig {
  const isUrl = given.url !== undefined;
  if (isUrl === (given.command !== undefined))
    refuse(at, "it has not exactly one of command and url", "give one of them");
  checkKeys(at, given, isUrl ? URL_KEYS : COMMAND_KEYS);
  const { timeout_ms } = given;
  const inTime = typeof timeout_ms === "number" && Number.isSafeInteger(timeout_ms) && timeout_ms >= 1;
  if (timeout_ms !== undefined && !(inTime && timeout_ms <= MCP_LIMITS.timeout_ms))
    refuse(`${at}.timeout_ms`, "it is not a whole number of milliseconds", `give 1 to ${MCP_LIMITS.timeout_ms}`);
  const tools = given.tools === undefined ? {} : readTools(`${at}.tools`, object(given.tools, `${at}.tools`));
  const common = { tools, ...(inTime ? { timeout_ms } : {}) };
  if (isUrl) {
    const headers = given.headers === undefined ? {} : { headers: texts(`${at}.headers`, given.headers) };
    return { url: readUrl(`${at}.url`, given.url), ...headers, ...common };
  }
  const args = given.args ?? [];
  if (!Array.isArray(args) || args.length > MCP_LIMITS.args)
    refuse(`${at}.args`, "it is no list of texts", `give at most ${MCP_LIMITS.args}`);
  return {
    command: text(`${at}.command`, given.command),
    args: (args as readonly unknown[]).map((arg, i) => text(`${at}.args[${i}]`, arg, true)),
    ...(given.env === undefined ? {} : { env: texts(`${at}.env`, given.env) }),
    ...(given.cwd === undefined ? {} : { cwd: text(`${at}.cwd`, given.cwd) }),
    ...common,
  };
}

function readTools(at: string, given: Loose): { readonly [tool: string]: McpToolConfig } {
  const entries = Object.entries(given);
  if (entries.length > MCP_LIMITS.tools) refuse(at, `it lists more than ${MCP_LIMITS.tools} tools`, "list fewer");
  return Object.fromEntries(
    entries.map(([name, tool]) => {
      const here = `${at}.${name}`;
      const said = object(tool, here);
      checkKeys(here, said, ["side_effect", "capabilities"]);
      const { side_effect, capabilities } = said;
      const effect = SIDE_EFFECTS.find((known) => known === side_effect);
      if (side_effect !== undefined && effect === undefined)
        refuse(`${here}.side_effect`, "it is no side effect", `use ${SIDE_EFFECTS.join(", ")}`);
      if (capabilities !== undefined && !isCapabilities(capabilities))
        refuse(`${here}.capabilities`, "it is no list of 1 to 32 names", 'give names such as "network"');
      const config: McpToolConfig = {
        ...(effect === undefined ? {} : { side_effect: effect }),
        ...(capabilities === undefined ? {} : { capabilities: [...new Set(capabilities)].sort() }),
      };
      return [name, config];
    }),
  );
}

/** An empty list would need no permission at all, which nothing that runs elsewhere deserves. */
function isCapabilities(value: unknown): value is readonly string[] {
  const names: readonly unknown[] = Array.isArray(value) ? value : [];
  return (
    names.length > 0 &&
    names.length <= 32 &&
    names.every((name) => typeof name === "string" && name.trim() !== "" && name.length <= 128)
  );
}

function readUrl(at: string, value: unknown): string {
  const given = text(at, value);
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:")
    refuse(at, "it is no http or https address", "correct it");
  if (url?.username !== "" || url.password !== "")
    refuse(at, "it holds a user name or password", "send them in headers, as secrets");
  return given;
}

function texts(at: string, value: unknown): { readonly [name: string]: McpText } {
  const entries = Object.entries(object(value, at));
  if (entries.length > MCP_LIMITS.args) refuse(at, "it has too many entries", `give at most ${MCP_LIMITS.args}`);
  return Object.fromEntries(
    entries.map(([name, item]) => {
      if (typeof item === "string") return [name, text(`${at}.${name}`, item, true)];
      const handle = object(item, `${at}.${name}`);
      checkKeys(`${at}.${name}`, handle, ["$secret"]);
      return [name, { $secret: text(`${at}.${name}.$secret`, handle["$secret"]) }];
    }),
  );
}

function text(at: string, value: unknown, mayBeEmpty = false): string {
  if (
    typeof value !== "string" ||
    (!mayBeEmpty && value === "") ||
    value.length > MCP_LIMITS.text ||
    value.includes("\0")
  )
    refuse(at, "it is no text", `give 1 to ${MCP_LIMITS.text} characters`);
  return value;
}

function object(value: unknown, at: string): Loose {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    refuse(at, "it is no mapping", "give names and values");
  return value as Loose;
}

function checkKeys(at: string, given: Loose, known: readonly string[]): void {
  for (const key of Object.keys(given)) {
    if (known.includes(key)) continue;
    const hint = nearest(key, known);
    refuse(
      `${at}.${key}`,
      "there is no such key",
      hint === undefined ? `use ${known.join(", ")}` : `did you mean "${hint}"?`,
    );
  }
}

function refuse(at: string, why: string, what: string): never {
  throw new HoldfastError("usage", `Cannot use ${at.slice(0, 256)}: ${why}; ${what}`);
}
