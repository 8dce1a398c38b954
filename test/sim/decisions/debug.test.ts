import { appendFileSync, writeFileSync } from "node:fs";
import { test } from "vitest";
import { tell } from "./story.ts";
test("debug", async () => {
  const from = Number(process.env.HOLDFAST_SEED ?? 1);
  const n = Number(process.env.N ?? 1);
  const file = process.env.OUT ?? "/tmp/decisions-debug.txt";
  writeFileSync(file, "");
  for (let seed = from; seed < from + n; seed++) {
    const began = performance.now();
    appendFileSync(file, `${seed} `);
    const told = await tell(seed).catch((error: Error) => ({ violations: [{ rule: "broke", why: error.stack }], asked: [], kinds: [] }));
    let out = `${Math.round(performance.now() - began)} ms ${told.kinds.length} events ${told.asked.length} asked ${JSON.stringify(told.violations)}\n`;
    if (n === 1) out += `${told.kinds.join("\n")}\n${JSON.stringify(told.asked, null, 1)}`;
    appendFileSync(file, out);
  }
}, 6_000_000);
