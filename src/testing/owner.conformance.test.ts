import { describe, expect, test } from "vitest";
import type { Json } from "../domain/json.ts";
import { defineTool } from "../tools/index.ts";
import { ownerConformance, type TestedOwner } from "./owner.conformance.ts";

const ANY = { type: "object" } as const;

/** An owner as it should be: a table by key, outside the process that asks. */
function careful(
  more: { readonly observe?: boolean; readonly idempotent?: boolean; readonly forgets?: boolean } = {},
): TestedOwner {
  const done = new Map<string, Json>();
  const tool = defineTool({
    name: "deploy",
    description: "Deploys once.",
    input: ANY,
    sideEffect: more.idempotent === true ? "idempotent" : "mutating",
    run: async (input, { dispatch_id, signal, receipt }) => {
      signal.throwIfAborted();
      if (more.observe === true) await receipt({ ticket: dispatch_id.slice(0, 8) });
      const before = done.get(dispatch_id);
      if (before !== undefined) return before;
      done.set(dispatch_id, { deployed: input as Json });
      return { deployed: input as Json };
    },
    ...(more.idempotent === true
      ? {}
      : {
          lookup: ({ dispatch_id }) => {
            const output = more.forgets === true ? undefined : done.get(dispatch_id);
            return output === undefined ? { type: "absent" } : { type: "succeeded", output };
          },
        }),
    ...(more.observe === true
      ? {
          observe: ({ dispatch_id }) => {
            const output = done.get(dispatch_id);
            return output === undefined ? { type: "unknown" } : { type: "succeeded", output };
          },
        }
      : {}),
  });
  return { tool, input: { version: 1 }, effects: () => done.size };
}

const kit = { describe, test, expect };
ownerConformance(kit, { name: "looked up", open: async () => careful() });
ownerConformance(kit, { name: "observed", open: async () => careful({ observe: true }) });
ownerConformance(kit, { name: "idempotent", open: async () => careful({ idempotent: true }) });

/** Collects which tests of the suite a bad owner fails. */
async function failures(open: () => Promise<TestedOwner>): Promise<readonly string[]> {
  const bodies: [string, () => Promise<void>][] = [];
  ownerConformance(
    { describe: (_, body) => body(), test: (name, body) => void bodies.push([name, body]), expect },
    { name: "bad", open },
  );
  const failed: string[] = [];
  for (const [name, body] of bodies) await body().catch(() => failed.push(name));
  return failed;
}

test("an owner that does not deduplicate its keys is found out, also by the crashes", async () => {
  const failed = await failures(async () => {
    let effects = 0;
    const tool = defineTool({
      name: "deploy",
      description: "Deploys each time.",
      input: ANY,
      sideEffect: "idempotent",
      run: () => ({ n: ++effects }),
    });
    return { tool, input: {}, effects: () => effects };
  });
  expect(failed.some((name) => name.startsWith("GD-18 the same key again"))).toBe(true);
  expect(failed.some((name) => name.startsWith("a crash at each boundary"))).toBe(true);
});

test("an owner that says absent of what it has done is found out", async () => {
  const failed = await failures(async () => careful({ forgets: true }));
  expect(failed).toContainEqual(expect.stringContaining("looked up"));
});
