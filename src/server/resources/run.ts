/** One run, read: its projection, events, steps, reasons, children, values, journal. */
import { createHash } from "node:crypto";
import { z } from "@hono/zod-openapi";
import type { OperatorEvent as OperatorEventDoc, PublicEvent as PublicEventDoc } from "../../access/api.ts";
import { canonicalJson } from "../../domain/json.ts";
import { refusal } from "../problem.ts";
import type { Answer, Asked, Route } from "../routes.ts";
import { ok, RUN, route } from "../routes.ts";
import {
  AttemptPage,
  attemptStatusList,
  cursor,
  EventPage,
  limit,
  PublicRun,
  queryInt,
  Run,
  RunFindings,
  RunPage,
  StepDetail,
  StepPage,
  sha256,
  stepStatusList,
  Why,
} from "../schemas.ts";
import { type Frame, stream, wantsStream } from "../sse.ts";
import { pager, runParams } from "./shown.ts";

const since = queryInt(0, Number.MAX_SAFE_INTEGER).optional();
const eventsQuery = z.object({
  since,
  limit: queryInt(1, 1_000).optional(),
  view: z
    .enum(["public", "operator"])
    .optional()
    .openapi({ description: "`operator` (operators only): events with their payloads" }),
});
type EventsAsked = Asked<z.output<typeof runParams>, z.output<typeof eventsQuery>>;

export const runRoutes: readonly Route[] = [
  route(
    {
      method: "get",
      path: RUN,
      role: "observer",
      tag: "runs",
      summary: "The run in its public form",
      params: runParams,
      responses: { 200: { description: "The run", schema: PublicRun } },
    },
    async ({ context, params: { session_id, run_id } }) => ok(await context.holdfast.runs.get(run_id, session_id)),
  ),
  route(
    {
      method: "get",
      path: `${RUN}/inspect`,
      role: "operator",
      tag: "runs",
      summary: "The run with inputs, outputs and failures",
      params: runParams,
      responses: { 200: { description: "The run", schema: Run } },
    },
    async ({ context, params: { session_id, run_id } }) => ok(await context.holdfast.runs.inspect(run_id, session_id)),
  ),
  route(
    {
      method: "get",
      path: `${RUN}/output`,
      role: "operator",
      tag: "runs",
      summary: "The output and nothing around it",
      params: runParams,
      responses: {
        200: { description: "The output as JSON; ETag is its hash" },
        206: { description: "The part that Range asked for", type: "application/json" },
        304: { description: "If-None-Match named this very output", type: "none" },
        416: { description: "The range is not within the output", type: "none" },
      },
      errors: ["not_possible", "terminal"],
      headers: [
        { name: "Range", description: "bytes=FIRST-LAST" },
        { name: "If-None-Match", description: "an ETag" },
      ],
    },
    async ({ context, params: { session_id, run_id }, request }) =>
      bytesAnswer(request, await context.holdfast.runs.output(run_id, session_id)),
  ),
  route(
    {
      method: "get",
      path: `${RUN}/artifacts/{sha256}`,
      role: "operator",
      tag: "runs",
      summary: "A large value of the run by its hash",
      params: runParams.extend({ sha256 }),
      responses: { 200: { description: "The bytes", type: "application/octet-stream" } },
    },
    async ({ context, params }) => {
      const bytes = await context.holdfast.runs.artifact(params.run_id, params.sha256, params.session_id);
      return {
        status: 200,
        body: Buffer.from(bytes),
        headers: {
          "Content-Type": "application/octet-stream",
          "Content-Disposition": `attachment; filename="${params.sha256}"`,
          ETag: `"${params.sha256}"`,
        },
      };
    },
  ),
  route(
    {
      method: "get",
      path: `${RUN}/events`,
      role: "observer",
      tag: "runs",
      summary: "Events after a sequence, as a page or as they happen",
      about:
        'With Accept: text/event-stream a stream (RP-87): `id` is the sequence, Last-Event-ID or `since` resumes without a loss or a repeat, `: hb` is a sign of life, and it ends after the terminal event; `event: bye` says that the server stops. Otherwise a JSON array; Link: rel="next" when there is more.',
      params: runParams,
      query: eventsQuery,
      responses: { 200: { description: "Events in order", schema: EventPage } },
      errors: ["rate_limited"],
      headers: [{ name: "Last-Event-ID", description: "the last sequence seen; wins over `since`" }],
    },
    async (asked) => {
      if (asked.query.view === "operator" && !asked.operator)
        throw refusal(
          "forbidden",
          "Cannot show events with their payloads: this token is an observer's; use view=public",
        );
      return wantsStream(asked.request) ? eventStream(asked) : eventPage(asked);
    },
  ),
  route(
    {
      method: "get",
      path: `${RUN}/why`,
      role: "observer",
      tag: "runs",
      summary: "In plain words: where it stands, why, and what can be done",
      params: runParams,
      responses: { 200: { description: "Sentences; for observers without names and values", schema: Why } },
    },
    async ({ context, params: { session_id, run_id }, operator }) =>
      ok(await context.holdfast.runs.why(run_id, session_id, { public: !operator })),
  ),
  route(
    {
      method: "get",
      path: `${RUN}/steps`,
      role: "observer",
      tag: "runs",
      summary: "Steps by their instance ids",
      params: runParams,
      query: z.object({ status: stepStatusList, cursor, limit }),
      responses: { 200: { description: "A page; operators also see times", schema: StepPage } },
    },
    async (asked) => {
      const {
        context,
        params: { session_id, run_id },
        query,
        operator,
      } = asked;
      const { range, next } = pager("steps", asked);
      const page = await context.holdfast.runs.steps(
        run_id,
        {
          ...range,
          ...(query.status === undefined ? {} : { status: query.status }),
        },
        session_id,
      );
      const steps = operator ? page.steps : page.steps.map(({ started_at_ms: _, ...step }) => step);
      return ok({
        steps,
        ...next(page),
      });
    },
  ),
  route(
    {
      method: "get",
      path: `${RUN}/steps/{instance}`,
      role: "operator",
      tag: "runs",
      summary: "One step with input, output and attempts",
      params: runParams.extend({
        instance: z.string().min(1).max(1_024).openapi({ description: "Instance id, percent-encoded" }),
      }),
      responses: { 200: { description: "The step", schema: StepDetail } },
    },
    async ({ context, params: { session_id, run_id, instance } }) =>
      ok(await context.holdfast.runs.step(run_id, instance, session_id)),
  ),
  route(
    {
      method: "get",
      path: `${RUN}/attempts`,
      role: "operator",
      tag: "runs",
      summary: "What was handed to tools and agents, in order",
      params: runParams,
      query: z.object({ status: attemptStatusList, cursor, limit }),
      responses: { 200: { description: "A page; it may be short and still have a next", schema: AttemptPage } },
    },
    async (asked) => {
      const {
        context,
        params: { session_id, run_id },
        query,
      } = asked;
      const { range, next } = pager("attempts", asked);
      const page = await context.holdfast.runs.attempts(
        run_id,
        {
          ...range,
          ...(query.status === undefined ? {} : { status: query.status }),
        },
        session_id,
      );
      return ok({
        attempts: page.attempts,
        ...next(page),
      });
    },
  ),
  route(
    {
      method: "get",
      path: `${RUN}/doctor`,
      role: "operator",
      tag: "runs",
      summary: "What is wrong with the run's journal and what is derived from it",
      params: runParams,
      query: z.object({ limit: queryInt(1, 1_000).optional() }),
      responses: { 200: { description: "Findings", schema: RunFindings } },
    },
    async ({ context, params: { session_id, run_id }, query }) =>
      ok(await context.holdfast.runs.doctor(run_id, query.limit, session_id)),
  ),
  route(
    {
      method: "get",
      path: `${RUN}/children`,
      role: "observer",
      tag: "runs",
      summary: "Runs that this run started, newest first",
      params: runParams,
      query: z.object({ cursor, limit }),
      responses: { 200: { description: "A page", schema: RunPage } },
    },
    async (asked) => {
      const {
        context,
        params: { session_id, run_id },
      } = asked;
      await context.holdfast.runs.get(run_id, session_id);
      const { range, next } = pager("children", asked);
      const page = await context.holdfast.runs.list({
        session: session_id,
        parent_run_id: run_id,
        children: true,
        ...range,
      });
      return ok({
        runs: page.runs,
        ...next(page),
      });
    },
  ),
  route(
    {
      method: "get",
      path: `${RUN}/journal`,
      role: "operator",
      tag: "runs",
      summary: "The journal as it is stored, each segment followed by its hash",
      params: runParams,
      query: z.object({ since }),
      responses: { 200: { description: "One event or segment a line", type: "application/x-ndjson" } },
    },
    async ({ context, params: { session_id, run_id }, query, request }) => {
      await context.holdfast.runs.get(run_id, session_id);
      const lines = context.holdfast.runs
        .journal(run_id, { since: query.since ?? 0 }, session_id)
        [Symbol.asyncIterator]();
      return {
        status: 200,
        body: journalBody(lines, request.signal),
        headers: { "Content-Type": "application/x-ndjson" },
      };
    },
  ),
];

type Lines = AsyncIterator<{ readonly text: string; readonly segment: object }>;

/** One segment is read when the reader has taken the one before. A damaged journal cuts the answer: it has no end then. */
function journalBody(lines: Lines, signal: AbortSignal): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const next = await lines.next();
        if (next.done === true || signal.aborted) return controller.close();
        controller.enqueue(encoder.encode(`${next.value.text}\n${JSON.stringify({ segment: next.value.segment })}\n`));
      },
    },
    { highWaterMark: 0 },
  );
}

function startOf({ query, request }: EventsAsked): number {
  const header = request.headers.get("last-event-id");
  if (header === null || !wantsStream(request)) return query.since ?? 0;
  if (!/^\d{1,16}$/.test(header) || !Number.isSafeInteger(Number(header)))
    throw refusal(
      "usage",
      "Cannot resume: Last-Event-ID is no sequence that a stream gave; leave it out or use `since`",
    );
  return Number(header);
}

async function eventStream(asked: EventsAsked): Promise<Answer> {
  const {
    context,
    params: { session_id, run_id },
    query,
    request,
  } = asked;
  if (query.limit !== undefined) throw refusal("usage", "Cannot limit a stream: `limit` is for pages; leave it out");
  const from = startOf(asked);
  // Before the stream begins, so that another session's run is a plain 404.
  await context.holdfast.runs.get(run_id, session_id);
  const follow = (signal: AbortSignal): AsyncIterable<OperatorEventDoc | PublicEventDoc> =>
    query.view === "operator"
      ? context.holdfast.runs.follow(run_id, { since: from, signal }, session_id)
      : context.holdfast.runs.followPublic(run_id, { since: from, signal }, session_id);
  return stream(context, request, async function* (signal): AsyncGenerator<Frame> {
    for await (const event of follow(signal)) yield { id: String(event.sequence), event: event.type, data: event };
  });
}

async function eventPage(asked: EventsAsked): Promise<Answer> {
  const {
    context,
    params: { session_id, run_id },
    query,
    url,
  } = asked;
  const { runs } = context.holdfast;
  const most = query.limit ?? 1_000;
  const read = async (from: number, limit: number): Promise<readonly (OperatorEventDoc | PublicEventDoc)[]> =>
    query.view === "operator"
      ? runs.events(run_id, { since: from, limit }, session_id)
      : runs.publicEvents(run_id, { since: from, limit }, session_id);
  const events = await read(query.since ?? 0, most);
  const last = events.at(-1);
  const more = last !== undefined && events.length === most && (await read(last.sequence, 1)).length > 0;
  if (!more) return ok(events);
  const next = new URLSearchParams(url.search);
  next.set("since", String(last.sequence));
  return ok(events, { Link: `<${url.pathname}?${next}>; rel="next"` });
}

function bytesAnswer(request: Request, output: Parameters<typeof canonicalJson>[0]): Answer {
  const bytes = Buffer.from(canonicalJson(output), "utf8");
  const ETag = `"${createHash("sha256").update(bytes).digest("hex")}"`;
  const headers = { "Content-Type": "application/json", ETag, "Accept-Ranges": "bytes" };
  const known = (request.headers.get("if-none-match") ?? "").split(",").map((tag) => tag.trim());
  if (known.includes(ETag)) return { status: 304, body: null, headers };
  const range = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(request.headers.get("range") ?? "");
  if (range === null || (range[1] === "" && range[2] === "")) return { status: 200, body: bytes, headers };
  const [first, last] = bounds(range[1] as string, range[2] as string, bytes.length);
  if (first > last)
    return { status: 416, body: null, headers: { ...headers, "Content-Range": `bytes */${bytes.length}` } };
  return {
    status: 206,
    body: bytes.subarray(first, last + 1),
    headers: { ...headers, "Content-Range": `bytes ${first}-${last}/${bytes.length}` },
  };
}

/** First and last byte; `-N` is the last N. */
function bounds(first: string, last: string, length: number): [number, number] {
  if (first === "") return [Math.max(0, length - Number(last)), Number(last) === 0 ? -1 : length - 1];
  return [Number(first), last === "" ? length - 1 : Math.min(Number(last), length - 1)];
}
