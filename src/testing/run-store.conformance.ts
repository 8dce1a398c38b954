/**
 * What every RunStore must do, as one suite that each store runs (DESIGN §14.2) and that others can run on
 * theirs. The port says the rules; a title here names each. Scenario ids are those of the spec files.
 */
import type { CommitResult, RunQuery, RunStore, SessionStore, Signal, TreeCommit } from "../ports/index.ts";
import { freshId, SESSION_ID, sessionRecord, startCommit, TestJournal, testWait, treeCommit } from "./journals.ts";
import { type Skip, type TestKit, withSkips } from "./kit.ts";

export type TestedStore = RunStore & SessionStore;

export interface RunStoreSuite {
  readonly name: string;
  /** An empty store whose leases follow `clock`. */
  readonly open: (clock: { now(): number }) => Promise<TestedStore>;
  /** A second, independent handle on the data of `store`, as another process would have; where there can be none, `store`. */
  readonly second: (store: TestedStore, clock: { now(): number }) => Promise<TestedStore>;
  readonly skips?: readonly Skip[];
}

const OK: CommitResult = { ok: true };
const ME = { owner: "owner-a", leaseMs: 1_000, graceMs: 100 };
const YOU = { owner: "owner-b", leaseMs: 1_000, graceMs: 100 };

/** A world of one store with a clock that tests move. */
interface World {
  readonly store: TestedStore;
  readonly clock: { at: number; now(): number };
  second(): Promise<TestedStore>;
}

/** Registers the suite with the runner's functions. */
export function runStoreConformance(kit: TestKit, suite: RunStoreSuite): void {
  const { test, done } = withSkips(kit, suite.skips ?? []);
  kit.describe(`RunStore: ${suite.name}`, () => {
    const scenario = (name: string, body: (world: World) => Promise<void>): void =>
      test(name, () => inWorld(suite, body));
    appending(kit, scenario);
    creating(kit, scenario);
    leasing(kit, scenario);
    signalling(kit, scenario);
    reading(kit, scenario);
    done();
  });
}

type Scenario = (name: string, body: (world: World) => Promise<void>) => void;

async function inWorld(suite: RunStoreSuite, body: (world: World) => Promise<void>): Promise<void> {
  const clock = { at: 10_000, now: (): number => clock.at };
  const store = await suite.open(clock);
  const opened = new Set([store]);
  try {
    await store.createSession(sessionRecord());
    await body({
      store,
      clock,
      second: async () => {
        const handle = await suite.second(store, clock);
        opened.add(handle);
        return handle;
      },
    });
  } finally {
    for (const handle of [...opened].reverse()) await handle.close();
  }
}

async function commitOne(store: RunStore, commit: TreeCommit): Promise<CommitResult | undefined> {
  return (await store.commit([commit]))[0];
}

async function started(store: RunStore, owner = ME.owner): Promise<TestJournal> {
  const journal = new TestJournal();
  await store.commit([startCommit(journal, { owner, lease_expires_at_ms: 11_000 })]);
  return journal;
}

function appending({ expect }: TestKit, test: Scenario): void {
  test("a commit is read back as it was written, by every handle", async ({ store, second }) => {
    const journal = new TestJournal({ args: { text: "a\u0000b 😀 \u2028" }, workflow_id: "a\u0000b" });
    const start = startCommit(journal, { owner: ME.owner });
    expect(await commitOne(store, start)).toEqual(OK);
    const append = treeCommit([journal.next({ status: "running", events: 3 })], { tree: { ledger: { spent: 1 } } });
    expect(await commitOne(store, append)).toEqual(OK);
    for (const handle of [store, await second()]) {
      expect(await handle.getRun(journal.run_id)).toEqual({ ...journal.header, ...append.runs[0]?.row });
      const segments = await handle.readSegments(journal.run_id, 0, 1_000_000);
      expect(segments.map(plain)).toEqual([start.runs[0]?.segment, append.runs[0]?.segment].map(plain));
      expect((await handle.getTree(journal.run_id))?.ledger).toEqual({ spent: 1 });
    }
  });

  test("SC-24 of two commits that race for sequence 2 exactly one wins, 100 times", async ({ store, second }) => {
    const other = await second();
    for (let round = 0; round < 100; round++) {
      const journal = await started(store);
      const rival = journal.fork();
      const mine = treeCommit([journal.next({ bytes: Buffer.from("mine\n") })]);
      const yours = treeCommit([rival.next({ bytes: Buffer.from("yours\n") })]);
      const racers = [commitOne(store, mine), commitOne(other, yours)];
      const results = await Promise.all(round % 2 === 0 ? racers : racers.reverse());
      expect(results.filter((result) => result?.ok === true).length).toBe(1);
      expect(results.find((result) => result?.ok === false)).toEqual({ ok: false, refusal: "conflict" });
      const segments = await store.readSegments(journal.run_id, 0, 1_000_000);
      expect(segments.map((segment) => segment.last)).toEqual([1, 2]);
    }
  });

  test("RP-56 the very same batch again is success and adds nothing", async ({ store }) => {
    const journal = await started(store);
    const append = treeCommit([journal.next()]);
    expect([await commitOne(store, append), await commitOne(store, append)]).toEqual([OK, OK]);
    expect((await store.readSegments(journal.run_id, 0, 1_000_000)).length).toBe(2);
    expect((await store.getRun(journal.run_id))?.last_sequence).toBe(2);
  });

  test("R-23 a batch that does not continue the journal, by its sequence and its hash, is a conflict", async ({
    store,
  }) => {
    const journal = await started(store);
    const gap = journal.fork();
    gap.sequence = 5;
    const other = journal.fork();
    other.tip = "00".repeat(32);
    for (const wrong of [gap, other])
      expect(await commitOne(store, treeCommit([wrong.next()]))).toEqual({ ok: false, refusal: "conflict" });
    expect(await commitOne(store, treeCommit([journal.next()]))).toEqual(OK);
  });

  test("R-4 a refused tree leaves nothing and does not hold up the others of its group", async ({ store }) => {
    const good = await started(store);
    const bad = await started(store);
    const child = childOf(bad);
    const artifact = { sha256: "ab".repeat(32), bytes: Buffer.from("value") };
    const stale = new TestJournal(bad.header);
    stale.sequence = 7;
    const group = [
      treeCommit([good.next()]),
      // Its first part fits; its second does not, so the first must be taken back.
      treeCommit([bad.next(), child.next(), stale.next()], { root_run_id: bad.run_id, artifacts: [artifact] }),
      startCommit(new TestJournal(), { owner: ME.owner }),
    ];
    expect(await store.commit(group)).toEqual([OK, { ok: false, refusal: "conflict" }, OK]);
    expect((await store.getRun(bad.run_id))?.last_sequence).toBe(1);
    expect(await store.getRun(child.run_id)).toBe(undefined);
    expect(await store.getArtifact(artifact.sha256)).toBe(undefined);
    expect((await store.getRun(good.run_id))?.last_sequence).toBe(2);
  });

  test("a stale fence is refused, and so is who gave the tree up", async ({ store }) => {
    const journal = await started(store);
    const stale = journal.fork();
    expect(await commitOne(store, treeCommit([stale.next()], { fence: 2 }))).toEqual({ ok: false, refusal: "fenced" });
    await store.release(journal.run_id, 1);
    expect(await commitOne(store, treeCommit([journal.fork().next()]))).toEqual({ ok: false, refusal: "fenced" });
    const claim = await store.claim(journal.run_id, YOU);
    expect(await commitOne(store, treeCommit([journal.fork().next()]))).toEqual({ ok: false, refusal: "fenced" });
    expect(await commitOne(store, treeCommit([journal.next()], { fence: claim?.fence ?? 0 }))).toEqual(OK);
    const unknown = treeCommit([new TestJournal().next()]);
    expect(await commitOne(store, { ...unknown, root_run_id: freshId() })).toEqual({ ok: false, refusal: "fenced" });
  });

  test("R-1 a commit that saw another control_version is refused", async ({ store }) => {
    const journal = await started(store);
    await store.putSignal(signalFor(journal), true);
    const seen = treeCommit([journal.fork().next()], { control_version: 0 });
    expect(await commitOne(store, seen)).toEqual({ ok: false, refusal: "control" });
    expect(await commitOne(store, treeCommit([journal.next()], { control_version: 1 }))).toEqual(OK);
    expect(await commitOne(store, treeCommit([journal.next()]))).toEqual(OK);
  });

  test("a child belongs to its tree: parents come first, and another tree cannot append to it", async ({ store }) => {
    const journal = await started(store);
    const child = childOf(journal);
    expect(await commitOne(store, treeCommit([journal.next(), child.next()], { root_run_id: journal.run_id }))).toEqual(
      OK,
    );
    const runs = await store.treeRuns(journal.run_id);
    expect(runs.map((run) => run.run_id)).toEqual([journal.run_id, child.run_id]);
    expect(runs[1]?.root_run_id).toBe(journal.run_id);
    const stranger = await started(store);
    const stolen = treeCommit([child.fork().next()], { root_run_id: stranger.run_id });
    expect(await commitOne(store, stolen)).toEqual({ ok: false, refusal: "conflict" });
  });
}

function creating({ expect }: TestKit, test: Scenario): void {
  test("RP-58 an existing run is not created again, unless by the very same commit", async ({ store }) => {
    const journal = new TestJournal();
    const twin = journal.fork();
    const start = startCommit(journal, { owner: ME.owner });
    expect([await commitOne(store, start), await commitOne(store, start)]).toEqual([OK, OK]);
    const other = startCommit(twin, { owner: ME.owner, batch: { bytes: Buffer.from("other\n") } });
    expect(await commitOne(store, other)).toEqual({ ok: false, refusal: "conflict" });
    expect(await store.openRuns(SESSION_ID)).toBe(1);
  });

  test("a run needs its session", async ({ store }) => {
    const start = startCommit(new TestJournal({ session_id: freshId() }));
    expect(await commitOne(store, start)).toEqual({ ok: false, refusal: "no_session" });
  });

  test("a key starts one run, also when two processes use it at once", async ({ store, second }) => {
    const other = await second();
    const key = { key: "once\u0000more 😀", request_hash: "11".repeat(32) };
    const [first, again] = [new TestJournal(), new TestJournal()];
    const results = await Promise.all([
      commitOne(store, startCommit(first, { key })),
      commitOne(other, startCommit(again, { key })),
    ]);
    const used = await store.getKeyedStart(SESSION_ID, key.key);
    const [winner, loser] = results[0]?.ok === true ? [first, again] : [again, first];
    expect(used).toEqual({ run_id: winner.run_id, request_hash: key.request_hash });
    const refused = { ok: false, refusal: "key_used", run_id: winner.run_id, same_request: true };
    expect(results.find((result) => result?.ok === false)).toEqual(refused);
    expect(await store.getRun(loser.run_id)).toBe(undefined);
    const changed = startCommit(new TestJournal(), { key: { ...key, request_hash: "22".repeat(32) } });
    expect(await commitOne(store, changed)).toEqual({ ...refused, same_request: false });
    expect(await store.getKeyedStart(SESSION_ID, "once")).toBe(undefined);
    expect(await store.openRuns(SESSION_ID)).toBe(1);
  });

  test("RP-76 the limit of open runs holds under concurrent starts, and an end makes room", async ({
    store,
    second,
  }) => {
    const other = await second();
    const journals = Array.from({ length: 12 }, () => new TestJournal());
    const results = await Promise.all(
      journals.map((journal, i) =>
        commitOne(i % 2 === 0 ? store : other, startCommit(journal, { owner: ME.owner, max_open_runs: 5 })),
      ),
    );
    expect(results.filter((result) => result?.ok === true).length).toBe(5);
    expect(results.filter((result) => result?.ok === false && result.refusal === "index_full").length).toBe(7);
    const open = journals[results.findIndex((result) => result?.ok === true)] as TestJournal;
    // A suspended run is open, and a child does not count.
    const child = childOf(open);
    const tree = { root_run_id: open.run_id };
    expect(await commitOne(store, treeCommit([open.next({ status: "suspended" }), child.next()], tree))).toEqual(OK);
    expect(await commitOne(store, treeCommit([child.next({ status: "succeeded" })], tree))).toEqual(OK);
    expect(await store.openRuns(SESSION_ID)).toBe(5);
    const full = startCommit(new TestJournal(), { max_open_runs: 5 });
    expect(await commitOne(store, full)).toEqual({ ok: false, refusal: "index_full" });
    await store.commit([treeCommit([open.next({ status: "failed" })], { tree: { ended: true } })]);
    expect(await store.openRuns(SESSION_ID)).toBe(4);
    expect(await commitOne(store, startCommit(new TestJournal(), { max_open_runs: 5 }))).toEqual(OK);
  });
}

function leasing({ expect }: TestKit, test: Scenario): void {
  test("a lease is respected until it has expired for the grace time; every claim raises the fence", async ({
    store,
    clock,
  }) => {
    const journal = await started(store);
    expect(await store.claim(journal.run_id, YOU)).toBe(undefined);
    clock.at = 11_099;
    expect(await store.claim(journal.run_id, YOU)).toBe(undefined);
    expect(await store.claimDue({ ...YOU, limit: 10 })).toEqual([]);
    clock.at = 11_100;
    const claim = { root_run_id: journal.run_id, fence: 2, control_version: 0, lease_expires_at_ms: 12_100 };
    expect(await store.claimDue({ ...YOU, limit: 10 })).toEqual([{ ...claim, recoveries: 1, taken_over: true }]);
    expect(await store.claim(journal.run_id, ME)).toBe(undefined);
    expect(await store.claim(freshId(), ME)).toBe(undefined);
  });

  test("R-5 recoveries are counted by the claim, and reset by a commit", async ({ store, clock }) => {
    const journal = await started(store);
    for (const [i, by] of [YOU, ME, YOU].entries()) {
      clock.at += 5_000;
      expect((await store.claim(journal.run_id, by))?.recoveries).toBe(i + 1);
    }
    await store.commit([treeCommit([journal.next()], { fence: 4, tree: { recoveries: 0 } })]);
    clock.at += 5_000;
    expect((await store.claim(journal.run_id, ME))?.recoveries).toBe(1);
  });

  test("an owner claims its own tree again at once: the fence rises, no recovery is counted", async ({ store }) => {
    const journal = await started(store);
    const claim = await store.claim(journal.run_id, ME);
    expect([claim?.fence, claim?.taken_over, claim?.recoveries]).toEqual([2, true, 0]);
  });

  test("renewing keeps all trees of an owner and names them", async ({ store, clock }) => {
    const [first, second] = [await started(store), await started(store)];
    await started(store, YOU.owner);
    clock.at = 10_900;
    const held = await store.renew(ME.owner, 1_000);
    expect(held.map((tree) => tree.root_run_id).sort()).toEqual([first.run_id, second.run_id]);
    clock.at = 11_900;
    expect(await store.claim(first.run_id, YOU)).toBe(undefined);
    expect((await store.getTree(second.run_id))?.lease_expires_at_ms).toBe(11_900);
    expect(await store.renew("nobody", 1_000)).toEqual([]);
  });

  test("unclaimed trees are due when they said, earliest first, and once", async ({ store, clock, second }) => {
    const late = await parked(store, 30_000);
    const soon = await parked(store, 20_000);
    await parked(store, null);
    const fresh = new TestJournal();
    await store.commit([startCommit(fresh)]);
    expect((await claimAll(store, YOU)).map((claim) => claim.root_run_id)).toEqual([fresh.run_id]);
    expect(await store.nextWakeMs()).toBe(20_000);
    await store.commit([treeCommit([fresh.next({ status: "failed" })], { fence: 2, tree: { ended: true } })]);
    clock.at = 40_000;
    const other = await second();
    const claims = await Promise.all([
      store.claimDue({ ...ME, limit: 1 }),
      other.claimDue({ ...YOU, owner: "owner-c", limit: 1 }),
    ]);
    const roots = claims.flat().map((claim) => claim.root_run_id);
    expect([roots.length, roots.includes(soon.run_id), roots.includes(late.run_id)]).toEqual([2, true, true]);
    expect(await store.claimDue({ ...ME, limit: 10 })).toEqual([]);
  });

  test("a tree given up with work left is due at once; an ended one is never claimed", async ({ store }) => {
    const working = await started(store);
    await store.release(working.run_id, 1);
    const ended = await started(store);
    await store.commit([treeCommit([ended.next({ status: "succeeded" })], { tree: { ended: true } })]);
    expect((await claimAll(store, YOU)).map((claim) => claim.root_run_id)).toEqual([working.run_id]);
    expect(await store.claim(ended.run_id, YOU)).toBe(undefined);
    expect((await store.getTree(ended.run_id))?.ended).toBe(true);
    // Not this lease any more: nothing happens.
    await store.release(working.run_id, 1);
    expect((await store.getTree(working.run_id))?.owner).toBe(YOU.owner);
  });

  test("C32 many claims from two handles: no tree is claimed twice", async ({ store, second }) => {
    const other = await second();
    const group = Array.from({ length: 50 }, () => startCommit(new TestJournal()));
    await store.commit(group);
    const claims: string[] = [];
    const claimAllOf = async (handle: RunStore, owner: string): Promise<void> => {
      for (let i = 0; i < 25; i++)
        claims.push(...(await handle.claimDue({ ...ME, owner, limit: 3 })).map((claim) => claim.root_run_id));
    };
    await Promise.all([claimAllOf(store, "a"), claimAllOf(other, "b")]);
    expect([claims.length, new Set(claims).size]).toEqual([50, 50]);
  });
}

function signalling({ expect }: TestKit, test: Scenario): void {
  test("R-1 a signal is deleted in the transaction of its event, and only then", async ({ store }) => {
    const journal = await started(store);
    const signal = signalFor(journal, { payload: { comment: "a\u0000b 😀" } });
    expect(await store.putSignal(signal, true)).toEqual({ control_version: 1 });
    expect(await store.putSignal(signal, true)).toEqual({ control_version: 1 });
    expect(await store.signals({ owner: ME.owner })).toEqual([signal]);
    expect(await store.signals({ root_run_id: journal.run_id })).toEqual([signal]);
    expect(await store.signals({ owner: YOU.owner })).toEqual([]);
    const refused = treeCommit([journal.fork().next()], { fence: 9, signals_done: [signal.signal_id] });
    await store.commit([refused]);
    expect(await store.signalExists(signal.signal_id)).toBe(true);
    await store.commit([treeCommit([journal.next()], { signals_done: [signal.signal_id] })]);
    expect(await store.signalExists(signal.signal_id)).toBe(false);
  });

  test("a signal makes a sleeping tree due, also when it came while the tree was held", async ({ store }) => {
    const asleep = await parked(store, 99_000);
    await store.putSignal(signalFor(asleep), false);
    const held = await started(store);
    await store.putSignal(signalFor(held), false);
    await store.commit([
      treeCommit([held.next({ status: "suspended" })], { tree: { release: true, wake_at_ms: null } }),
    ]);
    const claims = await claimAll(store, YOU);
    expect(claims.map((claim) => claim.root_run_id).sort()).toEqual([asleep.run_id, held.run_id].sort());
  });

  test("an ended tree takes no signal and keeps none", async ({ store }) => {
    const journal = await started(store);
    const signal = signalFor(journal);
    await store.putSignal(signal, true);
    await store.commit([treeCommit([journal.next({ status: "succeeded" })], { tree: { ended: true } })]);
    expect(await store.signalExists(signal.signal_id)).toBe(false);
    expect(await codeOf(store.putSignal(signalFor(journal), true))).toBe("terminal");
    expect(await codeOf(store.putSignal(signalFor(new TestJournal()), true))).toBe("not_found");
  });

  test("watchers hear of signals and of trees to claim, from every handle", async ({ store, second }) => {
    const journal = await started(store);
    const other = await second();
    const heard = new Promise<void>((resolve) => store.watch(resolve));
    await other.putSignal(signalFor(journal), false);
    await heard;
    const heardOwn = new Promise<void>((resolve) => store.watch(resolve));
    await store.release(journal.run_id, 1);
    await heardOwn;
  });
}

function reading({ expect }: TestKit, test: Scenario): void {
  test("journals are read in whole segments, in pages, from anywhere", async ({ store }) => {
    const journal = await started(store);
    for (let i = 0; i < 20; i++)
      await store.commit([treeCommit([journal.next({ events: 3, bytes: Buffer.alloc(1_000, 65 + i) })])]);
    for (let since = 0; since <= 61; since++) {
      const segments = await store.readSegments(journal.run_id, since, 2_500);
      const expected = since >= 61 ? 0 : since === 0 ? 3 : Math.min(2, Math.ceil((61 - since) / 3));
      expect([since, segments.length]).toEqual([since, expected]);
      if (segments[0] !== undefined) expect(segments[0].first <= since + 1 && segments[0].last > since).toBe(true);
    }
    const all = await store.readSegments(journal.run_id, 0, 1_000_000);
    for (const [i, segment] of all.entries()) if (i > 0) expect(segment.prev).toBe(all[i - 1]?.hash);
    const [fromMiddle] = await store.readSegments(journal.run_id, 30, 1);
    expect(fromMiddle?.prev).toBe(all.find((segment) => segment.last + 1 === fromMiddle?.first)?.hash);
    expect(await store.readSegments(freshId(), 0, 1_000)).toEqual([]);
  });

  test("values, bundles and snapshots keep every byte; they are stored once and the snapshot replaced", async ({
    store,
  }) => {
    const journal = await started(store);
    const bytes = Uint8Array.from({ length: 3 * 1024 * 1024 }, (_, i) => (i * 7) % 256);
    const [sha256, hash] = ["aa".repeat(32), "bb".repeat(32)];
    for (const sequence of [2, 3]) {
      const snapshot = { sequence, codec: "deflate" as const, bytes: bytes.subarray(0, 1_000 * sequence) };
      const values = { artifacts: [{ sha256, bytes }], bundle: { hash, bytes: Buffer.from("{}") } };
      expect(await commitOne(store, treeCommit([journal.next({ snapshot })], values))).toEqual(OK);
      expect(plain(await store.getSnapshot(journal.run_id))).toEqual(plain(snapshot));
    }
    expect(Buffer.from((await store.getArtifact(sha256)) ?? []).equals(bytes)).toBe(true);
    expect(Buffer.from((await store.getBundle(hash)) ?? []).toString()).toBe("{}");
    expect([await store.getArtifact("cc".repeat(32)), await store.getSnapshot(freshId())]).toEqual([
      undefined,
      undefined,
    ]);
  });

  test("C21 an id with a NUL is not its own beginning", async ({ store }) => {
    const journal = await started(store);
    expect(await store.getRun(`${journal.run_id}\u0000x`)).toBe(undefined);
    expect(await store.getSession(`${SESSION_ID}\u0000x`)).toBe(undefined);
    expect(await store.listRuns({ session_id: `${SESSION_ID}\u0000`, limit: 10 })).toEqual([]);
  });

  test("pages of runs lose and repeat nothing while runs are added", async ({ store }) => {
    const journals: TestJournal[] = [];
    const add = async (created_at_ms: number): Promise<void> => {
      const journal = new TestJournal({ created_at_ms });
      journals.push(journal);
      await store.commit([startCommit(journal)]);
    };
    // Three runs in each millisecond: the id decides among them.
    for (let i = 0; i < 30; i++) await add(1_000 + Math.floor(i / 3));
    const expected = journals.map((journal) => journal.run_id).reverse();
    const seen: string[] = [];
    let before: RunQuery["before"];
    for (let pages = 0; pages < 10; pages++) {
      const page = await store.listRuns({ session_id: SESSION_ID, limit: 7, ...(before ? { before } : {}) });
      seen.push(...page.map((run) => run.run_id));
      before = page.at(-1);
      if (before === undefined) break;
      await add(2_000);
    }
    expect(seen).toEqual(expected);
  });

  test("runs are found by session, status, workflow, wait, parent and the end of their id", async ({ store }) => {
    const other = freshId();
    await store.createSession(sessionRecord({ session_id: other, name: "other" }));
    const foreign = new TestJournal({ session_id: other });
    const waiting = await started(store);
    const child = childOf(waiting);
    const suspend = waiting.next({ status: "suspended", waits: [testWait(waiting.run_id)] });
    await store.commit([
      startCommit(foreign),
      treeCommit([suspend, child.next()], { root_run_id: waiting.run_id }),
      startCommit(new TestJournal({ workflow_id: "deploy", created_at_ms: 500 })),
    ]);
    const ids = async (query: Omit<RunQuery, "limit">): Promise<readonly string[]> =>
      (await store.listRuns({ ...query, limit: 10 })).map((run) => run.run_id);
    expect(await ids({ session_id: other })).toEqual([foreign.run_id]);
    expect(await ids({ session_id: SESSION_ID, status: ["suspended", "failed"] })).toEqual([waiting.run_id]);
    expect(await ids({ session_id: SESSION_ID, waiting: true })).toEqual([waiting.run_id]);
    expect(await ids({ session_id: SESSION_ID, children: true, workflow_id: "check" })).toEqual([
      child.run_id,
      waiting.run_id,
    ]);
    expect(await ids({ parent_run_id: waiting.run_id })).toEqual([child.run_id]);
    expect(await ids({ session_id: SESSION_ID, id_suffix: waiting.run_id.slice(-6) })).toEqual([waiting.run_id]);
    expect(await ids({ session_id: other, id_suffix: waiting.run_id })).toEqual([]);
    expect((await ids({})).length).toBe(3);
    expect((await ids({ children: true })).length).toBe(4);
  });

  test("the inbox: open waits oldest first, in pages, and gone when they are closed", async ({ store }) => {
    const journals = [await started(store), await started(store)];
    for (const journal of journals) {
      const waits = [4, 2, 9].map((n) =>
        testWait(journal.run_id, {
          wait_id: `w-${n}`,
          since_ms: 1_000 + n,
          type: n === 9 ? "timer" : "approval",
          prompt: "a\u0000b",
        }),
      );
      await store.commit([treeCommit([journal.next({ status: "suspended", waits })])]);
    }
    const [first, second] = journals.map((journal) => journal.run_id) as [string, string];
    const query = { session_id: SESSION_ID, type: ["approval"] as const, limit: 3 };
    const page = await store.listWaits(query);
    expect(page.map((wait) => [wait.since_ms, wait.run_id])).toEqual([
      [1_002, first],
      [1_002, second],
      [1_004, first],
    ]);
    expect(page[0]?.prompt).toBe("a\u0000b");
    const last = page[2];
    const rest = await store.listWaits({ ...query, ...(last ? { after: last } : {}) });
    expect(rest.map((wait) => [wait.since_ms, wait.run_id])).toEqual([[1_004, second]]);
    expect((await store.listWaits({ root_run_id: first, limit: 10 })).map((wait) => wait.wait_id)).toEqual([
      "w-2",
      "w-4",
      "w-9",
    ]);
    const [journal] = journals;
    await store.commit([treeCommit([journal?.next({ waits: [] })].flatMap((run) => run ?? []))]);
    expect(await store.listWaits({ run_id: first, limit: 10 })).toEqual([]);
    expect((await store.listWaits({ limit: 10 })).length).toBe(3);
  });

  test("the store describes itself", async ({ store }) => {
    await started(store);
    const info = await store.info();
    expect([info.runs, info.bytes > 0, info.schema_version > 0]).toEqual([1, true, true]);
  });
}

function childOf(parent: TestJournal): TestJournal {
  return new TestJournal({
    root_run_id: parent.header.root_run_id,
    parent_run_id: parent.run_id,
    parent_step_id: "call",
    depth: parent.header.depth + 1,
  });
}

/** A tree that was suspended and given up until `wake_at_ms`. */
async function parked(store: RunStore, wake_at_ms: number | null): Promise<TestJournal> {
  const journal = await started(store);
  await store.commit([treeCommit([journal.next({ status: "suspended" })], { tree: { release: true, wake_at_ms } })]);
  return journal;
}

function claimAll(store: RunStore, by: typeof ME): ReturnType<RunStore["claimDue"]> {
  return store.claimDue({ ...by, limit: 100 });
}

function signalFor(journal: TestJournal, changes: Partial<Signal> = {}): Signal {
  return {
    signal_id: freshId(),
    root_run_id: journal.run_id,
    run_id: journal.run_id,
    kind: "cancel",
    payload: null,
    created_at_ms: 1,
    ...changes,
  };
}

/** Bytes of any kind compare as a Buffer. */
function plain<T extends { readonly bytes: Uint8Array }>(value: T | undefined): unknown {
  return value && { ...value, bytes: Buffer.from(value.bytes).toString("base64") };
}

async function codeOf(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
    return "no error";
  } catch (error) {
    return typeof error === "object" && error !== null && "code" in error ? error.code : error;
  }
}
