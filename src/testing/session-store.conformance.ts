/** What every SessionStore must do, as one suite that each store runs. */
import type { SessionStore } from "../ports/index.ts";
import { freshId, SESSION_ID, sessionRecord } from "./journals.ts";
import { type Skip, type TestKit, withSkips } from "./kit.ts";

export interface SessionStoreSuite {
  readonly name: string;
  /** An empty store; it is closed by the suite. */
  readonly open: () => Promise<SessionStore & { close(): Promise<void> }>;
  readonly skips?: readonly Skip[];
}

export function sessionStoreConformance(kit: TestKit, suite: SessionStoreSuite): void {
  const { expect } = kit;
  const { test: register, done } = withSkips(kit, suite.skips ?? []);
  const test = (name: string, body: (store: SessionStore) => Promise<void>): void =>
    register(name, async () => {
      const store = await suite.open();
      try {
        await body(store);
      } finally {
        await store.close();
      }
    });

  kit.describe(`SessionStore: ${suite.name}`, () => {
    test("a session is found by its id and by its name", async (store) => {
      const session = sessionRecord({ metadata: { text: "a\u0000b 😀", list: [1, null] }, name: "nul\u0000name" });
      await store.createSession(session);
      expect(await store.getSession(session.session_id)).toEqual(session);
      expect(await store.getSession(session.name)).toEqual(session);
      expect(await store.getSession("nul")).toBe(undefined);
      expect(await store.openRuns(session.session_id)).toBe(0);
    });

    test("a name is used once", async (store) => {
      await store.createSession(sessionRecord());
      const again = sessionRecord({ session_id: freshId() });
      expect(await refusal(store.createSession(again))).toBe("conflict");
      await store.createSession({ ...again, name: "other" });
      expect(await refusal(store.updateSession(again.session_id, { name: "default" }, 5))).toBe("conflict");
      expect((await store.getSession(again.session_id))?.name).toBe("other");
    });

    test("RP-77 concurrent updates of different fields all stay", async (store) => {
      await store.createSession(sessionRecord({ metadata: { kept: 1, dropped: 2 } }));
      await Promise.all([
        ...Array.from({ length: 20 }, (_, i) =>
          store.updateSession(SESSION_ID, { metadata: { [`k${i}`]: i } }, 10 + i),
        ),
        store.updateSession(SESSION_ID, { posture: "auto" }, 50),
        store.updateSession(SESSION_ID, { metadata: { dropped: null } }, 51),
      ]);
      const session = await store.getSession(SESSION_ID);
      const keys = Array.from({ length: 20 }, (_, i) => [`k${i}`, i] as const);
      expect(session?.metadata).toEqual({ kept: 1, ...Object.fromEntries(keys) });
      expect([session?.posture, session?.orchestration_opt_in]).toEqual(["auto", false]);
      expect(await store.updateSession(freshId(), { posture: "auto" }, 1)).toBe(undefined);
    });

    test("C24 __proto__ is a key of metadata like any other", async (store) => {
      await store.createSession(sessionRecord());
      const metadata = JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1}');
      await store.updateSession(SESSION_ID, { metadata }, 2);
      const stored = (await store.getSession(SESSION_ID))?.metadata ?? {};
      expect(JSON.stringify(stored)).toBe('{"__proto__":{"polluted":true},"constructor":1}');
      expect("polluted" in {}).toBe(false);
    });

    test("sessions are listed oldest first, in pages", async (store) => {
      const ids: string[] = [];
      for (let i = 0; i < 7; i++) {
        ids.push(freshId());
        await store.createSession(
          sessionRecord({ session_id: ids[i] ?? "", name: `s${i}`, created_at_ms: 1 + Math.floor(i / 2) }),
        );
      }
      const seen: string[] = [];
      for (let after = {}, pages = 0; pages < 10; pages++) {
        const page = await store.listSessions({ limit: 3, ...after });
        seen.push(...page.map((session) => session.session_id));
        const last = page.at(-1);
        if (last === undefined) break;
        after = { after_ms: last.created_at_ms, after_id: last.session_id };
      }
      expect(seen).toEqual(ids);
    });
    done();
  });
}

async function refusal(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
    return undefined;
  } catch (error) {
    return typeof error === "object" && error !== null && "code" in error ? error.code : error;
  }
}
