/** RP-25: at most so many at once, first come first served, and nobody waits who is not wanted any more. */
import { expect, test } from "vitest";
import { Permits } from "./permits.ts";

test("RP-25 permits go in order; whoever is not wanted any more is answered so and takes none", async () => {
  const permits = new Permits(1);
  expect(permits.acquire(() => true)).toBeUndefined();
  const wanted = new Set(["a", "b", "c"]);
  const answers: string[] = [];
  const waiting = ["a", "b", "c"].map((name) =>
    (permits.acquire(() => wanted.has(name)) ?? Promise.reject(new Error("was free"))).then((granted) =>
      answers.push(`${name} ${granted}`),
    ),
  );
  wanted.delete("a");
  permits.release();
  await Promise.all(waiting.slice(0, 2));
  expect(answers).toEqual(["a false", "b true"]);
  wanted.delete("c");
  permits.sweep();
  await waiting[2];
  expect(answers.at(-1)).toBe("c false");
  permits.release();
  expect(permits.acquire(() => true)).toBeUndefined();
});

test("RP-25 a raised limit lets more in", async () => {
  const permits = new Permits(1);
  void permits.acquire(() => true);
  const second = permits.acquire(() => true);
  permits.grow(1);
  expect(await second).toBe(true);
  expect(permits.acquire(() => true)).toBeDefined();
});
