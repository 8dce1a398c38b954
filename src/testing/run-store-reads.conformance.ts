/** RunStore: reading journals, values and lists. */
import type { RunQuery } from "../ports/index.ts";
import { freshId, SESSION_ID, sessionRecord, startCommit, TestJournal, testWait, treeCommit } from "./journals.ts";
import type { TestKit } from "./kit.ts";
import { childOf, commitOne, OK, plain, type Scenario, started } from "./run-store.world.ts";

export function reading({ expect }: TestKit, test: Scenario): void {
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
