/** The HTTP interface without a socket: a function to mount in a server of one's own. */
import type { HandlerOptions, Holdfast } from "../access/api.ts";
import { createApp } from "./app.ts";
import { CursorSigner } from "./cursors.ts";
import { KeyMemory } from "./key-memory.ts";
import type { McpHandler } from "./options.ts";
import { keyMemoryPath, serverSecret } from "./state-files.ts";
import { TokenFolder, tokenAuthenticator } from "./tokens.ts";
import { serverVersion } from "./version.ts";

/**
 * @param mcp what answers at `/mcp`, handed in since adapters do not know each other
 * @param stateDir undefined for a store in memory: what a server remembers then lasts as long as the store does
 */
export function mountedHandler(
  holdfast: Holdfast,
  stateDir: string | undefined,
  options: HandlerOptions = {},
  mcp?: McpHandler,
): (request: Request) => Promise<Response> {
  const hosts =
    options.allow_hosts === undefined ? undefined : new Set(options.allow_hosts.map((host) => host.toLowerCase()));
  const app = createApp({
    holdfast,
    version: serverVersion,
    // Without a word of the outer server only named tokens count: nobody is let in by default.
    authenticate:
      options.authenticate ??
      tokenAuthenticator(undefined, stateDir === undefined ? undefined : new TokenFolder(stateDir)),
    ...(mcp === undefined ? {} : { mcp }),
    ...(hosts === undefined ? {} : { hosts: () => hosts }),
    ...(options.base_path === undefined ? {} : { basePath: options.base_path }),
    ...(stateDir === undefined
      ? {}
      : { cursors: new CursorSigner(serverSecret(stateDir)), keys: new KeyMemory(keyMemoryPath(stateDir)) }),
  });
  let ready: Promise<unknown> | undefined;
  return async (request) => {
    // A GET changes nothing, so the session that requests take for granted is made before the first one.
    ready ??= holdfast.sessions.get("default").catch(() => {
      ready = undefined;
    });
    await ready;
    return app.fetch(request);
  };
}
