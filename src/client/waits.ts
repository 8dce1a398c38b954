/** `waits.*` over HTTP: the inbox, and the answers of a person on exactly what was shown. */
import type { DecisionRequest, SessionsApi, Verb, WaitsApi } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import type { Wait } from "../domain/run.ts";
import { addressOf } from "./addresses.ts";
import type { Runs } from "./runs.ts";
import type { Transport } from "./transport.ts";

type RepairRequest = Parameters<WaitsApi["repair"]>[2];
type WaitQuery = NonNullable<Parameters<WaitsApi["list"]>[0]>;
type WaitPage = Awaited<ReturnType<WaitsApi["list"]>>;

export function waitsOver(transport: Transport, runs: Runs, sessions: SessionsApi): WaitsApi {
  return {
    list: (query = {}) => listWaits(transport, sessions, query),
    approve: (runId, waitId, request, session) => decide(runs, "approve", runId, waitId, request, session),
    deny: (runId, waitId, request, session) => decide(runs, "deny", runId, waitId, request, session),
    answer: async (runId, waitId, request, session) => {
      const wait_id = waitId ?? (await onlyWait(runs, runId, ["input"], session)).wait_id;
      const { value, digest } = request;
      const body = { value, ...(digest === undefined ? {} : { digest }) };
      return runs.post(runId, `/waits/${encodeURIComponent(wait_id)}/answer`, body, session);
    },
    repair: (runId, stepId, request, session) => repair(runs, runId, stepId, request, session),
    evidence: (runId, stepId, session) => evidenceOf(runs, runId, stepId, session),
  };
}

async function decide(
  runs: Runs,
  kind: "approve" | "deny",
  runId: string,
  waitId: string | undefined,
  request: DecisionRequest,
  session: string | undefined,
): Promise<Verb> {
  if (request.digest === undefined)
    throw new HoldfastError(
      "usage",
      `Cannot ${kind} without the digest of what was shown: give it, as the wait says it`,
    );
  const types = ["approval", "tool_approval", ...(kind === "deny" ? (["input"] as const) : [])] as const;
  const wait_id = waitId ?? (await onlyWait(runs, runId, types, session)).wait_id;
  const { digest, reason } = request;
  return runs.post(
    runId,
    `/waits/${encodeURIComponent(wait_id)}/${kind}`,
    { digest, ...(reason === undefined ? {} : { reason }) },
    session,
  );
}

async function repairWait(
  runs: Runs,
  runId: string,
  stepId: string,
  session: string | undefined,
): Promise<Wait | undefined> {
  const { waits } = await runs.inspect(runId, session);
  return waits.find((wait) => wait.step_id === stepId && wait.evidence !== undefined);
}

async function evidenceOf(
  runs: Runs,
  runId: string,
  stepId: string,
  session: string | undefined,
): ReturnType<WaitsApi["evidence"]> {
  const { evidence, digest } = (await repairWait(runs, runId, stepId, session)) ?? {};
  if (evidence !== undefined) return { ...evidence, ...(digest === undefined ? {} : { digest }) };
  throw new HoldfastError("not_possible", `Cannot show evidence: the step "${stepId}" is not in repair`);
}

/** GD-74: of the attempt that the caller names; only where none is named, of the one that is open now. */
async function repair(
  runs: Runs,
  runId: string,
  stepId: string,
  request: RepairRequest,
  session: string | undefined,
): Promise<Verb> {
  // The server says who decides: whoever the token is of.
  const { decided_by: _, dispatch_id, digest, ...resolution } = request;
  const bound = dispatch_id !== undefined && digest !== undefined;
  const open = bound ? undefined : await repairWait(runs, runId, stepId, session);
  const attempt = dispatch_id ?? open?.evidence?.dispatch_id ?? (await lastAttempt(runs, runId, stepId, session));
  const shown = digest ?? open?.digest;
  if (attempt === undefined || shown === undefined)
    throw new HoldfastError(
      "not_possible",
      `Cannot repair the step "${stepId}": it is not in repair; see why the run ${runId} stands where it does`,
    );
  return runs.post(runId, `/attempts/${encodeURIComponent(attempt)}/repair`, { ...resolution, digest: shown }, session);
}

/** A repair that is sent again finds nothing open: it was of the newest attempt, or is refused. */
async function lastAttempt(
  runs: Runs,
  runId: string,
  stepId: string,
  session: string | undefined,
): Promise<string | undefined> {
  return (await runs.step(runId, stepId, session)).tries.at(-1)?.dispatch_id;
}

async function onlyWait(
  runs: Runs,
  runId: string,
  types: readonly Wait["type"][],
  session: string | undefined,
): Promise<Wait> {
  const open = (await runs.inspect(runId, session)).waits.filter(
    (wait) => types.includes(wait.type) && wait.granted === undefined,
  );
  const [one] = open;
  if (one === undefined)
    throw new HoldfastError("not_possible", `Cannot decide: nothing of the run ${runId} waits for that`);
  if (open.length > 1)
    throw new HoldfastError(
      "usage",
      `Cannot tell which wait is meant: ${open.map((wait) => wait.wait_id).join(", ")} are open; name one`,
    );
  return one;
}

async function listWaits(transport: Transport, sessions: SessionsApi, query: WaitQuery): Promise<WaitPage> {
  const { all_sessions, run_id, session = transport.session, ...rest } = query;
  if (all_sessions !== true)
    return only(run_id, await transport.json<WaitPage>(`${addressOf(session)}/waits`, { query: rest }));
  const waits: WaitPage["waits"][number][] = [];
  for (const each of await sessions.list())
    waits.push(
      ...(
        await transport.json<WaitPage>(`${addressOf(each.session_id)}/waits`, {
          query: { type: rest.type, limit: rest.limit },
        })
      ).waits,
    );
  return only(run_id, { waits: waits.sort((a, b) => a.since_ms - b.since_ms) });
}

function only(run_id: string | undefined, page: WaitPage): WaitPage {
  return run_id === undefined ? page : { ...page, waits: page.waits.filter((wait) => wait.run_id === run_id) };
}
