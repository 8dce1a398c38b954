/** `holdfast verify`: proves that journals were not altered. */
import type { Holdfast } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { count, printable } from "../text.ts";

interface Verified {
  ok: boolean;
  segments: number;
  events: number;
  broken?: string;
}

export async function run(context: Context): Promise<number> {
  const [ref] = context.args;
  const all = context.flags.on("all");
  if (all === (ref !== undefined)) throw new HoldfastError("usage", "Cannot verify: give one run, or --all");
  return await withWorkspace(context, { readOnly: true, direct: true }, async (holdfast) => {
    const ids = ref === undefined ? allRuns(holdfast) : [await holdfast.runs.find(ref)];
    const total: Verified = { ok: true, segments: 0, events: 0 };
    let runs = 0;
    for await (const runId of ids) {
      runs++;
      const { ok, segments, events, broken } = await holdfast.runs.verify(runId);
      total.segments += segments;
      total.events += events;
      if (!ok) {
        total.ok = false;
        total.broken ??= `${runId}: ${broken ?? "altered"}`;
        if (!context.out.json)
          context.out.print(
            `${context.out.style.bad(context.out.style.failed)} ${runId}: ${printable(broken ?? "altered")}`,
          );
      }
    }
    if (context.out.json) context.out.document(total);
    else if (total.ok)
      context.out.print(
        `${context.out.style.good(context.out.style.done)} intact: ${count(runs, "run")}, ${count(total.segments, "segment")}, ${count(total.events, "event")}`,
      );
    return total.ok ? EXIT.succeeded : EXIT.failed;
  });
}

async function* allRuns(holdfast: Holdfast): AsyncGenerator<string> {
  for (let cursor: string | undefined; ; ) {
    const page = await holdfast.runs.list({ children: true, limit: 200, ...(cursor === undefined ? {} : { cursor }) });
    for (const { run_id } of page.runs) yield run_id;
    if (page.next_cursor === undefined) return;
    cursor = page.next_cursor;
  }
}
