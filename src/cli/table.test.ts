import { expect, test } from "vitest";
import { table } from "./table.ts";

const COLUMNS = [
  { title: "NAME", flexible: true },
  { title: "N", align: "right" },
] as const;

test("columns are as wide as their content", () => {
  expect(
    table(
      COLUMNS,
      [
        ["漢字", "1"],
        ["abc", "200"],
      ],
      80,
    ),
  ).toEqual(["NAME    N", "漢字    1", "abc   200"]);
});

test("what is too wide is cut in the flexible column, and nothing is cut in a pipe", () => {
  const row = ["a-very-long-workflow-name", "1"];
  expect(table(COLUMNS, [row], 16)).toEqual(["NAME           N", "a-very-long-…  1"]);
  expect(table(COLUMNS, [row], Number.POSITIVE_INFINITY)[1]).toContain("a-very-long-workflow-name");
});
