// Owns the proof with real processes that nothing is done twice and nothing is stuck (issue D): two workers on one SQLite
// file, killed every second and stopped past their lease at random, with 500 runs under way. And C02: nobody has to say go.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { createHoldfast, type Holdfast, type Run } from "../../src/index.ts";
import { openSqliteStore } from "../../src/stores/sqlite/index.ts";
import { checkRules, readHistory, seededRandom } from "../../src/testing/index.ts";
import { GO } from "./child-request.ts";
import { type Child, childOf, cleanUp, folder, type Said } from "./children.ts";
import { LEASE_MS, linesIn, openStress, type StressRequest } from "./stress-work.ts";

afterAll(cleanUp);

const ENTRY = "test/crash/stress-child.ts";
/** Seconds of killing; issue D's minute with HOLDFAST_STRESS=60. */
const SECONDS = Number(process.env.HOLDFAST_STRESS ?? 6);
const RUNS = 500;
const seed = Number(process.env.HOLDFAST_SEED ?? 1);
const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface Slot {
  readonly slot: number;
  child: Child;
  /** Run ids whose start was acknowledged, over all of its processes. */
  readonly acknowledged: Map<number, string>;
}

const PER_SLOT = RUNS / 2;

function note(slot: Slot): void {
  for (const said of slot.child.said)
    if (typeof said.started === "number") slot.acknowledged.set(said.started, String(said.run_id));
}

async function launch(at: string, slot: number, acknowledged: ReadonlyMap<number, string>): Promise<Child> {
  const request: StressRequest = {
    folder: at,
    slot,
    workflow: "mixed",
    from: acknowledged.size,
    to: PER_SLOT,
    every_ms: ((SECONDS - 1) * 1_000) / PER_SLOT,
  };
  return childOf(ENTRY, request);
}

async function killed(slot: Slot): Promise<void> {
  slot.child.process.kill("SIGKILL");
  await slot.child.exited;
  note(slot);
}

/** One process is killed every second and started again; at random the other stands still past its lease meanwhile. */
async function storm(at: string, slots: readonly Slot[]): Promise<{ kills: number; stops: number }> {
  const random = seededRandom("stress", seed);
  const until = Date.now() + SECONDS * 1_000;
  const stopped: Promise<void>[] = [];
  let [kills, stops] = [0, 0];
  while (Date.now() < until) {
    await after(1_000);
    const victim = random.pick(slots);
    await killed(victim);
    kills++;
    victim.child = await launch(at, victim.slot, victim.acknowledged);
    const other = slots.find((each) => each !== victim) as Slot;
    if (!random.chance(0.7)) continue;
    const { process } = other.child;
    process.kill("SIGSTOP");
    stops++;
    stopped.push(after(LEASE_MS + random.between(300, 900)).then(() => void process.kill("SIGCONT")));
  }
  await Promise.all(stopped);
  return { kills, stops };
}

/** Every run of the file, newest first. */
async function allRuns(holdfast: Holdfast): Promise<{ run_id: string; status: string; suspension?: string }[]> {
  const runs: { run_id: string; status: string; suspension?: string }[] = [];
  let cursor: string | undefined;
  do {
    const page = await holdfast.runs.list({ limit: 200, ...(cursor === undefined ? {} : { cursor }) });
    runs.push(
      ...page.runs.map(({ run_id, status, suspension }) => ({
        run_id,
        status,
        ...(suspension === undefined ? {} : { suspension: String(suspension) }),
      })),
    );
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  return runs;
}

/** Waits until the disk shows it. */
async function eventually<T>(look: () => Promise<T>, fits: (seen: T) => boolean, ms: number): Promise<T> {
  const until = Date.now() + ms;
  for (;;) {
    const seen = await look();
    if (fits(seen)) return seen;
    if (Date.now() > until) throw new Error(`it stays ${JSON.stringify(seen).slice(0, 2_000)}`);
    await after(100);
  }
}

/** Looks at what really happened and says so; what an interruption has parked goes on. */
async function answer(holdfast: Holdfast, at: string, runId: string): Promise<"repaired" | "resumed" | undefined> {
  const run: Run = await holdfast.runs.inspect(runId);
  const repair = run.waits.find((wait) => wait.type === "repair");
  if (repair?.step_id !== undefined && repair.evidence !== undefined) {
    const { dispatch_id } = repair.evidence;
    const happened = linesIn(at).some((line) => line.dispatch_id === dispatch_id);
    await holdfast.waits.repair(runId, repair.step_id, {
      decided_by: "os:person",
      dispatch_id,
      ...(happened
        ? { resolution: "succeeded" as const, output: { n: repair.step_id } }
        : { resolution: "retry" as const, reason: "it did not happen" }),
    });
    return "repaired";
  }
  if (!run.waits.some((wait) => wait.type === "recovery")) return undefined;
  await holdfast.runs.resume(runId).catch(() => undefined);
  return "resumed";
}

test(
  `C32 ${RUNS} runs, two processes, one killed every second and stopped past its lease at random: nothing twice, nothing lost, nothing stuck`,
  async () => {
    const at = folder();
    const slots: Slot[] = [];
    for (const slot of [0, 1]) slots.push({ slot, child: await launch(at, slot, new Map()), acknowledged: new Map() });
    const { kills, stops } = await storm(at, slots);
    // Nobody of before can still do anything: what a person sees from here on is the truth.
    for (const slot of slots) {
      await killed(slot);
      slot.child = await launch(at, slot.slot, slot.acknowledged);
    }
    for (const slot of slots) await slot.child.hears((said) => said.started_all !== undefined);
    const holdfast = await createHoldfast({ ...openStress(at), worker: false, limits: { lease_ms: LEASE_MS } });
    const ended = (run: { status: string }): boolean => ["succeeded", "failed", "cancelled"].includes(run.status);
    const rest = await eventually(
      () => allRuns(holdfast),
      (runs) => runs.every((run) => ended(run) || run.status === "suspended"),
      60_000,
    );
    const waiting = rest.filter((run) => run.status === "suspended");
    const sentences: string[] = [];
    for (const { run_id } of waiting) sentences.push((await holdfast.runs.why(run_id)).sentence);
    expect(sentences.filter((sentence) => sentence === "")).toEqual([]);
    const answers = { repaired: 0, resumed: 0 };
    const finished = await eventually(
      async () => {
        const runs = await allRuns(holdfast);
        for (const run of runs.filter((each) => each.status === "suspended")) {
          const done = await answer(holdfast, at, run.run_id).catch(() => undefined);
          if (done !== undefined) answers[done]++;
        }
        return runs;
      },
      (runs) => runs.every(ended),
      60_000,
    );
    for (const slot of slots) note(slot);
    const ids = new Set(finished.map((run) => run.run_id));
    const acknowledged = slots.flatMap((slot) => [...slot.acknowledged.values()]);
    expect([acknowledged.filter((id) => !ids.has(id)), acknowledged.length, ids.size]).toEqual([[], RUNS, RUNS]);
    expect(finished.filter((run) => run.status !== "succeeded")).toEqual([]);
    const lines = linesIn(at);
    expect([
      twice(lines.map((line) => line.dispatch_id)),
      twice(lines.map((line) => `${line.run_id} ${line.step_id}`)),
    ]).toEqual([[], []]);
    expect(lines).toHaveLength(RUNS * 5);
    expect(await broken(at, acknowledged)).toEqual([]);
    const logged = slots.flatMap((slot) => slot.child.said.filter((said: Said) => said.log !== undefined));
    expect(logged.filter((said) => String(said.error).startsWith("Bug"))).toEqual([]);
    console.log(
      `${RUNS} runs, ${lines.length} effects, ${kills} kills, ${stops} stops, ${waiting.length} waited for a person, ${answers.repaired} repairs, ${answers.resumed} resumed`,
    );
    await holdfast.close();
    for (const { child } of slots) child.process.kill("SIGTERM");
  },
  SECONDS * 1_000 + 180_000,
);

function twice(keys: readonly string[]): string[] {
  const seen = new Set<string>();
  return keys.filter((key) => seen.has(key) || !seen.add(key));
}

/** The rules of every journal, on a sample: reading five hundred of them whole says no more. */
async function broken(at: string, runIds: readonly string[]): Promise<string[]> {
  const store = await openSqliteStore({ path: join(at, "holdfast.db") });
  const found: string[] = [];
  for (const runId of seededRandom("sample", seed).shuffle(runIds).slice(0, 100))
    for (const fault of checkRules(await readHistory(store, runId)))
      found.push(`${fault.rule} at ${fault.sequence}: ${fault.why}`);
  await store.close();
  return found;
}

for (const [where, workflow] of [
  ["during a sleep", "sleeps"],
  ["inside a slow step", "slow"],
] as const)
  test(`C02 a process killed ${where}: after the restart the run goes on by itself, with nobody saying anything`, async () => {
    const at = folder();
    const request: StressRequest = { folder: at, slot: 0, workflow, from: 0, to: 1, every_ms: 0 };
    const first = await childOf(ENTRY, request);
    await first.hears((said) => (workflow === "slow" ? said.slow !== undefined : said.started_all !== undefined));
    const store = await openSqliteStore({ path: join(at, "holdfast.db") });
    const run = async () => (await store.listRuns({ limit: 1 }))[0];
    await eventually(run, (seen) => workflow === "slow" || seen?.status === "suspended", 5_000);
    first.process.kill("SIGKILL");
    await first.exited;
    writeFileSync(join(at, GO), "");
    const second = await childOf(ENTRY, { ...request, to: 0 });
    const end = await eventually(run, (seen) => seen?.status === "succeeded", 10_000);
    expect(linesIn(at).map((line) => line.step_id)).toEqual(["a", "b"]);
    expect(end?.wait_count).toBe(0);
    second.process.kill("SIGTERM");
    await second.exited;
    await store.close();
  });
