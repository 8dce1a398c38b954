/** `holdfast test`: a workflow of this workspace, crashed everywhere in a simulated world (DESIGN §14.4). */
import path from "node:path";
import { HoldfastError } from "../../domain/errors.ts";
import type { Json } from "../../domain/json.ts";
import type { Bundle, Step } from "../../domain/plan/index.ts";
import type { AgentPort } from "../../ports/index.ts";
import {
  type CrashFailure,
  type CrashOptions,
  type CrashReport,
  crashEverywhere,
  describeFailure,
  type MockTool,
  ok,
  sampleOf,
  type WorldTool,
} from "../../testing/index.ts";
import { type AnyTool, createPolicy, fileTools, isTool } from "../../tools/index.ts";
import { type Context, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import type { Opened } from "../root.ts";
import { readAsked } from "../starting.ts";
import { count, printable } from "../text.ts";

const MAX_SEED = 2 ** 31;
const MAX_POINTS = 100_000;
/** Tokens that a mocked agent reports: enough to see the books kept, too few to pass a limit. */
const AGENT_TOKENS = 10;
const SHOWN_FAILURES = 20;

export async function run(context: Context): Promise<number> {
  const crash = crashOf(context);
  const seed = context.flags.whole("seed", 0, MAX_SEED) ?? 1;
  return await withWorkspace(context, { needStore: false, readOnly: true }, async (holdfast, opened) => {
    const asked = await readAsked(context, holdfast, "test");
    const bundle = await holdfast.workflows.bundle(asked.workflow);
    const cast = castOf(bundle, opened, await ownTools(context, opened));
    context.out.note(...castLines(cast));
    const permissions = opened.config?.permissions;
    const report = await crashEverywhere({
      definitions: bundle,
      tools: cast.tools,
      agents: mockAgents(),
      policy: createPolicy(permissions === undefined ? {} : { permissions }),
      workspace: opened.workspace,
      seed,
      run: { args: asked.args ?? {}, ...(asked.budget === undefined ? {} : { budget: asked.budget }) },
      ...crash,
      onProgress: (done, of) => context.out.status(`crash ${done} of ${of}`),
    });
    context.out.status("");
    return tell(context, report);
  });
}

function crashOf(context: Context): Pick<CrashOptions, "points" | "again"> {
  const text = context.flags.text("crash") ?? "every";
  if (text === "every") return {};
  if (text === "none") return { points: 0, again: 0 };
  const points = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (points >= 1 && points <= MAX_POINTS) return { points, again: 0 };
  throw new HoldfastError(
    "usage",
    `Cannot read --crash: ${JSON.stringify(text)} is not every, none or a number from 1 to ${MAX_POINTS}; give one`,
  );
}

async function ownTools(context: Context, opened: Opened): Promise<readonly AnyTool[]> {
  const file = context.flags.text("tools");
  if (file === undefined) return [];
  const root = await context.process.load();
  return root.loadTools(path.resolve(context.process.cwd, file), opened.workspace);
}

interface Cast {
  readonly tools: readonly WorldTool[];
  readonly given: readonly string[];
  readonly real: readonly string[];
  readonly mocked: readonly string[];
}

/** Which tool plays which part: given mocks first, then what only reads, and a recorded mock for everything else. */
function castOf(bundle: Bundle, opened: Opened, own: readonly AnyTool[]): Cast {
  const steps = Object.values(bundle.definitions).flatMap((definition) => definition.steps);
  const wanted = new Set(steps.flatMap((step) => (step.type === "tool" ? [step.tool] : [])));
  const configured = (opened.config?.tools ?? []).filter(isTool);
  const known = new Map([...fileTools().tools, ...configured].map((tool) => [tool.name, tool]));
  const given = new Map(own.map((tool) => [tool.name, tool]));
  const cast = { tools: [] as WorldTool[], given: [] as string[], real: [] as string[], mocked: [] as string[] };
  for (const name of [...wanted].sort()) {
    const mine = given.get(name);
    const there = known.get(name);
    if (mine !== undefined) {
      cast.tools.push(mine);
      cast.given.push(name);
    } else if (there?.sideEffect === "read_only" && there.capabilities.every((capability) => capability === "read")) {
      cast.tools.push(there);
      cast.real.push(name);
    } else {
      cast.tools.push(mockOf(name, there, steps));
      cast.mocked.push(there === undefined ? `${name} (no such tool here)` : name);
    }
  }
  return cast;
}

/** Answers the plainest value that fits what the step, or the tool, declares. */
function mockOf(name: string, there: AnyTool | undefined, steps: readonly Step[]): MockTool {
  return {
    name,
    ...(there === undefined ? {} : { sideEffect: there.sideEffect, capabilities: there.capabilities }),
    ...(there?.lookup === undefined ? {} : { lookup: true }),
    ...(there?.observe === undefined ? {} : { observe: true }),
    answer: (call) => {
      const id = call.step_id.split("@")[0];
      const step = steps.find((each) => each.id === id && each.type === "tool" && each.tool === name);
      const schema = step?.output_schema ?? there?.outputSchema;
      return ok(schema === undefined ? { mocked: name } : sampleOf(schema as Json));
    },
  };
}

function mockAgents(): AgentPort {
  return {
    resolve: async (name) => ({ name, capabilities: [], priced: true }),
    estimate: async () => ({ tokens: AGENT_TOKENS, cost_micros: 0 }),
    call: async (call) => ({
      type: "succeeded",
      output: call.output_schema === undefined ? `mocked answer of ${call.agent}` : sampleOf(call.output_schema),
      usage: { tokens: AGENT_TOKENS, cost_micros: 0 },
    }),
  };
}

function castLines(cast: Cast): string[] {
  const line = (what: string, names: readonly string[]): string[] =>
    names.length === 0 ? [] : [`${what}: ${names.map(printable).join(", ")}`];
  return [
    ...line("Mocks of your own", cast.given),
    ...line("Read the workspace", cast.real),
    ...line("Replaced by recorded mocks, which change nothing", cast.mocked),
  ];
}

interface Fault {
  readonly sequence: number;
  readonly why: string;
}

/** A workflow that does not even succeed uninterrupted is no basis to judge crashes by: that is said first. */
function faultsOf(report: CrashReport): Fault[] {
  const { status, failure_code } = report.expected;
  const own: Fault[] =
    status === "succeeded"
      ? []
      : [
          {
            sequence: 0,
            why: `uninterrupted, it ends ${status}${failure_code === undefined ? "" : ` (${failure_code})`}`,
          },
        ];
  return [
    ...own,
    ...report.failures.map((failure: CrashFailure) => ({ sequence: failure.sequence, why: describeFailure(failure) })),
  ];
}

function tell(context: Context, report: CrashReport): number {
  const { out } = context;
  const failures = faultsOf(report);
  const isOk = failures.length === 0;
  if (out.json) {
    out.document({ ok: isOk, boundaries: report.boundaries, failures });
    return isOk ? EXIT.succeeded : EXIT.failed;
  }
  const effects = Object.values(report.expected.effects).reduce((sum, n) => sum + n, 0);
  const what = `${count(report.boundaries, "write")}, ${count(report.worlds - 1, "crash", "crashes")}, seed ${report.seed}`;
  if (isOk)
    out.print(`${out.style.good(out.style.done)} held: ${what}; ${count(effects, "effect")}, none happened twice`);
  else {
    out.print(`${out.style.bad(out.style.failed)} did not hold: ${count(failures.length, "failure")} in ${what}`);
    out.print(...failures.slice(0, SHOWN_FAILURES).map((fault) => `  ${printable(fault.why)}`));
    if (failures.length > SHOWN_FAILURES) out.print(`  and ${failures.length - SHOWN_FAILURES} more`);
    out.note(`The same command with --seed ${report.seed} shows them again.`);
  }
  return isOk ? EXIT.succeeded : EXIT.failed;
}
