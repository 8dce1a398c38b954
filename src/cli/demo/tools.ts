/**
 * The demonstration's own tools: what the file tools cannot compute. All read-only. They say so when they do
 * something only to be seen: the pauses, the one failure, and the place where the process is killed.
 */
import { open, realpath } from "node:fs/promises";
import path from "node:path";
import { defineTool, ToolError } from "../../tools/index.ts";
import { type Measured, pickSources, summarise } from "./sources.ts";

/** A file larger than this is measured up to here. */
const MAX_BYTES = 4_194_304;

const text = { type: "string" } as const;
const integer = { type: "integer" } as const;
const boolean = { type: "boolean" } as const;

function object<const P extends object>(properties: P) {
  return { type: "object", required: Object.keys(properties), additionalProperties: false, properties } as const;
}

function list<const I extends object>(items: I) {
  return { type: "array", items } as const;
}

const MEASURED = object({ path: text, lines: integer, bytes: integer });
/** Grep's matches may say more; only this is read. */
const MARKER = {
  type: "object",
  required: ["path", "line", "text"],
  properties: { path: text, line: integer, text },
} as const;
const REPORT = object({
  files: integer,
  lines: integer,
  bytes: integer,
  left_out: integer,
  folders: list(object({ folder: text, files: integer, lines: integer, bytes: integer })),
  longest: list(object({ path: text, lines: integer })),
  markers: integer,
  first_markers: list(object({ path: text, line: integer, text })),
  tested: integer,
  without_test: list(text),
});

export interface DemoPace {
  /** Ms that measuring one file takes longer than it must, so that it can be watched. */
  readonly pauseMs: number | ((files: number) => number);
  /** Called before each measurement with how many came before it, and of how many; measuring waits for its answer. */
  readonly beforeMeasure: (before: number, of: number) => Promise<void>;
}

export function demoTools(pace: DemoPace) {
  let measuredBefore = 0;
  let picked = 0;
  const pick = defineTool({
    name: "demo_pick",
    description: "Picks the files that were written by hand.",
    input: object({ files: list(text) }),
    output: object({ found: boolean, files: list(text), left_out: integer }),
    sideEffect: "read_only",
    run: (input) => {
      const answer = pickSources(input.files);
      picked = answer.files.length;
      return answer;
    },
  });
  const measure = defineTool({
    name: "demo_measure",
    description: "Counts lines and bytes of one file.",
    input: object({ path: text }),
    output: MEASURED,
    sideEffect: "read_only",
    run: async (input, context) => {
      await pace.beforeMeasure(measuredBefore++, picked);
      const pauseMs = typeof pace.pauseMs === "number" ? pace.pauseMs : pace.pauseMs(picked);
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
      return await measureFile(context.workspace, input.path);
    },
  });
  const report = defineTool({
    name: "demo_summarise",
    description: "Reports on measured files. Its first try fails on purpose, so that a retry can be seen.",
    input: object({
      measured: list(MEASURED),
      markers: list(MARKER),
      left_out: integer,
    }),
    output: REPORT,
    sideEffect: "read_only",
    run: (input, context) => {
      if (context.attempt === 1 && input.measured.length > 0)
        throw new ToolError("on purpose: to show a retry", { retryable: true });
      return summarise(input.measured, input.markers, input.left_out);
    },
  });
  return [pick, measure, report];
}

/** Inside the workspace after links are resolved, or refused. */
async function measureFile(workspace: string, file: string): Promise<Measured> {
  const real = await realpath(path.resolve(workspace, file)).catch(() => undefined);
  if (real === undefined || !real.startsWith(`${workspace}${path.sep}`))
    throw new ToolError(`Cannot measure ${JSON.stringify(file)}: it is not in the workspace`, {
      kind: "bad_arguments",
    });
  const handle = await open(real, "r");
  try {
    const { size } = await handle.stat();
    const bytes = Buffer.alloc(Math.min(size, MAX_BYTES));
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
    let lines = 0;
    for (let at = 0; at < bytesRead; at++) if (bytes[at] === 10) lines++;
    if (bytesRead > 0 && bytes[bytesRead - 1] !== 10) lines++;
    return { path: file, lines, bytes: size };
  } finally {
    await handle.close();
  }
}
