/** `notify`: told once it is durable, at least once, not twice; nothing private leaves, and nothing waits for it. */

import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { checkConfig } from "../../config/schema.ts";
import { createHoldfast, defineTool, type Holdfast, HoldfastError, type HoldfastOptions } from "../../index.ts";
import type { Notice } from "./index.ts";

const leaf = (step: string) => ({ type: "step", step });
const plan = (id: string, steps: object[], node: object) => ({
  workflow_schema: 1,
  id,
  revision: 1,
  steps,
  plan: node,
});
const WORKFLOWS = [
  plan(
    "gate",
    [{ id: "gate", type: "approval", prompt: "PRIVATE question", details: { word: "PRIVATE details" } }],
    leaf("gate"),
  ),
  plan(
    "soon",
    [{ id: "soon", type: "approval", prompt: "Soon?", deadline_ms: 600_000, warn_ms: 599_700 }],
    leaf("soon"),
  ),
  plan("nap", [{ id: "nap", type: "wait", for_ms: 3_600_000 }], leaf("nap")),
  plan(
    "ask",
    [{ id: "put", type: "tool", tool: "put", args: { word: "PRIVATE input" }, capabilities: ["put"] }],
    leaf("put"),
  ),
  plan(
    "two",
    [
      { id: "a", type: "approval", prompt: "A?" },
      { id: "n", type: "input", prompt: "N?", schema: { type: "integer" } },
    ],
    { type: "parallel", nodes: [leaf("a"), leaf("n")] },
  ),
];

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

class Ear {
  readonly heard: { readonly notice: Notice; readonly headers: IncomingHttpHeaders; readonly text: string }[] = [];
  /** Statuses to answer with; 200 after that. `hang`: never. */
  readonly answers: (number | "hang")[] = [];
  url = "";
  #waiting: (() => void)[] = [];

  async open(): Promise<this> {
    const server = createServer((request, response) => {
      let text = "";
      request.on("data", (chunk: Buffer) => (text += chunk.toString("utf8")));
      request.on("end", () => {
        const answer = this.answers.shift() ?? 200;
        this.heard.push({ notice: JSON.parse(text) as Notice, headers: request.headers, text });
        for (const wake of this.#waiting.splice(0)) wake();
        if (answer !== "hang") response.writeHead(answer).end();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    ends.push(
      () => void server.closeAllConnections(),
      () => void server.close(),
    );
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/told?to=ops`;
    return this;
  }

  async count(n: number): Promise<void> {
    while (this.heard.length < n) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

interface Place {
  readonly folder: string;
  open(options: HoldfastOptions): Promise<Holdfast>;
}

async function place(): Promise<Place> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "holdfast notify ")));
  ends.push(() => rm(folder, { recursive: true, force: true }));
  const put = defineTool({
    name: "put",
    description: "Puts.",
    input: { type: "object" },
    capabilities: ["put"],
    run: () => ({ ok: true }),
  });
  return {
    folder,
    async open(options) {
      const holdfast = await createHoldfast({
        workspace: folder,
        store: `sqlite:${join(folder, "s.db")}`,
        trust: true,
        tools: [put],
        workflows: WORKFLOWS,
        ...options,
      });
      ends.push(() => holdfast.close());
      return holdfast;
    },
  };
}

describe("a webhook", () => {
  test("R-28 hears of a wait again when its warning is due, and then no more; a process that starts tells it once", async () => {
    const { open } = await place();
    const ear = await new Ear().open();
    const holdfast = await open({ notify: { webhook: { url: ear.url } } });
    const { run_id } = await holdfast.start({ workflow: "soon", args: {} });
    await ear.count(2);
    expect(ear.heard.map(({ notice }) => [notice.run_id, notice.warning, notice.type])).toEqual([
      [run_id, undefined, "approval"],
      [run_id, true, "approval"],
    ]);
    await holdfast.close();
    await open({ notify: { webhook: { url: ear.url } } });
    await ear.count(3);
    expect(ear.heard[2]?.notice).toMatchObject({ run_id, warning: true });
  });

  test("hears of each wait once, with how to answer, and of nothing private", async () => {
    const { open } = await place();
    const ear = await new Ear().open();
    process.env.HOLDFAST_TEST_HOOK_KEY = "s3cret-key";
    ends.push(() => void delete process.env.HOLDFAST_TEST_HOOK_KEY);
    const holdfast = await open({
      secrets: { env: { hook: "HOLDFAST_TEST_HOOK_KEY" } },
      notify: { webhook: { url: ear.url, headers: { Authorization: { $secret: "hook" } } } },
    });
    await holdfast.run({ workflow: "gate" });
    await holdfast.start({ workflow: "nap" });
    const run = await holdfast.run({ workflow: "ask" });
    const two = await holdfast.run({ workflow: "two" });
    await ear.count(4);
    expect(ear.heard.map(({ notice }) => notice.type).sort()).toEqual([
      "approval",
      "approval",
      "input",
      "tool_approval",
    ]);
    const told = ear.heard.find(({ notice }) => notice.run_id === run.run_id);
    const [wait] = run.waits;
    expect(told?.notice).toEqual({
      version: 1,
      wait_id: wait?.wait_id,
      type: "tool_approval",
      run_id: run.run_id,
      step_id: "put",
      since_ms: wait?.since_ms,
      workflow_id: "ask",
      workflow_revision: 1,
      session_id: run.session_id,
      commands: [
        `holdfast why ${run.run_id}`,
        `holdfast approve ${run.run_id} ${wait?.wait_id}`,
        `holdfast deny ${run.run_id} ${wait?.wait_id}`,
      ],
    });
    expect(told?.headers.authorization).toBe("s3cret-key");
    const everything = ear.heard.map(({ text }) => text).join();
    expect(everything).not.toMatch(/PRIVATE|s3cret/);
    expect(ear.heard.find(({ notice }) => notice.type === "input")?.notice.commands[1]).toBe(
      `holdfast answer ${two.run_id} ${two.waits.find(({ type }) => type === "input")?.wait_id}`,
    );
  }, 20_000);

  test("is asked again after a failure, given up in time, and never holds the run up", async () => {
    const { open } = await place();
    const ear = await new Ear().open();
    ear.answers.push("hang", 500);
    const logged: string[] = [];
    const holdfast = await open({
      notify: { webhook: { url: ear.url }, timeout_ms: 100 },
      log: (level, message, details) => void logged.push(`${level} ${message} ${String(details.why)}`),
    });
    const run = await holdfast.run({ workflow: "gate" });
    await ear.count(1);
    // It hangs, and the run is decided meanwhile on another way: still open waits are told again, this one is.
    await ear.count(3);
    expect(new Set(ear.heard.map(({ notice }) => notice.run_id))).toEqual(new Set([run.run_id]));
    expect(logged).toEqual([
      "warn a wait could not be told of it did not end in time",
      "warn a wait could not be told of it answered 500",
    ]);
    await holdfast.waits.approve(run.run_id, undefined, { decided_by: "os:anna" });
    expect((await holdfast.runs.drive(run.run_id)).status).toBe("succeeded");
  }, 20_000);

  test("hears again from the next process of what is still open, and from a process that does not work of nothing", async () => {
    const { open } = await place();
    const quiet = await open({ worker: false, notify: { webhook: { url: "http://127.0.0.1:1/" } } });
    const open1 = await quiet.run({ workflow: "gate" });
    const over = await quiet.run({ workflow: "gate" });
    await quiet.waits.deny(over.run_id, undefined, { decided_by: "os:anna" });
    await quiet.close();
    const ear = await new Ear().open();
    const first = await open({ notify: { webhook: { url: ear.url } } });
    await ear.count(1);
    await first.close();
    await open({ notify: { webhook: { url: ear.url }, on: ["approval"] } });
    await ear.count(2);
    expect(ear.heard.map(({ notice }) => notice.run_id)).toEqual([open1.run_id, open1.run_id]);
  });
});

describe("a command", () => {
  test("reads the notice on its standard input, with no secret of the environment", async () => {
    const { open, folder } = await place();
    const script = join(folder, "tell.mjs");
    await writeFile(
      script,
      `import { writeFileSync, renameSync } from "node:fs";\nlet text = "";\nfor await (const chunk of process.stdin) text += chunk;\nwriteFileSync("told.part", JSON.stringify({ text, args: process.argv.slice(2), env: Object.keys(process.env) }));\nrenameSync("told.part", "told.json");\n`,
    );
    process.env.HOLDFAST_TEST_SECRET = "s3cret";
    ends.push(() => void delete process.env.HOLDFAST_TEST_SECRET);
    const logged: unknown[] = [];
    const holdfast = await open({
      notify: { command: [process.execPath, script, "to ops; x"] },
      log: (...line) => void logged.push(line),
    });
    const run = await holdfast.run({ workflow: "gate" });
    const told = join(folder, "told.json");
    await expect.poll(() => existsSync(told), { timeout: 8_000 }).toBe(true);
    const { text, args, env } = JSON.parse(await readFile(told, "utf8")) as {
      text: string;
      args: string[];
      env: string[];
    };
    expect([text.endsWith("\n"), (JSON.parse(text) as Notice).run_id, args]).toEqual([true, run.run_id, ["to ops; x"]]);
    expect(env).not.toContain("HOLDFAST_TEST_SECRET");
    expect(logged).toEqual([]);
  }, 15_000);

  test("that hangs is killed with all that it started, and closing does not wait for it", async () => {
    const { open, folder } = await place();
    const pids = join(folder, "pids");
    const holdfast = await open({
      notify: {
        command: ["/bin/sh", "-c", `sleep 600 & echo $! >> '${pids}'; echo up >> '${pids}'; wait`],
        timeout_ms: 60_000,
      },
    });
    await holdfast.run({ workflow: "gate" });
    await expect
      .poll(async () => (existsSync(pids) ? await readFile(pids, "utf8") : ""), { timeout: 8_000 })
      .toContain("up");
    const begun = performance.now();
    await holdfast.close();
    expect(performance.now() - begun).toBeLessThan(5_000);
    const pid = Number((await readFile(pids, "utf8")).split("\n")[0]);
    await expect.poll(() => isAlive(pid), { timeout: 5_000 }).toBe(false);
  }, 20_000);
});

/** A process that nobody has collected yet is dead all the same. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== "linux" || !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

describe("what is given", () => {
  test.each([
    [{}, "neither command nor webhook"],
    [{ command: [] }, "no list of words"],
    [{ webhook: { url: "ftp://x/" } }, "no http or https address"],
    [{ webhook: { url: "https://me:pw@x.test/" } }, "user name or password"],
    [{ webhook: { url: "http://x.test/", headers: { Authorization: "k" } } }, "unencrypted"],
    [{ webhook: { url: "https://x.test/", headers: { "a b": "k" } } }, "no header"],
    [{ command: ["x"], on: ["naps"] }, "no type of wait"],
    [{ command: ["x"], timeout_ms: 0 }, "whole number"],
    [{ command: ["x"], retries: 3 }, "no such key"],
  ])("%j is refused before anything is opened: %s", async (notify, words) => {
    const { open } = await place();
    const error = await open({ notify: notify as NonNullable<HoldfastOptions["notify"]> }).catch(
      (thrown: unknown) => thrown,
    );
    expect(HoldfastError.is(error) && [error.code, error.message.includes(words)]).toEqual(["usage", true]);
  });

  test("the configuration's keys are closed", () => {
    expect(
      checkConfig({
        notify: {
          command: ["tell"],
          on: ["approval"],
          webhook: { url: "https://x.test/", headers: { A: { $secret: "k" } } },
        },
      }).faults,
    ).toBeUndefined();
    const messages = (notify: unknown) =>
      checkConfig({ notify }).faults?.map(({ message, hint }) => `${message} ${hint ?? ""}`);
    expect(messages({ comand: ["x"] })).toEqual([
      '`notify.comand` is no key of the configuration did you mean "command"?',
    ]);
    expect(messages({ webhook: { url: "https://x.test", header: {} } })).toEqual([
      '`notify.webhook.header` is no key of the configuration did you mean "headers"?',
    ]);
    expect(messages({ command: ["x"], on: ["aproval"] })?.[0]).toContain('did you mean "approval"?');
  });
});
