/** `holdfast events`: the journal of a run, read in pages, or followed as it grows. */
import type { Holdfast, OperatorEvent } from "../../access/api.ts";
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { eventLine } from "../render/event.ts";

const PAGE = 500;
const MOST = 1_000_000;

export async function run(context: Context): Promise<number> {
  const { flags } = context;
  const since = flags.whole("since", 0, Number.MAX_SAFE_INTEGER) ?? 0;
  const limit = flags.whole("limit", 1, MOST) ?? Number.POSITIVE_INFINITY;
  return await withWorkspace(context, { readOnly: true }, async (holdfast) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    if (flags.on("follow")) await followed(context, holdfast, runId, since, limit);
    else await paged(context, holdfast, runId, since, limit);
    return EXIT.succeeded;
  });
}

async function paged(context: Context, holdfast: Holdfast, runId: string, since: number, limit: number): Promise<void> {
  let at = since;
  let left = limit;
  while (left > 0 && context.out.open) {
    const page = await holdfast.runs.events(runId, { since: at, limit: Math.min(PAGE, left) });
    for (const event of page) showEvent(context, event);
    // What a slow reader has not taken is not piled up in memory.
    await context.out.flush();
    const last = page.at(-1);
    if (last === undefined) return;
    at = last.sequence;
    left -= page.length;
  }
}

async function followed(
  context: Context,
  holdfast: Holdfast,
  runId: string,
  since: number,
  limit: number,
): Promise<void> {
  const stop = new AbortController();
  const unlisten = context.process.onSignal("SIGINT", () => stop.abort());
  let left = limit;
  try {
    for await (const event of holdfast.runs.follow(runId, { since, signal: stop.signal })) {
      showEvent(context, event);
      if (--left <= 0 || !context.out.open) return;
    }
  } finally {
    unlisten();
  }
}

export function showEvent(context: Context, event: OperatorEvent): void {
  if (context.out.json) context.out.jsonLine(event);
  else context.out.print(eventLine(event, context.out.style, context.out.terminal.width));
}
