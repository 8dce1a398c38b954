/**
 * Starts over HTTP: 200 at once through a local server, beside the same starts made in this process. Those all share
 * one commit, since they are asked for in one turn; what comes over sockets arrives in several. Client and server are
 * one process here, so the client's work is in the figure.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { startServer } from "../../src/server/index.ts";
import { atMost, type Bench, type Measured, medianOf, percentile, repeat, shown, type Workload } from "../measure.ts";
import { openSubject, sequenceOf } from "../subject.ts";

const AT_ONCE = 200;
const STEPS = 1;
const WORKFLOW = sequenceOf("one", STEPS);

export const httpStarts: Workload = { name: "http", measure };

async function measure({ folder, size }: Bench): Promise<Measured> {
  const place = folder();
  const stateDir = join(place, "state");
  mkdirSync(stateDir, { recursive: true });
  await using holdfast = await openSubject({ folder: place, workflows: [WORKFLOW] });
  const server = await startServer({ holdfast, stateDir, port: 0 });
  const starts = Math.min(AT_ONCE, size.runs);
  const address = `${server.url}/api/v1/sessions/default/workflow-runs`;
  const headers = { Authorization: `Bearer ${server.token}`, "Content-Type": "application/json" };
  const body = JSON.stringify({ workflow_id: "one", revision: 1 });
  const overHttp = async (): Promise<string> => {
    const answer = await fetch(address, { method: "POST", headers, body });
    if (answer.status !== 202) throw new Error(`not started: ${answer.status} ${await answer.text()}`);
    return ((await answer.json()) as { run_id: string }).run_id;
  };
  const here = async (): Promise<string> => {
    const { run_id } = await holdfast.start({ workflow: "one@1" });
    await holdfast.runs.get(run_id);
    return run_id;
  };
  await burst(starts, overHttp);
  const taken = await repeat(size.repetitions, async () => ({
    here: await burst(starts, here),
    http: await burst(starts, overHttp),
  }));
  await server.stop();
  const at = (share: number, who: "here" | "http"): string =>
    shown(medianOf(taken, (each) => percentile(each[who], share)));
  return {
    figures: [
      {
        work: `${starts} starts at once over HTTP (p95)`,
        value: medianOf(taken, ({ http, here: own }) => percentile(http, 0.95) / percentile(own, 0.95)),
        must: atMost(10, "× in process"),
        aim: atMost(4, "× in process"),
        beside: `p50 ${at(0.5, "http")} ms, p95 ${at(0.95, "http")} ms; in process ${at(0.5, "here")} and ${at(0.95, "here")} ms`,
      },
    ],
  };
}

/** How long each of so many starts took, all made at once, in ms; each must have made a run of its own. */
async function burst(count: number, start: () => Promise<string>): Promise<number[]> {
  const ids = new Set<string>();
  const times = await Promise.all(
    Array.from({ length: count }, async () => {
      const begun = performance.now();
      ids.add(await start());
      return performance.now() - begun;
    }),
  );
  if (ids.size !== count) throw new Error(`${count} starts made ${ids.size} runs`);
  return times;
}
