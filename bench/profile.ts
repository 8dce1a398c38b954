/** Where the time goes: the CPU profiler of V8 around a piece of work, told in the names of the source files. */
import { existsSync, readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { SourceMap, type SourceMapPayload } from "node:module";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Hot } from "./measure.ts";

const SAMPLE_MICROS = 200;
const SHOWN = 12;
/** No work: the process waited for something. */
const WAITING = new Set(["(idle)", "(root)"]);

/** Does the work under the profiler; answers where this thread spent its time, most first. */
export async function profiled(work: () => Promise<unknown>): Promise<readonly Hot[]> {
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: SAMPLE_MICROS });
  await session.post("Profiler.start");
  try {
    await work();
  } finally {
    // Stopped in any case, so that a failure is told as what it is.
    const { profile } = await session.post("Profiler.stop");
    session.disconnect();
    return hottest(profile);
  }
}
