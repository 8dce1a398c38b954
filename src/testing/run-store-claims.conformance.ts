/** RunStore: leases, signals and hearing of them. */
import type { RunStore } from "../ports/index.ts";
import { freshId, startCommit, TestJournal, treeCommit } from "./journals.ts";
import type { TestKit } from "./kit.ts";
import { claimAll, codeOf, ME, parked, type Scenario, signalFor, started, YOU } from "./run-store.world.ts";

export function leasing({ expect }: TestKit, test: Scenario): void {
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

export function signalling({ expect }: TestKit, test: Scenario): void {
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
