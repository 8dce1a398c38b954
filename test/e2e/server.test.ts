// The HTTP interface over real sockets: starts, projections, keys, verbs, cursors, values, errors (interfaces §3).
import { existsSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { PublicRun } from "../../src/access/api.ts";
import { RUNS, Served } from "./server.fixture.ts";

let served: Served;
beforeAll(async () => {
  served = await new Served().start();
});
afterAll(async () => {
  await served.remove();
});

async function settled(run_id: string): Promise<PublicRun> {
  await served.holdfast.runs.drive(run_id);
  return served.holdfast.runs.get(run_id);
}

describe("starting", () => {
  test("answers 202 with the public run and where it is", async () => {
    const answer = await served.post(RUNS, { workflow_id: "quick", revision: 1 });
    expect(answer.status).toBe(202);
    const run = (await answer.json()) as PublicRun;
    expect(answer.headers.get("location")).toBe(`${RUNS}/${run.run_id}`);
    expect((await settled(run.run_id)).status).toBe("succeeded");
  });

  test("the same key answers with the same run, also after it has ended", async () => {
    const key = { "Idempotency-Key": "order-1" };
    const first = await served.post(RUNS, { workflow_id: "quick", revision: 1 }, key);
    const { run_id } = (await first.json()) as PublicRun;
    expect(first.headers.get("idempotent-replay")).toBeNull();
    await settled(run_id);
    const again = await served.post(RUNS, { workflow_id: "quick", revision: 1 }, key);
    expect([again.status, again.headers.get("idempotent-replay"), ((await again.json()) as PublicRun).run_id]).toEqual([
      202,
      "true",
      run_id,
    ]);
    const other = await served.post(RUNS, { workflow_id: "echo", revision: 1, args: { value: 1 } }, key);
    expect([other.status, ((await other.json()) as { code: string }).code]).toEqual([422, "idempotency_key_reused"]);
  });

  test("200 at once: none lost, none doubled, ids unique", async () => {
    const before = new Set((await listAll()).map((run) => run.run_id));
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) => served.startRun("quick", undefined, { "Idempotency-Key": `burst-${i}` })),
    );
    expect(new Set(answers).size).toBe(200);
    const made = (await listAll()).map((run) => run.run_id).filter((id) => !before.has(id));
    expect(new Set(made)).toEqual(new Set(answers));
    expect(made.length).toBe(200);
  });

  test("SC-15 SC-41 omitted args are {}, spoofed and unknown fields are refused by name", async () => {
    expect((await served.holdfast.runs.inspect(await served.startRun("quick"))).args).toEqual({});
    for (const field of ["workspace_trusted", "allowed_capabilities", "session_id", "origin", "key", "durability"]) {
      const answer = await served.post(RUNS, { workflow_id: "quick", revision: 1, [field]: true });
      const problem = (await answer.json()) as { code: string; detail: string };
      expect([answer.status, problem.code]).toEqual([400, "usage"]);
      expect(problem.detail).toContain(`unknown field "${field}"`);
    }
    const query = await served.fetch(`${RUNS}?workspace_trusted=true`);
    expect([query.status, ((await query.json()) as { detail: string }).detail]).toEqual([
      400,
      expect.stringContaining('unknown field "workspace_trusted"'),
    ]);
  });
});

async function listAll(): Promise<{ run_id: string }[]> {
  const found: { run_id: string }[] = [];
  let cursor: string | undefined;
  do {
    const answer = await served.fetch(`${RUNS}?limit=100${cursor === undefined ? "" : `&cursor=${cursor}`}`);
    const page = (await answer.json()) as { runs: { run_id: string }[]; next_cursor?: string };
    found.push(...page.runs);
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  return found;
}

describe("cursors", () => {
  test("are signed and serve only their own list", async () => {
    const page = (await (await served.fetch(`${RUNS}?limit=1`)).json()) as { next_cursor: string };
    const of = async (query: string) => (await served.fetch(`${RUNS}?${query}`)).status;
    expect(await of(`limit=1&cursor=${page.next_cursor}`)).toBe(200);
    expect(await of(`limit=2&cursor=${page.next_cursor}`)).toBe(200);
    expect(await of(`limit=1&status=failed&cursor=${page.next_cursor}`)).toBe(400);
    const forged = Buffer.from(page.next_cursor, "base64url");
    forged[forged.length - 1] = (forged[forged.length - 1] as number) ^ 1;
    expect(await of(`cursor=${forged.toString("base64url")}`)).toBe(400);
    expect(await of("limit=0")).toBe(400);
    expect(await of("limit=1&limit=2")).toBe(400);
  });
});

describe("SC-2 each flag is what the address accepts", () => {
  async function flags(run_id: string): Promise<[boolean, boolean, number, number]> {
    const run = (await (await served.fetch(`${RUNS}/${run_id}`)).json()) as PublicRun;
    const restart = await served.post(`${RUNS}/${run_id}/restart`);
    const cancel = await served.post(`${RUNS}/${run_id}/cancel`);
    return [run.can_cancel, run.can_restart_as_new_run, cancel.status, restart.status];
  }

  test("succeeded, failed: neither; running, suspended, cancelled: cancel", async () => {
    const done = await served.startRun("quick");
    await settled(done);
    expect(await flags(done)).toEqual([false, false, 409, 409]);
    const failed = await served.startRun("failing");
    await settled(failed);
    expect(await flags(failed)).toEqual([false, false, 409, 409]);
    const running = await served.startRun("hold");
    expect(await flags(running)).toEqual([true, false, 200, 400]);
    expect(await flags(running)).toEqual([true, false, 200, 409]);
    const asked = await served.startRun("ask");
    await settled(asked);
    expect(await flags(asked)).toEqual([true, false, 200, 400]);
  });

  test("SC-12 cancelled twice: the same answer, one event, nothing after it", async () => {
    const run_id = await served.startRun("hold");
    const answers = [await served.post(`${RUNS}/${run_id}/cancel`), await served.post(`${RUNS}/${run_id}/cancel`)];
    const [first, second] = (await Promise.all(answers.map((answer) => answer.json()))) as [PublicRun, PublicRun];
    expect([first.status, second.status, first.last_sequence]).toEqual([
      "cancelled",
      "cancelled",
      second.last_sequence,
    ]);
    const events = (await (await served.fetch(`${RUNS}/${run_id}/events`)).json()) as {
      sequence: number;
      type: string;
    }[];
    expect(events.filter((event) => event.type === "run_cancelled").length).toBe(1);
    expect(events.map((event) => event.sequence)).toEqual(events.map((_, i) => i + 1));
    expect(await (await served.fetch(`${RUNS}/${run_id}/events?since=${first.last_sequence}`)).json()).toEqual([]);
  });
});

describe("keys of other mutations", () => {
  test("are remembered over a restart, and one key serves one request", async () => {
    const place = await new Served().start();
    try {
      const run_id = await place.startRun("hold");
      const key = { "Idempotency-Key": "stop-it" };
      expect(
        (await place.post(`${RUNS}/${run_id}/cancel`, { reason: "a" }, key)).headers.get("idempotent-replay"),
      ).toBeNull();
      await place.stop();
      await place.start();
      const again = await place.post(`${RUNS}/${run_id}/cancel`, { reason: "a" }, key);
      expect([again.status, again.headers.get("idempotent-replay")]).toEqual([200, "true"]);
      expect((await place.post(`${RUNS}/${run_id}/cancel`, { reason: "b" }, key)).status).toBe(422);
      const made = await place.post("/api/v1/sessions", { name: "nightly" }, key);
      const same = await place.post("/api/v1/sessions", { name: "nightly" }, key);
      expect([made.status, same.status, await made.json()]).toEqual([201, 201, await same.json()]);
      expect((await place.post("/api/v1/sessions", { name: "nightly" })).status).toBe(409);
    } finally {
      await place.remove();
    }
  });
});

describe("deciding", () => {
  test("is bound to the digest, named after the token, and never an observer's", async () => {
    const run_id = await served.startRun("ask");
    await settled(run_id);
    const { waits } = (await (await served.fetch(`${RUNS}/${run_id}/waits`)).json()) as {
      waits: { wait_id: string; digest: string }[];
    };
    const [wait] = waits as [{ wait_id: string; digest: string }];
    const address = `${RUNS}/${run_id}/waits/${wait.wait_id}/approve`;
    expect((await served.post(address, { digest: wait.digest }, {}, served.token("looker", "observer"))).status).toBe(
      403,
    );
    const wrong = await served.post(address, { digest: "0".repeat(64) });
    expect([wrong.status, ((await wrong.json()) as { code: string }).code]).toEqual([409, "conflict"]);
    expect(served.written.length).toBe(0);
    expect((await served.post(address, { digest: wait.digest }, {}, served.token("anna", "operator"))).status).toBe(
      200,
    );
    await settled(run_id);
    expect(served.written.length).toBe(1);
    const journal = await (await served.fetch(`${RUNS}/${run_id}/journal`)).text();
    expect(journal).toContain('"token:anna"');
    expect(JSON.parse(journal.trimEnd().split("\n").at(-1) as string)).toMatchObject({
      segment: { hash: expect.stringMatching(/^[0-9a-f]{64}$/) },
    });
  });
});

describe("values", () => {
  test("the output has an ETag and ranges; another run's artifact is not found", async () => {
    const value = "x".repeat(400_000);
    const run_id = await served.startRun("echo", { value });
    await settled(run_id);
    const whole = await served.fetch(`${RUNS}/${run_id}/output`);
    const text = await whole.text();
    expect(JSON.parse(text)).toBe(value);
    const etag = whole.headers.get("etag") as string;
    const part = await served.fetch(`${RUNS}/${run_id}/output`, { headers: { Range: "bytes=0-9" } });
    expect([part.status, part.headers.get("content-range"), await part.text()]).toEqual([
      206,
      `bytes 0-9/${text.length}`,
      text.slice(0, 10),
    ]);
    expect((await served.fetch(`${RUNS}/${run_id}/output`, { headers: { "If-None-Match": etag } })).status).toBe(304);
    expect((await served.fetch(`${RUNS}/${run_id}/output`, { headers: { Range: "bytes=999999999-" } })).status).toBe(
      416,
    );
    const journal = await (await served.fetch(`${RUNS}/${run_id}/journal`)).text();
    const hash = /"output_ref":\{[^}]*"sha256":"([0-9a-f]{64})"/.exec(journal)?.[1] as string;
    const artifact = await served.fetch(`${RUNS}/${run_id}/artifacts/${hash}`);
    expect([artifact.status, artifact.headers.get("content-disposition"), await artifact.json()]).toEqual([
      200,
      `attachment; filename="${hash}"`,
      value,
    ]);
    const other = await served.startRun("quick");
    expect((await served.fetch(`${RUNS}/${other}/artifacts/${hash}`)).status).toBe(404);
  });

  test("before the end there is no output", async () => {
    const run_id = await served.startRun("hold");
    expect((await served.fetch(`${RUNS}/${run_id}/output`)).status).toBe(409);
    await served.post(`${RUNS}/${run_id}/cancel`);
  });
});

describe("sessions", () => {
  test("cannot see each other", async () => {
    expect((await served.post("/api/v1/sessions", { name: "other" })).status).toBe(201);
    const run_id = await served.startRun("quick");
    const base = "/api/v1/sessions/other/workflow-runs";
    for (const address of [
      "",
      "/inspect",
      "/events",
      "/output",
      "/why",
      "/steps",
      "/steps/look",
      "/children",
      "/journal",
      "/waits",
    ]) {
      const answer = await served.fetch(`${base}/${run_id}${address}`);
      expect([address, answer.status, ((await answer.json()) as { code: string }).code]).toEqual([
        address,
        404,
        "not_found",
      ]);
    }
    for (const verb of ["cancel", "restart", "resume", "pause", "continue"])
      expect([verb, (await served.post(`${base}/${run_id}/${verb}`)).status]).toEqual([verb, 404]);
    expect(await (await served.fetch(base)).json()).toEqual({ runs: [] });
    expect((await served.fetch("/api/v1/sessions/never/workflow-runs")).status).toBe(404);
  });

  test("change by their fields; metadata is merged", async () => {
    const change = async (body: object) =>
      (await (
        await served.fetch("/api/v1/sessions/other", {
          method: "PATCH",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body),
        })
      ).json()) as object;
    expect(await change({ posture: "read_only", metadata: { a: 1, b: 2 } })).toMatchObject({
      posture: "read_only",
      metadata: { a: 1, b: 2 },
    });
    expect(await change({ metadata: { a: null } })).toMatchObject({ posture: "read_only", metadata: { b: 2 } });
    expect(await change({ workspace: "/" })).toMatchObject({ code: "usage" });
    expect(await change({ name: "default" })).toMatchObject({ code: "conflict" });
  });
});

describe("the server's files", () => {
  test("server.json is its owner's alone, says who serves, and goes with the server", async () => {
    const place = await new Served().start();
    const file = path.join(place.stateDir, "server.json");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(file, "utf8"))).toMatchObject({
      url: place.server.url,
      pid: process.pid,
      token: place.server.token,
    });
    await expect(place.start()).rejects.toMatchObject({ code: "conflict" });
    await place.remove();
    expect(existsSync(file)).toBe(false);
  });

  test("named tokens count at once, and no longer once revoked", async () => {
    const { TokenFolder } = await import("../../src/server/index.ts");
    const token = served.token("guest", "observer");
    const get = async () => (await served.fetch(RUNS, { token })).status;
    expect(await get()).toBe(200);
    expect((await served.post(RUNS, { workflow_id: "quick", revision: 1 }, {}, token)).status).toBe(403);
    expect(readFileSync(path.join(served.stateDir, "tokens", "guest.json"), "utf8")).not.toContain(token);
    new TokenFolder(served.stateDir).revoke("guest");
    expect(await get()).toBe(401);
  });

  test("the log has requests and no payload", () => {
    const lines = served.logged.map((line) => JSON.parse(line) as { msg: string; route?: string });
    expect(
      lines.some((line) => line.msg === "request" && line.route === "/api/v1/sessions/{session_id}/workflow-runs"),
    ).toBe(true);
  });
});

describe("figures", () => {
  test("count runs, steps, streams and requests", async () => {
    const text = await (await served.fetch("/metrics")).text();
    for (const name of [
      "holdfast_runs{",
      "holdfast_run_events_total",
      "holdfast_steps_total",
      "holdfast_http_requests_total",
      "holdfast_sse_subscribers",
      "holdfast_commit_seconds",
    ])
      expect(text).toContain(name);
  });
});
