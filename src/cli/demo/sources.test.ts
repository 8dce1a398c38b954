import { describe, expect, test } from "vitest";
import { MOST_FILES, pickSources, summarise } from "./sources.ts";

describe("picking", () => {
  test("leaves out what was generated or is hidden", () => {
    const files = ["a.ts", "dist/a.js", "src/.cache/x.ts", "web/node_modules/y/i.js", "src/b.ts"];
    expect(pickSources(files)).toEqual({ found: true, files: ["a.ts", "src/b.ts"], left_out: 3 });
    expect(pickSources(["dist/a.js"])).toEqual({ found: false, files: [], left_out: 1 });
  });

  test("spreads over a list that is too long", () => {
    const files = Array.from({ length: 3 * MOST_FILES + 7 }, (_, i) => `f${i}.ts`);
    const picked = pickSources(files);
    expect(picked.files).toHaveLength(MOST_FILES);
    expect(new Set(picked.files).size).toBe(MOST_FILES);
    expect(picked.left_out).toBe(files.length - MOST_FILES);
    expect(Number(picked.files.at(-1)?.slice(1, -3))).toBeGreaterThan(3 * MOST_FILES - 7);
  });
});

test("the report: folders by size, longest files, own markers only, files without a test", () => {
  const file = (path: string, lines: number) => ({ path, lines, bytes: lines * 10 });
  const measured = [
    file("src/a/x.ts", 5),
    file("src/a/x.test.ts", 9),
    file("src/a/deep/y.ts", 7),
    file("cmd/z.go", 3),
    file("cmd/z_test.go", 2),
    file("README.md", 1),
  ];
  const marker = { path: "src/a/x.ts", line: 2, text: "  // FIXME later  " };
  const report = summarise(measured, [marker, { ...marker, path: "dist/x.js" }], 4);
  expect(report).toMatchObject({
    files: 6,
    lines: 27,
    bytes: 270,
    left_out: 4,
    markers: 1,
    tested: 2,
    without_test: ["src/a/deep/y.ts"],
  });
  expect(report.folders.map(({ folder }) => folder)).toEqual(["src/a", "cmd", "."]);
  expect(report.longest[0]).toEqual({ path: "src/a/x.test.ts", lines: 9 });
  expect(report.first_markers).toEqual([{ path: "src/a/x.ts", line: 2, text: "// FIXME later" }]);
});
