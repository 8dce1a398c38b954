/** Time and ids of the real world. */
import { expect, test } from "vitest";
import { systemIds } from "./index.ts";

test("DESIGN 2 ids are UUIDv7, all different, and rise in one process", () => {
  const ids = Array.from({ length: 20_000 }, () => systemIds.uuid());
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(new Set(ids).size).toBe(ids.length);
  expect([...ids].sort()).toEqual(ids);
  const now = Date.now();
  expect(Math.abs(Number.parseInt((ids[0] ?? "").replace("-", "").slice(0, 12), 16) - now)).toBeLessThan(10_000);
});
