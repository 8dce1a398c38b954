/** The nearest known name to a misspelt one, for the hint of an error ("did you mean …?"). Pure. */

/** Longer names are never compared, so that a hint costs little whatever was typed. */
const LONGEST = 64;

/**
 * The candidate with the fewest edits (insert, delete, replace, swap of neighbours; case ignored), or
 * `undefined` when none is near: at most one edit in three characters. Ties go to the first candidate.
 */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  if (word.length === 0 || word.length > LONGEST) return undefined;
  const wanted = word.toLowerCase();
  let best: string | undefined;
  let bestEdits = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  for (const candidate of candidates) {
    if (candidate.length > LONGEST || Math.abs(candidate.length - wanted.length) >= bestEdits) continue;
    const edits = editDistance(wanted, candidate.toLowerCase());
    if (edits < bestEdits) {
      best = candidate;
      bestEdits = edits;
    }
  }
  return best;
}

/** Optimal string alignment distance. */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let cost = Math.min((last[j] as number) + 1, (row[j - 1] as number) + 1, (last[j - 1] as number) + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, (before[j - 2] as number) + 1);
      row.push(cost);
    }
    before = last;
    last = row;
  }
  return last[b.length] as number;
}
