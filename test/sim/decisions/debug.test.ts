import { appendFileSync, writeFileSync } from "node:fs";
import { test } from "vitest";
import { tell } from "./story.ts";
test("debug", async () => {
  const list = process.env.LIST?.split(",").map(Number) ?? [];
  if (process.env.DUMP) process.env.DUMP = "1"; const file = process.env.OUT ?? "/tmp/decisions-debug.txt";
  writeFileSync(file, "");
  for (const seed of list) {
    const told = await tell(seed).catch((error: Error) => ({ violations: [{ rule: "broke", why: error.stack }], asked: [], kinds: [] }));
    appendFileSync(file, `${seed} ${JSON.stringify(told.violations)}\n`);
  }
}, 6_000_000);
