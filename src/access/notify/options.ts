/** `notify` as it is given in code or in the configuration: read once, refused with its place where it is wrong (R-30). */
import type { ConfigNotify } from "../../config/index.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { WAIT_TYPES, type WaitType } from "../../domain/run.ts";

/** What a person has to end, by itself (the rest ends by time, by another run, or by whoever made it). */
export const PERSON_WAITS: readonly WaitType[] = [
  "tool_approval",
  "approval",
  "input",
  "repair",
  "tool_running",
  "budget",
  "recovery",
];
const KEYS = ["command", "webhook", "on", "timeout_ms"];
const DEFAULT_TIMEOUT_MS = 10_000;
const MAX_TIMEOUT_MS = 60_000;
const MAX_WORDS = 64;
const MAX_TEXT = 8_192;

export type HeaderValue = string | { readonly $secret: string };

export interface NotifyOptions {
  readonly command?: readonly string[];
  readonly webhook?: { readonly url: string; readonly headers: readonly (readonly [string, HeaderValue])[] };
  readonly on: ReadonlySet<WaitType>;
  readonly timeout_ms: number;
}

/** @throws HoldfastError `usage` */
export function readNotify(given: ConfigNotify): NotifyOptions {
  for (const key of Object.keys(given))
    if (!KEYS.includes(key)) refuse(key, "there is no such key", `use ${KEYS.join(", ")}`);
  const { command, webhook, on, timeout_ms = DEFAULT_TIMEOUT_MS } = given;
  if (command === undefined && webhook === undefined)
    refuse("", "it has neither command nor webhook", "give one of them, or both");
  if (!Number.isSafeInteger(timeout_ms) || timeout_ms < 1 || timeout_ms > MAX_TIMEOUT_MS)
    refuse("timeout_ms", "it is no whole number of milliseconds", `give 1 to ${MAX_TIMEOUT_MS}`);
  const unknown = on?.find((type) => !WAIT_TYPES.includes(type));
  if (unknown !== undefined)
    refuse("on", `${JSON.stringify(unknown)} is no type of wait`, `use ${WAIT_TYPES.join(", ")}`);
  return {
    ...(command === undefined ? {} : { command: readCommand(command) }),
    ...(webhook === undefined ? {} : { webhook: readWebhook(webhook) }),
    on: new Set(on ?? PERSON_WAITS),
    timeout_ms,
  };
}

function readCommand(command: readonly string[]): readonly string[] {
  const fits =
    Array.isArray(command) &&
    command.length >= 1 &&
    command.length <= MAX_WORDS &&
    command.every(isText) &&
    command[0] !== "";
  if (!fits)
    refuse(
      "command",
      "it is no list of words",
      `give the program and its arguments, at most ${MAX_WORDS}, as ["./tell.sh", "ops"]`,
    );
  return command;
}

function readWebhook(webhook: NonNullable<ConfigNotify["webhook"]>): NonNullable<NotifyOptions["webhook"]> {
  const extra = Object.keys(webhook).find((key) => key !== "url" && key !== "headers");
  if (extra !== undefined) refuse(`webhook.${extra}`, "there is no such key", "use url, headers");
  const headers = Object.entries(webhook.headers ?? {});
  const url = typeof webhook.url === "string" && URL.canParse(webhook.url) ? new URL(webhook.url) : undefined;
  if (url?.protocol !== "https:" && url?.protocol !== "http:")
    refuse("webhook.url", "it is no http or https address", "correct it");
  if (url.username !== "" || url.password !== "")
    refuse("webhook.url", "it holds a user name or password", "send them in headers, as secrets");
  // What headers hold is mostly a key, and plain text would show it to everybody on the way.
  if (url.protocol === "http:" && headers.length > 0 && !isLoopback(url.hostname))
    refuse("webhook.url", "its headers would be sent unencrypted", "use https");
  for (const [name, value] of headers) {
    const known =
      isText(value) ||
      (typeof value === "object" && value !== null && Object.keys(value).join() === "$secret" && isText(value.$secret));
    if (!/^[A-Za-z0-9-]{1,128}$/.test(name) || !known || (typeof value === "string" && /[\r\n]/.test(value)))
      refuse(`webhook.headers.${name.slice(0, 64)}`, "it is no header", 'give a text, or {"$secret": "name"}');
  }
  return { url: url.href, headers };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value.length <= MAX_TEXT && !value.includes("\0");
}

function refuse(key: string, why: string, what: string): never {
  throw new HoldfastError("usage", `Cannot use notify${key === "" ? "" : `.${key}`}: ${why}; ${what}`);
}
