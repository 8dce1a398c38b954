import { expect, test } from "vitest";
import { parseDuration } from "./duration.ts";

test.each([
  ["90s", 90_000],
  ["15m", 900_000],
  ["2h", 7_200_000],
  ["30d", 2_592_000_000],
  ["500ms", 500],
  ["1.5h", 5_400_000],
  ["PT5M", 300_000],
  ["P1DT2H", 93_600_000],
  ["PT1.5S", 1_500],
])("%s is %i ms", (text, ms) => {
  expect(parseDuration(text, "--timeout")).toBe(ms);
});

test.each(["", "5", "5 m", "m", "-5m", "P", "PT", "P1M", "1e3s", "0s", "99999d", "5M", "٥m"])(
  "%j is refused",
  (text) => {
    expect(() => parseDuration(text, "--timeout")).toThrow(/Cannot read --timeout: .*; (write|give)/);
  },
);
