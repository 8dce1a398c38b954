/** RunStore: the agent sessions in which attempts go on (GD-11, GD-42). */
import type { SessionLink } from "../ports/index.ts";
import { freshId } from "./journals.ts";
import type { TestKit } from "./kit.ts";
import { codeOf, type Scenario, started, YOU } from "./run-store.world.ts";

function link(root_run_id: string, dispatch_id: string, more: Partial<SessionLink> = {}): SessionLink {
  return {
    root_run_id,
    run_id: root_run_id,
    step_id: "talk@root[0]",
    attempt: 1,
    dispatch_id,
    session_id: "s-1",
    shared: false,
    created_at_ms: 10,
    ...more,
  };
}

export function linking({ expect }: TestKit, test: Scenario): void {
  test("GD-42 the same link again changes nothing; another session for the attempt is a conflict", async ({
    store,
    second,
  }) => {
    const { run_id } = await started(store);
    const first = link(run_id, "d1", { session_id: "a\u0000b" });
    await store.linkSession(1, first);
    await (await second()).linkSession(1, { ...first, created_at_ms: 99 });
    for (const other of [{ session_id: "a" }, { shared: true }])
      expect(await codeOf(store.linkSession(1, { ...first, ...other }))).toBe("conflict");
    expect(await store.sessionLinks({ root_run_id: run_id })).toEqual([first]);
    expect(await store.sessionLinks({ session_id: "a\u0000b" })).toEqual([first]);
    expect(await store.sessionLinks({ session_id: "a" })).toEqual([]);
  });

  test("GD-42 a session of its own belongs to one attempt, a shared one to many, of whatever tree", async ({
    store,
  }) => {
    const [a, b] = [(await started(store)).run_id, (await started(store, YOU.owner)).run_id];
    await store.linkSession(1, link(a, "d1"));
    for (const shared of [false, true])
      expect(await codeOf(store.linkSession(1, link(b, "d2", { shared })))).toBe("conflict");
    const parent = { session_id: "parent", shared: true };
    await store.linkSession(1, link(a, "d3", { ...parent, created_at_ms: 20 }));
    await store.linkSession(1, link(b, "d4", { ...parent, created_at_ms: 15 }));
    expect(await codeOf(store.linkSession(1, link(b, "d5", { session_id: "parent" })))).toBe("conflict");
    expect((await store.sessionLinks({ session_id: "parent" })).map(({ dispatch_id }) => dispatch_id)).toEqual([
      "d4",
      "d3",
    ]);
    expect((await store.sessionLinks({ root_run_id: a })).map(({ dispatch_id }) => dispatch_id)).toEqual(["d1", "d3"]);
  });

  test("GD-11 a stale fence, a tree that nobody holds and one that is not there link nothing", async ({
    store,
    clock,
  }) => {
    const { run_id } = await started(store);
    clock.at += 60_000;
    await store.claim(run_id, YOU);
    expect(await codeOf(store.linkSession(1, link(run_id, "d1")))).toBe("conflict");
    await store.release(run_id, 2);
    expect(await codeOf(store.linkSession(2, link(run_id, "d1")))).toBe("conflict");
    expect(await codeOf(store.linkSession(1, link(freshId(), "d1")))).toBe("conflict");
    expect(await store.sessionLinks({ root_run_id: run_id })).toEqual([]);
  });
}
