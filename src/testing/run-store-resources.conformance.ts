/** RunStore: what attempts claim of their workspace (GD-53, R-6). */
import type { ResourceClaim } from "../ports/index.ts";
import { freshId, sessionRecord, startCommit, TestJournal, treeCommit } from "./journals.ts";
import type { TestKit } from "./kit.ts";
import { codeOf, commitOne, ME, OK, type Scenario, started, YOU } from "./run-store.world.ts";

const read = (resource: string): ResourceClaim => ({ resource, access: "read" });
const write = (resource: string): ResourceClaim => ({ resource, access: "write" });

export function claiming({ expect }: TestKit, test: Scenario): void {
  test("GD-53 readers share, a writer excludes, across trees and handles; what raced holds nothing", async ({
    store,
    second,
  }) => {
    const other = await second();
    const [a, b] = [(await started(store)).run_id, (await started(store, YOU.owner)).run_id];
    expect(await store.acquireLeases(a, 1, "a1", [read("x"), write("y")])).toBe(true);
    expect(await other.acquireLeases(b, 1, "b1", [read("x")])).toBe(true);
    expect(await other.acquireLeases(b, 1, "b2", [write("x")])).toBe(false);
    // All or nothing: `z` was free and is not taken.
    expect(await other.acquireLeases(b, 1, "b3", [write("z"), read("y")])).toBe(false);
    expect(await store.acquireLeases(a, 1, "a2", [write("z")])).toBe(true);
    // Its own tree is no exception: another dispatch is another.
    expect(await store.acquireLeases(a, 1, "a3", [write("y")])).toBe(false);
  });

  test("GD-53 claims are deduplicated, write wins; the same dispatch id again changes nothing", async ({ store }) => {
    const a = (await started(store)).run_id;
    const claims = [read("x"), write("x"), read("x"), write("a\u0000b")];
    for (let i = 0; i < 2; i++) expect(await store.acquireLeases(a, 1, "a1", claims)).toBe(true);
    expect(await store.acquireLeases(a, 1, "a2", [read("x")])).toBe(false);
    expect(await store.acquireLeases(a, 1, "a2", [read("a\u0000b")])).toBe(false);
    expect(await store.acquireLeases(a, 1, "a2", [write("a")])).toBe(true);
  });

  test("GD-53 leases end in the commit that names them and in no other; a refused commit frees nothing", async ({
    store,
    clock,
  }) => {
    const journal = await started(store);
    const b = (await started(store, YOU.owner)).run_id;
    await store.acquireLeases(journal.run_id, 1, "a1", [write("x")]);
    await store.commit([treeCommit([journal.fork().next()], { fence: 9, leases_freed: ["a1"] })]);
    await store.commit([treeCommit([journal.next()], { leases_freed: ["another"] })]);
    clock.at += 10 * 365 * 86_400_000;
    expect(await store.acquireLeases(b, 1, "b1", [read("x")])).toBe(false);
    // Nobody frees what another tree holds.
    expect(await commitOne(store, treeCommit([], { root_run_id: b, leases_freed: ["a1"] }))).toEqual(OK);
    expect(await store.acquireLeases(b, 1, "b1", [read("x")])).toBe(false);
    const heard = new Promise<void>((resolve) => store.watch(resolve));
    await store.commit([treeCommit([journal.next()], { leases_freed: ["a1"] })]);
    await heard;
    expect(await store.acquireLeases(b, 1, "b1", [read("x")])).toBe(true);
  });

  test("GD-53 a claim of the tree names what it holds, the old holder claims nothing more, and the end frees all", async ({
    store,
    clock,
  }) => {
    const journal = await started(store);
    await store.acquireLeases(journal.run_id, 1, "a1", [write("x"), write("y")]);
    clock.at += 60_000;
    const claim = await store.claim(journal.run_id, YOU);
    expect(claim?.leases).toEqual(["a1"]);
    expect(await codeOf(store.acquireLeases(journal.run_id, 1, "a2", [read("z")]))).toBe("conflict");
    expect(await codeOf(store.acquireLeases(freshId(), 1, "a2", [read("z")]))).toBe("conflict");
    expect(await store.acquireLeases(journal.run_id, 2, "a1", [write("x"), write("y")])).toBe(true);
    await store.commit([treeCommit([journal.next({ status: "failed" })], { fence: 2, tree: { ended: true } })]);
    const b = (await started(store)).run_id;
    expect(await store.acquireLeases(b, 1, "b1", [write("x"), write("y")])).toBe(true);
    expect(await codeOf(store.acquireLeases(journal.run_id, 2, "a2", [read("z")]))).toBe("conflict");
  });

  test("GD-53 the scope is the workspace: sessions of another one have resources of their own", async ({ store }) => {
    const a = (await started(store)).run_id;
    const session_id = freshId();
    await store.createSession(sessionRecord({ session_id, name: "elsewhere", workspace: "/other" }));
    const far = new TestJournal({ session_id });
    await store.commit([startCommit(far, { owner: ME.owner })]);
    expect(await store.acquireLeases(a, 1, "a1", [write("x")])).toBe(true);
    expect(await store.acquireLeases(far.run_id, 1, "f1", [write("x")])).toBe(true);
  });

  test("GD-53 of many that claim at once from two handles one gets it", async ({ store, second }) => {
    const handles = [store, await second()];
    const roots = await Promise.all(Array.from({ length: 12 }, () => started(store)));
    const got = await Promise.all(
      roots.map(({ run_id }, i) =>
        (handles[i % 2] ?? store).acquireLeases(run_id, 1, `d${i}`, [write("x"), read(`own ${i}`)]),
      ),
    );
    expect(got.filter(Boolean).length).toBe(1);
  });
}
