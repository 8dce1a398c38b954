/** What the help says of the commands for being asked by others: over HTTP, over MCP, with which token, in which session (interfaces §2). */
import type { CommandHelp } from "../spec.ts";

export const SERVING = {
  serve: {
    group: "Look after",
    args: [],
    summary: "offer this workspace over HTTP, and drive its runs",
    about:
      "Listens on this machine only, unless told otherwise. Every request needs a token: the server's own is in server.json in the state folder (readable by you alone, removed when it stops), others are made with `token add`. SIGTERM or Ctrl-C ends it in good order and leaves its runs to be claimed.",
    flags: [
      { flag: "--host <HOST>", about: "address to listen on, default 127.0.0.1" },
      { flag: "--port <N>", about: "default 4777; 0 takes any free one" },
      { flag: "--allow-host <HOST>", about: "also answer under this Host name, such as a proxy's", repeated: true },
      { flag: "--no-worker", about: "drive no runs: they are left queued for a worker process" },
      { flag: "--open", about: "open the page in a browser" },
      { flag: "--print-token", about: "print the server's token as well" },
    ],
    examples: ["serve", "serve --port 0 --json"],
    exits: "0 after SIGTERM, 2 refused, 5 store unavailable",
    json: '{"url", "pid", "token_file"} on one line',
  },
  token: {
    group: "Look after",
    args: [
      { arg: "[ACTION]", about: "add, list (default), revoke" },
      { arg: "[NAME]", about: "name of the token: it stands in journals as token:NAME" },
    ],
    summary: "named tokens for this workspace's server",
    about:
      "The secret is printed once, when the token is added; only its hash is kept. Works with and without a running server, which heeds it at once.",
    flags: [{ flag: "--role <observer|operator>", about: "with add: only look at public facts, or everything" }],
    examples: ["token add grafana --role observer", "token list", "token revoke grafana"],
    exits: "0 done, 2 refused",
    json: '{"name", "role", "token"?}; list: {"tokens": [{name, role, created_at_ms}]}',
  },
  sessions: {
    group: "Look after",
    args: [
      { arg: "[ACTION]", about: "list (default), create, show, set" },
      { arg: "[SESSION]", about: "name or id" },
      { arg: "[KEY=VALUE...]", about: "with set: posture=ask|auto|read_only, opt_in=true|false" },
    ],
    summary: "sessions: who owns runs, and what they may do",
    about:
      "Sessions cannot see each other's runs. `posture` says whether steps that ask are asked about (ask), allowed (auto), or refused with everything that writes (read_only); `opt_in` allows models to start runs.",
    flags: [],
    examples: ["sessions", "sessions create nightly", "sessions set nightly posture=auto"],
    exits: "0 done, 2 refused, 5 store unavailable",
    json: 'the session; list: {"sessions": [session]}',
  },
  mcp: {
    group: "Look after",
    args: [],
    summary: "offer this workspace's workflows to an MCP client",
    about:
      "Speaks MCP on standard input and output until the input ends; logs go to standard error. Each workflow whose invocation_policy.automatic is true becomes a tool of its own. Its runs belong to the session `mcp`; configuring this command is the opt-in for starting them. No tool approves, denies or repairs.",
    flags: [{ flag: "--read-only", about: "only look: nothing can be started or cancelled" }],
    examples: ["mcp", "mcp --read-only"],
    exits: "0 at the end of the input, 2 refused, 5 store unavailable",
    json: "none: standard output is the protocol's",
  },
} satisfies Readonly<Record<string, CommandHelp>>;
