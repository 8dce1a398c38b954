import { describe, expect, test } from "vitest";
import { ERRORS, type ErrorCode, HoldfastError } from "../domain/errors.ts";
import { call, makeApproval, makeEvent, makeRun, RUN_ID } from "./cli.fixture.ts";
import { COMMANDS } from "./commands/index.ts";

const RUN_HELLO = ["run", "hello", "--input", "dir=src"];

describe("words", () => {
  test("help is a result, and every command has its own", async () => {
    const main = await call([]);
    expect([main.status, main.stderr]).toEqual([0, ""]);
    for (const { name, flags } of COMMANDS) {
      expect(main.stdout).toContain(`  ${name}`);
      const own = await call([name, "--help"]);
      expect(own.status).toBe(0);
      expect(own.stdout).toContain("Examples:");
      expect(own.stdout).toContain("Exit status:");
      for (const { flag, hidden } of flags) expect(own.stdout.includes(flag.split(" ")[0] ?? "")).toBe(hidden !== true);
    }
  });

  test("the version is the package's", async () => {
    expect((await call(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  test.each([
    [["rnu"], "did you mean run?"],
    [["contineu"], "did you mean continue?"],
    [["run", "hello", "--detahc"], "did you mean --detach?"],
    [["list", "--jsn"], "did you mean --json?"],
    [["list", "--status", "faild"], "did you mean failed?"],
    [["waits", "--type", "aproval"], "did you mean approval?"],
    [["workflows", "shwo"], "did you mean show?"],
    [["run"], "missing required argument 'WORKFLOW'"],
    [["list", "--limit", "0"], "not a whole number from 1 to 200"],
    [["list", "--limit", "1e2"], "not a whole number from 1 to 200"],
    [["run", "hello", "--timeout", "soon"], "is not a duration"],
    [["run", "hello", "--budget", "max_step=3"], "did you mean max_steps?"],
    [["why"], "missing required argument 'RUN'"],
    [["why", "a", "b"], "too many arguments"],
    [["approve", "last", "--digest", "12"], "8 to 64 hexadecimal digits"],
    [["-q", "-v", "list"], "quiet and verbose"],
    [["repair", "last", "x", "--failed", "a", "--retry", "b"], "give one of"],
    [["repair", "last", "x", "--succeeded"], "belong together"],
    [["verify"], "give one run, or --all"],
  ])("%j is refused with what to do", async (words, sentence) => {
    const refused = await call(words);
    expect(refused.stderr).toContain(sentence);
    expect(refused.stderr).toMatch(/^holdfast: Cannot /);
    expect([refused.status, refused.stdout]).toEqual([2, ""]);
  });

  test("--json frames a refusal as one document, wherever it comes from", async () => {
    for (const words of [
      ["rnu", "--json"],
      ["--json", "show", "missing"],
      ["run", "hello", "--json"],
    ]) {
      const refused = await call(words);
      const { error } = JSON.parse(refused.stdout) as { error: { code: string; message: string } };
      expect(refused.status).toBe(2);
      expect(refused.stderr).toContain(error.message);
    }
  });

  test("--no-input and --input do not share a name; a flag beats the environment", async () => {
    const ran = await call(["--no-input", ...RUN_HELLO, "--session", "mine"], {
      env: { HOLDFAST_SESSION: "theirs", HOLDFAST_STORE: "sqlite:x" },
    });
    expect(ran.calls[0]).toEqual(["openWorkspace", expect.objectContaining({ session: "mine", store: "sqlite:x" })]);
    expect(ran.calls[1]).toEqual(["start", { workflow: "hello", args: { dir: "src" } }]);
  });
});

describe("exit statuses", () => {
  test.each([
    ["succeeded", 0],
    ["failed", 1],
    ["suspended", 3],
    ["cancelled", 4],
  ] as const)("a run that is %s is %i", async (status, exit) => {
    const failure =
      status === "failed" ? { failure: { code: "execution_failed" as const, message: "no", retryable: false } } : {};
    const ran = await call(RUN_HELLO, { run: makeRun({ status, ...failure }) });
    expect(ran.status).toBe(exit);
  });

  test.each(Object.entries(ERRORS).map(([code, row]) => [code as ErrorCode, row.exit] as const))(
    "%s is %i",
    async (code, exit) => {
      const refused = await call(["list", "--json"], {
        openError: new HoldfastError(code, "Cannot: it is so; do that"),
      });
      expect(refused.status).toBe(exit);
      expect(JSON.parse(refused.stdout)).toEqual({ error: { code, message: "Cannot: it is so; do that" } });
    },
  );

  test("anything else that is thrown is a bug: 70, with a report file and no values of flags", async () => {
    const { readFileSync, rmSync } = await import("node:fs");
    const broken = await call(["run", "hello", "--input", "dir=secret-value"], {
      start: async () => {
        throw new TypeError("undefined is not a function");
      },
    });
    expect(broken.status).toBe(70);
    const file = /send (\S+) with your report/.exec(broken.stderr)?.[1] ?? "";
    const report = readFileSync(file, "utf8");
    rmSync(file);
    expect(report).toContain("TypeError: undefined is not a function");
    expect(report).toContain("--input");
    expect(report).not.toContain("secret-value");
  });
});

describe("following", () => {
  test("the output goes to stdout, nothing else; quiet without a terminal", async () => {
    const ran = await call(RUN_HELLO, { run: makeRun({ output: { found: 3 } }), events: [makeEvent(1, "run_queued")] });
    expect(ran).toMatchObject({ status: 0, stdout: '{\n  "found": 3\n}\n', stderr: "" });
  });

  test("--json prints the run, whatever its status", async () => {
    for (const status of ["succeeded", "failed", "suspended"] as const) {
      const run = makeRun({ status });
      expect(JSON.parse((await call([...RUN_HELLO, "--json"], { run })).stdout)).toEqual(run);
    }
  });

  test("-v shows progress as plain lines, map items in one", async () => {
    const events = [
      makeEvent(1, "run_queued"),
      makeEvent(2, "step_started", { step_id: "find", attempt: 1, tool: "Glob" }),
      makeEvent(3, "step_completed", { step_id: "find" }),
      ...[0, 1, 2].flatMap((i) => [
        makeEvent(4 + 2 * i, "step_started", { step_id: `each@root[${i}]`, attempt: 1 }),
        makeEvent(5 + 2 * i, "step_completed", { step_id: `each@root[${i}]` }),
      ]),
    ];
    const ran = await call([...RUN_HELLO, "-v"], { events, run: makeRun({ last_sequence: 9 }) });
    expect(ran.stderr).toContain("▸ find\n✓ find  0 ms\n✓ each ×3  0 ms\n");
  });

  test("R-43 LANG=C shows no character that it does not know", async () => {
    const events = [
      makeEvent(1, "step_started", { step_id: "find" }),
      makeEvent(2, "step_completed", { step_id: "find" }),
    ];
    const ran = await call([...RUN_HELLO, "-v"], { events, run: makeRun({ last_sequence: 2 }), env: { LANG: "C" } });
    expect(ran.stderr).toContain("ok find");
    expect(ran.stderr).not.toMatch(/[^\x20-\x7e\n]/);
  });

  test("a wait is printed with the exact command, and the status is 3", async () => {
    const run = makeRun({ status: "suspended", waits: [makeApproval({ step_id: "publish@root[3]" })] });
    const ran = await call(["--store", "sqlite:/a b.db", ...RUN_HELLO], { run });
    expect(ran.status).toBe(3);
    expect(ran.stderr).toContain('"version": "1.10"');
    expect(ran.stderr).toContain("mutating");
    expect(ran.stderr).toContain(`holdfast --store 'sqlite:/a b.db' approve ${RUN_ID} w-4 --digest 9c1f00ab9c1f\n`);
    expect(ran.stderr).not.toContain("Type ");
  });

  test("R-40 what a run says cannot drive the terminal", async () => {
    const wait = makeApproval({ prompt: "Delete \u202ecod.tset\u001b[2J?", input: { note: "\u200b\u001b]0;x\u0007" } });
    const ran = await call(RUN_HELLO, { run: makeRun({ status: "suspended", waits: [wait] }) });
    expect(ran.stderr).toContain("\\u202ecod.tset\\u001b[2J?");
    expect(ran.stderr).toContain("\\u200b\\u001b]0;x\\u0007");
    expect(ran.stderr).not.toMatch(/[\u001b\u202e\u200b\u0007]/);
  });

  test("the first Ctrl-C pauses and says how to go on, the second leaves with 130; neither cancels", async () => {
    let interrupt = () => {};
    let ended = false;
    const run = makeRun({
      status: "suspended",
      waits: [{ wait_id: "w-9", type: "paused", run_id: RUN_ID, since_ms: 0 }],
    });
    const left = call(RUN_HELLO, {
      run,
      onSigint: (listener) => {
        interrupt = listener;
      },
      drive: async () => {
        if (ended) return run;
        interrupt();
        return await new Promise(() => {});
      },
      runs: {
        pause: async () => {
          ended = true;
          interrupt();
          return { run, pending: false };
        },
      },
    });
    const { status, stderr, calls } = await left;
    expect(status).toBe(3);
    expect(stderr).toContain(`holdfast resume ${RUN_ID}`);
    expect(calls).toContainEqual(["exit", 130]);
  });

  test("--timeout stops following with 3", async () => {
    const ran = await call([...RUN_HELLO, "--timeout", "1ms"], {
      run: makeRun({ status: "running" }),
      drive: () => new Promise(() => {}),
    });
    expect(ran).toMatchObject({ status: 3, stderr: expect.stringContaining("the time given is over") });
  });

  test("--detach leaves the run queued and says so", async () => {
    const left = await call([...RUN_HELLO, "--detach"], { run: makeRun({ status: "queued" }) });
    expect(left.calls).toContainEqual(["start", { workflow: "hello", args: { dir: "src" }, queue: true }]);
    expect(left).toMatchObject({
      status: 0,
      stdout: `${RUN_ID}\n`,
      stderr: expect.stringContaining("no worker process is started here"),
    });
  });
});

describe("deciding", () => {
  const waiting = makeRun({ status: "suspended", waits: [makeApproval()] });
  const approve = async () => ({ run: makeRun(), pending: false });

  test("R-40 without a terminal the digest is required, and the refusal carries the command", async () => {
    const refused = await call(["approve", "last"], { run: waiting });
    expect(refused.status).toBe(2);
    expect(refused.stderr).toContain("Cannot approve without a terminal");
    expect(refused.stderr).toContain("--digest 9c1f00ab9c1f");
  });

  test("R-40 the decision carries the digest and who decided", async () => {
    const sent: unknown[] = [];
    const decided = await call(["approve", "last", "--digest", "9C1F00AB", "--reason", "read it", "--detach"], {
      run: waiting,
      waits: {
        approve: async (...words) => {
          sent.push(...words);
          return await approve();
        },
      },
    });
    expect(sent).toEqual([
      RUN_ID,
      "w-4",
      { decided_by: expect.stringMatching(/^os:/), digest: "9c1f00ab", reason: "read it" },
    ]);
    expect(decided.status).toBe(0);
  });

  test.each([
    ["approve\n", ["approve"], 0],
    ["Approve \n", ["approve"], 0],
    ["\n", [], 3],
    ["y\n", [], 3],
    ["yes\n", [], 3],
    ["deny\n", [], 3],
    ["", [], 3],
  ] as const)("R-40 on a terminal approve wants the word; %j", async (stdin, sent, status) => {
    const said: string[] = [];
    const decided = await call(["approve", "last", "--detach"], {
      run: waiting,
      tty: true,
      env: { NO_COLOR: "1" },
      stdin,
      waits: {
        approve: async (_run, _wait, request) => {
          said.push("approve");
          expect(request.digest).toBe(makeApproval().digest);
          return await approve();
        },
      },
    });
    expect([said, decided.status]).toEqual([sent, status]);
    for (const shown of ["publish_package", '"version": "1.10"', "/work/shop", "mutating", makeApproval().digest ?? ""])
      expect(decided.stderr).toContain(shown);
  });

  test("R-40 more than 10,000 characters are decided only after all of it was opened", async () => {
    const run = makeRun({
      status: "suspended",
      waits: [makeApproval({ input: { text: "x".repeat(25_000), end: "THE END" } })],
    });
    const decide = (...answers: string[]) =>
      call(["approve", "last", "--detach"], { run, tty: true, env: { NO_COLOR: "1" }, waits: { approve }, answers });
    for (const answers of [["approve", "approve", "approve"], ["more", "", "approve"], ["more"]])
      expect((await decide(...answers)).status).toBe(3);
    const read = await decide("more", "more", "approve");
    expect([read.status, read.stderr.includes("THE END")]).toEqual([0, true]);
  });

  test("several open approvals are listed, and nothing is decided", async () => {
    const run = makeRun({
      status: "suspended",
      waits: [makeApproval(), makeApproval({ wait_id: "w-7", step_id: "b" })],
    });
    const refused = await call(["deny", "last", "--digest", "9c1f00ab"], { run });
    expect(refused.status).toBe(2);
    expect(refused.stderr).toContain(`holdfast deny ${RUN_ID} w-7`);
  });

  test("no open approval is status 1", async () => {
    expect((await call(["approve", "last", "--digest", "9c1f00ab"], { run: makeRun() })).status).toBe(1);
  });

  test("an approval of a child is found through its parent", async () => {
    const child = makeRun({ run_id: "child-1", status: "suspended", waits: [makeApproval({ run_id: "child-1" })] });
    const parent = makeRun({
      status: "suspended",
      waits: [{ wait_id: "w-2", type: "child", run_id: RUN_ID, child_run_id: "child-1", since_ms: 0 }],
    });
    const sent: unknown[] = [];
    const decided = await call(["approve", "last", "--digest", "9c1f00ab", "--detach"], {
      run: parent,
      runs: { inspect: async (id) => (id === "child-1" ? child : parent) },
      waits: {
        approve: async (runId) => {
          sent.push(runId);
          return await approve();
        },
      },
    });
    expect([sent, decided.status]).toEqual([["child-1"], 3]);
  });
});

describe("looking", () => {
  test("list shows ids that can be typed back, and the next page", async () => {
    const { suspension: _, ...run } = makeRun();
    const page = { runs: [{ ...run, wait_count: 0 }], next_cursor: "c2" };
    const listed = await call(["list", "--status", "failed,cancelled", "--limit", "5"], {
      runs: { list: async () => page },
    });
    expect(listed.stdout).toMatch(
      /^RUN +WORKFLOW +STATUS +STEPS +CREATED\n123456789abc +hello@1 +succeeded +1 +5 s ago\n$/,
    );
    expect(listed.stderr).toContain("holdfast list --status failed,cancelled --limit 5 --cursor c2");
  });

  test("events --json prints one event a line, page after page", async () => {
    const pages = [[makeEvent(1, "run_queued"), makeEvent(2, "run_started")], [makeEvent(3, "run_succeeded")], []];
    const asked: unknown[] = [];
    const shown = await call(["events", "last", "--json"], {
      runs: {
        events: async (_, query) => {
          asked.push(query?.since);
          return pages.shift() ?? [];
        },
      },
    });
    expect(
      shown.stdout
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { sequence: number }).sequence),
    ).toEqual([1, 2, 3]);
    expect(asked).toEqual([0, 2, 3]);
  });

  test("output prints the output and nothing around it, with the run's status", async () => {
    const run = makeRun({ output: { text: "a b", n: [1] } });
    expect((await call(["output", "last", "--pointer", "/text", "--raw"], { run })).stdout).toBe("a b\n");
    expect((await call(["output", "last", "--pointer", "/n", "--json"], { run })).stdout).toBe("[1]\n");
    expect((await call(["output", "last", "--pointer", "/none"], { run })).status).toBe(2);
    const none = await call(["output", "last"], { run: makeRun({ status: "suspended" }) });
    expect([none.status, none.stdout]).toEqual([3, ""]);
  });

  test("check prints file, line and column, and is 2 for errors only", async () => {
    const diagnostic = {
      file: "a.yaml",
      line: 3,
      column: 5,
      code: "unknown_key",
      message: "unknown key `tols`",
      hint: "tool?",
    } as const;
    const bad = await call(["check", "a.yaml"], {
      root: { checkFiles: async () => [{ ...diagnostic, severity: "error" }] },
    });
    expect(bad.stdout).toBe("a.yaml:3:5: error: unknown key `tols` (unknown_key)\n  hint: tool?\n");
    expect(bad.status).toBe(2);
    const warned = await call(["check", "a.yaml", "--json"], {
      root: { checkFiles: async () => [{ ...diagnostic, severity: "warning" }] },
    });
    expect([warned.status, JSON.parse(warned.stdout)]).toEqual([
      0,
      { ok: true, diagnostics: [{ ...diagnostic, severity: "warning" }] },
    ]);
  });

  test("R-35 check, preview and workflows open no store", async () => {
    for (const words of [["check"], ["workflows"], ["workflows", "show", "hello"]])
      expect((await call(words)).calls[0]).toEqual(["openWorkspace", expect.objectContaining({ needStore: false })]);
  });
});
