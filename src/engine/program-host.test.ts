/** The host of one program, without an engine. */
import { expect, test } from "vitest";
import { hashJson, type Json } from "../domain/json.ts";
import type { Program } from "./program.ts";
import { ProgramHost } from "./program-host.ts";
import { type Delivery, NOTHING_RECORDED, type Recorded } from "./replay.ts";
import type { LiveRun, Request } from "./requests.ts";

const spec = { kind: "tool", tool: "t", capabilities: [] } as const;

function live(
  go: (request: Request) => void,
  quiet: () => void = () => undefined,
  problem: (text: string) => void = () => undefined,
): LiveRun {
  return {
    maxRetries: 8,
    go,
    isOpen: () => true,
    skip: () => undefined,
    decided: () => undefined,
    admit: () => undefined,
    reserveRetry: () => undefined,
    now: () => 0,
    ready: () => undefined,
    nondeterminism: problem,
    quiet,
  };
}

const outcome = (instance: string, output: Json): Delivery => ({
  type: "outcome",
  instance,
  visit: 1,
  outcome: { type: "succeeded", output },
});

test("R-2a an outcome that arrives in any microtask of a standstill is heard", async () => {
  const program: Program = async (ctx) => [await ctx.step("a", spec, null), await ctx.step("b", spec, null)];
  for (let after = 0; after < 24; after++) {
    const ended = new Promise<Json>((resolve, reject) => {
      let stuck: NodeJS.Timeout | undefined;
      const host: ProgramHost = new ProgramHost(
        program,
        null,
        NOTHING_RECORDED,
        live(
          (request) => {
            const hop = (left: number): void =>
              left === 0 ? host.deliver(outcome(request.instance, after)) : queueMicrotask(() => hop(left - 1));
            process.nextTick(() => hop(after));
          },
          () => {
            if (host.ended?.ok === true) {
              clearTimeout(stuck);
              resolve(host.ended.value);
            }
          },
        ),
      );
      stuck = setTimeout(() => reject(new Error(`stuck with a delivery after ${after} microtasks`)), 500);
      void host.start().then(() => host.goLive());
    });
    expect(await ended).toEqual([after, after]);
  }
});

/** A past in which `a` failed and both `b` and `c` were settled or cancelled for it. */
function past(
  deliveries: readonly Delivery[],
  visits: Record<string, "open" | "settled" | "cancelled">,
  cancelled: readonly string[] = [],
): Recorded {
  return {
    ...NOTHING_RECORDED,
    deliveries,
    visits: new Map(
      Object.entries(visits).map(([instance, state]) => [
        `1#${instance}`,
        { instance, visit: 1, input_hash: hashJson(null), state },
      ]),
    ),
    cancelled: new Set(cancelled),
  };
}

test("R-2a on replay a branch that was cancelled hears nothing more, also of what had settled before", async () => {
  const asked: string[] = [];
  // `b` settled after `a` failed and before its group was cancelled: live, its branch was closed already.
  const program: Program = async (ctx) => {
    const branches = [ctx.branch(), ctx.branch()];
    void branches[0]?.step("b", spec, null).then(() => void branches[0]?.step("never", spec, null));
    void branches[1]?.step("c", spec, null);
    try {
      await ctx.step("a", spec, null);
    } catch {
      await ctx.cancel(branches, "group");
    }
    return ctx.step("last", spec, null);
  };
  const recorded = past(
    [
      {
        type: "outcome",
        instance: "a",
        visit: 1,
        outcome: { type: "failed", failure: { code: "execution_failed", message: "x", retryable: false } },
      },
      outcome("b", 1),
      { type: "cancelled", key: "group" },
    ],
    { a: "settled", b: "settled", c: "cancelled" },
    ["group"],
  );
  const host = new ProgramHost(
    program,
    null,
    recorded,
    live((request) => void asked.push(request.instance)),
  );
  await host.start();
  expect(host.unasked()).toBeUndefined();
  host.goLive();
  await new Promise((resolve) => setImmediate(resolve));
  expect(asked).toEqual(["last"]);
});

test("R-2 a program that asks for something else than was recorded is found out before anything goes live", async () => {
  for (const [program, recorded] of [
    [async (ctx) => ctx.step("other", spec, null), past([outcome("a", 1)], { a: "settled" })],
    [async (ctx) => ctx.step("a", spec, "another input"), past([outcome("a", 1)], { a: "settled" })],
    [
      async (ctx) => {
        ctx.skip("a", "why");
        return 1;
      },
      past([outcome("a", 1)], { a: "settled" }),
    ],
    [async () => 1, past([outcome("a", 1)], { a: "settled" })],
    [async () => 1, past([], { a: "open" })],
  ] as [Program, Recorded][]) {
    const problems: string[] = [];
    const asked: string[] = [];
    const host = new ProgramHost(
      program,
      null,
      recorded,
      live(
        (request) => void asked.push(request.instance),
        undefined,
        (text) => void problems.push(text),
      ),
    );
    await host.start();
    expect([problems.length > 0 || host.unasked() !== undefined, asked]).toEqual([true, []]);
  }
});
