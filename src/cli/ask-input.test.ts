import { describe, expect, test } from "vitest";
import { HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import type { Wait } from "../domain/run.ts";
import { type Called, call, makeApproval, makeEvent, makeRun, NOW, RUN_ID, type Script } from "./cli.fixture.ts";

const ORDER: JsonObject = {
  type: "object",
  required: ["amount", "size"],
  additionalProperties: false,
  properties: {
    amount: { type: "integer", minimum: 1, description: "How many to send" },
    size: { enum: ["small", "large"] },
    express: { type: "boolean" },
    note: { type: "string" },
  },
};

function makeInput(schema: JsonObject, changes: Partial<Wait> = {}): Wait {
  return {
    wait_id: "w-9",
    type: "input",
    run_id: RUN_ID,
    step_id: "ask",
    since_ms: NOW - 1_000,
    prompt: "How many?",
    schema,
    ...changes,
  };
}

interface Asked extends Called {
  /** Each answer that was sent: run, wait and value. */
  readonly sent: readonly unknown[][];
}

/**
 * Follows a run that waits for `waits`, each until it is answered, with a person who types `answers`.
 * @param refusals thrown by the first answers that are sent
 */
async function asked(
  waits: readonly Wait[],
  answers: Script["answers"] & object,
  script: Script & { refusals?: HoldfastError[]; words?: readonly string[] } = {},
): Promise<Asked> {
  const { refusals = [], words = ["run", "hello", "--input", "dir=src"], ...rest } = script;
  const sent: unknown[][] = [];
  let open = [...waits];
  const now = () => (open.length === 0 ? makeRun({ output: "done" }) : makeRun({ status: "suspended", waits: open }));
  const done = (waitId: string | undefined) => {
    open = open.filter(({ wait_id }) => wait_id !== waitId);
    return { run: now(), pending: false };
  };
  const called = await call(words, {
    run: now(),
    tty: true,
    env: { NO_COLOR: "1" },
    drive: async () => now(),
    ...(rest.stdin === undefined ? { answers } : {}),
    ...rest,
    waits: {
      answer: async (runId, waitId, { value }) => {
        sent.push([runId, waitId, value]);
        const refusal = refusals.shift();
        if (refusal !== undefined && refusal.code !== "input") done(waitId);
        if (refusal !== undefined) throw refusal;
        return done(waitId);
      },
      approve: async (_runId, waitId) => done(waitId),
      ...rest.waits,
    },
  });
  return { ...called, sent };
}

const valuesOf = ({ sent }: Asked) => sent.map(([, , value]) => value);

describe("an input is asked inline while a run is followed", () => {
  test("an object member by member, what has to be there first; what may be left out is left out by Enter", async () => {
    const ran = await asked([makeInput(ORDER)], ["3", "large", "yes", ""]);
    expect([ran.status, ran.sent]).toEqual([0, [[RUN_ID, "w-9", { amount: 3, size: "large", express: true }]]]);
    for (const shown of [
      "question     How many?",
      "amount (integer, minimum 1, required): How many to send",
      "size (one of small | large, required)",
      "express (boolean, may be left out)",
      "note (string, may be left out)",
      "express: boolean; true or false (Enter leaves it out)",
      "amount: integer, minimum 1 (Enter alone is No: nothing is answered)",
    ])
      expect(ran.stderr).toContain(shown);
    expect(ran.stdout).toBe('"done"\n');
  });

  test("the values are read as those of --input are", async () => {
    const texts: JsonObject = { type: "object", required: ["version"], properties: { version: { type: "string" } } };
    expect(valuesOf(await asked([makeInput(texts)], ["1.10"]))).toEqual([{ version: "1.10" }]);
    expect(valuesOf(await asked([makeInput(texts)], [' "x" true']))).toEqual([{ version: ' "x" true' }]);
  });

  test.each<[JsonObject, string, Json]>([
    [{ type: "string" }, "1.10 ", "1.10 "],
    [{ type: "array", items: { type: "string" } }, '["a"]', ["a"]],
    [{}, "some words", "some words"],
    [{}, '{"a":1}', { a: 1 }],
    [{ type: "object" }, "{}", {}],
    [{ type: ["object", "null"], properties: { a: {} } }, "null", null],
    [{ type: "boolean" }, "No", false],
    [{ type: "boolean" }, "true", true],
    [{ enum: ["1", 1] }, '"1"', "1"],
    [{ "x-holdfast-secret": true, type: "string" }, '{"$secret":"key"}', { $secret: "key" }],
  ])("one line for %j: %s", async (schema, line, value) => {
    const ran = await asked([makeInput(schema)], [line]);
    expect([ran.status, valuesOf(ran)]).toEqual([0, [value]]);
  });

  test.each<[JsonObject, string[]]>([
    [ORDER, ["", "large", "yes", "mind"]],
    [ORDER, ["3", "  "]],
    [ORDER, ["3", "large", "\u0003"]],
    [ORDER, ["3", "large"]],
    [{ type: "string" }, [""]],
    [{ type: "string" }, []],
    [{ type: "object", properties: { a: {}, b: {} } }, ["", ""]],
  ])("Enter, Ctrl-C and end of input leave the wait as it is: %#", async (schema, answers) => {
    const ran = await asked([makeInput(schema)], answers);
    expect([ran.status, ran.sent]).toEqual([3, []]);
    expect(ran.stderr).toContain(`holdfast answer ${RUN_ID} w-9 --input`);
  });

  test("what does not fit is asked again at once, and the place is named", async () => {
    const ran = await asked([makeInput(ORDER)], ["many", "0", "3", "huge", "small", "maybe", "false", ""]);
    expect([ran.status, valuesOf(ran)]).toEqual([0, [{ amount: 3, size: "small", express: false }]]);
    expect(ran.stderr).toContain('Cannot read amount: it must be an integer and "many" is plain text');
    expect(ran.stderr).toContain("does not fit at /amount: must be at least 1");
    expect(ran.stderr).toContain('does not fit at /size: must be one of "small", "large"');
    expect(ran.stderr).toContain('Cannot read express: it must be a boolean and "maybe" is plain text');
    const nested = await asked([makeInput({ type: "array", items: { type: "string" } })], ["[1]", "[]"]);
    expect([nested.stderr, valuesOf(nested)]).toEqual([expect.stringContaining("does not fit at /0"), [[]]]);
  });

  test("what the run refuses is asked again: only that place, and all of it where none is named", async () => {
    const refusals = ["/size", ""].map(
      (path) =>
        new HoldfastError("input", `Cannot answer: it does not fit at ${path || "/"}; \u202ecorrect it`, {
          details: { path },
        }),
    );
    const ran = await asked([makeInput(ORDER)], ["3", "large", "yes", "", "small", "4", "large", "", "mind"], {
      refusals,
    });
    expect([ran.status, valuesOf(ran)]).toEqual([
      0,
      [
        { amount: 3, size: "large", express: true },
        { amount: 3, size: "small", express: true },
        { amount: 4, size: "large", note: "mind" },
      ],
    ]);
    expect(ran.stderr).toContain("does not fit at /size; \\u202ecorrect it");
  });

  test("five answers that do not fit are No, here and there", async () => {
    const typed = await asked(
      [makeInput(ORDER)],
      Array.from({ length: 9 }, () => "many"),
    );
    expect([typed.status, typed.sent, typed.stderr.split("Cannot read amount").length - 1]).toEqual([3, [], 5]);
    expect(typed.stderr).toContain("nothing is answered and nothing is lost");
    const refusals = Array.from({ length: 9 }, () => new HoldfastError("input", "Cannot answer: no; try again"));
    const refused = await asked(
      [makeInput({})],
      Array.from({ length: 9 }, () => "x"),
      { refusals },
    );
    expect([refused.status, refused.sent.length]).toEqual([3, 5]);
  });

  test("answered meanwhile: it says so and goes on following", async () => {
    const refusals = [new HoldfastError("conflict", "Cannot answer: it was answered meanwhile by os:eve; load again")];
    const ran = await asked([makeInput({ type: "string" })], ["mine"], { refusals });
    expect([ran.status, ran.stdout]).toEqual([0, '"done"\n']);
    expect(ran.stderr).toContain("answered meanwhile by os:eve");
    const gone = [new HoldfastError("terminal", "Cannot answer: the run has ended; nothing is left to do")];
    expect((await asked([makeInput({ type: "string" })], ["mine"], { refusals: gone })).status).toBe(0);
    const broken = [new HoldfastError("storage", "Cannot write: the disk is full; make room")];
    expect((await asked([makeInput({ type: "string" })], ["mine"], { refusals: broken })).status).toBe(5);
  });

  test("several are asked in turn, the oldest first; No to one ends it", async () => {
    const waits = [
      makeInput({ type: "string" }, { wait_id: "w-12", since_ms: NOW - 10 }),
      makeApproval({ since_ms: NOW - 30 }),
      makeApproval({ wait_id: "w-5", since_ms: NOW - 20 }),
    ];
    const ran = await asked(waits, ["approve", "approve", "name"]);
    expect([ran.status, ran.sent]).toEqual([0, [[RUN_ID, "w-12", "name"]]]);
    const left = await asked(waits, ["approve", "", "name"]);
    expect([left.status, left.sent]).toEqual([3, []]);
  });

  test("an input of a child is answered there", async () => {
    const wait = makeInput({ type: "string" }, { run_id: "child-1" });
    let answered = false;
    const parent = () =>
      makeRun(
        answered
          ? {}
          : {
              status: "suspended",
              waits: [{ wait_id: "w-2", type: "child", run_id: RUN_ID, child_run_id: "child-1", since_ms: 0 }],
            },
      );
    const ran = await asked([], ["name"], {
      drive: async () => parent(),
      runs: { inspect: async (id) => makeRun({ run_id: id, status: "suspended", waits: [wait] }) },
      waits: {
        answer: async (runId, waitId, { value }) => {
          expect([runId, waitId, value]).toEqual(["child-1", "w-9", "name"]);
          answered = true;
          return { run: makeRun({ run_id: "child-1" }), pending: false };
        },
      },
    });
    expect([ran.status, answered]).toEqual([0, true]);
  });

  test("R-40 more than 10,000 characters are answered only after all of it was opened; nothing hidden reaches the terminal", async () => {
    const wait = makeInput(
      {
        type: "object",
        required: ["a\u202e"],
        properties: { "a\u202e": { description: "x\n  b\u001b[2J", enum: ["\u200by"] } },
      },
      { prompt: "Delete \u202ecod.tset?", details: `${"x".repeat(12_000)}THE END` },
    );
    const left = await asked([wait], ["\u200by", "\u200by"]);
    expect([left.status, left.sent]).toEqual([3, []]);
    const read = await asked([wait], ["more", "\u200by"]);
    expect([read.status, valuesOf(read)]).toEqual([0, [{ "a\u202e": "\u200by" }]]);
    for (const shown of ["Delete \\u202ecod.tset?", "THE END", "a\\u202e (one of \\u200by, required): x b\\u001b[2J"])
      expect(read.stderr).toContain(shown);
    expect(read.stderr.slice(0, read.stderr.indexOf("Enter alone"))).not.toMatch(/\u202e|\u200b|\u001b\[2J/);
  });

  test.each([
    ["no terminal", { tty: false }, []],
    ["CI", { env: { CI: "1" } }, []],
    ["--no-input", {}, ["--no-input"]],
    ["--json", {}, ["--json"]],
  ] as const)("%s: nothing is asked, the exact command is there", async (_name, script, flags) => {
    const words = [...flags, "run", "hello", "--input", "dir=src"];
    const ran = await asked([makeInput(ORDER)], ["3"], { ...script, words });
    expect([ran.status, ran.sent]).toEqual([3, []]);
    expect(ran.stderr).toContain(`answer ${RUN_ID} w-9 --input KEY=VALUE`);
    expect(ran.stderr).not.toContain("Enter");
    if (flags[0] === "--json") expect(JSON.parse(ran.stdout)).toMatchObject({ status: "suspended" });
  });

  test("what went on before is shown before the question, and nothing is written into it", async () => {
    const late = async function* () {
      await new Promise(setImmediate);
      yield makeEvent(2, "step_started", { step_id: "look" });
      yield makeEvent(3, "step_completed", { step_id: "look" });
    };
    const ran = await asked([makeInput({ type: "string" })], ["name"], { runs: { follow: late } });
    expect(ran.stderr.indexOf("\u2713 look")).toBeGreaterThan(-1);
    expect(ran.stderr.indexOf("\u2713 look")).toBeLessThan(ran.stderr.indexOf("How many?"));
  });

  test("a first Ctrl-C from outside ends the question and pauses the run", async () => {
    let interrupt = () => {};
    const ran = await asked(
      [makeInput(ORDER)],
      [
        "3",
        async () => {
          interrupt();
          return "large";
        },
        "yes",
        "mind",
      ],
      {
        onSigint: (listener) => {
          interrupt = listener;
        },
        runs: { pause: async () => ({ run: makeRun({ status: "suspended" }), pending: false }) },
      },
    );
    expect([ran.status, ran.sent]).toEqual([3, []]);
    expect(ran.stderr).toContain(`holdfast resume ${RUN_ID}`);
  });
});

describe("answer", () => {
  const words = ["answer", "last"];

  test("on a terminal it asks the same way, then follows", async () => {
    const waits = [makeInput(ORDER), makeInput({ type: "string" }, { wait_id: "w-12", since_ms: NOW })];
    const ran = await asked(waits, ["3", "small", "", "", "name"], { words: ["answer", "last", "w-9"] });
    expect([ran.status, ran.sent]).toEqual([
      0,
      [
        [RUN_ID, "w-9", { amount: 3, size: "small" }],
        [RUN_ID, "w-12", "name"],
      ],
    ]);
  });

  test("No leaves the wait and says how to answer later", async () => {
    const ran = await asked([makeInput({ type: "array" })], [""], { words });
    expect([ran.status, ran.sent]).toEqual([3, []]);
    expect(ran.stderr).toContain(
      `Nothing was answered. To answer later:\n  holdfast answer ${RUN_ID} w-9 --input-file FILE`,
    );
  });

  test("who was first is a conflict, as it is for approve", async () => {
    const refusals = [new HoldfastError("conflict", "Cannot answer: it was answered meanwhile by os:eve; load again")];
    expect((await asked([makeInput({ type: "string" })], ["mine"], { words, refusals })).status).toBe(1);
  });

  test("what is given is not asked for; without a terminal what is missing is listed with the command", async () => {
    const given = await asked([makeInput(ORDER)], [], {
      words: [...words, "--input", "amount=3", "--input", "size=small"],
    });
    expect([given.status, valuesOf(given)]).toEqual([0, [{ amount: 3, size: "small" }]]);
    const file = await asked([makeInput({})], [], {
      words: [...words, "--input-file", "-"],
      tty: false,
      stdin: "null",
    });
    expect([file.status, valuesOf(file)]).toEqual([0, [null]]);
    for (const script of [{ words, tty: false }, { words: ["--no-input", ...words] }]) {
      const refused = await asked([makeInput(ORDER)], ["3"], script);
      expect([refused.status, refused.sent]).toEqual([2, []]);
      expect(refused.stderr).toContain("Cannot answer: it needs amount (integer: How many to send), size (string)");
      expect(refused.stderr).toContain("answer last --input amount=1 --input size=TEXT");
    }
  });
});
