/** What every MCP connection of one process works with: the one door, the session that owns the runs, what is offered. */
import type { Holdfast, ToolLog, WorkflowTools } from "../access/index.ts";
import { HoldfastError } from "../domain/errors.ts";

/** Session of MCP clients, unless another is named. */
export const MCP_SESSION = "mcp";

export interface McpOptions {
  /** Default `mcp`; made on first use. */
  readonly session?: string;
  /** Only what reads; the session's opt-in stays as it is. */
  readonly readOnly?: boolean;
  /** `elicit`: a person may approve or deny through the client's own form. Default: not at all. */
  readonly approvals?: "elicit";
  /** False: runs that are started are left to worker processes. Default true. */
  readonly drives?: boolean;
  /** How long a call waits for its run at most, ms, 0..50,000. Default 50,000. */
  readonly maxWaitMs?: number;
  /** How long the forms of one call of an older client stay open at most, ms. Default 600,000. */
  readonly maxFormMs?: number;
  readonly version?: string;
  /** Never to stdout: on stdio that is the protocol's. */
  readonly log?: ToolLog;
}

export interface McpService extends McpOptions {
  readonly holdfast: Holdfast;
  readonly session: string;
  readonly readOnly: boolean;
  /** Makes the session when there is none, and opts it in: whoever configures the server has decided. */
  ready(): Promise<void>;
  /** @param client how the client calls itself; stands in the journal as `mcp:CLIENT` */
  tools(client: string): WorkflowTools;
}

export function createService(holdfast: Holdfast, options: McpOptions): McpService {
  const session = options.session ?? MCP_SESSION;
  const readOnly = options.readOnly ?? false;
  let prepared: Promise<void> | undefined;
  return {
    ...options,
    holdfast,
    session,
    readOnly,
    ready() {
      prepared ??= prepareSession(holdfast, session, readOnly).catch((error: unknown) => {
        // Tried again by the next call: a store that is busy now need not be so then.
        prepared = undefined;
        throw error;
      });
      return prepared;
    },
    tools: (client) =>
      holdfast.tools({
        session,
        readOnly,
        caller: callerOf(client),
        ...(options.drives === undefined ? {} : { drives: options.drives }),
        ...(options.maxWaitMs === undefined ? {} : { maxWaitMs: options.maxWaitMs }),
      }),
  };
}

/** The name of a client is its own word: shown, so bounded and without anything that could pass for more. */
export function callerOf(client: string): string {
  const name = client
    .replace(/[^A-Za-z0-9._ -]+/g, "?")
    .slice(0, 64)
    .trim();
  return `mcp:${name === "" ? "client" : name}`;
}

async function prepareSession(holdfast: Holdfast, name: string, readOnly: boolean): Promise<void> {
  const found = await findSession(holdfast, name);
  if (found === undefined) {
    try {
      await holdfast.sessions.create({ name, orchestration_opt_in: !readOnly });
      return;
    } catch (error) {
      // Another process may have made it meanwhile.
      if (!HoldfastError.is(error) || error.code !== "conflict") throw error;
    }
  }
  if (!readOnly && found?.orchestration_opt_in !== true)
    await holdfast.sessions.update(name, { orchestration_opt_in: true });
}

async function findSession(
  holdfast: Holdfast,
  name: string,
): Promise<{ readonly orchestration_opt_in: boolean } | undefined> {
  try {
    return await holdfast.sessions.get(name);
  } catch (error) {
    if (HoldfastError.is(error) && error.code === "not_found") return undefined;
    throw error;
  }
}
