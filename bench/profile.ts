/** Where the time goes: the CPU profiler of V8 around a piece of work, told in the names of the source files. */
import { existsSync, readFileSync } from "node:fs";
import { type Profiler, Session } from "node:inspector/promises";
import { SourceMap, type SourceMapPayload } from "node:module";
import { dirname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Hot } from "./measure.ts";

const SAMPLE_MICROS = 200;
const MOST_NAMED = 15;
/** No work of this thread: it waited, or sat at the root between two tasks. */
const WAITING: ReadonlySet<string> = new Set(["(idle)", "(root)"]);
/** This file: the profiler at its own work. */
const PROFILER = /^bench\/profile\.ts: /;

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
    return hottest(profile, placeOf);
  } finally {
    session.disconnect();
  }
}

/** Where a process that `--cpu-prof` watched spent its time, by package or file: for what loading costs. */
export function readProfile(file: string): readonly Hot[] {
  return hottest(JSON.parse(readFileSync(file, "utf8")) as Profiler.Profile, partOf);
}

type Place = (node: Node, parentOf: (node: Node) => Node | undefined) => string;

/** Self time of each place as a share of all work, waiting left out. */
function hottest(profile: Profiler.Profile, place: Place): Hot[] {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(profile.nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node.id])));
  const micros = new Map<string, number>();
  let all = 0;
  for (const [i, id] of (profile.samples ?? []).entries()) {
    const node = nodes.get(id);
    if (node === undefined || WAITING.has(node.callFrame.functionName)) continue;
    const took = profile.timeDeltas?.[i] ?? 0;
    const where = place(node, (child) => nodes.get(parents.get(child.id) ?? -1));
    if (PROFILER.test(where)) continue;
    micros.set(where, (micros.get(where) ?? 0) + took);
    all += took;
  }
  return [...micros]
    .sort(([, a], [, b]) => b - a)
    .slice(0, MOST_NAMED)
    .map(([where, took]) => ({ where, share: took / all }));
}

type Node = Profiler.ProfileNode;

/**
 * Native code has no name that can be trusted (V8 guesses an add-on's from its symbols), and Node's own says little:
 * both are told with the function of ours that called.
 */
function placeOf(node: Node, parentOf: (node: Node) => Node | undefined): string {
  const { url, functionName } = node.callFrame;
  if (url.startsWith("file:")) return nameOf(node);
  if (functionName.startsWith("(")) return functionName;
  let caller = parentOf(node);
  let named = url === "" ? "native code" : nameOf(node);
  while (caller !== undefined && !caller.callFrame.url.startsWith("file:")) {
    if (caller.callFrame.url !== "") named = nameOf(caller);
    caller = parentOf(caller);
  }
  return caller === undefined ? named : `${nameOf(caller)} → ${named}`;
}

function nameOf(node: Node): string {
  return `${sourceOf(node)}: ${node.callFrame.functionName || "(anonymous)"}`;
}

/** The package, or the file, on whose behalf code ran: the nearest caller that is neither native nor of Node. */
function partOf(node: Node, parentOf: (node: Node) => Node | undefined): string {
  if (node.callFrame.functionName.startsWith("(") && node.callFrame.url === "") return node.callFrame.functionName;
  let at: Node | undefined = node;
  while (at !== undefined && !at.callFrame.url.includes("/")) at = parentOf(at);
  const url = at?.callFrame.url ?? "";
  const [, name] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url) ?? [];
  if (name !== undefined) return name;
  return url.startsWith("file:")
    ? relative(process.cwd(), fileURLToPath(url))
    : "Node itself: reading and linking modules";
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
