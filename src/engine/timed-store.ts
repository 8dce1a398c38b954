/** A store whose commits are timed, for who keeps figures. */
import type { RunStore, SessionStore } from "../ports/index.ts";

/** The same store; `onCommit` hears how long each commit took, ms, also of one that failed. */
export function timedStore<S extends RunStore & SessionStore>(store: S, onCommit: (ms: number) => void): S {
  const commit: RunStore["commit"] = async (group) => {
    const begun = performance.now();
    try {
      return await store.commit(group);
    } finally {
      onCommit(performance.now() - begun);
    }
  };
  return new Proxy(store, {
    get: (target, name) => {
      if (name === "commit") return commit;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
