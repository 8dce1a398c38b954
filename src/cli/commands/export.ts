/** `holdfast export`: writes a run's journal and state where other programs, and `import`, can read them. */

import { createHash } from "node:crypto";
import { mkdir, open, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { count, oneLine } from "../text.ts";

export async function run(context: Context): Promise<number> {
  return await withWorkspace(context, { readOnly: true, direct: true }, async (holdfast) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const { lines, snapshot } = await holdfast.runs.export(runId, { tree: context.flags.on("tree") });
    const out = context.flags.text("out") ?? `holdfast-${runId}`;
    if (out === "-") {
      for await (const chunk of lines) context.process.streams.stdout.write(chunk);
      return EXIT.succeeded;
    }
    const folder = path.resolve(context.process.cwd, out);
    const written = await writeJournal(folder, out, lines);
    await writeFile(path.join(folder, "snapshot.json"), `${JSON.stringify(snapshot)}\n`, { mode: 0o600 });
    if (context.out.json) context.out.document({ path: folder, ...written });
    else
      context.out.print(
        `${context.out.style.good(context.out.style.done)} ${count(written.events, "event")} in ${oneLine(folder)}`,
      );
    return EXIT.succeeded;
  });
}

/** Whole or not at all: an export that breaks off leaves no folder that looks like one. */
async function writeJournal(
  folder: string,
  shown: string,
  lines: AsyncIterable<string>,
): Promise<{ events: number; sha256: string }> {
  try {
    await mkdir(path.dirname(folder), { recursive: true });
    await mkdir(folder, { mode: 0o700 });
  } catch {
    throw new HoldfastError(
      "usage",
      `Cannot export to "${oneLine(shown)}": it exists or may not be written; name a new folder with --out`,
    );
  }
  const hash = createHash("sha256");
  let events = 0;
  const file = await open(path.join(folder, "journal.jsonl"), "wx", 0o600);
  try {
    for await (const chunk of lines) {
      hash.update(chunk);
      for (const line of chunk.split("\n")) if (line.includes('"sequence":')) events++;
      await file.write(chunk);
    }
    await file.sync();
  } catch (error) {
    await file.close();
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  await file.close();
  return { events, sha256: hash.digest("hex") };
}
