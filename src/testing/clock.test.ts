import { expect, test } from "vitest";
import { simulatedClock } from "./clock.ts";

test("fires what is due in order of time, and stands still between", async () => {
  const clock = simulatedClock({ start: 1_000 });
  const fired: string[] = [];
  clock.at(1_300, () => fired.push(`late ${clock.now()}`));
  clock.at(1_100, () => fired.push(`early ${clock.now()}`));
  clock.at(900, () => fired.push("overdue")).cancel();
  await clock.advance(200);
  expect([fired, clock.now(), clock.monotonic(), clock.pending]).toEqual([["early 1100"], 1_200, 200, 1]);
  await clock.advance(100);
  expect(fired).toEqual(["early 1100", "late 1300"]);
});

test("what a timer sets going has its turn before the next timer", async () => {
  const clock = simulatedClock({ start: 0 });
  const order: string[] = [];
  clock.at(10, () => void Promise.resolve().then(() => setImmediate(() => order.push("set going"))));
  clock.at(11, () => order.push("next"));
  await clock.runUntilIdle();
  expect(order).toEqual(["set going", "next"]);
});

test("the seed orders what is due at once: the same seed the same, some other seed otherwise", async () => {
  const orderOf = async (seed: number): Promise<string> => {
    const clock = simulatedClock({ seed, start: 0 });
    let order = "";
    for (const name of "abcdef")
      clock.at(5, () => {
        order += name;
      });
    await clock.runUntilIdle();
    return order;
  };
  expect(await orderOf(3)).toBe(await orderOf(3));
  expect(new Set(await Promise.all([1, 2, 3, 4].map(orderOf))).size).toBeGreaterThan(1);
});

test("a timer beyond any system timer does not fire early (C18)", async () => {
  const clock = simulatedClock({ start: 0 });
  let at = 0;
  clock.at(40 * 86_400_000, () => {
    at = clock.now();
  });
  await clock.advance(2 ** 31);
  expect(at).toBe(0);
  await clock.runUntilIdle();
  expect(at).toBe(40 * 86_400_000);
});

test("a process's clock drifts, freezes, thaws and ends with its process", async () => {
  const clock = simulatedClock({ start: 10_000 });
  const view = clock.view(-2_000);
  const fired: number[] = [];
  view.at(8_100, () => fired.push(view.now()));
  await clock.advance(100);
  expect(fired).toEqual([8_100]);
  view.freeze();
  view.at(8_200, () => fired.push(view.now()));
  await clock.advance(1_000);
  expect(fired).toEqual([8_100]);
  view.thaw();
  expect(fired).toEqual([8_100, 9_100]);
  view.at(9_500, () => fired.push(view.now()));
  view.stop();
  await clock.runUntilIdle();
  expect([fired.length, clock.pending]).toEqual([2, 0]);
});

test("what only comes back for ever is nothing to wait for", async () => {
  const clock = simulatedClock({ start: 0 });
  let beats = 0;
  const heart = clock.every(10, () => beats++);
  expect(clock.stepToward(1_000)).toBe(false);
  clock.at(35, () => undefined);
  while (clock.stepToward(1_000)) await clock.settle();
  expect(beats).toBe(3);
  heart.cancel();
  expect(clock.pending).toBe(0);
});
