import { test } from "vitest";
import { Served } from "/work/main/test/e2e/server.fixture.ts";
test.each([1, 4, 20, 100])("x %d", async (n) => {
  const s = await new Served({ open: { log: (l: any, m: any, d: any) => console.log(n, l, m, d.error?.message) } }).start();
  const run_id = await s.startRun("many", { items: Array.from({ length: n }, (_, i) => i) });
  while ((await s.holdfast.runs.get(run_id)).usage.steps === 0) await new Promise((resolve) => setImmediate(resolve));
  await s.stop(); await s.start();
  s.release();
  await new Promise((r) => setTimeout(r, 1000));
  const b = await s.holdfast.runs.get(run_id);
  console.log(n, "after", b.status, b.last_sequence, b.suspension);
  await s.stop();
}, 20000);
