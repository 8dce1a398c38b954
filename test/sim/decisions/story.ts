// Owns one seed's story: people who decide at their own moments, processes that crash, freeze and take over, and in
// the end somebody careful who answers what is left.
import { type AccessContext, createAccess, DEFAULT_ACCESS_LIMITS, type Holdfast } from "../../../src/access/index.ts";
import { openCatalog } from "../../../src/catalog/index.ts";
import { HoldfastError } from "../../../src/domain/errors.ts";
import { isTerminal, type RunStatus, type Wait } from "../../../src/domain/run.ts";
import {
  carefulPerson,
  createWorld,
  type FaultPlan,
  follow,
  type Person,
  type Random,
  seededRandom,
  type Violation,
  type World,
  type WorldProcess,
} from "../../../src/testing/index.ts";
import { worldOf } from "./plans.ts";
import { type Asked, DECISION_RULES, type Story, type Verb } from "./rules.ts";

type Access = Omit<Holdfast, "handler">;

interface Member {
  readonly process: WorldProcess;
  readonly access: Access;
  /** When a frozen one is woken, ms of the world. */
  thawsAtMs?: number;
}

const MAX_ACTIONS = 14;
const MAX_PROCESSES = 8;
/** A claim whose process ended as it was written keeps its lease: only the poll finds it once that has run out. */
const POLL_MS = 15_000;
/** Longer than a lease of 30 s and what takers add to it. */
const FROZEN_MS = 45_000;
/** More than any tool of the plans takes. */
const LONGEST_CALL_MS = 13_000;

class Cast {
  readonly world: World;
  readonly random: Random;
  readonly members: Member[] = [];
  readonly gone = new Set<string>();
  readonly asked: Asked[] = [];
  readonly seen = new Map<string, RunStatus>();
  /** Every wait that was ever seen open: decisions come too late as well. */
  readonly waits = new Map<string, Wait>();
  rootRunId: string | undefined;

  constructor(world: World, random: Random) {
    this.world = world;
    this.random = random;
  }

  async join(mortal: boolean): Promise<Member> {
    const { random } = this;
    const faults = mortal && random.chance(0.4) ? deadly(random) : {};
    const process = await this.world.process({ faults, pollMs: POLL_MS });
    const member: Member = { process, access: accessOf(process) };
    this.members.push(member);
    return member;
  }

  get alive(): Member[] {
    for (const { process } of this.members) if (!process.alive) this.gone.add(process.name);
    return this.members.filter(({ process }) => process.alive);
  }

  /** Alive and not standing still. */
  get awake(): Member[] {
    return this.alive.filter(({ thawsAtMs }) => thawsAtMs === undefined);
  }
}

function deadly(random: Random): FaultPlan {
  const at = random.between(1, 25);
  const when = random.chance(0.5) ? "before" : "after";
  return { write: (n) => (n === at ? { kind: "stop", when } : undefined) };
}

/** The operations as every interface has them, over a simulated process's engine. */
function accessOf({ engine }: WorldProcess): Access {
  const { store, sessions: _, secrets: __, ...ports } = engine.ports;
  const context: AccessContext = {
    ...ports,
    engine,
    store: store as NonNullable<AccessContext["store"]>,
    catalog: openCatalog({ definitions: [], env: { tool: (name) => ports.tools.describe(name), maxConcurrency: 64 } }),
    trusted: () => true,
    workspace: "/workspace",
    limits: DEFAULT_ACCESS_LIMITS,
    engineLimits: {},
    durability: "standard",
    readOnly: false,
    approvals: {},
    starter: "os:sim",
    session: "default",
  };
  return createAccess(context, async () => undefined);
}

/** A few turns of the event loop, during which the world does not stand still: orders within one instant. */
async function someTurns(random: Random): Promise<void> {
  for (let turns = random.int(7); turns > 0; turns--) await new Promise<void>((resolve) => setImmediate(resolve));
}

async function begin(cast: Cast): Promise<string | undefined> {
  const { world } = cast;
  for (let tries = 0; tries < MAX_PROCESSES; tries++) {
    const member = cast.awake[0] ?? (await cast.join(tries < 2));
    void world.start(member.process).catch(() => undefined);
    await world.clock.settle();
    const [run] = await world.store.listRuns({ limit: 1 });
    if (run !== undefined) return run.run_id;
  }
  return undefined;
}

/** Sees what is open and what has ended. */
async function look(cast: Cast, rootRunId: string): Promise<void> {
  for (const run of await cast.world.store.treeRuns(rootRunId))
    if (isTerminal(run.status) && !cast.seen.has(run.run_id)) cast.seen.set(run.run_id, run.status);
  for (const wait of await cast.world.store.listWaits({ root_run_id: rootRunId, limit: 100 }))
    cast.waits.set(`${wait.run_id} ${wait.wait_id}`, wait);
}

function ask(cast: Cast, member: Member, verb: Verb, runId: string, wait?: Wait): void {
  const { world, random } = cast;
  const by = `os:p${cast.asked.length + 1}`;
  const asked: Asked = {
    by,
    verb,
    run_id: runId,
    ...(wait === undefined ? {} : { wait_id: wait.wait_id }),
    asked_at_ms: world.clock.now(),
    process: member.process.name,
    answer: "unanswered",
  };
  cast.asked.push(asked);
  const { runs, waits } = member.access;
  const who = { decided_by: by, ...(wait?.digest === undefined ? {} : { digest: wait.digest }) };
  const acts: Record<Verb, () => Promise<{ readonly pending: boolean }>> = {
    approve: () => waits.approve(runId, wait?.wait_id, who),
    deny: () => waits.deny(runId, wait?.wait_id, who),
    answer: () => waits.answer(runId, wait?.wait_id, { ...who, value: random.int(3) }),
    repair: () => waits.repair(runId, wait?.step_id ?? "", { ...who, ...truth(world, wait) }),
    cancel: () => runs.cancel(runId, { decided_by: by }),
    pause: () => runs.pause(runId, { decided_by: by }),
    resume: () => runs.resume(runId, { decided_by: by }),
  };
  void acts[verb]()
    .then(
      ({ pending }) => {
        asked.answer = pending ? "pending" : "done";
      },
      (error: unknown) => {
        const known = HoldfastError.is(error);
        const message = error instanceof Error ? error.message : String(error);
        asked.answer = { refused: known ? error.code : "internal", message };
        if (!known || error.code === "internal")
          world.violations.push({
            rule: "no_bug",
            cites: "DESIGN §13",
            sequence: 0,
            why: `${verb} by ${by}: ${error instanceof Error ? error.stack : message}`,
          });
      },
    )
    .finally(() => world.clock.touch());
  world.clock.touch();
}

/** What a person who looks at the other system says; a dispatch that is still on its way is not judged. */
function truth(world: World, wait: Wait | undefined) {
  const happened = wait?.evidence === undefined ? undefined : world.effects.outcomeOf(wait.evidence.dispatch_id);
  if (happened !== undefined) return { resolution: "succeeded" as const, output: happened.output };
  return wait?.stop_reason === undefined
    ? { resolution: "retry" as const, reason: "it did not happen" }
    : { resolution: "cancelled" as const, message: "it did not happen" };
}

function verbFor(random: Random, wait: Wait): Verb | undefined {
  if (wait.type === "approval" || wait.type === "tool_approval") return random.chance(0.65) ? "approve" : "deny";
  if (wait.type === "input") return random.chance(0.8) ? "answer" : "deny";
  return undefined;
}

/** One thing that somebody does, or that happens to a process. */
async function act(cast: Cast, rootRunId: string): Promise<void> {
  const { random, world } = cast;
  const awake = cast.awake;
  const member = awake.length === 0 ? await cast.join(true) : random.pick(awake);
  const chance = random.next();
  if (chance < 0.1) {
    member.process.kill();
    return;
  }
  if (chance < 0.17) {
    member.process.freeze();
    member.thawsAtMs = world.clock.now() + random.pick([1_000, FROZEN_MS]);
    return;
  }
  if (chance < 0.27 && cast.members.length < MAX_PROCESSES) return void (await cast.join(true));
  if (chance < 0.33) return ask(cast, member, "cancel", rootRunId);
  if (chance < 0.36) {
    const runs = await world.store.treeRuns(rootRunId);
    return ask(cast, member, "cancel", random.pick(runs).run_id);
  }
  if (chance < 0.39) return ask(cast, member, "pause", rootRunId);
  if (chance < 0.43) return ask(cast, member, "resume", rootRunId);
  const waits = [...cast.waits.values()].filter((wait) => verbFor(random, wait) !== undefined);
  const wait =
    waits.length === 0
      ? undefined
      : random.chance(0.8)
        ? waits.at(-1 - random.int(Math.min(3, waits.length)))
        : random.pick(waits);
  const verb = wait === undefined ? undefined : verbFor(random, wait);
  if (wait === undefined || verb === undefined) return;
  // Often several at once, of the same mind or not, over whichever process.
  for (let times = random.chance(0.4) ? random.between(2, 3) : 1; times > 0; times--) {
    const other = random.pick(cast.awake.length === 0 ? [member] : cast.awake);
    ask(cast, other, verbFor(random, wait) ?? verb, wait.run_id, wait);
    await someTurns(random);
  }
}

async function pass(cast: Cast, ms: number): Promise<void> {
  const { clock } = cast.world;
  const until = clock.now() + ms;
  for (;;) {
    const due = cast.members.filter(({ thawsAtMs }) => thawsAtMs !== undefined);
    const next = Math.min(until, ...due.map(({ thawsAtMs }) => thawsAtMs as number));
    await clock.advance(Math.max(0, next - clock.now()));
    for (const member of due) if ((member.thawsAtMs as number) <= clock.now()) thaw(member);
    if (next >= until) return;
  }
}

function thaw(member: Member): void {
  delete member.thawsAtMs;
  if (member.process.alive) member.process.thaw();
}

/** The story of a seed, judged. */
export async function tell(seed: number): Promise<{
  readonly violations: readonly Violation[];
  readonly asked: readonly Asked[];
  readonly kinds: readonly string[];
}> {
  const random = seededRandom("decisions", seed);
  const world = await createWorld(worldOf(seed, random));
  const cast = new Cast(world, random);
  try {
    await cast.join(true);
    if (random.chance(0.6)) await cast.join(true);
    const rootRunId = await begin(cast);
    if (rootRunId === undefined) throw new Error("nothing was started");
    for (let actions = random.between(3, MAX_ACTIONS); actions > 0; actions--) {
      await look(cast, rootRunId);
      if (await world.ended(rootRunId)) break;
      await act(cast, rootRunId);
      if (random.chance(0.4)) await someTurns(random);
      else await pass(cast, random.pick([0, 0, 1, 40, 600, 4_000, 15_000]));
    }
    const finishedAtMs = world.clock.now();
    const end = await finish(cast, rootRunId);
    return {
      violations: await judge(cast, rootRunId, { end, finishedAtMs }),
      asked: cast.asked,
      kinds: await world.kinds(rootRunId),
    };
  } finally {
    await world.close();
  }
}

async function finish(cast: Cast, rootRunId: string): Promise<Story["end"]> {
  const { world, random } = cast;
  await look(cast, rootRunId);
  for (const member of cast.members) if (member.thawsAtMs !== undefined) thaw(member);
  await pass(cast, 6_000);
  await look(cast, rootRunId);
  const careful = carefulPerson({ approvals: random.chance(0.8) ? "approve" : "deny", input: 3 });
  const looked = new Set<string>();
  // Whoever judges a dispatch while it may still be on its way judges too early: nothing here takes so long.
  const person: Person = (wait, within) => {
    const sureAtMs = wait.since_ms + LONGEST_CALL_MS;
    if (wait.type !== "repair" || within.clock.now() >= sureAtMs) return careful(wait, within);
    const key = `${wait.run_id} ${wait.wait_id}`;
    if (!looked.has(key)) within.clock.at(sureAtMs, () => undefined);
    looked.add(key);
    return undefined;
  };
  let end: Story["end"] = "gone";
  while (end === "gone") {
    const member = cast.awake[0] ?? (await cast.join(cast.members.length < MAX_PROCESSES));
    end = await follow(world, member.process, rootRunId, { person, withinMs: 3_600_000 });
  }
  // Whoever was frozen or asked late is told by now.
  await pass(cast, 60_000);
  return end;
}

async function judge(cast: Cast, rootRunId: string, last: Pick<Story, "end" | "finishedAtMs">): Promise<Violation[]> {
  const { world } = cast;
  const violations = [...(await world.check(rootRunId))];
  void cast.alive;
  const story: Story = {
    history: await world.history(rootRunId),
    asked: cast.asked,
    gone: cast.gone,
    seen: cast.seen,
    openSignals: (await world.store.signals({ root_run_id: rootRunId })).length,
    inbox: await world.store.listWaits({ root_run_id: rootRunId, limit: 200 }),
    ...last,
  };
  for (const { name, cites, check } of DECISION_RULES)
    check(story, (why, { run_id, event } = {}) =>
      violations.push({
        rule: name,
        cites,
        ...(run_id === undefined ? {} : { run_id }),
        sequence: event?.sequence ?? 0,
        ...(event === undefined ? {} : { event: event.type }),
        why,
      }),
    );
  return violations;
}
