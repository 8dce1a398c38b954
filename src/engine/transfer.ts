/**
 * Export and import of runs (DESIGN §8, R-23). Format of `journal.jsonl`, one JSON document a line:
 *
 *   {"run": HEADER, "bundle": BUNDLE?}      begins a run; the bundle stands with the first run that uses it
 *   {"artifact": {"sha256", "value"}}       a value that the following segment names by hash
 *   EVENT                                   as stored, byte for byte: the hash chain is taken over these lines
 *   {"segment": {"first", "last", "prev", "hash"}}   ends a segment; import stops at the last whole one
 *
 * `snapshot.json` is the folded state, for people and other programs; import does not need it.
 */
import { HoldfastError } from "../domain/errors.ts";
import { genesisHash, parseEvents, segmentHash } from "../domain/journal.ts";
import { canonicalJson, hashJson, type Json, type JsonObject, sha256 } from "../domain/json.ts";
import { type Bundle, bundleHash } from "../domain/plan/index.ts";
import { isTerminal, type RunHeader } from "../domain/run.ts";
import { encodeState } from "../domain/snapshot.ts";
import { evolve, initialState, type RunState } from "../domain/state.ts";
import type { CommitResult, RunRecord, RunStore, TreeCommit } from "../ports/index.ts";
import { loadHeader, readJournal } from "./tree/loading.ts";
import { type Artifact, hydrateEvents, packText, readArtifact } from "./values.ts";

/** Longest line that import reads: an artifact of 64 MiB and its frame. */
export const MAX_LINE_BYTES = 80 * 1024 * 1024;
const REF = /_ref":\{"bytes":\d+,"sha256":"([0-9a-f]{64})"/g;

/** Lines of a run's journal, each with its line end. */
export async function* exportLines(
  store: RunStore,
  record: RunRecord,
  bundle: Json | undefined,
): AsyncGenerator<string> {
  const header = headerOf(await loadHeader(store, record));
  yield line({ run: header as unknown as Json, ...(bundle === undefined ? {} : { bundle }) });
  for await (const { segment, text } of readJournal(store, header)) {
    for (const hash of new Set([...text.matchAll(REF)].map((match) => match[1] as string)))
      yield line({ artifact: { sha256: hash, value: await readArtifact(store, hash) } });
    yield text;
    yield line({ segment: { first: segment.first, last: segment.last, prev: segment.prev, hash: segment.hash } });
  }
}

export function exportSnapshot(state: RunState): Json {
  return { header: headerOf(state.header) as unknown as Json, state: encodeState(state) };
}

function line(value: JsonObject): string {
  return `${canonicalJson(value)}\n`;
}

const HEADER_FIELDS = [
  "run_id",
  "root_run_id",
  "parent_run_id",
  "parent_step_id",
  "session_id",
  "kind",
  "workflow_id",
  "workflow_revision",
  "bundle_hash",
  "args",
  "args_hash",
  "budget",
  "created_at_ms",
  "depth",
  "engine_version",
  "durability",
  "origin",
  "started_by",
  "made_from",
] as const satisfies readonly (keyof RunHeader)[];

/** The fields of a header, in their own right: a record carries its row beside them. */
function headerOf(header: RunHeader): RunHeader {
  const fields = HEADER_FIELDS.flatMap((name) => (header[name] === undefined ? [] : [[name, header[name]]]));
  return JSON.parse(JSON.stringify(Object.fromEntries(fields))) as RunHeader;
}

export interface Imported {
  readonly run_id: string;
  /** Of all runs in the file. */
  readonly events: number;
  readonly runs: number;
  /** True when the file ends inside a segment: that part is left out. */
  readonly truncated_tail: boolean;
}

interface RunInFile {
  readonly header: RunHeader;
  readonly bundle: Bundle | undefined;
  readonly segments: {
    readonly text: string;
    readonly first: number;
    readonly last: number;
    readonly prev: string;
    readonly hash: string;
  }[];
  readonly artifacts: Artifact[];
  state: RunState;
}

/**
 * Reads an exported journal into the store, checking every hash. The runs join `sessionId`; nothing is written
 * unless all of it is sound up to the last whole segment.
 * @throws HoldfastError `input` where the file is not a journal or was altered, `conflict` when a run exists already
 */
export async function importJournal(
  store: RunStore,
  lines: AsyncIterable<string>,
  sessionId: string,
): Promise<Imported> {
  const { runs, truncated } = await readRuns(lines, sessionId);
  const root = runs[0];
  if (root === undefined) throw bad(1, "it holds no run");
  for (const run of runs) {
    if (run.header.root_run_id !== root.header.root_run_id) throw bad(1, "it holds runs of several trees");
    if ((await store.getRun(run.header.run_id)) !== undefined)
      throw new HoldfastError("conflict", `Cannot import the run ${run.header.run_id}: it is in this store already`);
  }
  if (root.header.run_id !== root.header.root_run_id)
    throw bad(1, "it begins with a child run; export the tree with --tree and import that");
  const ended = runs.every((run) => isTerminal(run.state.status));
  for (const [i, run] of runs.entries()) await writeRun(store, run, sessionId, i === 0);
  await put(store, {
    ...frame(root.header),
    tree: { release: true, wake_at_ms: null, ...(ended ? { ended: true as const } : {}) },
  });
  return {
    run_id: root.header.run_id,
    events: runs.reduce((sum, run) => sum + run.state.last_sequence, 0),
    runs: runs.length,
    truncated_tail: truncated,
  };
}

function frame(header: RunHeader): TreeCommit {
  return { root_run_id: header.root_run_id, fence: 1, runs: [], artifacts: [], signals_done: [] };
}

async function writeRun(store: RunStore, run: RunInFile, sessionId: string, isRoot: boolean): Promise<void> {
  let state = initialState(run.header);
  for (const [i, segment] of run.segments.entries()) {
    const before = state;
    for (const event of await hydrateEvents(localArtifacts(run), parseEvents(segment.text)))
      state = evolve(state, event);
    const creates = i === 0;
    await put(store, {
      ...frame(run.header),
      ...(creates && isRoot
        ? {
            create: {
              session_id: sessionId,
              max_open_runs: Number.MAX_SAFE_INTEGER,
              claim: { owner: "import", lease_expires_at_ms: Number.MAX_SAFE_INTEGER },
            },
          }
        : {}),
      ...(creates && run.bundle !== undefined
        ? {
            bundle: {
              hash: run.header.bundle_hash,
              bytes: Buffer.from(canonicalJson(run.bundle as unknown as Json), "utf8"),
            },
          }
        : {}),
      artifacts: creates ? run.artifacts : [],
      runs: [
        {
          run_id: run.header.run_id,
          ...(creates ? { header: run.header } : {}),
          expected: before.last_sequence,
          segment: {
            first: segment.first,
            last: segment.last,
            prev: segment.prev,
            hash: segment.hash,
            ...packText(segment.text),
          },
          row: {
            status: state.status,
            ...(state.status === "suspended" && state.waits[0] !== undefined
              ? { suspension: state.waits[0].type }
              : {}),
            wait_count: state.waits.length,
            usage: state.usage,
            last_sequence: state.last_sequence,
            updated_at_ms: state.updated_at_ms,
          },
          waits: state.waits,
        },
      ],
    });
  }
}

async function put(store: RunStore, commit: TreeCommit): Promise<void> {
  const [result] = (await store.commit([commit])) as readonly [CommitResult];
  if (!result.ok)
    throw new HoldfastError(
      "conflict",
      `Cannot import the run ${commit.root_run_id}: the store refused it (${result.refusal})`,
    );
}

/** Values of the file, as the store would give them. */
function localArtifacts(run: RunInFile): RunStore {
  const known = new Map(run.artifacts.map((artifact) => [artifact.sha256, artifact.bytes]));
  return { getArtifact: async (hash: string) => known.get(hash) } as unknown as RunStore;
}

function bad(lineNumber: number, why: string): HoldfastError {
  return new HoldfastError("input", `Cannot import this journal: line ${lineNumber}: ${why}; nothing was written`, {
    details: { line: lineNumber },
  });
}

async function readRuns(
  lines: AsyncIterable<string>,
  sessionId: string,
): Promise<{ runs: RunInFile[]; truncated: boolean }> {
  const runs: RunInFile[] = [];
  let text = "";
  let artifacts: Artifact[] = [];
  let tip = "";
  let number = 0;
  for await (const raw of lines) {
    number++;
    if (raw.trim() === "") continue;
    const parsed = parseLine(raw);
    // A torn last line, and whatever of its segment stands before it, is left out.
    if (parsed === undefined) return { runs: whole(runs), truncated: true };
    if ("run" in parsed) {
      if (text !== "") throw bad(number, "a run begins inside a segment");
      const run = begin(parsed, sessionId, number);
      runs.push(run);
      tip = genesisHash(run.header);
      artifacts = [];
      continue;
    }
    const run = runs.at(-1);
    if (run === undefined) throw bad(number, "it does not begin with a run");
    if ("artifact" in parsed) artifacts.push(readArtifactLine(parsed.artifact as JsonObject, number));
    else if ("segment" in parsed) {
      const segment = parsed.segment as unknown as { first: number; last: number; prev: string; hash: string };
      if (segment.prev !== tip || segmentHash(tip, text) !== segment.hash)
        throw bad(number, "the segment before it was altered");
      run.artifacts.push(...artifacts);
      run.segments.push({ ...segment, text });
      run.state = await fold(run, text, number);
      tip = segment.hash;
      text = "";
      artifacts = [];
    } else text += `${raw}\n`;
  }
  return { runs: whole(runs), truncated: text !== "" };
}

function whole(runs: RunInFile[]): RunInFile[] {
  return runs.filter((run) => run.segments.length > 0);
}

function parseLine(raw: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(raw);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
  } catch {
    return undefined;
  }
}

function begin(parsed: JsonObject, sessionId: string, number: number): RunInFile {
  const header = { ...(parsed.run as unknown as RunHeader), session_id: sessionId };
  if (typeof header.run_id !== "string" || !/^[A-Za-z0-9_-]{1,128}$/.test(header.run_id))
    throw bad(number, "the run has no usable id");
  if (header.args !== undefined && hashJson(header.args) !== header.args_hash)
    throw bad(number, "its arguments were altered");
  const bundle = parsed.bundle as unknown as Bundle | undefined;
  if (bundle !== undefined && bundleHash(bundle) !== header.bundle_hash)
    throw bad(number, "its definitions were altered");
  return { header, bundle, segments: [], artifacts: [], state: initialState(header) };
}

function readArtifactLine(artifact: JsonObject, number: number): Artifact {
  const bytes = Buffer.from(canonicalJson(artifact.value ?? null), "utf8");
  if (sha256(bytes) !== artifact.sha256) throw bad(number, "a stored value was altered");
  return { sha256: artifact.sha256 as string, bytes };
}

async function fold(run: RunInFile, text: string, number: number): Promise<RunState> {
  let { state } = run;
  try {
    for (const event of await hydrateEvents(localArtifacts(run), parseEvents(text))) state = evolve(state, event);
  } catch (error) {
    throw bad(
      number,
      `the events before it do not fit together: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  return state;
}
