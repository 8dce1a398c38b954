// The demonstration as a newcomer meets it: it works anywhere, kills its own worker process, and leaves nothing.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { Place } from "./cli.fixture.ts";

interface DemoDoc {
  readonly run_id: string;
  readonly killed_at_sequence: number;
  readonly kept: number;
  readonly repeated: number;
  readonly output: { readonly files: number; readonly markers: number; readonly without_test: readonly string[] };
}

function project(files: number): Place {
  const place = new Place();
  for (let i = 0; i < files; i++) place.write(`src/part-${i % 3}/f${i}.ts`, `export const n = ${i};\n// FIXME ${i}\n`);
  place.write("src/part-0/f0.test.ts", "// nothing\n");
  place.write("dist/f0.js", "// TODO generated\n");
  return place;
}

test("R-43 it kills its worker process in the middle, keeps what was done and ends with the report", async () => {
  const place = project(60);
  const temporary = path.join(place.folder, "tmp dir");
  mkdirSync(temporary);
  place.env.TMPDIR = temporary;
  const shown = await place.call("demo", "--fast", "--json");
  expect(shown.status, shown.stderr).toBe(0);
  const demo = JSON.parse(shown.stdout) as DemoDoc;
  expect(demo.output).toMatchObject({ files: 61, markers: 60, tested: 1 });
  expect(demo.output.without_test).toHaveLength(59);
  expect(demo.killed_at_sequence).toBeGreaterThan(0);
  expect(demo.kept).toBeGreaterThan(0);
  expect(demo.repeated).toBeGreaterThan(0);
  expect(shown.stderr).toContain("Killed the worker process");
  expect(readdirSync(temporary), "no state is left").toEqual([]);
  expect((await place.call("trust", "--list")).stdout, "no trust is left").toBe("");
  place.remove();
});

test("--keep keeps its journal, and the printed command reads it", async () => {
  const place = project(8);
  const shown = await place.call("demo", "--fast", "--keep");
  expect(shown.status, shown.stderr).toBe(0);
  const store = /--store (\S+) show last/.exec(shown.stderr)?.[1] ?? "";
  expect(await place.json("--store", store, "show", "last")).toMatchObject({ status: "succeeded" });
  spawnSync("rm", ["-r", path.dirname(store.replace("sqlite:", ""))]);
  place.remove();
});

test("a folder without source files is told so", async () => {
  const place = new Place();
  const shown = await place.call("demo", "--fast");
  expect([shown.status, shown.stdout]).toEqual([0, expect.stringContaining("No source files here")]);
  place.remove();
});

test("R-43 its first line comes within a second", async () => {
  const place = project(3);
  const firstLine = async () => {
    const before = performance.now();
    const going = place.start(["demo", "--fast"]);
    await going.said("Holdfast at work on the files of ");
    const took = performance.now() - before;
    going.child.kill("SIGTERM");
    await going.ended;
    return took;
  };
  // The first start may build the command; the best of three is what the machine can do.
  const times = [await firstLine(), await firstLine(), await firstLine()];
  expect(Math.min(...times)).toBeLessThan(1_000);
  place.remove();
});
