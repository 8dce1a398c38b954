/** Workflows and runs as resources: the public forms only, so that whoever may list them may read them (RP-74). */
import { type ReadResourceResult, ResourceNotFoundError, type Server } from "@modelcontextprotocol/server";
import type { WorkflowEntry } from "../access/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { McpService } from "./service.ts";

const WORKFLOWS = "holdfast://workflows";
const RUNS = "holdfast://runs";
const JSON_TYPE = "application/json";
/** Newest runs that are listed one by one. */
const LISTED_RUNS = 50;
const MAX_WORKFLOWS = 500;

export function registerResources(server: Server, service: McpService): void {
  server.setRequestHandler("resources/list", async () => ({ resources: await listed(service) }));
  server.setRequestHandler("resources/templates/list", async () => ({
    resourceTemplates: [
      {
        uriTemplate: `${WORKFLOWS}/{workflow_id}`,
        name: "workflow",
        description: "One workflow: what it takes and gives.",
        mimeType: JSON_TYPE,
      },
      {
        uriTemplate: `${RUNS}/{run_id}`,
        name: "run",
        description: "One run: status, steps, usage, what may be done.",
        mimeType: JSON_TYPE,
      },
      {
        uriTemplate: `${RUNS}/{run_id}/events`,
        name: "run events",
        description: "The first 1,000 events of a run.",
        mimeType: JSON_TYPE,
      },
    ],
  }));
  server.setRequestHandler("resources/read", async (request): Promise<ReadResourceResult> => {
    const { uri } = request.params;
    try {
      await service.ready();
      const value = await read(service, uri);
      if (value !== undefined) return { contents: [{ uri, mimeType: JSON_TYPE, text: JSON.stringify(value) }] };
    } catch (error) {
      if (!HoldfastError.is(error) || (error.code !== "not_found" && error.code !== "usage")) {
        service.log?.("error", "a resource could not be read", { uri, error });
        throw new Error("workflow storage unavailable");
      }
    }
    throw new ResourceNotFoundError(uri.slice(0, 512));
  });
}

async function listed(
  service: McpService,
): Promise<{ uri: string; name: string; description?: string; mimeType: string }[]> {
  await service.ready();
  const { runs } = await service.holdfast.runs.list({ session: service.session, limit: LISTED_RUNS });
  return [
    { uri: WORKFLOWS, name: "workflows", description: "Every workflow of this workspace.", mimeType: JSON_TYPE },
    { uri: RUNS, name: "runs", description: "The newest runs of this session.", mimeType: JSON_TYPE },
    ...(await entries(service)).map((entry) => ({
      uri: `${WORKFLOWS}/${encodeURIComponent(entry.workflow_id)}`,
      name: entry.workflow_id,
      ...(entry.description === undefined ? {} : { description: entry.description }),
      mimeType: JSON_TYPE,
    })),
    ...runs.map((run) => ({
      uri: `${RUNS}/${run.run_id}`,
      name: `${run.workflow_id} ${run.run_id}`,
      description: `${run.status}, started ${run.created_at}`,
      mimeType: JSON_TYPE,
    })),
  ];
}

async function read(service: McpService, uri: string): Promise<unknown> {
  const { holdfast, session } = service;
  if (uri === WORKFLOWS) return { workflows: (await entries(service)).map(publicEntry) };
  if (uri === RUNS) return holdfast.runs.list({ session, limit: LISTED_RUNS });
  const parts = partsOf(uri);
  if (parts === undefined) return undefined;
  const [kind, id, more] = parts;
  if (kind === "workflows") {
    const entry =
      more === undefined ? (await entries(service)).find(({ workflow_id }) => workflow_id === id) : undefined;
    return entry === undefined ? undefined : publicEntry(entry);
  }
  if (kind !== "runs") return undefined;
  if (more === "events") return { events: await holdfast.runs.publicEvents(id, {}, session) };
  return more === undefined ? holdfast.runs.get(id, session) : undefined;
}

function partsOf(uri: string): readonly [string, string, string?] | undefined {
  const found = /^holdfast:\/\/(workflows|runs)\/([^/?#]{1,512})(?:\/([a-z]+))?$/.exec(uri);
  if (found === null) return undefined;
  try {
    const [, kind = "", id = "", more] = found;
    return more === undefined ? [kind, decodeURIComponent(id)] : [kind, decodeURIComponent(id), more];
  } catch {
    return undefined;
  }
}

/** What would run under each id; what it hides has no address. */
async function entries(service: McpService): Promise<readonly WorkflowEntry[]> {
  await service.holdfast.workflows.reload();
  const all = await service.holdfast.workflows.list();
  return all.filter(({ state }) => state !== "shadowed").slice(0, MAX_WORKFLOWS);
}

/** Without paths, and without messages that hold them. */
function publicEntry(entry: WorkflowEntry): unknown {
  const {
    workflow_id,
    revision,
    kind,
    title,
    description,
    source,
    invocation_policy,
    tool_name,
    input_schema,
    output_schema,
    state,
  } = entry;
  return {
    workflow_id,
    revision,
    kind,
    title,
    description,
    source,
    invocation_policy,
    tool_name,
    input_schema,
    output_schema,
    state,
  };
}
