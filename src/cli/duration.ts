/** DUR, the durations of the command line (interfaces §2): `90s`, `15m`, `2h`, `30d`, `500ms`, `PT5M`. */
import { HoldfastError } from "../domain/errors.ts";

const UNITS = new Map([
  ["ms", 1],
  ["s", 1_000],
  ["m", 60_000],
  ["h", 3_600_000],
  ["d", 86_400_000],
]);
const SHORT = /^(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)$/;
const ISO = /^P(?!$)(?:(\d{1,6})D)?(?:T(?!$)(?:(\d{1,6})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?)?$/;

/** Ten years: longer is a mistake, and every timer can still hold it. */
const LONGEST_MS = 3_650 * 86_400_000;

/**
 * @param what the flag, for the message
 * @returns whole milliseconds, at least 1
 * @throws HoldfastError `usage`
 */
export function parseDuration(text: string, what: string): number {
  const ms = read(text);
  if (ms === undefined)
    throw new HoldfastError(
      "usage",
      `Cannot read ${what}: ${JSON.stringify(text)} is not a duration; write 90s, 15m, 2h, 30d or PT5M`,
    );
  if (ms < 1 || ms > LONGEST_MS)
    throw new HoldfastError(
      "usage",
      `Cannot read ${what}: ${JSON.stringify(text)} is outside 1 ms to 3650 days; give a duration within them`,
    );
  return ms;
}

function read(text: string): number | undefined {
  const short = SHORT.exec(text);
  if (short) return Math.round(Number(short[1]) * (UNITS.get(short[2] ?? "") ?? 0));
  const iso = ISO.exec(text);
  if (!iso) return undefined;
  const [days, hours, minutes, seconds] = iso.slice(1).map((part) => Number(part ?? 0));
  return Math.round(
    (days ?? 0) * 86_400_000 + (hours ?? 0) * 3_600_000 + (minutes ?? 0) * 60_000 + (seconds ?? 0) * 1_000,
  );
}
