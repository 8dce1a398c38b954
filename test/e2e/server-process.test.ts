// `holdfast serve` as a process: its one line, its files, the command line beside it, SIGTERM and SIGKILL.
import { existsSync, readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import { type Going, type Place, shop } from "./cli.fixture.ts";

let place: Place;
const going: Going[] = [];
beforeEach(() => {
  place = shop();
  place.env.HOLDFAST_TRUST = "1";
});
afterEach(async () => {
  for (const each of going.splice(0)) {
    each.child.kill("SIGKILL");
    await each.ended;
  }
  place.remove();
});

interface Line {
  readonly url: string;
  readonly pid: number;
  readonly token_file: string;
}

async function serve(...words: string[]): Promise<{ line: Line; token: string; run: Going }> {
  const run = place.start(["serve", "--port", "0", "--json", ...words]);
  going.push(run);
  const line = await new Promise<Line>((resolve, reject) => {
    let text = "";
    run.child.stdout?.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (text.includes("\n")) resolve(JSON.parse(text.split("\n")[0] as string) as Line);
    });
    void run.ended.then(({ stderr }) => reject(new Error(stderr)));
  });
  const { token } = JSON.parse(readFileSync(line.token_file, "utf8")) as { token: string };
  return { line, token, run };
}

describe("holdfast serve", () => {
  test("prints one line, answers, and goes with SIGTERM, leaving runs to be claimed", async () => {
    const { line, token, run } = await serve();
    expect(Object.keys(line).sort()).toEqual(["pid", "token_file", "url"]);
    expect(line.pid).toBe(run.child.pid);
    const client = connect({ url: line.url, token });
    const { run_id } = await client.start({ workflow: "slow" });
    run.child.kill("SIGTERM");
    const { status, stdout } = await run.ended;
    expect([status, stdout.trim().split("\n").length, existsSync(line.token_file)]).toEqual([0, 1, false]);
    place.write("go.txt", "");
    const again = await serve();
    const after = connect({ url: again.line.url, token: again.token });
    expect((await after.runs.drive(run_id)).status).toBe("succeeded");
  });

  test("killed, its file is stale: the next one takes over, and finishes its runs", async () => {
    const first = await serve();
    const client = connect({ url: first.line.url, token: first.token });
    const { run_id } = await client.start({ workflow: "slow" });
    first.run.child.kill("SIGKILL");
    await first.run.ended;
    expect(existsSync(first.line.token_file)).toBe(true);
    place.write("go.txt", "");
    const second = await serve();
    expect(second.token).not.toBe(first.token);
    expect((await connect({ url: second.line.url, token: second.token }).runs.drive(run_id)).status).toBe("succeeded");
    const third = place.start(["serve", "--port", "0"]);
    expect(await third.ended).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("serves this state") as string,
    });
  });
});

describe("the command line beside a server", () => {
  test("moves runs through it, reads beside it, and says so with --server too", async () => {
    const { line, token } = await serve();
    delete place.env.HOLDFAST_TRUST;
    place.write("go.txt", "");
    const run = await place.json<{ run_id: string; status: string }>("run", "slow");
    expect(run.status).toBe("succeeded");
    const client = connect({ url: line.url, token });
    expect((await client.runs.get(run.run_id)).status).toBe("succeeded");
    const shown = await place.json<{ run_id: string }>(
      "show",
      run.run_id,
      "--server",
      line.url,
      "--token-file",
      line.token_file,
    );
    expect(shown.run_id).toBe(run.run_id);
    const asked = await place.json<{ run_id: string; waits: { digest: string }[] }>(
      "run",
      "release",
      "--input",
      "version=1.10",
    );
    const digest = asked.waits[0]?.digest as string;
    const approved = await place.json<{ status: string }>("approve", asked.run_id, "--digest", digest);
    expect([approved.status, readFileSync(place.file("published.txt"), "utf8")]).toEqual(["succeeded", "1.10\n"]);
    const journal = (await client.runs.events(asked.run_id)).map((event) => JSON.stringify(event)).join("");
    expect(journal).toContain('"decided_by":"os:');
    expect(journal).not.toContain("token:");
  });

  test("says plainly when the server is not there or the token is wrong", async () => {
    const { line } = await serve();
    place.write("bad.txt", "hft_wrong");
    expect(await place.call("list", "--server", line.url, "--token-file", place.file("bad.txt"))).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("not valid") as string,
    });
    expect((await place.call("verify", "--all", "--server", line.url)).status).toBe(2);
  });
});

describe("holdfast token and sessions", () => {
  test("add shows the secret once; a running server takes it at once; revoke ends it", async () => {
    const { line } = await serve();
    const added = await place.json<{ name: string; role: string; token: string }>(
      "token",
      "add",
      "grafana",
      "--role",
      "observer",
    );
    expect(added).toMatchObject({ name: "grafana", role: "observer" });
    const get = async () =>
      (await fetch(`${line.url}/metrics`, { headers: { Authorization: `Bearer ${added.token}` } })).status;
    expect(await get()).toBe(200);
    expect(JSON.stringify(await place.json("token", "list"))).not.toContain(added.token);
    expect((await place.call("token", "revoke", "grafana")).status).toBe(0);
    expect(await get()).toBe(401);
    expect((await place.call("token", "add", "x")).status).toBe(2);
  });

  test("sessions are made, shown and set", async () => {
    const made = await place.json<{ name: string; posture: string }>("sessions", "create", "nightly");
    expect(made).toMatchObject({ name: "nightly", posture: "ask", active_runs: 0 });
    expect(await place.json("sessions", "set", "nightly", "posture=auto", "opt_in=true")).toMatchObject({
      posture: "auto",
      orchestration_opt_in: true,
    });
    expect((await place.json<{ sessions: { name: string }[] }>("sessions")).sessions.map(({ name }) => name)).toContain(
      "nightly",
    );
    expect((await place.call("sessions", "set", "nightly", "posture=loud")).status).toBe(2);
  });
});
