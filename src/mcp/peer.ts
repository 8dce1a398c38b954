/** What is known of the other side of one request: its name, the protocol it speaks, and what it can do. */

import { hasTaskClientCapabilityV2 } from "@modelcontextprotocol/ext-tasks/core/v2";
import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  type ClientCapabilities,
  type Implementation,
  type Server,
  type ServerContext,
} from "@modelcontextprotocol/server";

export interface Peer {
  readonly name: string;
  /** The request carried the envelope of the 2026-07-28 revision. */
  readonly modern: boolean;
  /** Takes a task for an answer. */
  readonly tasks: boolean;
  /** Can put a form before a person. */
  readonly forms: boolean;
}

export function peerOf(server: Server, context: ServerContext): Peer {
  const envelope: { readonly [key: string]: unknown } | undefined = context.mcpReq.envelope;
  const modern = envelope !== undefined;
  // The envelope was checked by the protocol layer before the handler ran.
  const info = modern ? (envelope[CLIENT_INFO_META_KEY] as Implementation | undefined) : server.getClientVersion();
  const capabilities = modern
    ? (envelope[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined)
    : server.getClientCapabilities();
  const elicitation = capabilities?.elicitation;
  return {
    name: info?.name ?? "client",
    modern,
    tasks: modern && hasTaskClientCapabilityV2({ _meta: envelope }),
    // An empty declaration means forms; one that names other modes alone does not.
    forms: elicitation !== undefined && (Object.keys(elicitation).length === 0 || "form" in elicitation),
  };
}
