/** `Holdfast` over HTTP: the same types and the same errors, with the server's engine behind them. */
import type {
  Holdfast,
  Preview,
  PublicPlan,
  PublicRun,
  Run,
  RunChange,
  RunHandle,
  SessionsApi,
  SessionView,
  StartRequest,
  WorkflowEntry,
  WorkflowsApi,
} from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Diagnostic } from "../domain/plan/definition.ts";
import { addressOf, BASE, notOffered } from "./addresses.ts";
import { readFrames } from "./event-stream.ts";
import { Runs } from "./runs.ts";
import { type ClientOptions, problemOf, Transport } from "./transport.ts";
import { waitsOver } from "./waits.ts";

/**
 * Opens a client; nothing is sent yet. What HTTP does not offer (verify, export, import, a store's particulars,
 * hooks into the process) refuses with `usage`. `origin`, `durability` and `queue` of a start are the server's to say.
 * @throws HoldfastError `usage` for an address or token that cannot be one
 */
export function connect(options: ClientOptions): Holdfast {
  const transport = new Transport(options);
  const runs = new Runs(transport);
  const sessions = sessionsOver(transport);
  const leaving = new AbortController();
  const close = async (): Promise<void> => leaving.abort();
  return {
    start: (request) => start(transport, runs, request),
    run: async (request): Promise<Run> => (await start(transport, runs, request)).result(),
    runs,
    waits: waitsOver(transport, runs, sessions),
    workflows: workflowsOver(transport),
    sessions,
    changes: (followed = {}, session) =>
      changes(
        transport,
        followed.signal === undefined ? leaving.signal : AbortSignal.any([followed.signal, leaving.signal]),
        session,
      ),
    toolList: () => refuse("list tools"),
    tools: () => refuse("make tools for a model"),
    observe: () => refuse("observe commits"),
    handler: () => refuse("be mounted"),
    storeInfo: async () => refuse("look into the store"),
    doctor: () => transport.json(`${BASE}/doctor`),
    recover: async () => refuse("recover runs"),
    close,
    [Symbol.asyncDispose]: close,
  };
}

function refuse(act: string): never {
  throw notOffered(act);
}

async function start(transport: Transport, runs: Runs, request: StartRequest): Promise<RunHandle> {
  if (request.origin === "automatic") refuse("start runs in the name of a model");
  const session = request.session ?? transport.session;
  const { workflow_id, revision } = await pinned(transport, request.workflow, session);
  const answer = await transport.answer(`${addressOf(session)}/workflow-runs`, {
    method: "POST",
    body: {
      workflow_id,
      revision,
      ...(request.args === undefined ? {} : { args: request.args }),
      ...(request.budget === undefined ? {} : { budget: request.budget }),
    },
    ...(request.key === undefined ? {} : { key: request.key }),
  });
  const { run_id } = (await answer.json()) as PublicRun;
  // Its own key makes every sending of this call one start; that it was sent twice is not the caller's replay.
  return runs.handleOf(
    run_id,
    request.key !== undefined && answer.headers.get("idempotent-replay") === "true",
    request.session,
  );
}

interface Named {
  readonly workflow_id: string;
  readonly revision?: number;
}

/** `id` or `id@revision`: files and hashes lie on this machine, not on the server's. */
function readRef(ref: string): Named {
  const [, workflow_id, revision] = /^([A-Za-z0-9][A-Za-z0-9._-]{0,127})(?:@(\d{1,15}))?$/.exec(ref) ?? [];
  if (workflow_id === undefined)
    return refuse(`use the workflow ${JSON.stringify(ref.slice(0, 200))}, which is no id of its catalog,`);
  return { workflow_id, ...(revision === undefined ? {} : { revision: Number(revision) }) };
}

async function pinned(transport: Transport, ref: string, session: string): Promise<Required<Named>> {
  const { workflow_id, revision } = readRef(ref);
  if (revision !== undefined) return { workflow_id, revision };
  return { workflow_id, revision: (await shown(transport, ref, session)).revision };
}

type Shown = WorkflowEntry & { readonly plan?: PublicPlan; readonly source_text?: string };

function shown(transport: Transport, ref: string, session: string): Promise<Shown> {
  const { workflow_id, revision } = readRef(ref);
  return transport.json(`${addressOf(session)}/workflows/${encodeURIComponent(workflow_id)}`, { query: { revision } });
}

function workflowsOver(transport: Transport): WorkflowsApi {
  const { session } = transport;
  const at = `${addressOf(session)}/workflows`;
  const publication = (): Promise<{ publication_revision: number; workflows: readonly WorkflowEntry[] }> =>
    transport.json(at);
  const entryOf = ({ plan: _, source_text: __, ...entry }: Shown): WorkflowEntry => entry;
  return {
    list: async () => (await publication()).workflows,
    publication,
    get: async (ref) => entryOf(await shown(transport, ref, session)),
    show: async (ref) => {
      const found = await shown(transport, ref, session);
      return {
        entry: entryOf(found),
        ...(found.plan === undefined ? {} : { plan: found.plan }),
        source: found.source_text ?? "",
      };
    },
    check: async (source, file) => {
      const format = /\.(yaml|json|toml|lua|ts)$/.exec(file.replace(/\.yml$/, ".yaml"))?.[1];
      if (format === undefined)
        throw new HoldfastError(
          "usage",
          `Cannot check ${JSON.stringify(file)}: its ending says no form; use .yaml, .json, .toml, .lua or .ts`,
        );
      const file_name = file.split(/[\\/]/).at(-1);
      return (
        await transport.json<{ diagnostics: readonly Diagnostic[] }>(`${at}/check`, {
          method: "POST",
          body: { source, format, file_name },
        })
      ).diagnostics;
    },
    preview: async (ref, options = {}): Promise<Preview> => {
      const { workflow_id, revision } = readRef(ref);
      const { args, budget } = options;
      return transport.json(
        `${addressOf(options.session ?? session)}/workflows/${encodeURIComponent(workflow_id)}/preview`,
        { method: "POST", body: { revision, args, budget } },
      );
    },
    bundle: async () => refuse("read bundles"),
    reload: () => transport.json(`${at}/reload`, { method: "POST", body: {} }),
  };
}

/** A session as the wire has it; the times that it does not tell are that of its making. */
type WireSession = Omit<SessionView, "created_at_ms" | "updated_at_ms" | "workspace"> & {
  readonly workspace?: string;
  readonly created_at: string;
};

function sessionOf({ created_at, ...session }: WireSession): SessionView {
  const created_at_ms = Date.parse(created_at);
  return { ...session, workspace: session.workspace ?? "", created_at_ms, updated_at_ms: created_at_ms };
}

function sessionsOver(transport: Transport): SessionsApi {
  const page: SessionsApi["page"] = async (query = {}) => {
    const answer = await transport.json<{ sessions: readonly WireSession[]; next_cursor?: string }>(
      `${BASE}/sessions`,
      { query },
    );
    return { ...answer, sessions: answer.sessions.map(sessionOf) };
  };
  return {
    list: async () => (await page({ limit: 200 })).sessions,
    page,
    create: async (request) => sessionOf(await transport.json(`${BASE}/sessions`, { method: "POST", body: request })),
    get: async (idOrName) => sessionOf(await transport.json(addressOf(idOrName))),
    update: async (idOrName, patch) =>
      sessionOf(await transport.json(addressOf(idOrName), { method: "PATCH", body: patch })),
  };
}

/** One connection: it has no history to resume from, so a cut ends it and the caller reads its list anew. */
async function* changes(
  transport: Transport,
  signal: AbortSignal,
  session: string | undefined,
): AsyncGenerator<RunChange> {
  const answer = await transport.once(
    `${addressOf(session ?? transport.session)}/events`,
    { headers: { Accept: "text/event-stream" }, signal },
    undefined,
  );
  if (!answer.ok) throw await problemOf(answer);
  if (answer.body === null) return;
  try {
    for await (const frame of readFrames(answer.body, () => undefined))
      if (frame.event === "change") yield JSON.parse(frame.data) as RunChange;
  } catch (error) {
    if (!signal.aborted) throw transport.unreachable(error);
  }
}
