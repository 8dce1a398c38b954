// Owns docs/recovery.md: every cell of its table is what a simulated process did when it was stopped there. A page
// that no longer says so fails here; HOLDFAST_WRITE_DOCS=1 writes it anew.
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { parseEvents } from "../../src/domain/journal.ts";
import { unpackText } from "../../src/engine/index.ts";
import type { TreeCommit } from "../../src/ports/index.ts";
import {
  type Answer,
  carefulPerson,
  createWorld,
  type Fault,
  follow,
  type MockTool,
  type World,
} from "../../src/testing/index.ts";
import { leaf, tool } from "./scenarios.ts";

const PAGE = path.join(import.meta.dirname, "../../docs/recovery.md");

const TOOLS: Readonly<Record<string, MockTool>> = {
  "`read_only`": { name: "T", sideEffect: "read_only" },
  "`idempotent`": { name: "T", sideEffect: "idempotent" },
  "`mutating`, nobody can be asked": { name: "T", sideEffect: "mutating" },
  "`mutating` with `lookup`": { name: "T", sideEffect: "mutating", lookup: true },
  "`mutating` with a receipt and `observe`": { name: "T", sideEffect: "mutating", observe: true },
};

/** Either a write at which the process stops, or a moment while the tool is at work. */
interface Point {
  readonly name: string;
  readonly at?: { readonly event: "step_started" | "step_completed"; readonly when: "before" | "after" };
  readonly during?: "start" | "end";
}

const POINTS: readonly Point[] = [
  { name: "before the intent is on the disk", at: { event: "step_started", when: "before" } },
  { name: "after the intent, before the call", at: { event: "step_started", when: "after" } },
  { name: "during the call, before the effect", during: "end" },
  { name: "during the call, after the effect", during: "start" },
  { name: "after the answer, before it is on the disk", at: { event: "step_completed", when: "before" } },
  { name: "after the answer is on the disk", at: { event: "step_completed", when: "after" } },
];

interface Cell {
  readonly happened: number;
  readonly called: number;
  readonly stands: string;
  readonly asked: string;
  readonly ends: string;
}

function holds(group: readonly TreeCommit[], type: string): boolean {
  return group.some((tree) =>
    tree.runs.some((run) =>
      parseEvents(unpackText(run.segment)).some(
        (event) => event.type === type && "step_id" in event && event.step_id === "work",
      ),
    ),
  );
}

/** Stops a process at the point, lets a fresh one recover, and then a person answer. */
async function cellOf(mock: MockTool, point: Point): Promise<Cell> {
  const world = await createWorld({
    seed: 1,
    definitions: [{ steps: [tool("work", "T")], plan: leaf("work") }],
    tools: [{ ...mock, takes_ms: [50, 50], effect: point.during ?? "start" }],
  });
  const { at } = point;
  const fault = (group: readonly TreeCommit[]): Fault | undefined =>
    at !== undefined && holds(group, at.event) ? { kind: "stop", when: at.when } : undefined;
  const first = await world.process({ faults: { write: (_, __, group) => fault(group) } });
  void world.start(first);
  const calledNow = (): boolean => world.effects.calls.length > 0 && (mock.observe !== true || world.clock.now() > 0);
  await world.until(
    async () =>
      !first.alive ||
      (point.during !== undefined && calledNow() && (point.during === "end" || world.effects.countOf("T") > 0)),
  );
  first.kill();
  const [run] = await world.store.listRuns({ limit: 1 });
  if (run === undefined) throw new Error(`nothing was started at "${point.name}"`);
  const second = await world.process();
  const alone = await follow(world, second, run.run_id, { person: () => undefined });
  const waits = await world.store.listWaits({ root_run_id: run.run_id, limit: 10 });
  const record = await world.record(run.run_id);
  let asked = "nothing";
  const person = carefulPerson();
  const end = await follow(world, second, run.run_id, {
    person: (wait, of) => {
      const answer = person(wait, of);
      asked = answerOf(answer);
      return answer;
    },
  });
  expect([point.name, end, await world.check(run.run_id)]).toEqual([point.name, "ended", []]);
  const cell: Cell = {
    happened: happenedIn(world),
    called: world.effects.calls.filter((call) => call.kind === "call").length,
    stands: alone === "ended" ? "went on by itself" : `${record.status}/${waits[0]?.type ?? ""}`,
    asked,
    ends: (await world.record(run.run_id)).status,
  };
  await world.close();
  return cell;
}

function happenedIn(world: World): number {
  return world.effects.countOf("T");
}

function answerOf(answer: Answer | undefined): string {
  if (answer?.kind !== "repair") return answer?.kind ?? "nothing";
  return answer.payload.resolution === "retry" ? "did it happen? no: `retry`" : "did it happen? yes: `succeeded`";
}

function times(n: number): string {
  return n === 1 ? "once" : n === 2 ? "twice" : `${n} times`;
}

function cellText(cell: Cell): string {
  return cell.asked === "nothing"
    ? `${times(cell.happened)}; ${cell.stands}`
    : `${times(cell.happened)}; \`${cell.stands}\`, a person is asked: ${cell.asked}`;
}

const HEAD = `# What happens after a crash

A process may be gone at any moment: killed, out of memory, without power. This page says for each kind of tool and each
moment what is left, how often the effect has happened when the run has ended, and what a person is asked. Every cell
is measured: \`test/sim/recovery-doc.test.ts\` stops a simulated process exactly there, and fails when this page says
something else (\`HOLDFAST_WRITE_DOCS=1 npx vitest run test/sim/recovery-doc.test.ts\` writes it anew).

The step's *intent* is written before the tool is called, its *answer* after. "Went on by itself" means that the next
process on the same host took the run over and ended it, with nobody asked.

`;

const TAIL = `
- \`read_only\` work may be repeated, which changes nothing; it is not waited for before the next step, so a crash can
  repeat more than one such step.
- \`idempotent\` work is sent again under the same \`dispatch_id\`: whoever does it must answer as before and do nothing more.
- \`mutating\` work is never sent again without proof. With \`lookup\` its owner is asked what became of the \`dispatch_id\`;
  with a receipt it is observed; the one of this table works inside the process and has lost its work with it, while one that
  works elsewhere goes on. Where nobody can be asked the run is \`suspended/repair\`: look at the other system, then
  \`holdfast repair RUN STEP\` with \`--succeeded --output-file F\`, \`--failed MSG\`, \`--cancelled MSG\` or \`--retry REASON\`.
- The attempt that a crash cut off uses up no retry and is not paid for twice. It keeps the
  [resources](plans.md#resources) that it has claimed until it has ended.
- A crash while a retry is waited for keeps its due time; one that fell due meanwhile goes at once.
- A tool with [\`plan\`](tools.md#owners-that-plan-and-can-be-told-to-stop) has one more moment, between the intent and the hand-over:
  a run that is cancelled there ends at once, since nobody can have done anything.
- A run that loses its process five times without progress is parked as \`suspended/recovery\` with the reason
  \`no_progress\`; \`holdfast resume RUN\` tries it again.

To see the same for a workflow of your own: \`holdfast test WORKFLOW\`.
`;

test("DESIGN §6 the table of docs/recovery.md is what happens at every point", async () => {
  const rows: string[] = [];
  for (const point of POINTS) {
    const cells: string[] = [];
    for (const [kind, mock] of Object.entries(TOOLS)) {
      const cell = await cellOf(mock, point);
      expect([kind, point.name, cell.ends]).toEqual([kind, point.name, "succeeded"]);
      if (mock.sideEffect !== "read_only") expect([kind, point.name, cell.happened]).toEqual([kind, point.name, 1]);
      if (mock.sideEffect !== "mutating" || mock.lookup === true)
        expect([kind, point.name, cell.asked]).toEqual([kind, point.name, "nothing"]);
      cells.push(cellText(cell));
    }
    rows.push(`| ${[point.name, ...cells].join(" | ")} |`);
  }
  const heading = `| the process is gone | ${Object.keys(TOOLS).join(" | ")} |\n| ${Array.from({ length: 1 + Object.keys(TOOLS).length }, () => "---").join(" | ")} |`;
  const page = `${HEAD}${heading}\n${rows.join("\n")}\n${TAIL}`;
  if (process.env.HOLDFAST_WRITE_DOCS === "1") writeFileSync(PAGE, page);
  expect(readFileSync(PAGE, "utf8"), "docs/recovery.md is stale: HOLDFAST_WRITE_DOCS=1 writes it anew").toBe(page);
});
