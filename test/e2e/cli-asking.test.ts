// An input asked on a terminal, with the real engine and store below: only the terminal is in memory.
import { afterEach, expect, test } from "vitest";
import { call, type Script } from "../../src/cli/cli.fixture.ts";
import * as root from "../../src/index.ts";
import { Place } from "./cli.fixture.ts";

const ASK = `steps:
  - id: ask
    type: input
    prompt: How many?
    schema:
      type: object
      required: [amount]
      additionalProperties: false
      properties: {amount: {type: integer, minimum: 1}, size: {enum: [small, large]}}
plan: {type: step, step: ask}
`;
const NEST = `steps:
  - {id: below, type: workflow, workflow_id: order, revision: 1, args: {}}
  - {id: name, type: input, prompt: Which name?, schema: {type: string}}
plan: {type: sequence, nodes: [{type: step, step: below}, {type: step, step: name}]}
`;

const places: Place[] = [];

function shop(): Place {
  const place = new Place();
  places.push(place);
  for (const [id, body] of [
    ["order", ASK],
    ["nest", NEST],
  ])
    place.write(`.holdfast/workflows/${id}.yaml`, `workflow_schema: 1\nid: ${id}\nrevision: 1\n${body}`);
  return place;
}

function typing(place: Place, words: readonly string[], answers: Script["answers"] & object) {
  return call(["--workspace", place.folder, ...words], {
    root,
    tty: true,
    env: { ...place.env, NO_COLOR: "1" },
    answers,
  });
}

afterEach(() => {
  for (const place of places.splice(0)) place.remove();
});

test("GS-36 asked while the run is followed, of a child first; what does not fit is asked again", async () => {
  const ran = await typing(shop(), ["run", "nest"], ["0", "3", "small", "Ann Lee"]);
  expect(ran.stderr).toContain("does not fit at /amount: must be at least 1");
  expect([ran.status, ran.stdout]).toEqual([0, '"Ann Lee"\n']);
});

test("Enter leaves the run as it is; `answer` asks the same way and goes on", async () => {
  const place = shop();
  const left = await typing(place, ["run", "order"], [""]);
  expect([left.status, left.stderr]).toEqual([3, expect.stringMatching(/answer \S+ w-\d+ --input KEY=VALUE/)]);
  const still = await typing(place, ["answer", "last"], ["3", "\u0003"]);
  expect([still.status, still.stderr]).toEqual([3, expect.stringContaining("Nothing was answered")]);
  const done = await typing(place, ["answer", "last"], ["3", ""]);
  expect([done.status, JSON.parse(done.stdout)]).toEqual([0, { amount: 3 }]);
});

test("C36 another process answers while the question is open: it stands, and the run is followed to its end", async () => {
  const place = shop();
  const elsewhere = async () => {
    const first = await place.call("answer", "last", "--input", "amount=7");
    expect([first.status, first.stderr]).toEqual([0, expect.any(String)]);
    return "large";
  };
  const ran = await typing(place, ["run", "order"], ["3", elsewhere]);
  expect(ran.stderr).toContain("answered meanwhile by os:");
  expect([ran.status, JSON.parse(ran.stdout)]).toEqual([0, { amount: 7 }]);
});
