/**
 * A worker process of the stress test: started as `node stress-child.mjs '{"folder": …}'`. It drives whatever wants
 * work and starts runs of its own at a steady pace, saying each start that was acknowledged. What its tools did outside
 * is one line each in the file `effects`, appended in one write.
 */
import { writeSync } from "node:fs";
import { createHoldfast } from "../../src/index.ts";
import { LEASE_MS, openStress, type StressRequest } from "./stress-work.ts";

const request = JSON.parse(process.argv[2] ?? "{}") as StressRequest;

function say(document: object): void {
  writeSync(1, `${JSON.stringify(document)}\n`);
}

const holdfast = await createHoldfast({
  ...openStress(request.folder, say),
  worker: true,
  limits: { lease_ms: LEASE_MS },
  log: (level, message, { error }) => {
    if (level === "error") say({ log: message, error: error instanceof Error ? error.message : undefined });
  },
});
say({ serving: process.pid });

async function startAll(): Promise<void> {
  for (let i = request.from; i < request.to; i++) {
    const began = Date.now();
    try {
      const { run_id } = await holdfast.start({ workflow: request.workflow, key: `${request.slot}-${i}` });
      say({ started: i, run_id });
    } catch (error) {
      // The other process may hold the file while it stands still: the same key again starts it once.
      say({ again: i, error: error instanceof Error ? error.message : String(error) });
      i--;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(1, request.every_ms - (Date.now() - began))));
  }
  say({ started_all: request.slot });
}

process.on("SIGTERM", () => void holdfast.close().then(() => process.exit(0)));
await startAll();
