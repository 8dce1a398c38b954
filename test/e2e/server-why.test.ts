// Why a run stands where it does is one document, whoever asks: the command line, HTTP and TypeScript (DESIGN §6).
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createHoldfast, type Holdfast } from "../../src/index.ts";
import type { Place } from "./cli.fixture.ts";
import { type RunDoc, runWhen, type ServedPlace, serveIn, trustedPlace } from "./serving.fixture.ts";

let place: Place;
let served: ServedPlace;
let here: Holdfast;
beforeAll(async () => {
  place = await trustedPlace();
  served = await serveIn(place);
  // Another process on the same store, that drives nothing.
  here = await createHoldfast({ workspace: place.folder, worker: false, trust: true });
});
afterAll(async () => {
  await here.close();
  served.run.child.kill("SIGKILL");
  await served.run.ended;
  place.remove();
});

interface Stand {
  readonly workflow: string;
  readonly fits: (run: RunDoc) => boolean;
  readonly says: RegExp;
  readonly act?: (runId: string) => Promise<unknown>;
}

const waitsFor =
  (type: string) =>
  ({ status, waits }: RunDoc): boolean =>
    status === "suspended" && waits[0]?.type === type;

const STANDS: Record<string, Stand> = {
  running: {
    workflow: "slow",
    fits: ({ steps }) => steps.some((step) => step.id === "hold" && step.attempts === 1),
    says: /^The run is running: step "hold" is at work\.$/,
  },
  approval: { workflow: "gate", fits: waitsFor("approval"), says: /"Go on\?"; approve or deny it\.$/ },
  input: { workflow: "order", fits: waitsFor("input"), says: /"How many\?"; answer or deny it\.$/ },
  timer: { workflow: "nap", fits: waitsFor("timer"), says: /waits until \S+ and goes on by itself then\.$/ },
  pause: {
    workflow: "slow",
    fits: waitsFor("paused"),
    says: /^The run is paused: at noon; resume it\.$/,
    act: (runId) => served.client.runs.pause(runId, { reason: "at noon" }),
  },
  repair: { workflow: "lost", fits: waitsFor("repair"), says: /took effect is unknown.*find out, then repair it/ },
  budget: {
    workflow: "spend",
    fits: waitsFor("budget"),
    says: /^The budget is used up \(max_steps is 1\).*it goes on when a process drives the run: a worker process, or resume\.$/,
  },
  child: { workflow: "order-parent", fits: waitsFor("child"), says: /, which waits for an answer; see why there\.$/ },
};

describe("why", () => {
  test.each(Object.keys(STANDS))("%s: the same sentence and causes from every interface", async (name) => {
    const { workflow, fits, says, act } = STANDS[name] as Stand;
    const { run_id } = await served.client.start({ workflow });
    await act?.(run_id);
    await runWhen(served.client, run_id, fits);
    const headers = { Authorization: `Bearer ${served.token}` };
    const address = `${served.line.url}/api/v1/sessions/default/workflow-runs/${run_id}/why`;
    const overHttp = await (await fetch(address, { headers })).json();
    expect(overHttp).toMatchObject({ run_id, sentence: expect.stringMatching(says) as string });
    expect(await place.json("why", run_id)).toEqual(overHttp);
    expect(await here.runs.why(run_id)).toEqual(overHttp);
    expect(await served.client.runs.why(run_id)).toEqual(overHttp);
  });
});
