// Owns a trusted workspace whose tools tests can hold back, and a real `holdfast serve` over it.
import { readFileSync } from "node:fs";
import { setTimeout as nap } from "node:timers/promises";
import { connect } from "../../src/client/index.ts";
import type { Holdfast } from "../../src/index.ts";
import { type Going, Place } from "./cli.fixture.ts";

const CONFIG = `import { defineTool } from "holdfast";
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
const any = { type: "object" } as const;
const until = async (file: string, signal?: AbortSignal) => {
  while (!existsSync(file)) {
    signal?.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};
export default {
  permissions: { read: "allow", write: "allow", publish: "ask" },
  limits: { stop_grace_ms: GRACE },
  tools: [
    defineTool({
      name: "lose",
      description: "Writes a line and does not know whether it did, until there is a file.",
      input: any,
      output: { type: "object", required: ["id"], properties: { id: { type: "integer" } } },
      capabilities: ["write"],
      run: async (_: any, { workspace }: any) => {
        appendFileSync(join(workspace, "written.txt"), "x\\n");
        if (!existsSync(join(workspace, "known"))) throw new Error("the line is cut");
        return { id: 7 };
      },
    }),
    defineTool({
      name: "stuck",
      description: "Writes, and heeds no signal.",
      input: any,
      capabilities: ["write"],
      run: async (_: any, { workspace }: any) => {
        appendFileSync(join(workspace, "stuck.txt"), "x\\n");
        await until(join(workspace, "go.txt"));
        return {};
      },
    }),
    defineTool({
      name: "await_file",
      description: "Waits until a file is there, or until it is stopped.",
      input: any,
      sideEffect: "read_only",
      capabilities: ["read"],
      run: async (_: any, { workspace, signal }: any) => {
        await until(join(workspace, "go.txt"), signal);
        return {};
      },
    }),
    defineTool({
      name: "publish",
      description: "Publishes.",
      input: any,
      capabilities: ["publish"],
      run: () => ({}),
    }),
    defineTool({ name: "look", description: "Looks.", input: any, sideEffect: "read_only", capabilities: ["read"], run: () => ({}) }),
  ],
  MORE
};
`;

const one = (id: string, tool: string, capability: string) => `steps:
  - {id: ${id}, type: tool, tool: ${tool}, args: {}, capabilities: [${capability}]}
plan: {type: step, step: ${id}}
`;
const WORKFLOWS: Record<string, string> = {
  lost: one("lose", "lose", "write"),
  stuck: one("write", "stuck", "write"),
  slow: one("hold", "await_file", "read"),
  claims: one("hold", "await_file", "read").replace(
    "capabilities",
    "resources: [{resource: press, access: write}], capabilities",
  ),
  release: one("publish", "publish", "publish"),
  gate: `steps:
  - {id: gate, type: approval, prompt: "Go on?"}
plan: {type: step, step: gate}
`,
  order: `steps:
  - {id: ask, type: input, prompt: "How many?", schema: {type: object, required: [n], additionalProperties: false, properties: {n: {type: integer}}}}
plan: {type: step, step: ask}
`,
  nap: `steps:
  - {id: nap, type: wait, for_ms: 600000}
plan: {type: step, step: nap}
`,
  blink: `steps:
  - {id: nap, type: wait, for_ms: 700}
plan: {type: step, step: nap}
`,
  spend: `budgets: {max_steps: 1, max_agents: 0, on_exhausted: suspend}
steps:
  - {id: a, type: tool, tool: look, args: {}, capabilities: [read]}
  - {id: b, type: tool, tool: look, args: {}, capabilities: [read]}
plan: {type: sequence, nodes: [{type: step, step: a}, {type: step, step: b}]}
`,
  ...Object.fromEntries(
    ["gate", "order", "blink", "lost"].map((child) => [
      `${child}-parent`,
      `steps:
  - {id: child, type: workflow, workflow_id: ${child}, revision: 1, args: {}}
plan: {type: step, step: child}
`,
    ]),
  ),
};

export interface RunDoc {
  readonly run_id: string;
  readonly status: string;
  readonly output?: unknown;
  readonly failure?: { readonly code: string; readonly message: string };
  readonly steps: readonly { readonly id: string; readonly attempts: number }[];
  readonly waits: readonly {
    readonly wait_id: string;
    readonly type: string;
    readonly digest?: string;
    readonly started_by?: string;
    readonly child_run_id?: string;
    readonly evidence?: { readonly dispatch_id: string };
  }[];
}

/** @param more further keys of the configuration, as its text; @param graceMs how long a stop waits */
export async function trustedPlace(more = "", graceMs = 300): Promise<Place> {
  const place = new Place();
  place.write("holdfast.config.ts", CONFIG.replace("MORE", more).replace("GRACE", String(graceMs)));
  for (const [id, body] of Object.entries(WORKFLOWS))
    place.write(`.holdfast/workflows/${id}.yaml`, `workflow_schema: 1\nid: ${id}\nrevision: 1\n${body}`);
  const trusted = await place.call("trust", "--yes");
  if (trusted.status !== 0) throw new Error(trusted.stderr);
  return place;
}

export interface ServeLine {
  readonly url: string;
  readonly pid: number;
  readonly token_file: string;
}

export interface ServedPlace {
  readonly line: ServeLine;
  readonly token: string;
  readonly run: Going;
  readonly client: Holdfast;
}

/** Resolves when the server has printed its line. */
export async function serveIn(place: Place, ...words: string[]): Promise<ServedPlace> {
  const run = place.start(["serve", "--port", "0", "--json", ...words]);
  const line = await new Promise<ServeLine>((resolve, reject) => {
    let text = "";
    run.child.stdout?.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (text.includes("\n")) resolve(JSON.parse(text.split("\n")[0] as string) as ServeLine);
    });
    void run.ended.then(({ stderr }) => reject(new Error(stderr)));
  });
  const { token } = JSON.parse(readFileSync(line.token_file, "utf8")) as { token: string };
  return { line, token, run, client: connect({ url: line.url, token }) };
}

/** The run once it fits. */
export async function runWhen(holdfast: Holdfast, runId: string, fits: (run: RunDoc) => boolean): Promise<RunDoc> {
  for (let n = 0; n < 400; n++) {
    const run = (await holdfast.runs.inspect(runId)) as RunDoc;
    if (fits(run)) return run;
    await nap(25);
  }
  throw new Error(`${runId} never got there`);
}
