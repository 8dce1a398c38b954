/** `holdfast import`: reads an exported run back, every hash checked. */
import { createReadStream, statSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { count, oneLine } from "../text.ts";

/** Largest journal that is read. */
const MAX_BYTES = 4 * 1024 ** 3;

export async function run(context: Context): Promise<number> {
  const given = context.args[0] ?? "";
  const file = journalIn(path.resolve(context.process.cwd, given), given);
  return await withWorkspace(context, { direct: true }, async (holdfast) => {
    const lines = createInterface({ input: createReadStream(file, "utf8"), crlfDelay: Number.POSITIVE_INFINITY });
    const { run_id, events, truncated_tail } = await holdfast.runs.import(lines);
    if (context.out.json) context.out.document({ run_id, events, truncated_tail });
    else {
      context.out.print(run_id);
      context.out.note(`${count(events, "event")} read, every hash checked.`);
    }
    if (truncated_tail)
      context.out.tell("The file ended inside a segment: what stood after its last whole one is left out.");
    return EXIT.succeeded;
  });
}

/** The journal of an exported folder, or the file itself. */
function journalIn(given: string, shown: string): string {
  try {
    const stat = statSync(given);
    const file = stat.isDirectory() ? path.join(given, "journal.jsonl") : given;
    if (statSync(file).size <= MAX_BYTES) return file;
  } catch {
    throw new HoldfastError(
      "usage",
      `Cannot import "${oneLine(shown)}": there is no journal.jsonl; give the folder that export wrote`,
    );
  }
  throw new HoldfastError("too_large", `Cannot import "${oneLine(shown)}": it is larger than 4 GiB`);
}
