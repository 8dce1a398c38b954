/** RunStore: commits, and what creates a run tree. */
import { freshId, SESSION_ID, startCommit, TestJournal, treeCommit } from "./journals.ts";
import type { TestKit } from "./kit.ts";
import { childOf, commitOne, ME, OK, plain, type Scenario, signalFor, started, YOU } from "./run-store.world.ts";

export function appending({ expect }: TestKit, test: Scenario): void {
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

export function creating({ expect }: TestKit, test: Scenario): void {
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
