// The command line and the client beside a real `holdfast serve`: what they answer is what they answer without one.
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import type { Ended, Going, Place } from "./cli.fixture.ts";
import { type RunDoc, runWhen, type ServedPlace, serveIn, trustedPlace } from "./serving.fixture.ts";

const places: Place[] = [];
const going: Going[] = [];
afterEach(async () => {
  for (const { child, ended } of going.splice(0)) {
    child.kill("SIGKILL");
    await ended;
  }
  for (const place of places.splice(0)) place.remove();
});

async function beside(more?: string, graceMs?: number): Promise<{ place: Place } & ServedPlace> {
  const place = await trustedPlace(more, graceMs);
  places.push(place);
  const served = await serveIn(place);
  going.push(served.run);
  return { place, ...served };
}

const written = (place: Place) => readFileSync(place.file("written.txt"), "utf8");

describe("GD-74 repairs", () => {
  const inWords = {
    succeeded: ["--succeeded", "--output-file", "right.json"],
    failed: ["--failed", "it never arrived"],
    cancelled: ["--cancelled", "stopped by hand"],
    retry: ["--retry", "nothing had happened"],
  };
  const outcomes = {
    succeeded: { status: "succeeded", output: { id: 1 } },
    failed: { status: "failed", failure: { code: "execution_failed", message: "it never arrived" } },
    cancelled: { status: "failed", failure: { code: "cancelled", message: "stopped by hand" } },
    retry: { status: "succeeded", output: { id: 7 } },
  };

  test("all four by the command line, each of the attempt that was shown, and the same again is the same", async () => {
    const { place } = await beside();
    place.write("right.json", '{"id": 1}');
    for (const [word, flags] of Object.entries(inWords)) {
      const lost = await place.call("run", "lost", "--json");
      const run = JSON.parse(lost.stdout) as RunDoc;
      expect([lost.status, run.waits[0]?.type]).toEqual([3, "repair"]);
      if (word === "retry") place.write("known", "");
      const digest = run.waits[0]?.digest ?? "";
      const done = await place.call("repair", run.run_id, "lose", ...flags, "--digest", digest.slice(0, 12), "--json");
      expect([word, done.status, done.stderr]).toEqual([
        word,
        outcomes[word as "retry"].status === "failed" ? 1 : 0,
        "",
      ]);
      expect(JSON.parse(done.stdout)).toMatchObject(outcomes[word as "retry"]);
      if (word === "succeeded")
        expect((await place.call("repair", run.run_id, "lose", ...flags, "--digest", digest)).status).toBe(0);
    }
    expect(written(place)).toBe("x\n".repeat(5));
  });

  test("all four by holdfast/client; the dispatch that is named is the one that is repaired", async () => {
    const { place, client } = await beside();
    const answers = [
      { resolution: "succeeded", output: { id: 1 } },
      { resolution: "failed", message: "it never arrived" },
      { resolution: "cancelled", message: "stopped by hand" },
      { resolution: "retry", reason: "nothing had happened" },
    ] as const;
    for (const answer of answers) {
      const run = await client.run({ workflow: "lost" });
      const [wait] = run.waits;
      if (answer.resolution === "retry") {
        // The attempt that was looked at gives way to another one before the answer arrives.
        await client.waits.repair(run.run_id, "lose", { ...answer, decided_by: "os:me" });
        const next = await runWhen(
          client,
          run.run_id,
          ({ waits }) =>
            waits[0]?.digest !== undefined && waits[0].evidence?.dispatch_id !== wait?.evidence?.dispatch_id,
        );
        const stale = { resolution: "failed", message: "no", decided_by: "os:me" } as const;
        await expect(
          client.waits.repair(run.run_id, "lose", { ...stale, dispatch_id: wait?.evidence?.dispatch_id as string }),
        ).rejects.toMatchObject({ code: "conflict" });
        expect((await client.runs.inspect(run.run_id)).waits[0]?.digest).toBe(next.waits[0]?.digest);
        writeFileSync(place.file("known"), "");
      }
      await client.waits.repair(run.run_id, "lose", { ...answer, decided_by: "os:me" });
      expect(await client.runs.drive(run.run_id)).toMatchObject(outcomes[answer.resolution]);
    }
  });
});

describe("a child run that waits for a person", () => {
  const commands = {
    "gate-parent": "approve",
    "order-parent": "answer",
    "lost-parent": "repair",
  };

  async function tellsTheCommand(place: Place): Promise<void> {
    for (const [workflow, verb] of Object.entries(commands)) {
      const stopped = await place.call("run", workflow);
      expect([workflow, stopped.status, stopped.stderr]).toEqual([workflow, 3, expect.any(String)]);
      const run = await place.json<RunDoc>("show", `last:${workflow}`);
      const child = run.waits[0]?.child_run_id as string;
      const command = [verb, child, verb === "repair" ? "lose" : "w-"].join(" ");
      expect(stopped.stderr).toContain(command);
    }
    expect((await place.call("run", "blink-parent")).status).toBe(0);
  }

  test("stops a command that follows its parent, beside a server as without one, with what answers it", async () => {
    const { place, client } = await beside();
    await tellsTheCommand(place);
    const run = await client.runs.inspect(await client.runs.find("last:order-parent"));
    const [asked] = run.waits[0]?.child_waits ?? [];
    await client.waits.answer(asked?.run_id as string, asked?.wait_id, { value: { n: 3 }, decided_by: "os:me" });
    expect(await client.runs.drive(run.run_id)).toMatchObject({ status: "succeeded", output: { n: 3 } });
  });

  test("without a server", async () => {
    const place = await trustedPlace();
    places.push(place);
    await tellsTheCommand(place);
  });
});

describe("what only the process that drives a run knows", () => {
  test("DESIGN §9 why beside a server says that a step waits for what another run holds", async () => {
    const { place, client } = await beside();
    const holds = await client.start({ workflow: "claims" });
    await runWhen(client, holds.run_id, ({ status }) => status === "running");
    const waits = await client.start({ workflow: "claims" });
    let causes: { readonly cause: string }[] = [];
    for (let i = 0; i < 50 && causes.every(({ cause }) => cause !== "lease"); i++)
      causes = (await place.json<{ causes: { cause: string }[] }>("why", waits.run_id)).causes;
    expect(causes).toContainEqual(
      expect.objectContaining({ cause: "lease", sentence: expect.stringContaining('"hold" waits for a resource') }),
    );
    writeFileSync(place.file("go.txt"), "");
    expect((await client.runs.drive(waits.run_id)).status).toBe("succeeded");
  });
});

describe("R-17 a run with a mutation of unknown outcome", () => {
  test("is not resumed, and the refusal names the way on", async () => {
    const place = await trustedPlace();
    places.push(place);
    const run = JSON.parse((await place.call("run", "lost", "--json")).stdout) as RunDoc;
    const refused = await place.call("resume", run.run_id);
    expect([refused.status, refused.stderr]).toEqual([1, expect.stringMatching(/Cannot resume.*repair/)]);
  });
});

describe("R-1 how long an answer takes", () => {
  /** The answer, and how long it took, ms. */
  async function timed(place: Place, ...words: string[]): Promise<Ended & { readonly tookMs: number }> {
    const begun = performance.now();
    return { ...(await place.call(...words)), tookMs: performance.now() - begun };
  }

  test("R-12 a cancel is answered once the run stands in repair, though its server was late", async () => {
    // Longer than the server waits before it answers "pending".
    const { place, client } = await beside("", 6_000);
    const { run_id } = await client.start({ workflow: "stuck" });
    await runWhen(client, run_id, () => existsSync(place.file("stuck.txt")));
    const cancelled = await timed(place, "cancel", run_id);
    expect([cancelled.status, cancelled.stdout]).toEqual([3, expect.stringContaining("suspended")]);
    expect(cancelled.stderr).toContain(`repair ${run_id} write`);
    expect(cancelled.tookMs).toBeLessThan(15_000);
  });

  test("a pause of a run whose process is stopped is pending after 5 s", async () => {
    const place = await trustedPlace();
    places.push(place);
    const following = place.start(["run", "slow", "-v"]);
    going.push(following);
    await following.said("hold");
    following.child.kill("SIGSTOP");
    const paused = await timed(place, "pause", "last");
    expect([paused.status, paused.stderr]).toEqual([3, expect.stringContaining("has not answered yet")]);
    expect(paused.tookMs).toBeGreaterThan(4_900);
    expect(paused.tookMs).toBeLessThan(8_500);
  });
});

describe("R-40 approvals.not_by_starter", () => {
  test("one person is one person with a server and without; a named token is somebody else", async () => {
    const place = await trustedPlace("approvals: { not_by_starter: true },");
    places.push(place);
    const alone = await place.json<RunDoc>("run", "release");
    const approve = async (run: RunDoc) =>
      await place.call("approve", run.run_id, "--digest", run.waits[0]?.digest ?? "", "--json");
    const refused = { status: 2, stdout: expect.stringContaining("started this run") as string };
    expect(await approve(alone)).toMatchObject(refused);
    const { client, line, run: server } = await serveIn(place);
    going.push(server);
    expect(await approve(alone)).toMatchObject(refused);
    const served = await place.json<RunDoc>("run", "release");
    expect(served.waits[0]?.started_by).toBe(alone.waits[0]?.started_by);
    expect(await approve(served)).toMatchObject(refused);
    await client.waits.deny(served.run_id, undefined, { digest: served.waits[0]?.digest as string, decided_by: "me" });
    const { token } = await place.json<{ token: string }>("token", "add", "anna", "--role", "operator");
    const anna = connect({ url: line.url, token });
    const request = { digest: alone.waits[0]?.digest as string, decided_by: "os:anna" };
    await anna.waits.approve(alone.run_id, alone.waits[0]?.wait_id, request);
    expect((await anna.runs.drive(alone.run_id)).status).toBe("succeeded");
    server.child.kill("SIGTERM");
    await server.ended;
    const started = await place.json<RunDoc>("show", served.run_id);
    expect([started.status, started.failure?.code]).toEqual(["failed", "permission_denied"]);
  });
});

describe("R-28 an input that is denied", () => {
  const denied = { status: "failed", failure: { code: "permission_denied" } };

  async function refuseByCommand(place: Place): Promise<void> {
    const run = await place.json<RunDoc>("run", "order");
    const [wait] = run.waits;
    expect((await place.call("approve", run.run_id, wait?.wait_id ?? "", "--digest", wait?.digest ?? "")).status).toBe(
      1,
    );
    const blind = await place.call("deny", run.run_id);
    expect([blind.status, blind.stderr]).toEqual([
      2,
      expect.stringMatching(/How many\?[\s\S]*deny \S+ w-\d+ --digest/),
    ]);
    const no = await place.call("deny", run.run_id, "--digest", wait?.digest ?? "", "--reason", "no idea", "--json");
    expect([no.status, JSON.parse(no.stdout)]).toMatchObject([1, denied]);
  }

  test("fails its step, by the command line and by TypeScript, beside a server as without one", async () => {
    const { place, client, run: server } = await beside();
    await refuseByCommand(place);
    const run = await client.run({ workflow: "order" });
    expect(run.actions.find(({ name }) => name === "deny")).toMatchObject({ allowed: true });
    await client.waits.deny(run.run_id, undefined, { digest: run.waits[0]?.digest as string, decided_by: "os:me" });
    expect(await client.runs.drive(run.run_id)).toMatchObject(denied);
    server.child.kill("SIGTERM");
    await server.ended;
    await refuseByCommand(place);
  });
});

test("GD-62 resume of a run that goes already is no refusal on the command line", async () => {
  const { place, client } = await beside();
  const { run_id } = await client.start({ workflow: "slow" });
  await runWhen(client, run_id, ({ status }) => status === "running");
  const left = await place.call("resume", run_id, "--detach", "--json");
  expect([left.status, JSON.parse(left.stdout)]).toMatchObject([0, { run_id, status: "running" }]);
  place.write("go.txt", "");
  expect((await client.runs.drive(run_id)).status).toBe("succeeded");
});

test("notify: what was open before the server is told with the address that it is answered at", async () => {
  const pipe = "process.stdin.pipe(require('node:fs').createWriteStream(process.argv[1], { flags: 'a' }))";
  const told = path.join(os.tmpdir(), `holdfast-told-${process.pid}-${Date.now()}`);
  const command = JSON.stringify([process.execPath, "-e", pipe, told]);
  const place = await trustedPlace(`notify: { command: ${command}, on: ["approval"] },`);
  places.push(place);
  const runs = [await place.json<RunDoc>("run", "gate"), await place.json<RunDoc>("run", "gate")];
  const { run, line } = await serveIn(place);
  going.push(run);
  const notices = () =>
    (existsSync(told) ? readFileSync(told, "utf8") : "")
      .split("\n")
      .filter((text) => text !== "")
      .map((text) => JSON.parse(text) as { run_id: string; url?: string });
  await expect.poll(() => notices().length, { timeout: 10_000 }).toBe(2);
  for (const { run_id } of runs)
    expect(notices().find((notice) => notice.run_id === run_id)?.url).toContain(`${line.url}/api/v1/sessions/`);
  rmSync(told, { force: true });
});
