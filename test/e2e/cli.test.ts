// The command as its users meet it: real processes, real files, a real store.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { BIN, Place, shop } from "./cli.fixture.ts";

const places: Place[] = [];

function inPlace(place: Place = new Place()): Place {
  places.push(place);
  return place;
}

afterEach(() => {
  for (const place of places.splice(0)) place.remove();
});

interface RunDoc {
  readonly run_id: string;
  readonly status: string;
  readonly output?: unknown;
  readonly failure?: { readonly code: string };
  readonly waits: readonly { readonly wait_id: string; readonly type: string; readonly digest?: string }[];
}

describe("a first project", () => {
  test("R-36 init, check, preview, run, list, show, events, output, verify", async () => {
    const place = inPlace();
    place.write("src/a.ts", "// TODO: name this\nexport const a = 1;\n");
    const made = await place.json<{ created: string[] }>("init");
    expect(made.created.map((file) => path.relative(place.folder, file))).toEqual([
      path.join(".holdfast", "workflows", "hello.yaml"),
      path.join(".holdfast", "plan.schema.json"),
    ]);
    expect(await place.json("init")).toEqual({ created: [] });
    expect(await place.json("check")).toEqual({ ok: true, diagnostics: [] });
    const preview = await place.json<{ steps: { permission: string }[]; refusals: unknown[] }>("preview", "hello");
    expect([preview.steps.map(({ permission }) => permission), preview.refusals]).toEqual([
      ["allow", "allow", "allow"],
      [],
    ]);
    expect(existsSync(place.file(".holdfast/state/holdfast.db")), "R-35 nothing so far opened a store").toBe(false);

    const ran = await place.call("run", "hello", "--input", "dir=src");
    expect([ran.status, ran.stderr]).toEqual([0, ""]);
    expect(JSON.parse(ran.stdout)).toMatchObject([
      { files: ["src/a.ts"] },
      {},
      { matches: [{ path: "src/a.ts", line: 1 }] },
    ]);

    const listed = await place.json<{ runs: { run_id: string; status: string }[] }>("list");
    expect(listed.runs).toMatchObject([{ workflow_id: "hello", status: "succeeded" }]);
    const runId = listed.runs[0]?.run_id ?? "";
    expect(await place.json("show", runId.slice(-6))).toMatchObject({ run_id: runId, args: { dir: "src" } });
    expect((await place.call("show", "last:hello", "--steps")).stdout).toContain("open_markers");
    const events = (await place.call("events", "last", "--json")).stdout.trim().split("\n");
    expect(events.map((line) => (JSON.parse(line) as { sequence: number }).sequence)).toEqual(
      events.map((_, i) => i + 1),
    );
    expect((await place.call("output", "last", "--pointer", "/0/files/0", "--raw")).stdout).toBe("src/a.ts\n");
    expect(await place.json("verify", "last")).toMatchObject({ ok: true, events: events.length });
    expect(await place.json("store", "info")).toMatchObject({ runs: 1 });
    expect((await place.json<{ ok: boolean }>("doctor")).ok).toBe(true);
    expect((await place.call("why", "last")).status).toBe(0);
  });

  test("mistakes are found with file, line and column, and nothing is started", async () => {
    const place = inPlace();
    place.write(".holdfast/workflows/bad.yaml", "workflow_schema: 1\nid: bad\nrevision: 1\nstepz: []\n");
    const checked = await place.call("check");
    expect(checked.status).toBe(2);
    expect(checked.stdout).toMatch(/bad\.yaml:4:1: error: /);
    const refused = await place.call("run", "bad", "--json");
    expect([refused.status, (JSON.parse(refused.stdout) as { error: { code: string } }).error.code]).toEqual([
      2,
      "definition",
    ]);
    expect((await place.call("run", "bda")).stderr).toMatch(/bad/);
    expect((await place.json<{ runs: unknown[] }>("list")).runs).toEqual([]);
  });

  test("inputs are read by the schema, from words, files and pipes", async () => {
    const place = inPlace();
    await place.call("init");
    const missing = await place.call("run", "hello", "--input", "dri=src");
    expect([missing.status, missing.stderr]).toEqual([2, expect.stringContaining("did you mean dir?")]);
    const piped = await place.start(["run", "hello", "--input-file", "-", "--json"], { stdin: '{"dir": ".holdfast"}' })
      .ended;
    expect(JSON.parse(piped.stdout)).toMatchObject({ status: "succeeded", args: { dir: ".holdfast" } });
    const large = await place.start(["run", "hello", "--input-file", "-"], { stdin: `"${"x".repeat(1_048_577)}"` })
      .ended;
    expect([large.status, large.stderr]).toEqual([2, expect.stringContaining("larger than 1 MiB")]);
  });

  test("--key answers with the same run; start leaves it queued and says so", async () => {
    const place = inPlace();
    await place.call("init");
    const first = await place.json<RunDoc>("run", "hello", "--key", "k1");
    expect((await place.json<RunDoc>("run", "hello", "--key", "k1")).run_id).toBe(first.run_id);
    expect((await place.call("run", "hello", "--key", "k1", "--input", "dir=src")).status).toBe(2);
    const queued = await place.call("start", "hello");
    expect([queued.status, queued.stderr]).toEqual([0, expect.stringContaining("no worker process")]);
    expect(await place.json("show", queued.stdout.trim())).toMatchObject({ status: "queued" });
    expect((await place.call("resume", queued.stdout.trim())).status).toBe(0);
  });
});

describe("R-40 approvals", () => {
  test("suspended is 3 and prints the command; that command decides; the effect happens once", async () => {
    const place = inPlace(shop());
    place.env.HOLDFAST_TRUST = "1";
    const asked = await place.call("run", "release", "--input", "version=1.10");
    expect(asked.status).toBe(3);
    expect(asked.stderr).toContain('"version": "1.10"');
    expect(existsSync(place.file("published.txt"))).toBe(false);
    const command = /holdfast'? (approve .*)/.exec(asked.stderr)?.[1] ?? "";
    expect(command).toMatch(/^approve \S+ \S+ --digest [0-9a-f]{12}$/);
    expect((await place.call("approve", "last")).status, "without the digest").toBe(2);
    expect((await place.call("approve", "last", "--digest", "00000000")).status, "with another digest").toBe(1);
    const approved = await place.call(...command.split(" "));
    expect([approved.status, JSON.parse(approved.stdout)]).toEqual([0, { published: "1.10" }]);
    expect(readFileSync(place.file("published.txt"), "utf8")).toBe("1.10\n");
    expect((await place.call("approve", "last", "--digest", "00000000")).status).toBe(1);
  });

  test("denied is a failure of the run: 1", async () => {
    const place = inPlace(shop());
    place.env.HOLDFAST_TRUST = "1";
    const { run_id, waits } = await place.json<RunDoc>("run", "release", "--input", "version=2");
    expect(await place.json("waits")).toMatchObject({
      waits: [{ run_id, workflow_id: "release", type: "tool_approval" }],
    });
    const denied = await place.call("deny", run_id, "--digest", waits[0]?.digest ?? "", "--reason", "not today");
    expect(denied.status).toBe(1);
    expect(existsSync(place.file("published.txt"))).toBe(false);
  });

  test.skipIf(spawnSync("script", ["--version"]).status !== 0)("on a terminal the word decides, inline", async () => {
    const place = inPlace(shop());
    place.env.HOLDFAST_TRUST = "1";
    place.env.NO_COLOR = "1";
    const command = `'${process.execPath}' '${BIN}' run release --input version=3`;
    const onTerminal = (typed: string) =>
      spawnSync("script", ["-qec", command, "/dev/null"], {
        cwd: place.folder,
        env: { ...place.env, TERM: "xterm" },
        input: typed,
        timeout: 30_000,
      });
    const no = onTerminal("\n");
    expect([no.status, String(no.stdout)]).toEqual([3, expect.stringContaining('Type "approve" or "deny".')]);
    expect(existsSync(place.file("published.txt"))).toBe(false);
    const yes = onTerminal("approve\n");
    expect(yes.status, String(yes.stdout)).toBe(0);
    expect(readFileSync(place.file("published.txt"), "utf8")).toBe("3\n");
  });
});

describe("leaving and coming back", () => {
  test("R-36 the first Ctrl-C pauses with 3 and never cancels; resume goes on without repeating", async () => {
    const place = inPlace(shop());
    place.env.HOLDFAST_TRUST = "1";
    const going = place.start(["run", "slow", "-v"]);
    await going.said("hold");
    going.child.kill("SIGINT");
    const left = await going.ended;
    expect([left.status, left.stderr]).toEqual([3, expect.stringMatching(/resume [0-9a-f-]{36}/)]);
    expect(await place.json("show", "last")).toMatchObject({ status: "suspended", suspension: { type: "paused" } });
    place.write("go.txt", "");
    const back = await place.call("resume", "last");
    expect([back.status, JSON.parse(back.stdout)]).toEqual([0, { found: true }]);
    const started = (await place.call("events", "last", "--json")).stdout
      .split("\n")
      .filter((line) => line.includes('"step_started"') && line.includes('"look"'));
    expect(started).toHaveLength(1);
  });

  test("a killed command's run is there, and resume finishes it", async () => {
    const place = inPlace(shop());
    place.env.HOLDFAST_TRUST = "1";
    const going = place.start(["run", "slow", "-v"]);
    await going.said("hold");
    going.child.kill("SIGKILL");
    expect((await going.ended).status).toBe("SIGKILL");
    place.write("go.txt", "");
    const back = await place.call("resume", "last");
    expect([back.status, back.stdout]).toEqual([0, expect.stringContaining('"found": true')]);
  });

  test("--timeout leaves with 3; cancel ends it with 0, then it is terminal for resume", async () => {
    const place = inPlace(shop());
    place.env.HOLDFAST_TRUST = "1";
    expect((await place.call("run", "slow", "--timeout", "1500ms")).status).toBe(3);
    expect((await place.call("cancel", "last")).status).toBe(0);
    expect(await place.json("show", "last")).toMatchObject({ status: "cancelled" });
    expect((await place.call("cancel", "last")).status, "a second cancel changes nothing").toBe(0);
    expect((await place.call("resume", "last")).status).toBe(1);
    expect((await place.call("output", "last")).status).toBe(4);
  });

  test("a reader that has seen enough ends nothing", async () => {
    const place = inPlace();
    await place.call("init");
    await place.call("run", "hello");
    const piped = spawnSync(
      "sh",
      [
        "-c",
        `'${process.execPath}' '${BIN}' events last --json | head -n 1; '${process.execPath}' '${BIN}' run hello | true`,
      ],
      {
        cwd: place.folder,
        env: place.env,
      },
    );
    expect([String(piped.stdout).split("\n").length, String(piped.stderr)]).toEqual([2, ""]);
    expect(await place.json("list")).toMatchObject({ runs: [{ status: "succeeded" }, { status: "succeeded" }] });
  });
});

describe("DESIGN §11 trust", () => {
  test("an untrusted workspace loads none of its code, and says so; trusting is by real path in the user's home", async () => {
    const place = inPlace(shop());
    const refused = await place.call("run", "release", "--input", "version=1");
    expect(refused.status).toBe(2);
    const unasked = await place.call("trust");
    expect([unasked.status, unasked.stderr]).toEqual([2, expect.stringContaining("its code runs in your processes")]);
    expect(await place.json("trust", "--yes")).toEqual({ path: place.folder, trusted: true });
    expect((await place.call("run", "release", "--input", "version=1")).status).toBe(3);
    expect((await place.call("trust", "--list")).stdout).toBe(`${place.folder}\n`);
    expect(readdirSync(place.folder)).not.toContain("trust.json");
    expect(await place.json("trust", "--revoke")).toEqual({ path: place.folder, trusted: false });
    expect((await place.call("run", "release", "--input", "version=1")).status).toBe(2);
  });
});

describe("DESIGN §15 speed", () => {
  test("--help takes at most 0.2 s more than node itself", () => {
    const time = (words: string[]) => {
      const before = performance.now();
      expect(spawnSync(process.execPath, words).status).toBe(0);
      return performance.now() - before;
    };
    time([BIN, "--help"]);
    const best = (words: string[]) => Math.min(...Array.from({ length: 5 }, () => time(words)));
    expect(best([BIN, "--help"]) - best(["-e", "0"])).toBeLessThan(200);
  });
});
