/** Where the time goes: the CPU profiler of V8 around a piece of work, told in the names of the source files. */
import { existsSync, readFileSync } from "node:fs";
import { Session, type Profiler } from "node:inspector/promises";
import { SourceMap, type SourceMapPayload } from "node:module";
import { dirname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Hot } from "./measure.ts";

const SAMPLE_MICROS = 200;
const MOST_NAMED = 12;
/** No work of this thread: it waited, or sat at the root between two tasks. */
const WAITING: ReadonlySet<string> = new Set(["(idle)", "(root)"]);

/** Does the work under the profiler; answers where this thread spent its time, most first. */
export async function profiled(work: () => Promise<unknown>): Promise<readonly Hot[]> {
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: SAMPLE_MICROS });
  await session.post("Profiler.start");
  try {
    await work();
    const { profile } = await session.post("Profiler.stop");
    return hottest(profile);
  } finally {
    session.disconnect();
  }
}

/** Self time of each function as a share of all work, waiting left out. */
function hottest(profile: Profiler.Profile): Hot[] {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(profile.nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node.id])));
  const micros = new Map<string, number>();
  let all = 0;
  for (const [i, id] of (profile.samples ?? []).entries()) {
    const node = nodes.get(id);
    if (node === undefined || WAITING.has(node.callFrame.functionName)) continue;
    const took = profile.timeDeltas?.[i] ?? 0;
    const where = placeOf(node, (child) => nodes.get(parents.get(child.id) ?? -1));
    micros.set(where, (micros.get(where) ?? 0) + took);
    all += took;
  }
  return [...micros]
    .sort(([, a], [, b]) => b - a)
    .slice(0, MOST_NAMED)
    .map(([where, took]) => ({ where, share: took / all }));
}

type Node = Profiler.ProfileNode;

/** Native code has no file: it is told with who called it. */
function placeOf(node: Node, parentOf: (node: Node) => Node | undefined): string {
  const { url, functionName } = node.callFrame;
  const name = functionName === "" ? "(anonymous)" : functionName;
  if (url !== "") return `${sourceOf(node)}: ${name}`;
  if (name.startsWith("(")) return name;
  let caller = parentOf(node);
  while (caller !== undefined && caller.callFrame.url === "") caller = parentOf(caller);
  return caller === undefined ? `${name} (native)` : `${name} (native), called in ${sourceOf(caller)}`;
}

/** The file from the repository's root that a function was bundled from. */
function sourceOf(node: Node): string {
  const { url, lineNumber, columnNumber } = node.callFrame;
  if (!url.startsWith("file:")) return url;
  const file = fileURLToPath(url);
  const source = mapOf(file)?.findEntry(lineNumber, columnNumber);
  if (source === undefined || !("originalSource" in source)) return relative(process.cwd(), file);
  return relative(process.cwd(), resolve(dirname(file), source.originalSource));
}

const maps = new Map<string, SourceMap | undefined>();

function mapOf(file: string): SourceMap | undefined {
  if (!maps.has(file)) {
    const map = `${file}.map`;
    const payload = existsSync(map) ? (JSON.parse(readFileSync(map, "utf8")) as SourceMapPayload) : undefined;
    maps.set(file, payload === undefined ? undefined : new SourceMap(payload));
  }
  return maps.get(file);
}
