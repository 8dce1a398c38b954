// Answering on the command line, through real processes: one follows or has died, another decides (issue D).
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as nap } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { type Going, Place } from "./cli.fixture.ts";

const CONFIG = `import { defineTool } from "holdfast";
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
const any = { type: "object" } as const;
export default {
  permissions: { read: "allow", write: "allow", publish: "ask" },
  limits: { stop_grace_ms: Number(process.env.GRACE_MS ?? 300) },
  tools: [
    defineTool({
      name: "publish_package",
      description: "Publishes once.",
      input: any,
      capabilities: ["publish"],
      run: async (input: any, { workspace }: any) => {
        appendFileSync(join(workspace, "published.txt"), input.version + "\\n");
        return { published: input.version };
      },
    }),
    defineTool({
      name: "slow_write",
      description: "Writes a line, then takes its time once.",
      input: any,
      output: { type: "object", required: ["id"], additionalProperties: false, properties: { id: { type: "integer" } } },
      capabilities: ["write"],
      run: async (input: any, { workspace, signal }: any) => {
        appendFileSync(join(workspace, "written.txt"), "x\\n");
        if (existsSync(join(workspace, "quick"))) return { id: 7 };
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        return { id: 7 };
      },
    }),
    defineTool({
      name: "await_file",
      description: "Waits until a file is there, or until it is stopped.",
      input: any,
      sideEffect: "read_only",
      capabilities: ["read"],
      run: async (input: any, { workspace, signal }: any) => {
        while (!existsSync(join(workspace, input.path))) {
          signal.throwIfAborted();
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        return { found: true };
      },
    }),
    defineTool({
      name: "write_when",
      description: "Begins to write, and has written when a file is there.",
      input: any,
      capabilities: ["write"],
      run: async (_: any, { workspace, signal }: any) => {
        appendFileSync(join(workspace, "begun.txt"), "x\\n");
        while (!existsSync(join(workspace, "go.txt"))) {
          if (signal.aborted) appendFileSync(join(workspace, "told.txt"), "x\\n");
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        return { written: true };
      },
    }),
    defineTool({ name: "look", description: "Looks.", input: any, sideEffect: "read_only", capabilities: ["read"], run: () => ({}) }),
  ],
};
`;

const WORKFLOWS: Record<string, string> = {
  release: `steps:
  - {id: hold, type: tool, tool: await_file, args: {path: go.txt}, capabilities: [read]}
  - {id: publish, type: tool, tool: publish_package, args: {version: "1.2"}, capabilities: [publish]}
plan: {type: parallel, nodes: [{type: step, step: hold}, {type: step, step: publish}]}
`,
  order: `steps:
  - {id: ask, type: input, prompt: "How many?", schema: {type: object, required: [amount], additionalProperties: false, properties: {amount: {type: integer, minimum: 1}}}}
plan: {type: step, step: ask}
`,
  ship: `steps:
  - {id: ship, type: tool, tool: slow_write, args: {}, capabilities: [write]}
plan: {type: step, step: ship}
`,
  slow: `steps:
  - {id: hold, type: tool, tool: await_file, args: {path: go.txt}, capabilities: [read]}
plan: {type: step, step: hold}
`,
  gated: `steps:
  - {id: ok, type: approval, prompt: Go?}
  - {id: work, type: tool, tool: write_when, args: {}, capabilities: [write]}
plan: {type: sequence, nodes: [{type: step, step: ok}, {type: step, step: work}]}
`,
  work: `steps:
  - {id: work, type: tool, tool: write_when, args: {}, capabilities: [write]}
plan: {type: step, step: work}
`,
  scant: `budgets: {max_steps: 1, max_agents: 0, on_exhausted: suspend}
steps:
  - {id: a, type: tool, tool: look, args: {}, capabilities: [read]}
  - {id: work, type: tool, tool: write_when, args: {}, capabilities: [write]}
plan: {type: sequence, nodes: [{type: step, step: a}, {type: step, step: work}]}
`,
  spend: `budgets: {max_steps: 1, max_agents: 0, on_exhausted: suspend}
steps:
  - {id: a, type: tool, tool: look, args: {}, capabilities: [read]}
  - {id: b, type: tool, tool: look, args: {}, capabilities: [read]}
plan: {type: sequence, nodes: [{type: step, step: a}, {type: step, step: b}]}
`,
};

interface RunDoc {
  readonly run_id: string;
  readonly status: string;
  readonly output?: unknown;
  readonly failure?: { readonly code: string };
  readonly waits: readonly {
    readonly wait_id: string;
    readonly type: string;
    readonly digest?: string;
    readonly started_by?: string;
  }[];
}

const places: Place[] = [];
const going: Going[] = [];

async function shop(): Promise<Place> {
  const place = new Place();
  places.push(place);
  place.write("holdfast.config.ts", CONFIG);
  for (const [id, body] of Object.entries(WORKFLOWS))
    place.write(`.holdfast/workflows/${id}.yaml`, `workflow_schema: 1\nid: ${id}\nrevision: 1\n${body}`);
  const trusted = await place.call("trust", "--yes");
  if (trusted.status !== 0) throw new Error(trusted.stderr);
  return place;
}

function begin(place: Place, ...words: string[]): Going {
  const started = place.start(words);
  going.push(started);
  return started;
}

afterEach(() => {
  for (const { child } of going.splice(0)) child.kill("SIGKILL");
  for (const place of places.splice(0)) place.remove();
});

/** The newest run of a workflow once it fits; the command line is asked again until it does. */
async function runWhen(place: Place, workflow: string, fits: (run: RunDoc) => boolean): Promise<RunDoc> {
  for (let n = 0; n < 60; n++) {
    const { status, stdout } = await place.call("show", `last:${workflow}`, "--json");
    if (status === 0 && fits(JSON.parse(stdout) as RunDoc)) return JSON.parse(stdout) as RunDoc;
    await nap(50);
  }
  throw new Error(`${workflow} never got there`);
}

async function fileWhen(place: Place, name: string): Promise<void> {
  for (let n = 0; n < 200 && !existsSync(place.file(name)); n++) await nap(25);
  expect(existsSync(place.file(name))).toBe(true);
}

describe("one process follows, another decides", () => {
  test("R-40 approve from a second process: only with the digest, the same again is the same, the opposite a conflict", async () => {
    const place = await shop();
    const following = begin(place, "run", "release", "--json");
    const run = await runWhen(place, "release", ({ waits }) => waits.length === 1);
    const [wait] = run.waits;
    const { wait_id = "", digest = "" } = wait ?? {};
    expect(wait?.started_by).toMatch(/^os:/);
    const inbox = await place.json<{ waits: { workflow_id: string; run_id: string; tool: string }[] }>(
      "waits",
      "--type",
      "tool_approval",
    );
    expect(inbox.waits).toMatchObject([{ workflow_id: "release", run_id: run.run_id, tool: "publish_package" }]);
    const blind = await place.call("approve", "last");
    expect([blind.status, blind.stderr]).toEqual([2, expect.stringMatching(/asked by +os:[\s\S]*--digest/)]);
    const wrong = await place.call("approve", "last", wait_id, "--digest", "00000000", "--json");
    expect([wrong.status, JSON.parse(wrong.stdout)]).toMatchObject([
      1,
      { error: { code: "conflict", details: { digest } } },
    ]);
    const yes = await place.call(
      "approve",
      "last",
      wait_id,
      "--digest",
      digest.slice(0, 12),
      "--reason",
      "looked at it",
      "--detach",
    );
    expect([yes.status, yes.stderr]).toEqual([0, expect.any(String)]);
    place.write("go.txt", "");
    const { status, stdout } = await following.ended;
    expect([status, JSON.parse(stdout)]).toMatchObject([0, { status: "succeeded", run_id: run.run_id }]);
    expect(readFileSync(place.file("published.txt"), "utf8")).toBe("1.2\n");
    expect((await place.call("approve", "last", wait_id, "--digest", digest, "--detach")).status).toBe(0);
    const no = await place.call("deny", "last", wait_id, "--digest", digest);
    expect([no.status, no.stderr]).toEqual([1, expect.stringMatching(/approved meanwhile by os:/)]);
    const events = (await place.call("events", "last", "--json")).stdout;
    expect(events).toContain('"reason":"looked at it"');
  });

  test("GS-36 answer: wrong is refused with its place and nothing is lost, right goes on", async () => {
    const place = await shop();
    const asked = await place.call("run", "order");
    expect([asked.status, asked.stderr]).toEqual([3, expect.stringContaining("answer")]);
    const wrong = await place.call("answer", "last", "--input", "amount=0");
    expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringMatching(/\/amount|amount/)]);
    expect(await place.json("why", "last")).toMatchObject({
      causes: [{ cause: "input", ends_by: ["answer", "deny"] }],
    });
    const right = await place.call("answer", "last", "--input", "amount=3", "--json");
    expect([right.status, JSON.parse(right.stdout)]).toMatchObject([0, { status: "succeeded", output: { amount: 3 } }]);
    expect((await place.call("answer", "last", "--input", "amount=3")).status).toBe(1);
  });

  test("GD-62 pause from a second process; resume in a third goes on where it stood", async () => {
    const place = await shop();
    const following = begin(place, "run", "slow", "--json");
    const run = await runWhen(place, "slow", ({ status }) => status === "running");
    const paused = await place.call("pause", "last", "--reason", "deploy at noon", "--json");
    expect([paused.status, JSON.parse(paused.stdout)]).toMatchObject([0, { status: "suspended", run_id: run.run_id }]);
    expect((await following.ended).status).toBe(3);
    expect(await place.json("why", "last")).toMatchObject({
      sentence: "The run is paused: deploy at noon; resume it.",
    });
    place.write("go.txt", "");
    const resumed = await place.call("resume", "last", "--json");
    expect([resumed.status, JSON.parse(resumed.stdout)]).toMatchObject([
      0,
      { status: "succeeded", run_id: run.run_id },
    ]);
  });

  test("a used-up budget is raised and the run goes on from there", async () => {
    const place = await shop();
    const spent = await place.call("run", "spend", "--json");
    expect([spent.status, JSON.parse(spent.stdout)]).toMatchObject([
      3,
      { status: "suspended", waits: [{ type: "budget" }] },
    ]);
    expect((await place.call("budget", "last", "--max-steps", "1")).status).toBe(1);
    const bare = await place.call("budget", "last");
    expect([bare.status, bare.stderr]).toEqual([2, expect.stringContaining("no limit is given; name at least one")]);
    for (const flag of ["--max-steps", "--wall-time-ms"]) {
      const wrong = await place.call("budget", "last", flag, "abc");
      expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining(`Cannot read ${flag}: `)]);
    }
    const raised = await place.call("budget", "last", "--max-steps", "5", "--json");
    expect([raised.status, JSON.parse(raised.stdout)]).toMatchObject([0, { budget: { max_steps: 5 } }]);
    const done = await place.call("resume", "last", "--json");
    const run =
      done.status === 0
        ? (JSON.parse(done.stdout) as RunDoc)
        : await runWhen(place, "spend", ({ status }) => status === "succeeded");
    expect(run).toMatchObject({ status: "succeeded", usage: { steps: 2 } });
  });
});

describe("a command that does not stay, and one that goes", () => {
  test("R-36 --detach and budget write what they are told and begin nothing; resume goes on with it", async () => {
    const place = await shop();
    const asked = JSON.parse((await place.call("run", "gated", "--json")).stdout) as RunDoc;
    const digest = asked.waits[0]?.digest ?? "";
    expect((await place.call("approve", "last", "--digest", digest, "--detach")).status).toBe(0);
    expect((await place.call("run", "scant")).status).toBe(3);
    expect((await place.call("budget", "last", "--max-steps", "5")).status).toBe(0);
    expect(existsSync(place.file("begun.txt"))).toBe(false);
    expect(await place.json("show", "last")).toMatchObject({ status: "suspended", waits: [{ type: "budget" }] });
    place.write("go.txt", "");
    for (const run of ["last:gated", "last:scant"])
      expect(await place.call("resume", run, "--json")).toMatchObject({
        status: 0,
        stdout: expect.stringContaining('"succeeded"'),
      });
    expect(readFileSync(place.file("begun.txt"), "utf8")).toBe("x\nx\n");
  });

  test.each([
    ["run --timeout", ["run", "work", "--timeout", "600ms"], undefined],
    ["run, and SIGTERM", ["run", "work"], "SIGTERM"],
    ["serve, and SIGTERM", ["serve", "--port", "0"], "SIGTERM"],
  ] as const)(
    "R-4 %s: a mutation in flight has its grace to settle, and no person is asked",
    async (_, words, signal) => {
      const place = await shop();
      const { child, ended } = begin(place, ...words);
      if (words[0] === "serve") {
        await fileWhen(place, ".holdfast/state/server.json");
        await place.call("run", "work", "--detach");
      }
      await fileWhen(place, "begun.txt");
      if (signal !== undefined) child.kill(signal);
      else await nap(700);
      await nap(50);
      place.write("go.txt", "");
      expect((await ended).status).toBe(words[0] === "serve" ? 0 : 3);
      expect(existsSync(place.file("told.txt"))).toBe(false);
      expect(await place.call("resume", "last", "--json")).toMatchObject({
        status: 0,
        stdout: expect.stringContaining('"succeeded"'),
      });
      expect(readFileSync(place.file("begun.txt"), "utf8")).toBe("x\n");
    },
  );
});

describe("a process is killed inside a mutating tool", () => {
  async function killed(): Promise<{ place: Place; run: RunDoc }> {
    const place = await shop();
    const { child, ended } = begin(place, "run", "ship");
    await fileWhen(place, "written.txt");
    child.kill("SIGKILL");
    await ended;
    // Nobody has to wait for a lease: its host lock proves it dead.
    expect((await place.json<{ causes: { cause: string }[] }>("why", "last")).causes[0]?.cause).toBe("lease");
    expect(await place.json("doctor", "last")).toMatchObject({
      findings: [{ code: "orphaned_attempt", step_id: "ship" }],
      truncated: false,
    });
    const interrupted = await place.call("resume", "last");
    expect(interrupted.status).toBe(3);
    const run = await runWhen(place, "ship", ({ waits }) => waits.some(({ type }) => type === "repair"));
    return { place, run };
  }

  test("C09 evidence, a wrong digest, a foreign output, then succeeded", async () => {
    const { place, run } = await killed();
    const digest = run.waits[0]?.digest ?? "";
    const shown = await place.call("repair", "last", "ship");
    expect([shown.status, shown.stdout]).toEqual([0, expect.stringContaining(`--digest ${digest.slice(0, 12)}`)]);
    expect(await place.json("repair", "last", "ship")).toMatchObject({
      tool: "slow_write",
      attempt: 1,
      late_results: [],
      digest,
    });
    expect(await place.json("doctor", "last", "--limit", "5")).toEqual({ findings: [], truncated: false });
    const wrong = await place.call("repair", "last", "ship", "--failed", "no", "--digest", "00000000");
    expect([wrong.status, wrong.stderr]).toEqual([1, expect.stringContaining("what is asked is now")]);
    place.write("foreign.json", '{"id": "x"}');
    const foreign = await place.call("repair", "last", "ship", "--succeeded", "--output-file", "foreign.json");
    expect([foreign.status, foreign.stderr]).toEqual([2, expect.stringContaining("does not fit at /id")]);
    place.write("right.json", '{"id": 1}');
    const done = await place.call(
      "repair",
      "last",
      "ship",
      "--succeeded",
      "--output-file",
      "right.json",
      "--digest",
      digest.slice(0, 8),
      "--json",
    );
    expect([done.status, JSON.parse(done.stdout)]).toMatchObject([0, { status: "succeeded", output: { id: 1 } }]);
    expect(readFileSync(place.file("written.txt"), "utf8")).toBe("x\n");
    expect((await place.call("repair", "last", "ship", "--failed", "no")).status).toBe(1);
  });

  test.each([
    [
      "--failed",
      "it never arrived",
      { status: "failed", failure: { code: "execution_failed", message: "it never arrived" } },
      1,
    ],
    [
      "--cancelled",
      "stopped by hand",
      { status: "failed", failure: { code: "cancelled", message: "stopped by hand" } },
      1,
    ],
  ])("%s ends it with a person's words, and it is not sent again", async (flag, words, outcome, status) => {
    const { place } = await killed();
    const done = await place.call("repair", "last", "ship", flag, words, "--json");
    expect([done.status, JSON.parse(done.stdout)]).toMatchObject([status, outcome]);
    expect(readFileSync(place.file("written.txt"), "utf8")).toBe("x\n");
  });

  test("--retry sends it again, as a new attempt; two answers at once are refused", async () => {
    const { place } = await killed();
    expect((await place.call("repair", "last", "ship", "--failed", "a", "--retry", "b")).status).toBe(2);
    place.write("quick", "");
    const done = await place.call("repair", "last", "ship", "--retry", "nothing had happened", "--json");
    expect([done.status, JSON.parse(done.stdout)]).toMatchObject([
      0,
      { status: "succeeded", output: { id: 7 }, steps: [{ id: "ship", attempts: 2 }] },
    ]);
    expect(readFileSync(place.file("written.txt"), "utf8")).toBe("x\nx\n");
  });
});

describe("looking", () => {
  test("an inbox of every session prints commands that reach them; doctor takes --limit only with a run", async () => {
    const place = await shop();
    await place.call("sessions", "create", "nightly");
    const run = await place.call("--session", "nightly", "run", "order", "--json");
    const { run_id } = JSON.parse(run.stdout) as RunDoc;
    expect((await place.json<{ waits: unknown[] }>("waits")).waits).toEqual([]);
    const all = await place.call("waits", "--all-sessions");
    const command = /holdfast.* answer .*/.exec(all.stderr)?.[0] ?? "";
    expect(command).toMatch(/--session \S+ answer/);
    const session = /--session (\S+)/.exec(command)?.[1] ?? "";
    expect((await place.call("--session", session, "answer", run_id, "--input", "amount=1")).status).toBe(0);
    expect((await place.call("doctor", "--limit", "3")).status).toBe(2);
    expect((await place.call("doctor", "nobody-here", "--json")).status).toBe(2);
  });
});
